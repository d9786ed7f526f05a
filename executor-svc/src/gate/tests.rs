//! The gate between a scripted worker and a scripted reviewer: only an approval of exactly the call runs it, once.

mod binding;
mod limits;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::{
    config::Config,
    dispatch::Dispatched,
    double::{Fixture, MemoryLog, Reviewer, Step, Surroundings, anybody, call, calls, text},
    event::Body,
    limits::Bound,
    model::{Error as ModelError, Reply, ToolSpec},
    tool::Outcome,
};

const ARGUMENTS: &str = r#"{"path": "a", "content": "b"}"#;

/// Takes the place of `write`, and counts.
struct Counting {
    spec: ToolSpec,
    runs: Mutex<Vec<Value>>,
    /// The target is another one whenever it is looked at.
    drifts: bool,
    looks: Mutex<u8>,
}

impl Counting {
    fn new(drifts: bool) -> Arc<Self> {
        let spec = ToolSpec {
            name: "write".to_owned(),
            description: "Writes.".to_owned(),
            input_schema: json!({ "type": "object" }),
        };
        Arc::new(Self { spec, runs: Mutex::default(), drifts, looks: Mutex::new(0) })
    }
}

#[async_trait]
impl Tool for Counting {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self) -> Class {
        Class::Write
    }

    async fn target(&self, _: &Context, _: &Value) -> Result<Option<Target>, tool::Error> {
        let mut looks = self.looks.lock();
        *looks += u8::from(self.drifts);
        Ok(Some(Target { path: "a".to_owned(), content: Some([*looks; 32]) }))
    }

    async fn call(&self, _: &Context, arguments: &Value) -> Result<String, tool::Error> {
        self.runs.lock().push(arguments.clone());
        Ok("written".to_owned())
    }
}

fn wants_to_write(arguments: &str) -> Step {
    Step::Reply(calls("I write now.", &[("w", "write", arguments)]))
}

fn submits(arguments: &str) -> Reply {
    calls("", &[("s", "submit_result", arguments)])
}

fn approves() -> Step {
    Step::Reply(submits(r#"{"data": {"decision": "approve", "reason": "It is asked for."}}"#))
}

fn rejects() -> Step {
    Step::Reply(submits(r#"{"data": {"decision": "reject", "reason": "The wrong file."}}"#))
}

fn fixture(config: Config, tool: &Arc<Counting>, steps: impl IntoIterator<Item = Step>) -> Fixture {
    let surroundings =
        Surroundings { tools: vec![Arc::clone(tool) as Arc<dyn Tool>], ..Surroundings::default() };
    Fixture::among(config, Arc::new(MemoryLog::default()), surroundings, steps)
}

async fn spawn(fixture: &Fixture) -> Dispatched {
    fixture.kernel.dispatch(&anybody(), call("Write b into a."), None).await.unwrap()
}

/// The only proposal there is.
async fn proposal(fixture: &Fixture) -> Proposal {
    let filter = ProposalFilter { limit: 9, ..ProposalFilter::default() };
    let found = fixture.kernel.proposals.proposals(filter).await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

/// What became of the worker's one call, as it was told.
fn told(fixture: &Fixture, id: &SessionId) -> (Outcome, String) {
    let bodies = fixture.log.bodies(id);
    let finished = bodies.iter().find_map(|body| match body {
        Body::ToolFinished { outcome, preview, .. } => Some((*outcome, preview.clone())),
        _ => None,
    });
    finished.unwrap_or_else(|| panic!("no call ended: {bodies:?}"))
}

/// The call is rejected for `reason`, nothing ran, and the worker went on to its end.
async fn rejected(fixture: Fixture, tool: &Counting, reason: &str) {
    let worker = spawn(&fixture).await.waiter.unwrap().closed().await;

    assert_eq!((worker.stop_reason, worker.result.as_str()), (Some(StopReason::Finished), "gone on"));
    let (outcome, preview) = told(&fixture, &worker.id);
    assert_eq!(outcome, Outcome::Rejected);
    assert!(preview.starts_with("review rejected: ") && preview.contains(reason), "{preview} for {reason}");
    assert!(tool.runs.lock().is_empty(), "{reason}");
    assert_eq!(fixture.kernel.slots.taken() + fixture.kernel.gate.slots().taken(), 0);
    assert!(fixture.kernel.open.is_empty(), "the reviewer's record is closed too");
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_approved_call_runs_once_with_the_bytes_that_were_reviewed() {
    let tool = Counting::new(false);
    let mut config = Config::default();
    // The worker gives its slot back, and its reviewer has one of its own; nor does a reviewer count as a spawn.
    config.limits.max_running = Bound::Of(1);
    config.limits.max_spawns_per_tree = Bound::Of(1);
    let fixture =
        fixture(config, &tool, [wants_to_write(ARGUMENTS), approves(), Step::Reply(text("gone on"))]);

    let worker = spawn(&fixture).await.waiter.unwrap().closed().await;

    assert_eq!(worker.result, "gone on");
    assert_eq!(told(&fixture, &worker.id), (Outcome::Ok, "written".to_owned()));
    assert_eq!(*tool.runs.lock(), [json!({ "path": "a", "content": "b" })]);
    let proposal = proposal(&fixture).await;
    assert_eq!((proposal.decision, proposal.arguments.as_str()), (Decision::Approved, ARGUMENTS));
    assert_eq!(
        (proposal.decision_reason.as_str(), proposal.said.as_str()),
        ("It is asked for.", "I write now.")
    );
    assert!(proposal.execute_time >= proposal.decide_time && proposal.execute_time.is_some());
    let reviewer = SessionId::parse(&proposal.reviewer).unwrap();
    let reviewer = fixture.kernel.log.worker(&reviewer).await.unwrap().unwrap();
    assert_eq!((reviewer.agent.as_str(), &reviewer.parent, reviewer.depth), ("reviewer", &worker.id, 2));
    assert_eq!(reviewer.spawns, crate::definition::SpawnPolicy::None);
    let decisions: Vec<Decision> = fixture
        .log
        .bodies(&worker.id)
        .into_iter()
        .filter_map(|body| match body {
            Body::Review { proposal } => Some(proposal.decision),
            _ => None,
        })
        .collect();
    assert_eq!(decisions, [Decision::Pending, Decision::Approved]);
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn whatever_is_no_approval_is_a_rejection() {
    let unreachable = || ModelError::Unreachable { provider: "test".to_owned(), source: "refused".into() };
    let prose = |words: &'static str| (0..4).map(move |_| Step::Reply(text(words))).collect::<Vec<_>>();
    let table: Vec<(Vec<Step>, &str)> = vec![
        (vec![rejects()], "The wrong file."),
        (vec![Step::Reply(text("**Decision:** reject, no\n\nDecision: reject"))], "did not decide"),
        (vec![Step::Reply(text("It is wrong.\n\n- **Decision: reject**"))], "It is wrong."),
        (vec![Step::Fail(unreachable())], "the reviewer failed"),
        (vec![Step::Panic], "the reviewer failed"),
        (vec![Step::Hang], "the reviewer was late"),
        (prose("Looks fine to me."), "did not decide"),
        (prose("Decision: approve\nDecision: reject"), "did not decide"),
        (vec![Step::Reply(submits(r#"{"error": "I cannot."}"#))], "I cannot."),
    ];
    for (mut steps, reason) in table {
        if reason == "did not decide" && steps.len() == 1 {
            steps.extend(prose("**Decision:** reject, no\n\nDecision: reject").into_iter().skip(1));
        }
        let tool = Counting::new(false);
        let steps =
            [wants_to_write(ARGUMENTS)].into_iter().chain(steps).chain([Step::Reply(text("gone on"))]);
        rejected(fixture(Config::default(), &tool, steps), &tool, reason).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_doubled_key_in_a_decision_goes_back_to_the_reviewer() {
    let tool = Counting::new(false);
    let both = r#"{"data": {"decision": "reject", "reason": "r", "decision": "approve"}}"#;
    let no = r#"{"data": {"decision": "reject", "reason": "It is doubled."}}"#;
    let steps = [
        wants_to_write(ARGUMENTS),
        Step::Reply(submits(both)),
        Step::Reply(submits(no)),
        Step::Reply(text("gone on")),
    ];
    rejected(fixture(Config::default(), &tool, steps), &tool, "It is doubled.").await;
}

#[tokio::test(start_paused = true)]
async fn a_reviewer_that_approves_and_rejects_at_once_has_not_decided() {
    let (yes, no) = (
        r#"{"data": {"decision": "approve", "reason": "y"}}"#,
        r#"{"data": {"decision": "reject", "reason": "n"}}"#,
    );
    let both = || calls("", &[("a", "submit_result", yes), ("b", "submit_result", no)]);
    let torn = || calls("Decision: reject", &[("a", "submit_result", yes)]);
    let makes: [&dyn Fn() -> Reply; 2] = [&both, &torn];
    for make in makes {
        let tool = Counting::new(false);
        let mut config = Config::default();
        config.limits.max_turns = Bound::Of(4);
        // Four turns, and one to sum up.
        let steps = (0..5).map(|_| Step::Reply(make()));
        let steps =
            [wants_to_write(ARGUMENTS)].into_iter().chain(steps).chain([Step::Reply(text("gone on"))]);
        rejected(fixture(config, &tool, steps), &tool, "did not decide").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_of_text_approves() {
    let tool = Counting::new(false);
    let steps = [
        wants_to_write(ARGUMENTS),
        Step::Reply(text("I looked.\n\n**Decision:** approve")),
        Step::Reply(text("gone on")),
    ];
    let fixture = fixture(Config::default(), &tool, steps);

    spawn(&fixture).await.waiter.unwrap().closed().await;

    assert_eq!(tool.runs.lock().len(), 1);
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_told_at_once_where_nobody_can_review() {
    for (reviewer, rehearses, reason) in [
        (Reviewer::Unknown, false, "there is no reviewer: Unknown agent"),
        (Reviewer::Broken, false, "there is no reviewer: Agent \"reviewer\" cannot be used"),
        (Reviewer::Away, false, "there is no reviewer: "),
        (Reviewer::There, true, "a rehearsal decides nothing"),
    ] {
        let tool = Counting::new(false);
        let surroundings = Surroundings {
            tools: vec![Arc::clone(&tool) as Arc<dyn Tool>],
            reviewer,
            rehearses_below: rehearses,
        };
        let steps = [wants_to_write(ARGUMENTS), Step::Reply(text("gone on"))];
        let log = Arc::new(MemoryLog::default());
        let began = Instant::now();

        rejected(Fixture::among(Config::default(), log, surroundings, steps), &tool, reason).await;

        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_does_not_hold_for_a_target_that_has_changed_since() {
    let tool = Counting::new(true);
    let steps = [wants_to_write(ARGUMENTS), approves(), Step::Reply(text("gone on"))];

    rejected(fixture(Config::default(), &tool, steps), &tool, "has changed since").await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_reviewed_is_never_proposed() {
    let doubled = r#"{"path": "a", "path": "b"}"#.to_owned();
    let large = format!(r#"{{"content": "{}"}}"#, "x".repeat(review::ARGUMENTS_BYTES_MAX));
    for (arguments, reason) in [(doubled, "is there twice"), (large, "too many to review")] {
        let tool = Counting::new(false);
        let steps = [wants_to_write(&arguments), Step::Reply(text("gone on"))];
        rejected(fixture(Config::default(), &tool, steps), &tool, reason).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_the_reviewer_is_not_the_workers_time() {
    let tool = Counting::new(false);
    let mut config = Config::default();
    config.limits.worker_wall_time = Bound::Of(service_kit::config::Span::seconds(30));
    let steps = [wants_to_write(ARGUMENTS), Step::Hang, Step::Reply(text("gone on"))];
    let began = Instant::now();

    rejected(fixture(config, &tool, steps), &tool, "the reviewer was late").await;

    assert_eq!(began.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn an_exempt_tool_is_decided_by_policy_and_its_approval_is_used_up_by_one_run() {
    let tool = Counting::new(false);
    let mut config = Config::default();
    config.review.exempt = vec!["wri*".to_owned()];
    config.tools.blast_radius = [("write".to_owned(), "one directory".to_owned())].into();
    let steps = [wants_to_write(ARGUMENTS), Step::Reply(text("gone on"))];
    let fixture = fixture(config, &tool, steps);

    let worker = spawn(&fixture).await.waiter.unwrap().closed().await;

    let proposal = proposal(&fixture).await;
    assert_eq!((proposal.decision, proposal.reviewer.as_str()), (Decision::Approved, POLICY));
    assert_eq!(proposal.blast_radius, "one directory");
    assert_eq!(tool.runs.lock().len(), 1);
    let context = Context {
        session: worker.id.clone(),
        workspace: fixture.kernel.place("default"),
        cancel: tokio_util::sync::CancellationToken::new(),
        approved: None,
    };
    let arguments: Value = serde_json::from_str(ARGUMENTS).unwrap();
    let request = Request {
        worker: &worker,
        task: "",
        said: "",
        tool: tool.as_ref(),
        class: Class::Write,
        text: ARGUMENTS,
        arguments: &arguments,
        context: &context,
    };
    let unused = Proposal { execute_time: None, ..proposal.clone() };
    for used in [&proposal, &unused] {
        let taken = fixture.kernel.take_approval(&request, used).await.unwrap();
        assert!(taken.unwrap_err().contains("used up"));
    }
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_leaves_open_is_rejected_with_its_end() {
    let tool = Counting::new(false);
    let fixture = fixture(Config::default(), &tool, [wants_to_write(ARGUMENTS), Step::Hang]);
    let dispatched = spawn(&fixture).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(proposal(&fixture).await.decision, Decision::Pending);

    drop(dispatched);
    fixture.kernel.open.emptied().await;

    let proposal = proposal(&fixture).await;
    assert_eq!((proposal.decision, proposal.decision_reason.as_str()), (Decision::Rejected, review::ENDED));
    assert!(tool.runs.lock().is_empty());
    fixture.end().await;
}
