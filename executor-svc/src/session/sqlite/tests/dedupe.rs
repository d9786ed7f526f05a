//! Identical calls: who answers for whom, and for how long.

use super::*;
use crate::session::{Dedupe, Queue as _, StopWish};

const TTL: Duration = Duration::from_secs(120);

fn call(key: u8) -> Acceptance {
    Acceptance {
        dedupe: Some(Dedupe { key: [key; 32], ttl: TTL, capacity: 4_096, bypass: false }),
        ..acceptance()
    }
}

fn bypass(key: u8) -> Acceptance {
    Acceptance {
        dedupe: Some(Dedupe { key: [key; 32], ttl: TTL, capacity: 4_096, bypass: true }),
        ..acceptance()
    }
}

/// The earlier worker that answers.
#[track_caller]
fn earlier(accepted: Result<Accepted, AcceptError>) -> SessionId {
    match accepted.unwrap() {
        Accepted::Deduplicated(worker) => worker.id,
        Accepted::New { worker, .. } | Accepted::Repeated(worker) => {
            panic!("{} is not an identical call's", worker.id)
        }
    }
}

#[tokio::test]
async fn an_identical_call_joins_the_first_while_it_runs_and_another_call_does_not() {
    let fixture = Fixture::new();
    let first = new(fixture.accept(call(1)).await);
    fixture.advance(Duration::from_secs(3_600));

    assert_eq!(earlier(fixture.accept(call(1)).await), first.id);
    fixture.become_now(&first, Status::Running).await;
    assert_eq!(earlier(fixture.accept(call(1)).await), first.id);
    new(fixture.accept(call(2)).await);
    new(fixture.accept(acceptance()).await);
}

#[tokio::test]
async fn the_window_is_counted_from_the_completion() {
    let fixture = Fixture::new();
    let first = new(fixture.accept(call(1)).await);
    fixture.advance(Duration::from_secs(600));
    fixture.end(&first, StopReason::Finished).await;

    fixture.advance(Duration::from_secs(119));
    assert_eq!(earlier(fixture.accept(call(1)).await), first.id);
    // Asking does not make the window longer.
    fixture.advance(Duration::from_secs(2));
    let second = new(fixture.accept(call(1)).await);

    assert_eq!(earlier(fixture.accept(call(1)).await), second.id);
}

#[tokio::test]
async fn the_window_outlives_the_process() {
    let fixture = Fixture::new();
    let first = new(fixture.accept(call(1)).await);
    fixture.end(&first, StopReason::Finished).await;

    let fixture = fixture.reopened().await;
    fixture.advance(Duration::from_secs(119));

    assert_eq!(earlier(fixture.accept(call(1)).await), first.id);
}

#[tokio::test]
async fn a_worker_that_did_not_complete_is_run_again() {
    for reason in [StopReason::MaxTurns, StopReason::Stopped, StopReason::ModelError, StopReason::Drained] {
        let fixture = Fixture::new();
        let first = new(fixture.accept(call(1)).await);
        fixture.end(&first, reason).await;

        new(fixture.accept(call(1)).await);
    }
}

#[tokio::test]
async fn a_partial_result_is_not_kept() {
    let fixture = Fixture::new();
    let first = new(fixture.accept(call(1)).await);
    fixture.end(&Worker { partial: true, ..first }, StopReason::Finished).await;

    new(fixture.accept(call(1)).await);
}

#[tokio::test]
async fn a_worker_that_is_being_stopped_is_not_joined() {
    let fixture = Fixture::new();
    let first = new(fixture.accept(call(1)).await);
    let wish = StopWish { by: "ada".to_owned(), reason: String::new() };
    fixture.store.wish_stop(&first.root, wish).await.unwrap();

    let second = new(fixture.accept(call(1)).await);
    fixture.end(&first, StopReason::Stopped).await;

    assert_eq!(
        earlier(fixture.accept(call(1)).await),
        second.id,
        "the end of the first leaves the second's entry"
    );
}

#[tokio::test]
async fn a_bypass_runs_again_and_takes_the_place_of_the_first() {
    let fixture = Fixture::new();
    let first = new(fixture.accept(call(1)).await);
    fixture.end(&first, StopReason::Finished).await;

    let second = new(fixture.accept(bypass(1)).await);

    assert_eq!(earlier(fixture.accept(call(1)).await), second.id);
}

#[tokio::test]
async fn the_least_used_entry_makes_room() {
    let fixture = Fixture::new();
    let small = |key| Acceptance {
        dedupe: Some(Dedupe { key: [key; 32], ttl: TTL, capacity: 2, bypass: false }),
        ..acceptance()
    };
    let first = new(fixture.accept(small(1)).await);
    new(fixture.accept(small(2)).await);
    assert_eq!(earlier(fixture.accept(small(1)).await), first.id);

    new(fixture.accept(small(3)).await);

    assert_eq!(earlier(fixture.accept(small(1)).await), first.id);
    new(fixture.accept(small(2)).await);
}

#[tokio::test]
async fn an_answer_that_was_used_of_late_is_given_without_a_change() {
    let fixture = Fixture::new();
    let sized = |key| Acceptance {
        dedupe: Some(Dedupe { key: [key; 32], ttl: TTL, capacity: 16, bypass: false }),
        ..acceptance()
    };
    let used = || async {
        let used = fixture.store.read("look", |connection| {
            let sql = "SELECT used FROM dedupe WHERE key = ?1";
            connection.query_row(sql, [[1_u8; 32]], |row| row.get::<_, i64>(0))
        });
        used.await.unwrap()
    };
    let first = new(fixture.accept(sized(1)).await);
    new(fixture.accept(sized(2)).await);
    new(fixture.accept(sized(3)).await);

    // Two later uses are an eighth of the capacity, which is recent; three are not.
    let before = used().await;
    assert_eq!(earlier(fixture.accept(sized(1)).await), first.id);
    assert_eq!(used().await, before);
    new(fixture.accept(sized(4)).await);
    assert_eq!(earlier(fixture.accept(sized(1)).await), first.id);
    assert!(used().await > before);
}

#[tokio::test]
async fn identical_calls_at_once_make_one_worker() {
    let fixture = Fixture::new();
    let calls = (0..64).map(|_| fixture.accept(call(1)));

    let accepted = futures::future::join_all(calls).await;

    let (mut made, mut joined) = (Vec::new(), Vec::new());
    for accepted in accepted {
        match accepted.unwrap() {
            Accepted::New { worker, .. } => made.push(worker.id),
            Accepted::Deduplicated(worker) => joined.push(worker.id),
            Accepted::Repeated(worker) => panic!("{} has no request id", worker.id),
        }
    }
    assert_eq!((made.len(), joined.len()), (1, 63));
    assert!(joined.iter().all(|id| *id == made[0]));
    assert_eq!(fixture.store.depth().await.unwrap(), 1);
}
