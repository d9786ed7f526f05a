use std::{collections::VecDeque, future};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::*;
use crate::model::{Finish, sample};

/// What each attempt ends with, and when each began.
struct Script {
    outcomes: Mutex<VecDeque<Result<Reply, Failure>>>,
    begins: Mutex<Vec<(u32, Instant)>>,
}

#[async_trait]
impl Attempt for Script {
    async fn attempt(&self, number: u32, _: &Turn<'_>, _: &dyn Listener) -> Result<Reply, Failure> {
        self.begins.lock().push((number, Instant::now()));
        self.outcomes.lock().pop_front().expect("no attempt more than planned")
    }
}

struct Outcome {
    result: Result<Reply, Error>,
    /// The waits between the attempts, of which there is one more.
    waits: Vec<Duration>,
}

async fn ask(outcomes: Vec<Result<Reply, Failure>>) -> Outcome {
    let planned = outcomes.len();
    let script = Script { outcomes: Mutex::new(outcomes.into()), begins: Mutex::default() };
    let model = Retrying::new(script, Arc::new(Pace::new(4)));

    let result = model.complete(&sample::turn(), &|_: &str| (), &CancellationToken::new()).await;

    let begins = model.attempt.begins.into_inner();
    assert_eq!(begins.len(), planned - model.attempt.outcomes.into_inner().len());
    assert!(begins.iter().enumerate().all(|(expected, (number, _))| expected == *number as usize));
    Outcome { result, waits: begins.windows(2).map(|pair| pair[1].1 - pair[0].1).collect() }
}

fn reply() -> Reply {
    Reply {
        text: "Hello.".to_owned(),
        tool_calls: Vec::new(),
        usage: sample::usage(1, 1),
        finish: Finish::Stop,
    }
}

fn status(status: u16, retry_after: Option<u64>) -> Result<Reply, Failure> {
    let retry_after = retry_after.map(Duration::from_secs);
    fail(Error::Status { provider: "p".to_owned(), status, message: "no".to_owned(), retry_after })
}

fn unreachable() -> Result<Reply, Failure> {
    fail(Error::Unreachable { provider: "p".to_owned(), source: "connection reset".into() })
}

fn fail(error: Error) -> Result<Reply, Failure> {
    Err(Failure { error, has_begun: false })
}

#[tokio::test(start_paused = true)]
async fn passing_faults_are_asked_again_with_growing_waits() {
    let outcome = ask(vec![status(429, None), status(503, None), unreachable(), Ok(reply())]).await;

    assert_eq!(outcome.result.unwrap(), reply());
    for (wait, most) in outcome.waits.iter().zip([500, 1_000, 2_000]) {
        let most = Duration::from_millis(most);
        assert!(*wait >= most / 2 && *wait <= most + Duration::from_millis(1), "{wait:?} of {most:?}");
    }
    assert_eq!(outcome.waits.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_named_wait_is_kept_exactly() {
    let outcome = ask(vec![status(429, Some(7)), status(503, Some(0)), Ok(reply())]).await;

    assert!(outcome.result.is_ok());
    assert_eq!(outcome.waits.len(), 2);
    let rounded: Vec<u64> = outcome.waits.iter().map(Duration::as_secs).collect();
    assert_eq!(rounded, [7, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_named_wait_that_is_too_long_is_not_kept() {
    let outcome = ask(vec![status(429, Some(61))]).await;

    assert!(matches!(outcome.result, Err(Error::Status { status: 429, .. })));
}

#[tokio::test(start_paused = true)]
async fn after_three_retries_the_last_error_is_the_answer() {
    let outcome = ask(vec![status(500, None), status(500, None), status(500, None), status(529, None)]).await;

    assert!(matches!(outcome.result, Err(Error::Status { status: 529, .. })));
    assert_eq!(outcome.waits.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_would_only_fail_again_is_not_repeated() {
    let provider = || "p".to_owned();
    for error in [
        Error::Status { provider: provider(), status: 400, message: String::new(), retry_after: None },
        Error::Status { provider: provider(), status: 401, message: String::new(), retry_after: None },
        Error::Silent { provider: provider(), waited: Duration::from_secs(60) },
        Error::Malformed { provider: provider(), message: String::new() },
        Error::ContextTooLong { model: "m".to_owned() },
    ] {
        let outcome = ask(vec![fail(error)]).await;
        assert!(outcome.result.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_repeated_once_a_token_has_come() {
    let begun = Failure {
        error: Error::Unreachable { provider: "p".to_owned(), source: "connection reset".into() },
        has_begun: true,
    };

    let outcome = ask(vec![Err(begun)]).await;

    assert!(matches!(outcome.result, Err(Error::Unreachable { .. })));
}

#[tokio::test(start_paused = true)]
async fn the_listener_does_the_waiting() {
    #[derive(Default)]
    struct Pauses(Mutex<Vec<Duration>>);

    #[async_trait]
    impl Listener for Pauses {
        fn text(&self, _: &str) {}

        async fn pause(&self, wait: Duration) {
            self.0.lock().push(wait);
        }
    }

    let script = Script {
        outcomes: Mutex::new([status(429, Some(30)), Ok(reply())].into()),
        begins: Mutex::default(),
    };
    let model = Retrying::new(script, Arc::new(Pace::new(4)));
    let pauses = Pauses::default();
    let start = Instant::now();

    model.complete(&sample::turn(), &pauses, &CancellationToken::new()).await.unwrap();

    assert_eq!(pauses.0.into_inner(), [Duration::from_secs(30)]);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_ends_at_once_even_while_it_waits() {
    struct Never;

    #[async_trait]
    impl Attempt for Never {
        async fn attempt(&self, _: u32, _: &Turn<'_>, _: &dyn Listener) -> Result<Reply, Failure> {
            future::pending().await
        }
    }

    let cancel = CancellationToken::new();
    let pace = Arc::new(Pace::new(1));
    let model = Retrying::new(Never, Arc::clone(&pace));
    let turn = sample::turn();

    let (outcome, ()) =
        tokio::join!(model.complete(&turn, &|_: &str| (), &cancel), async { cancel.cancel() });

    assert!(matches!(outcome, Err(Error::Cancelled)));
    // The place is free again.
    pace.enter().await;
}

/// A provider that works on some requests at once, each for a while, and refuses the rest.
struct Narrow {
    places: tokio::sync::Semaphore,
    refused: std::sync::atomic::AtomicUsize,
}

#[async_trait]
impl Attempt for Narrow {
    async fn attempt(&self, _: u32, _: &Turn<'_>, _: &dyn Listener) -> Result<Reply, Failure> {
        let Ok(_place) = self.places.try_acquire() else {
            self.refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            // The way there and back.
            tokio::time::sleep(Duration::from_millis(5)).await;
            return status(429, None);
        };
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ok(reply())
    }
}

#[tokio::test(start_paused = true)]
async fn a_crowd_before_a_narrow_provider_is_served_by_almost_all_it_has() {
    const PLACES: usize = 8;
    const WORKERS: usize = 128;
    const TURNS: usize = 10;
    let narrow = Narrow { places: tokio::sync::Semaphore::new(PLACES), refused: Default::default() };
    let model = Retrying::new(narrow, Arc::new(Pace::new(128)));
    let began = Instant::now();
    let given_up = std::cell::Cell::new(0);
    let worker = async || {
        for _ in 0..TURNS {
            match model.complete(&sample::turn(), &|_: &str| (), &CancellationToken::new()).await {
                Ok(answer) => assert_eq!(answer, reply()),
                Err(_) => given_up.set(given_up.get() + 1),
            }
        }
    };

    futures::future::join_all((0..WORKERS).map(|_| worker())).await;

    let ideal = Duration::from_millis(50) * (WORKERS * TURNS / PLACES) as u32;
    let refused = model.attempt.refused.into_inner();
    // Waits are drawn: an unlucky one is refused four times.
    assert!(
        given_up.get() <= WORKERS * TURNS / 100,
        "hardly anybody is refused for good: {}",
        given_up.get()
    );
    assert!(refused >= WORKERS - PLACES, "the first wave is refused: {refused}");
    assert!(refused < 2 * WORKERS, "and few others: {refused}");
    assert!(began.elapsed() < ideal.mul_f64(1.25), "{:?} of {ideal:?}", began.elapsed());
}
