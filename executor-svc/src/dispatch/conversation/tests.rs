//! Conversations over the real store, with a model that acts on what it is told.

mod below;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::{
    clock::Clock,
    config::Config,
    definition::SpawnPolicy,
    double::{Acting, Agents, Core, Step, anybody, calls, definition, text},
    limits::Bound,
    model,
    session::{StopWish, sqlite::Store},
    worker::{Status, StopReason},
};

/// A kernel over a store in a directory of its own.
struct Stage {
    core: Core,
    store: Arc<Store>,
    directory: tempfile::TempDir,
}

impl Stage {
    fn new(act: impl Fn(&model::Turn<'_>) -> Step + Send + Sync + 'static) -> Self {
        Self::with(Config::default(), act)
    }

    fn with(config: Config, act: impl Fn(&model::Turn<'_>) -> Step + Send + Sync + 'static) -> Self {
        Self::inside(tempfile::tempdir().expect("a directory"), config, act)
    }

    fn inside(
        directory: tempfile::TempDir,
        config: Config,
        act: impl Fn(&model::Turn<'_>) -> Step + Send + Sync + 'static,
    ) -> Self {
        let clock = Clock::start();
        let store = Store::open(directory.path(), Arc::new(move || clock.now())).expect("a new store");
        let store = Arc::new(store);
        let agents = ["default", "explore", "task"].map(|name| (name.to_owned(), definition(name)));
        let model = Arc::new(Acting::new(act));
        let registry = Arc::new(Agents(agents.into()));
        let core = Core::start(config, clock, Arc::clone(&store), registry, model, Vec::new());
        Self { core, store, directory }
    }

    fn kernel(&self) -> &Arc<Kernel> {
        &self.core.kernel
    }

    /// Says something and waits for the end of the turn.
    async fn say(&self, session: Option<&SessionId>, message: &str) -> Worker {
        let turn = self.kernel().converse(&anybody(), talk(session, message)).await.expect("it is let in");
        turn.waiter.expect("it runs").closed().await
    }

    async fn end(self) -> tempfile::TempDir {
        self.core.end().await;
        self.store.close().await;
        self.directory
    }
}

fn talk(session: Option<&SessionId>, message: &str) -> Talk {
    Talk {
        workspace: None,
        session: session.cloned(),
        agent: None,
        message: message.to_owned(),
        locale: String::new(),
        request: None,
        plan_mode: false,
        output_schema: None,
        budget: Budget::default(),
        deadline: None,
    }
}

fn dispatching(id: &str, agent: &str, prompt: &str) -> Step {
    let arguments = json!({ "description": "d", "subagent_type": agent, "prompt": prompt }).to_string();
    Step::Reply(calls("", &[(id, "AgentTool", &arguments)]))
}

/// What the last message is.
fn last(turn: &model::Turn<'_>) -> String {
    match turn.messages.last().expect("a turn has a message") {
        Message::User { text } | Message::Assistant { text, .. } | Message::Tool { text, .. } => text.clone(),
    }
}

fn report(turn: &model::Turn<'_>) -> Value {
    serde_json::from_str(&last(turn)).unwrap_or_else(|error| panic!("{error}: {}", last(turn)))
}

#[tokio::test]
async fn a_session_is_kept_and_a_later_turn_sees_the_end_of_what_was_said() {
    let seen: Arc<Mutex<Vec<Vec<Message>>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let stage = Stage::new(move |turn| {
        noted.lock().push(turn.messages.to_vec());
        Step::Reply(text(&format!("answer to {}", last(turn))))
    });

    let root = stage.say(None, "0").await.id;
    for number in 1..30 {
        let turn = stage.say(Some(&root), &number.to_string()).await;
        assert_eq!((turn.id, turn.result), (root.clone(), format!("answer to {number}")));
        assert_eq!(turn.usage.turns, 1, "each turn counts for itself");
    }

    let seen = std::mem::take(&mut *seen.lock());
    assert_eq!(seen[1].len(), 3, "the first question, its answer, and the second");
    assert_eq!(seen[29].len(), EARLIER_MAX + 1, "the end of it");
    assert_eq!(seen[29][0], Message::User { text: "4".to_owned() });
    let kept = stage.kernel().log.root(&root).await.unwrap().unwrap();
    assert_eq!((kept.agent.as_str(), kept.usage.turns, kept.turn_running), ("default", 30, false));
    assert!(kept.close_time.is_none() && kept.open_workers == 0);
    stage.end().await;
}

#[tokio::test]
async fn one_turn_runs_at_a_time_and_a_stop_ends_it_and_leaves_the_session() {
    let stage = Stage::new(|turn| match last(turn).as_str() {
        "hang" => Step::Hang,
        _ => Step::Reply(text("done")),
    });
    let root = stage.say(None, "hello").await.id;
    let running = stage.kernel().converse(&anybody(), talk(Some(&root), "hang")).await.unwrap();
    let kept = stage.kernel().log.root(&root).await.unwrap().unwrap();
    assert_eq!((kept.turn_running, kept.open_workers), (true, 0));

    let refused = stage.kernel().converse(&anybody(), talk(Some(&root), "again")).await.unwrap_err();
    assert!(matches!(refused, Error::TurnInProgress(_)), "{refused}");
    let wish = StopWish { by: "somebody".to_owned(), reason: String::new() };
    let receipt = stage.kernel().stop(&root, wish.clone(), Some(Duration::from_secs(5))).await.unwrap();

    assert_eq!(receipt.entries.len(), 1);
    assert_eq!((&receipt.entries[0].worker, receipt.entries[0].after), (&root, Status::Killed));
    assert_eq!(running.waiter.unwrap().closed().await.stop_reason, Some(StopReason::Stopped));
    let receipt = stage.kernel().stop(&root, wish, None).await.unwrap();
    assert!(receipt.entries.is_empty(), "nothing runs any more");
    assert_eq!(stage.say(Some(&root), "hello").await.result, "done", "the wish was for the turn before");
    stage.end().await;
}

#[tokio::test]
async fn a_hundred_messages_at_once_make_one_turn() {
    let stage = Arc::new(Stage::new(|turn| match last(turn).as_str() {
        "race" => Step::Hang,
        _ => Step::Reply(text("done")),
    }));
    let root = stage.say(None, "hello").await.id;

    let racing = (0..100).map(|_| {
        let (kernel, root) = (Arc::clone(stage.kernel()), root.clone());
        async move { kernel.converse(&anybody(), talk(Some(&root), "race")).await }
    });
    let answers = futures::future::join_all(racing).await;

    let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (1, 99));
    assert!(lost.iter().all(|answer| matches!(answer, Err(Error::TurnInProgress(_)))));
    drop(won);
    stage.kernel().open.emptied().await;
    Arc::into_inner(stage).expect("nobody else has it").end().await;
}

#[tokio::test]
async fn the_same_request_finds_its_turn_while_it_runs_and_after_later_ones() {
    let stage = Stage::new(|turn| Step::Reply(text(&format!("answer to {}", last(turn)))));
    let request = |id: &str| Some(Request { id: id.to_owned(), content: [1; 32] });
    let ask = |session: Option<SessionId>, id: &str, message: &str| {
        let talk = Talk { request: request(id), ..talk(session.as_ref(), message) };
        async { stage.kernel().converse(&anybody(), talk).await.unwrap() }
    };

    let first = ask(None, "a", "one").await;
    first.waiter.expect("it runs").closed().await;
    let second = ask(Some(first.root.clone()), "b", "two").await;
    second.waiter.expect("it runs").closed().await;

    let again = ask(None, "a", "one").await;
    assert_eq!((&again.root, again.after), (&first.root, first.after), "no second session");
    assert!(again.waiter.is_none(), "it has ended");
    let again = ask(Some(first.root.clone()), "b", "two").await;
    assert_eq!(again.after, second.after);
    let other = Request { id: "a".to_owned(), content: [2; 32] };
    let refused = Talk { request: Some(other), ..talk(None, "three") };
    let refused = stage.kernel().converse(&anybody(), refused).await.unwrap_err();
    assert!(matches!(refused, Error::RequestIdReused(_)), "{refused}");
    stage.end().await;
}

#[tokio::test]
async fn plan_mode_of_a_turn_takes_spawning_and_writing_away() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let stage = Stage::new(move |turn| {
        noted.lock().extend(turn.tools.iter().map(|tool| tool.name.clone()));
        assert!(turn.system.contains("You are in plan mode."), "{}", turn.system);
        Step::Reply(text("a plan"))
    });

    let turn = stage.kernel().converse(&anybody(), Talk { plan_mode: true, ..talk(None, "plan") }).await;
    let turn = turn.unwrap().waiter.unwrap().closed().await;

    assert!(turn.plan_mode && turn.spawns == SpawnPolicy::None);
    assert!(!seen.lock().iter().any(|tool| tool == "AgentTool" || tool == "write"), "{seen:?}");
    stage.end().await;
}

#[tokio::test]
async fn refusals_start_nothing_and_say_why() {
    let stage = Stage::new(|_| Step::Reply(text("done")));
    let kernel = stage.kernel();
    let plain = kernel.dispatch(&anybody(), crate::double::call("Go."), None).await.unwrap();
    let plain = plain.waiter.unwrap().closed().await.root;
    let root = stage.say(None, "hello").await.id;
    let closed = stage.say(None, "hello").await.id;
    kernel.close_session(&closed, "somebody").await.unwrap();
    let agent = |name: &str| Some(name.to_owned());
    let narrow = Caller { spawns: Some(SpawnPolicy::Listed(vec!["explore".to_owned()])), ..anybody() };
    let somebody = Caller { operator: "somebody".to_owned(), is_anonymous: false, ..anybody() };

    for (caller, talk, text) in [
        (
            &anybody(),
            talk(Some(&plain), "a"),
            format!("session `{plain}` has no coordinator: its caller runs its own"),
        ),
        (&anybody(), talk(Some(&closed), "a"), format!("session `{closed}` is closed")),
        (&somebody, talk(Some(&root), "a"), format!("session `{root}` is not there")),
        (
            &anybody(),
            Talk { workspace: agent("other"), ..talk(Some(&root), "a") },
            format!("session `{root}` is not there"),
        ),
        (
            &anybody(),
            Talk { workspace: agent("other"), ..talk(None, "a") },
            "workspace `other` is not there".to_owned(),
        ),
        (
            &anybody(),
            Talk { agent: agent("task"), ..talk(Some(&root), "a") },
            "`agent`: the session runs under `default`".to_owned(),
        ),
        (
            &anybody(),
            Talk { agent: agent("reviewer"), ..talk(None, "a") },
            "Agent 'reviewer' is reserved and cannot be spawned.".to_owned(),
        ),
        (
            &anybody(),
            Talk { agent: agent("nobody"), ..talk(None, "a") },
            "Unknown agent \"nobody\".".to_owned(),
        ),
        (
            &narrow,
            Talk { agent: agent("task"), ..talk(None, "a") },
            "Cannot spawn 'task'. Allowed: explore".to_owned(),
        ),
        (
            &anybody(),
            Talk { output_schema: agent("{"), ..talk(None, "a") },
            "the output schema of the call is not usable".to_owned(),
        ),
        (
            &anybody(),
            Talk { budget: Budget { turns: Some(0), ..Budget::default() }, ..talk(None, "a") },
            "the budget `turns` is used up (request)".to_owned(),
        ),
    ] {
        let before = kernel.log.roots(Default::default()).await.unwrap().len();
        let refused = kernel.converse(caller, talk).await.unwrap_err();
        assert!(refused.to_string().starts_with(&text), "{refused}\n{text}");
        assert_eq!(kernel.log.roots(Default::default()).await.unwrap().len(), before);
    }
    assert!(kernel.converse(&narrow, talk(None, "a")).await.is_ok(), "its coordinator is a workspace's own");
    stage.end().await;
}

#[tokio::test]
async fn a_turn_that_an_executor_left_is_continued_by_the_next_one() {
    let stage = Stage::new(|turn| match (turn.agent, turn.number) {
        ("default", 1) => dispatching("a", "explore", "Look."),
        _ => Step::Hang,
    });
    let turn = stage.kernel().converse(&anybody(), talk(None, "hello")).await.unwrap();
    let mut events = stage.kernel().hub.follow(Arc::clone(&stage.kernel().log), &turn.root, 0);
    while let Some(update) = events.next().await.unwrap() {
        if let crate::live::Update::Event(event) = update
            && matches!(event.body, Body::ChildSpawned { .. })
        {
            break;
        }
    }
    // As a process that dies leaves its file: what is committed is there, and no more.
    let copy = tempfile::tempdir().unwrap();
    for name in ["sessions.sqlite", "sessions.sqlite-wal"] {
        std::fs::copy(stage.directory.path().join(name), copy.path().join(name)).unwrap();
    }
    let root = turn.root.clone();
    drop(turn);
    stage.kernel().shutdown.hurry();
    stage.end().await;

    let stage = Stage::inside(copy, Config::default(), |turn| match turn.agent {
        "default" => Step::Reply(text(report(turn)["result"].as_str().unwrap_or("again"))),
        _ => Step::Reply(text("looked")),
    });
    stage.kernel().open.emptied().await;
    let mut kept = stage.kernel().log.worker(&root).await.unwrap().unwrap();
    while !kept.status.is_final() {
        // Its supervisor may not have opened it yet.
        tokio::task::yield_now().await;
        kept = stage.kernel().log.worker(&root).await.unwrap().unwrap();
    }

    assert_eq!((kept.result.as_str(), kept.takeovers), ("looked", 1), "{}", kept.error);
    assert_eq!(stage.kernel().log.descendants(&root, 10).await.unwrap().len(), 1, "the same child");
    assert_eq!(stage.say(Some(&root), "{}").await.status, Status::Completed);
    stage.end().await;
}
