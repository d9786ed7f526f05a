//! The executor when its store gives way.

use proto::executor::v1::WorkerStatus;
use rusqlite::Connection;
use tests::{
    executor::{Executor, call},
    refusal::reason,
    registry::Registry,
};
use tonic::Code;
use tonic_types::StatusExt as _;

const OK: &str = "rules:\n  - do:\n      - text: \"ok\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_somebody_else_holds_refuses_a_spawn_for_the_moment() {
    let registry = Registry::start().await;
    let mut executor = Executor::start(&registry, OK).await;
    let database = registry.directory.path().join("var/executor/sessions.sqlite");
    let intruder = Connection::open(database).unwrap();
    intruder.execute_batch("BEGIN IMMEDIATE").unwrap();

    let refused = executor.spawn(call("task", "Go.")).await.unwrap_err();

    reason(&refused, Code::Unavailable, "STORE_UNAVAILABLE");
    assert!(refused.get_details_retry_info().is_some_and(|retry| retry.retry_delay.is_some()));
    intruder.execute_batch("ROLLBACK").unwrap();
    let later = executor.spawn(call("task", "Go.")).await.unwrap();
    assert_eq!(later.worker.unwrap().status(), WorkerStatus::Completed);
    executor.stop().await;
    registry.stop().await;
}
