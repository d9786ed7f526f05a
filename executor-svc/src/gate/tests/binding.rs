//! An approval lets exactly the reviewed call run, once: whatever is changed between review and run, nothing else does.

mod attack;

use std::fs;

use proptest::{prelude::*, test_runner::TestRunner};
use service_kit::status::chain;
use tempfile::TempDir;

use self::attack::{ATTACKS, Attack};
use super::*;
use crate::{
    tool::{Workspace, builtin, settings::Settings},
    worker::Time,
};

/// Random cases at full scale; a tenth of them by default.
const CASES: u32 = 10_000;

/// A workspace with one file, `a`.
struct Place {
    directory: TempDir,
    context: Context,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cwd = directory.path().join("project");
        fs::create_dir(&cwd).unwrap();
        fs::write(cwd.join("a"), "old").unwrap();
        fs::write(directory.path().join("outside"), "outside").unwrap();
        let workspace = Workspace {
            name: "default".to_owned(),
            cwd,
            hidden: Vec::new(),
            frozen: Vec::new(),
            read_deny: Vec::new(),
            gitignore: true,
        };
        let context = Context {
            session: SessionId::new_worker(),
            workspace: Arc::new(workspace),
            cancel: tokio_util::sync::CancellationToken::new(),
            approved: None,
        };
        Self { directory, context }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join("project").join(name)
    }

    /// All that is in the project, links as their content.
    fn content(&self) -> String {
        let mut files: Vec<_> =
            fs::read_dir(self.path("")).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let shown = |path: &std::path::PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            format!("{name}={:?} ", fs::read_to_string(path).ok())
        };
        files.iter().map(shown).collect()
    }
}

/// The real tools, so that it is files that are changed or not.
fn tool(name: &str) -> Arc<dyn Tool> {
    let tools = builtin::all(&Settings::default());
    tools.into_iter().find(|tool| tool.spec().name == name).unwrap()
}

/// What is reviewed.
const PROPOSED: &str = r#"{"path":"a","content":"new"}"#;

/// `write` under the name of another tool, or with another schema.
struct Twin {
    spec: ToolSpec,
    real: Arc<dyn Tool>,
}

#[async_trait]
impl Tool for Twin {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self) -> Class {
        Class::Write
    }

    async fn target(&self, context: &Context, arguments: &Value) -> Result<Option<Target>, tool::Error> {
        self.real.target(context, arguments).await
    }

    async fn call(&self, context: &Context, arguments: &Value) -> Result<String, tool::Error> {
        self.real.call(context, arguments).await
    }
}

fn twin(change: impl FnOnce(&mut ToolSpec)) -> Arc<dyn Tool> {
    let real = tool("write");
    let mut spec = real.spec().clone();
    change(&mut spec);
    Arc::new(Twin { spec, real })
}

/// Puts another state into the record, behind the back of the run.
async fn exchange(kernel: &Kernel, proposal: &Proposal, attack: Attack) {
    let executed = |time| Proposal { execute_time: Some(Time(time)), ..proposal.clone() };
    let after = match attack {
        Attack::Used => executed(1),
        Attack::Withdrawn => proposal.decided(Decision::Rejected, "bob", "No.", Time(1)),
        Attack::Tampered => {
            Proposal { arguments: r#"{"path":"a","content":"evil"}"#.to_owned(), ..proposal.clone() }
        }
        _ => return,
    };
    assert!(kernel.proposals.exchange(proposal.clone(), after).await.unwrap());
}

/// One call from its proposal over its approval to its run, under attack. Answers why it did not run.
async fn attempt(fixture: &Fixture, attack: Attack) -> (Place, Result<(), String>) {
    let place = Place::new();
    let (real, kernel) = (tool("write"), &fixture.kernel);
    let worker = Worker { id: place.context.session.clone(), ..fixture.worker.clone() };
    let arguments: Value = serde_json::from_str(PROPOSED).unwrap();
    let asked = request(&worker, real.as_ref(), (PROPOSED, &arguments), &place.context);
    let Proposed::Recorded(pending, _) = kernel.propose(&asked).await.unwrap() else {
        panic!("not proposed")
    };
    let decision = match attack {
        Attack::TooLate => pending.decided(Decision::Rejected, "", "no person decided within 30m", Time(1)),
        _ => pending.decided(Decision::Approved, "reviewer", "Fine.", Time(1)),
    };
    let proposal = kernel.settle(*pending.clone(), decision).await.unwrap();
    if attack == Attack::TooLate {
        // The approval that comes now finds nothing pending.
        let late = pending.decided(Decision::Approved, "reviewer", "Fine.", Time(2));
        assert_eq!(kernel.settle(*pending, late).await.unwrap(), proposal);
    }

    attack.swap(&place);
    exchange(kernel, &proposal, attack).await;
    let text = match attack {
        Attack::Arguments(text) => text,
        _ => PROPOSED,
    };
    let changed: Value = serde_json::from_str(text).unwrap();
    let called = match attack {
        Attack::Tool(name) => twin(|spec| spec.name = name.to_owned()),
        Attack::Schema => twin(|spec| spec.input_schema["title"] = json!("x")),
        _ => real.clone(),
    };
    let other = Worker { id: SessionId::new_worker(), ..worker.clone() };
    let run = Request {
        worker: if attack == Attack::Session { &other } else { &worker },
        tool: called.as_ref(),
        text,
        arguments: &changed,
        ..asked
    };
    let outcome = match kernel.take_approval(&run, &proposal).await.unwrap() {
        Ok(Approved { arguments, target }) => {
            let context = Context { approved: target, ..place.context.clone() };
            called.call(&context, &arguments).await.map(drop).map_err(|error| chain(&error))
        }
        Err(why) => Err(why),
    };
    (place, outcome)
}

/// A kernel whose gate is asked directly, and the record of a worker to ask it for.
struct Fixture {
    kernel: Arc<Kernel>,
    worker: Worker,
    whole: crate::double::Fixture,
}

impl Fixture {
    async fn new() -> Self {
        let tool = Counting::new(false);
        let whole = fixture(Config::default(), &tool, [Step::Reply(text("done"))]);
        let worker = spawn(&whole).await.waiter.unwrap().closed().await;
        Self { kernel: Arc::clone(&whole.kernel), worker, whole }
    }

    async fn approve(&self, request: &Request<'_>) -> Proposal {
        let Proposed::Recorded(pending, _) = self.kernel.propose(request).await.unwrap() else {
            panic!("`{}` cannot be proposed", request.text)
        };
        let approved = pending.decided(Decision::Approved, "reviewer", "Fine.", Time(1));
        self.kernel.settle(*pending, approved).await.unwrap()
    }
}

fn request<'a>(
    worker: &'a Worker,
    tool: &'a dyn Tool,
    (text, arguments): (&'a str, &'a Value),
    context: &'a Context,
) -> Request<'a> {
    Request { worker, task: "", said: "", tool, class: Class::Write, text, arguments, context }
}

#[tokio::test]
async fn whatever_is_not_what_was_reviewed_does_not_run_and_is_told_why() {
    let fixture = Fixture::new().await;
    for (attack, reason) in ATTACKS.map(|attack| (attack, attack.reason())) {
        let (place, outcome) = attempt(&fixture, attack).await;

        match attack {
            Attack::None => {
                assert_eq!(outcome, Ok(()));
                assert_eq!(place.content(), "a=Some(\"new\") ");
            }
            _ => {
                let why = outcome.expect_err("an attack");
                assert!(why.contains(reason), "{attack:?}: {why}");
                assert!(!place.content().contains("new") && !place.content().contains("evil"), "{attack:?}");
            }
        }
        let outside = fs::read_to_string(place.directory.path().join("outside")).unwrap();
        assert_eq!(outside, "outside", "{attack:?}");
    }
    fixture.whole.end().await;
}

#[test]
fn random_attacks_never_make_an_unreviewed_call_run() {
    let cases = match std::env::var("ROSTER_TEST_SCALE").as_deref() {
        Ok("full") => CASES,
        _ => CASES / 10,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let fixture = runtime.block_on(Fixture::new());
    let strategy = (0..ATTACKS.len(), "[ -~]{0,40}", 0..4_u8);
    let config = proptest::test_runner::Config { cases, failure_persistence: None, ..Default::default() };
    TestRunner::new(config)
        .run(&strategy, |(attack, noise, at)| {
            runtime.block_on(random_case(&fixture, ATTACKS[attack], &noise, at))
        })
        .unwrap();
    runtime.block_on(fixture.whole.end());
}

/// An attack from the list, and beside it one byte somewhere in the arguments that may be another.
async fn random_case(fixture: &Fixture, attack: Attack, noise: &str, at: u8) -> Result<(), TestCaseError> {
    let (place, outcome) = attempt(fixture, attack).await;
    prop_assert_eq!(outcome.is_ok(), attack == Attack::None, "{:?}: {:?}", attack, outcome);
    prop_assert_eq!(place.content().contains("new"), attack == Attack::None);

    // The same gate, with a call whose bytes are drawn.
    let content = serde_json::to_string(noise).unwrap();
    let reviewed = format!(r#"{{"path":"a","content":{content}}}"#);
    let mutated = match at {
        0 => reviewed.clone(),
        1 => format!(r#"{{"path":"a","content":{content},"content":"evil"}}"#),
        2 => format!(r#"{{"path":"a","path":"b","content":{content}}}"#),
        _ => reviewed.replacen("\"a\"", "\"./a\"", 1),
    };
    let ran = swapped_bytes(fixture, &reviewed, &mutated).await;
    prop_assert_eq!(ran, mutated == reviewed, "{} for {}", mutated, reviewed);
    Ok(())
}

/// Has `reviewed` approved and tries to run `mutated`; true where the file was written.
async fn swapped_bytes(fixture: &Fixture, reviewed: &str, mutated: &str) -> bool {
    let (place, real, kernel) = (Place::new(), tool("write"), &fixture.kernel);
    let worker = Worker { id: place.context.session.clone(), ..fixture.worker.clone() };
    let (before, after): (Value, Value) =
        (serde_json::from_str(reviewed).unwrap(), serde_json::from_str(mutated).unwrap());
    let asked = request(&worker, real.as_ref(), (reviewed, &before), &place.context);
    let proposal = fixture.approve(&asked).await;
    let run = Request { text: mutated, arguments: &after, ..asked };
    match kernel.take_approval(&run, &proposal).await.unwrap() {
        Ok(Approved { arguments, target }) => {
            let context = Context { approved: target, ..place.context.clone() };
            real.call(&context, &arguments).await.unwrap();
            assert_eq!(place.content(), format!("a=Some({:?}) ", before["content"].as_str().unwrap()));
            true
        }
        Err(why) => {
            assert!(!why.is_empty());
            assert_eq!(place.content(), "a=Some(\"old\") ");
            false
        }
    }
}

#[tokio::test]
async fn a_file_that_is_swapped_after_the_gates_last_look_is_not_changed() {
    let edited = json!({ "path": "a", "old_string": "old", "new_string": "new" });
    for (name, arguments) in [("write", json!({ "path": "a", "content": "new" })), ("edit", edited)] {
        for attack in [Attack::Content, Attack::LinkInside, Attack::Renamed] {
            let (place, tool) = (Place::new(), tool(name));
            let approved = tool.target(&place.context, &arguments).await.unwrap();
            let context = Context { approved, ..place.context.clone() };
            let stays = fs::read_to_string(place.path("a")).unwrap();
            assert_eq!(stays, "old");
            attack.swap(&place);
            let before = place.content();

            let error = tool.call(&context, &arguments).await.unwrap_err();

            assert!(matches!(error, tool::Error::Changed), "{name} {attack:?}: {error}");
            assert_eq!(place.content(), before, "{name} {attack:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_runs_with_one_approval_one_runs() {
    let fixture = Fixture::new().await;
    let (place, real) = (Place::new(), tool("write"));
    let worker = Worker { id: place.context.session.clone(), ..fixture.worker.clone() };
    let arguments: Value = serde_json::from_str(PROPOSED).unwrap();
    let request = request(&worker, real.as_ref(), (PROPOSED, &arguments), &place.context);
    let proposal = fixture.approve(&request).await;

    let takes = (0..50).map(|_| fixture.kernel.take_approval(&request, &proposal));
    let taken = futures::future::join_all(takes).await;

    let granted = taken.iter().filter(|taken| matches!(taken, Ok(Ok(_)))).count();
    assert_eq!(granted, 1);
    fixture.whole.end().await;
}
