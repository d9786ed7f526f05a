//! A worker that another process left behind.

use std::sync::Arc;

use crate::{
    config::Config,
    double::{Fixture, MemoryLog, Step, anybody, call, calls, text},
    event::Body,
    session::{Log as _, Record},
    tool::{Class, Outcome, name},
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
