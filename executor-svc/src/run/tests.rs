//! Runs over stand-ins: a worker that another process left behind, a conversation that grows too long, a tool that is lost.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};

use crate::{
    config::Config,
    double::{Fixture, MemoryLog, Step, Surroundings, anybody, call, calls, text},
    event::Body,
    model::{self, ToolSpec},
    session::{Log as _, Record},
    tool::{Class, Context, Error, Outcome, Tool, name},
    transcript::{Message, ToolCall},
    worker::{SessionId, Status, StopReason, Time, Usage, Worker},
};

/// A worker as it stands in the middle of its first turn's calls, with the records of a spawn that was really accepted.
async fn left_behind(calls: &[(&str, Option<Class>)]) -> Arc<MemoryLog> {
    let first = Fixture::new([Step::Hang]);
    let dispatched = first.kernel.dispatch(&anybody(), call("Go."), None).await.unwrap();
    let (mut worker, id) = (dispatched.worker.clone(), dispatched.worker.id.clone());
    let stored = first.log.records(&id, 0, 3).await.unwrap();
    let mut records: Vec<Record> = stored.into_iter().map(|stored| stored.record).collect();
    let usage = Usage { input_tokens: 100, output_tokens: 10, turns: 1, ..Usage::default() };
    let tool_call = |tool: &str| ToolCall {
        id: format!("call of {tool}"),
        tool: tool.to_owned(),
        arguments: "{}".to_owned(),
    };
    let tool_calls: Vec<ToolCall> = calls.iter().map(|(tool, _)| tool_call(tool)).collect();
    records.extend([
        Record::Event { body: Body::StateChanged { status: Status::Running } },
        Record::Event { body: Body::TurnStarted { turn: 1 } },
        Record::Event { body: Body::TurnFinished { turn: 1, text: "so far".to_owned(), usage } },
        Record::Message { message: Message::Assistant { text: "so far".to_owned(), tool_calls } },
    ]);
    records.extend(calls.iter().filter_map(|(tool, started)| {
        let ToolCall { id: call_id, tool, arguments } = tool_call(tool);
        let class = (*started)?;
        Some(Record::Event { body: Body::ToolStarted { call_id, tool, class, arguments } })
    }));
    worker.status = Status::Running;
    worker.start_time = Some(Time(worker.create_time.0));
    let log = Arc::new(MemoryLog::default());
    log.leave_behind(worker, records);
    log
}

async fn end_of(fixture: &Fixture, id: &SessionId) -> Worker {
    fixture.kernel.open.open(id).closed().await
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_have_changed_something_is_not_repeated() {
    let log = left_behind(&[("read", Some(Class::Read)), ("write", Some(Class::Write))]).await;
    let id = log.only().id;
    let fixture = Fixture::with(Config::default(), Arc::clone(&log), []);

    let worker = end_of(&fixture, &id).await;

    assert_eq!((worker.stop_reason, worker.takeovers), (Some(StopReason::Lost), 1));
    assert_eq!((worker.result.as_str(), worker.partial), ("so far", true));
    assert!(worker.error.contains("`write`"), "{}", worker.error);
    let outcomes: Vec<Outcome> = log
        .bodies(&id)
        .into_iter()
        .filter_map(|body| match body {
            Body::ToolFinished { outcome, .. } => Some(outcome),
            _ => None,
        })
        .collect();
    assert_eq!(outcomes, [Outcome::Unknown]);
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_only_reads_is_run_again_without_a_second_intent() {
    let log = left_behind(&[("nothing", Some(Class::Read)), ("other", None)]).await;
    let id = log.only().id;
    let fixture = Fixture::with(Config::default(), Arc::clone(&log), [Step::Reply(text("done"))]);

    let worker = end_of(&fixture, &id).await;

    assert_eq!((worker.stop_reason, worker.takeovers), (Some(StopReason::Finished), 1));
    assert_eq!(worker.usage.turns, 2);
    let started = log.bodies(&id).iter().filter(|body| matches!(body, Body::ToolStarted { .. })).count();
    assert_eq!(started, 2, "one of the first process, one of the second");
    assert!(matches!(&fixture.model.asked()[0], Message::Tool { is_error: true, .. }));
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_submission_comes_after_the_other_calls_and_ends_the_worker() {
    let answer = calls(
        "",
        &[
            ("a", name::SUBMIT_RESULT, r#"{"data": "the end"}"#),
            ("b", "nothing", "{}"),
            ("c", name::SUBMIT_RESULT, r#"{"data": "too late"}"#),
        ],
    );
    let fixture = Fixture::new([Step::Reply(answer)]);

    let dispatched = fixture.kernel.dispatch(&anybody(), call("Go."), None).await.unwrap();
    let worker = dispatched.waiter.as_ref().unwrap().closed().await;

    assert_eq!((worker.stop_reason, worker.result.as_str()), (Some(StopReason::Finished), "the end"));
    let answered: Vec<String> = fixture
        .log
        .bodies(&worker.id)
        .into_iter()
        .filter_map(|body| match body {
            Body::ToolFinished { call_id, .. } => Some(call_id),
            _ => None,
        })
        .collect();
    assert_eq!(answered, ["b", "a"]);
    fixture.end().await;
}

/// A tool that reads and answers at length.
struct Long {
    spec: ToolSpec,
    runs: AtomicUsize,
}

#[async_trait::async_trait]
impl Tool for Long {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self) -> Class {
        Class::Read
    }

    async fn call(&self, _: &Context, arguments: &Value) -> Result<String, Error> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        Ok(format!("{arguments} {}", "x".repeat(8_000)))
    }
}

fn among_long_results(steps: impl IntoIterator<Item = Step>) -> (Fixture, Arc<Long>) {
    let spec = ToolSpec {
        name: name::READ.to_owned(),
        description: String::new(),
        input_schema: json!({"type": "object"}),
    };
    let long = Arc::new(Long { spec, runs: AtomicUsize::new(0) });
    let surroundings = Surroundings { tools: vec![Arc::clone(&long) as _], ..Surroundings::default() };
    (Fixture::among(Config::default(), Arc::new(MemoryLog::default()), surroundings, steps), long)
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_outgrows_the_model_goes_on_with_its_oldest_results_cut_down() {
    let too_long = || Step::Fail(model::Error::ContextTooLong { model: "test/scripted".to_owned() });
    let (fixture, tool) = among_long_results([
        Step::Reply(calls("", &[("a", name::READ, r#"{"path": "a"}"#)])),
        Step::Reply(calls("", &[("b", name::READ, r#"{"path": "b"}"#)])),
        too_long(),
        Step::Reply(calls("", &[("c", name::READ, r#"{"path": "a"}"#)])),
        Step::Reply(text("done")),
    ]);

    let dispatched = fixture.kernel.dispatch(&anybody(), call("Go."), None).await.unwrap();
    let worker = dispatched.waiter.as_ref().unwrap().closed().await;

    assert_eq!((worker.stop_reason, worker.usage.turns), (Some(StopReason::Finished), 4));
    let told: Vec<String> = fixture.model.asked()[3..]
        .iter()
        .map(|message| match message {
            Message::User { text } => text.clone(),
            Message::Assistant { .. } | Message::Tool { .. } => panic!("it is told first"),
        })
        .collect();
    assert!(told[0].contains("their beginnings: 1."), "{told:?}");
    assert!(told[1].contains("their beginnings: 2."), "the last result is spared: {told:?}");
    assert_eq!(tool.runs.load(Ordering::Relaxed), 2, "what was cut down is still in memory");
    let said = fixture.log.messages(&worker.id, 0, 100).await.unwrap();
    let said: Vec<&Message> = said.iter().map(|(.., message)| message).collect();
    assert!(said.iter().any(|message| matches!(message, Message::User { text } if *text == told[0])));
    let whole = |message: &&&Message| matches!(message, Message::Tool { text, .. } if text.len() > 8_000);
    assert_eq!(said.iter().filter(whole).count(), 3, "the record keeps what the model does not see");
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_cannot_be_cut_down_ends_as_what_it_is() {
    let too_long = || Step::Fail(model::Error::ContextTooLong { model: "test/scripted".to_owned() });
    let (fixture, _) =
        among_long_results([Step::Reply(calls("", &[("a", name::READ, "{}")])), too_long(), too_long()]);

    let dispatched = fixture.kernel.dispatch(&anybody(), call("Go."), None).await.unwrap();
    let worker = dispatched.waiter.as_ref().unwrap().closed().await;

    assert_eq!(worker.stop_reason, Some(StopReason::ModelError));
    assert!(worker.error.contains("too long for the model `test/scripted`"), "{}", worker.error);
    fixture.end().await;
}

/// A tool that changes something and loses its server.
struct Lost {
    spec: ToolSpec,
}

#[async_trait::async_trait]
impl Tool for Lost {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self) -> Class {
        Class::Write
    }

    async fn call(&self, _: &Context, _: &Value) -> Result<String, Error> {
        Err(Error::Lost("the server went away".to_owned()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_whose_server_went_away_is_of_unknown_outcome() {
    let spec = ToolSpec {
        name: name::WRITE.to_owned(),
        description: String::new(),
        input_schema: json!({"type": "object"}),
    };
    let surroundings = Surroundings { tools: vec![Arc::new(Lost { spec })], ..Surroundings::default() };
    let mut config = Config::default();
    config.review.exempt = vec![name::WRITE.to_owned()];
    let steps = [Step::Reply(calls("", &[("a", name::WRITE, "{}")])), Step::Reply(text("done"))];
    let fixture = Fixture::among(config, Arc::new(MemoryLog::default()), surroundings, steps);

    let dispatched = fixture.kernel.dispatch(&anybody(), call("Go."), None).await.unwrap();
    let worker = dispatched.waiter.as_ref().unwrap().closed().await;

    assert_eq!(worker.stop_reason, Some(StopReason::Finished));
    let outcomes: Vec<Outcome> = fixture
        .log
        .bodies(&worker.id)
        .into_iter()
        .filter_map(|body| match body {
            Body::ToolFinished { outcome, .. } => Some(outcome),
            _ => None,
        })
        .collect();
    assert_eq!(outcomes, [Outcome::Unknown]);
    let Message::Tool { text, is_error, .. } = &fixture.model.asked()[1] else {
        panic!("the result is told")
    };
    assert!(*is_error && text.ends_with("look before you call it again"), "{text}");
    fixture.end().await;
}
