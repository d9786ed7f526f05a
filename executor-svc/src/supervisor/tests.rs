//! Every path to the end closes a record exactly once.

mod close_every_path;
mod one_slot;
mod stop_vs_finish;

use std::{sync::Arc, time::Duration};

use futures::FutureExt as _;

use super::*;
use crate::{
    config::Config,
    dispatch::Dispatched,
    double::{Fixture, MemoryLog, Step, anybody, call, calls, text},
    event::Body,
    limits::Bound,
    model::Error as ModelError,
    session::{Log as _, StopWish},
    worker::Worker,
};

/// Waits in the foreground for the end.
async fn end_of(dispatched: Dispatched) -> Worker {
    dispatched.waiter.expect("a foreground spawn waits").closed().await
}

async fn spawn(fixture: &Fixture) -> Dispatched {
    fixture.kernel.dispatch(&anybody(), call("Go."), None).await.unwrap()
}

/// The record is closed for this reason, with one last event, and nothing came behind it.
#[track_caller]
fn check(fixture: &Fixture, reason: StopReason) {
    let worker = fixture.log.only();
    assert_eq!(worker.stop_reason, Some(reason), "{}", worker.error);
    assert_eq!(worker.status, reason.status());
    assert!(worker.close_time.is_some());
    let bodies = fixture.log.bodies(&worker.id);
    assert_eq!(bodies.last(), Some(&Body::Finished));
    assert_eq!(bodies.iter().filter(|body| **body == Body::Finished).count(), 1, "{bodies:?}");
    assert!(fixture.kernel.open.is_empty(), "nothing is open any more");
    assert_eq!(fixture.kernel.slots.taken(), 0, "every slot came back");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_finishes_is_completed() {
    let fixture = Fixture::new([Step::Reply(text("done"))]);

    let worker = end_of(spawn(&fixture).await).await;

    assert_eq!(worker.result, "done");
    check(&fixture, StopReason::Finished);
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_fails_the_worker() {
    let failure = ModelError::Malformed { provider: "test".to_owned(), message: "no JSON".to_owned() };
    let unreachable = ModelError::Unreachable { provider: "test".to_owned(), source: "refused".into() };
    for steps in [
        vec![Step::Fail(unreachable)],
        vec![
            Step::Fail(failure),
            Step::Fail(ModelError::Malformed { provider: "test".to_owned(), message: "again".to_owned() }),
            Step::Fail(ModelError::Malformed { provider: "test".to_owned(), message: "still".to_owned() }),
        ],
    ] {
        let fixture = Fixture::new(steps);

        end_of(spawn(&fixture).await).await;

        check(&fixture, StopReason::ModelError);
        fixture.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_its_worker_and_nothing_else() {
    let fixture = Fixture::new([Step::Panic, Step::Reply(text("fine"))]);

    end_of(spawn(&fixture).await).await;
    check(&fixture, StopReason::Panic);

    let second = end_of(spawn(&fixture).await).await;
    assert_eq!(second.result, "fine");
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn wall_time_that_is_used_up_ends_a_worker() {
    let fixture = Fixture::new([Step::Hang]);
    let began = Instant::now();

    let worker = end_of(spawn(&fixture).await).await;

    assert_eq!(began.elapsed().as_secs(), 30 * 60);
    assert_eq!(worker.usage.duration_ms, 30 * 60 * 1000);
    check(&fixture, StopReason::Timeout);
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_ends_its_worker() {
    let fixture = Fixture::new([Step::Hang]);
    let dispatched = spawn(&fixture).await;
    tokio::time::advance(Duration::from_secs(1)).await;

    drop(dispatched);

    fixture.kernel.open.emptied().await;
    check(&fixture, StopReason::CallerGone);
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_ends_its_worker_though_it_came_while_open_workers_were_still_read() {
    let log = Arc::new(MemoryLog::default());
    log.list_slowly(Duration::from_secs(2));
    let fixture = Fixture::with(Config::default(), log, [Step::Hang]);
    tokio::time::advance(Duration::from_secs(1)).await;
    let dispatched = spawn(&fixture).await;
    tokio::time::advance(Duration::from_secs(5)).await;

    drop(dispatched);

    fixture.kernel.open.emptied().await;
    check(&fixture, StopReason::CallerGone);
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_a_worker_that_runs_and_one_that_waits() {
    let mut config = Config::default();
    config.limits.max_running = Bound::Of(1);
    let log = Arc::new(MemoryLog::default());
    let fixture = Fixture::with(config, Arc::clone(&log), [Step::Hang]);
    let running = spawn(&fixture).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let waiting = spawn(&fixture).await;

    for dispatched in [waiting, running] {
        let wish = StopWish { by: "somebody".to_owned(), reason: "enough".to_owned() };
        let id = dispatched.worker.id.clone();
        let receipt = fixture.kernel.stop(&id, wish, Some(Duration::from_secs(5))).await.unwrap();
        assert_eq!(receipt.entries[0].after, Status::Killed);
        let worker = end_of(dispatched).await;
        assert_eq!(worker.stop_reason, Some(StopReason::Stopped));
        assert_eq!(worker.error, "stopped by `somebody`: enough");
    }
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_waits_too_long_is_overloaded() {
    let mut config = Config::default();
    config.limits.max_running = Bound::Of(1);
    let fixture = Fixture::with(config, Arc::new(MemoryLog::default()), [Step::Hang]);
    let running = spawn(&fixture).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let began = Instant::now();

    let waiting = end_of(spawn(&fixture).await).await;

    assert_eq!(began.elapsed().as_secs(), 60);
    assert_eq!(waiting.stop_reason, Some(StopReason::Overloaded));
    drop(running);
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_workers_and_then_stops_them() {
    let fixture = Fixture::new([Step::Hang]);
    let dispatched = spawn(&fixture).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let began = Instant::now();

    fixture.shutdown.begin();
    let refused = fixture.kernel.dispatch(&anybody(), call("Late."), None).await;
    assert!(matches!(refused, Err(crate::error::Error::Draining)));
    let worker = end_of(dispatched).await;

    assert_eq!(began.elapsed().as_secs(), 60);
    assert_eq!(worker.stop_reason, Some(StopReason::Drained));
    check(&fixture, StopReason::Drained);
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_hurried_drain_does_not_wait() {
    let fixture = Fixture::new([Step::Hang]);
    let dispatched = spawn(&fixture).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let began = Instant::now();

    fixture.shutdown.hurry();
    let worker = end_of(dispatched).await;

    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(worker.stop_reason, Some(StopReason::Drained));
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_token_budget_ends_a_worker_between_turns() {
    let fixture = Fixture::new([Step::Reply(calls("so far", &[("a", "nothing", "{}")]))]);
    let mut spawn = call("Go.");
    spawn.budget.tokens = Some(110);

    let dispatched = fixture.kernel.dispatch(&anybody(), spawn, None).await.unwrap();
    let worker = end_of(dispatched).await;

    assert_eq!((worker.result.as_str(), worker.partial), ("so far", true));
    check(&fixture, StopReason::Budget);
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_waits_for_a_retry_gives_its_slot_back() {
    let mut config = Config::default();
    config.limits.max_running = Bound::Of(1);
    let steps = [Step::Pause(Duration::from_secs(30), text("slow")), Step::Reply(text("quick"))];
    let fixture = Fixture::with(config, Arc::new(MemoryLog::default()), steps);
    let slow = spawn(&fixture).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let began = Instant::now();

    let quick = end_of(spawn(&fixture).await).await;

    assert_eq!(quick.result, "quick");
    assert!(began.elapsed() < Duration::from_secs(1), "it did not wait for the slow one");
    assert_eq!(end_of(slow).await.result, "slow");
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_wish_that_was_recorded_before_a_crash_is_granted_after_it() {
    let first = Fixture::new([Step::Hang]);
    let dispatched = spawn(&first).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let worker = first.log.only();
    let wish = StopWish { by: "somebody".to_owned(), reason: String::new() };
    first.log.wish_stop(&worker.id, wish).await.unwrap();
    let records = first.log.records(&worker.id, 0, usize::MAX).await.unwrap();
    let log = Arc::new(MemoryLog::default());
    log.leave_behind(worker, records.into_iter().map(|stored| stored.record).collect());
    let left = first.log.only();
    let wish = StopWish { by: "somebody".to_owned(), reason: String::new() };
    log.wish_stop(&left.id, wish).await.unwrap();

    let second = Fixture::with(Config::default(), log, []);
    tokio::time::timeout(Duration::from_secs(5), async {
        while second.log.only().close_time.is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();

    check(&second, StopReason::Stopped);
    second.end().await;
    drop(dispatched);
    assert!(first.kernel.open.emptied().now_or_never().is_none(), "the first process is as good as dead");
}
