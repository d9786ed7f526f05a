//! The sixteen ways a worker can end, each fifty times with a store that is slow, away or deaf when the record is closed.

use async_trait::async_trait;
use serde_json::Value;
use service_kit::config::Span;

use super::*;
use crate::{
    double::{Surroundings, Trouble},
    model::ToolSpec,
    tool::{self, Class, Context, Tool, name},
    worker::Usage,
};

/// How often each way is gone, with different troubles.
const TRIES: u32 = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Result,
    QueueWait,
    ModelError,
    TooManyRequests,
    ModelHangs,
    Deadline,
    TreeDeadline,
    Turns,
    Budget,
    Schema,
    Abort,
    Panic,
    ToolPanic,
    CallerGone,
    Stop,
    Drain,
}

/// What has to be in the record.
struct Expected {
    reason: StopReason,
    turns: u32,
    result: &'static str,
}

impl Way {
    fn expected(self) -> Expected {
        let (reason, turns, result) = match self {
            Self::Result => (StopReason::Finished, 1, "done"),
            Self::QueueWait => (StopReason::Overloaded, 0, ""),
            Self::ModelError | Self::TooManyRequests | Self::ModelHangs => {
                (StopReason::ModelError, 1, "so far")
            }
            Self::Deadline | Self::TreeDeadline => (StopReason::Timeout, 1, "so far"),
            Self::Turns => (StopReason::MaxTurns, 2, "summed up"),
            Self::Budget => (StopReason::Budget, 1, "so far"),
            Self::Schema => (StopReason::Schema, 4, "so far"),
            Self::Abort => (StopReason::Aborted, 1, "so far"),
            Self::Panic => (StopReason::Panic, 1, "so far"),
            Self::ToolPanic => (StopReason::Finished, 2, "done"),
            Self::CallerGone => (StopReason::CallerGone, 1, "so far"),
            Self::Stop => (StopReason::Stopped, 1, "so far"),
            Self::Drain => (StopReason::Drained, 1, "so far"),
        };
        Expected { reason, turns, result }
    }

    fn steps(self) -> Vec<Step> {
        let looks = || Step::Reply(calls("so far", &[("a", "nothing", "{}")]));
        let submits =
            |arguments: &str| Step::Reply(calls("so far", &[("a", name::SUBMIT_RESULT, arguments)]));
        let provider = || "test".to_owned();
        match self {
            Self::Result => vec![Step::Reply(text("done"))],
            Self::QueueWait => vec![Step::Hang],
            Self::ModelError => {
                let error = ModelError::Unreachable { provider: provider(), source: "refused".into() };
                vec![looks(), Step::Fail(error)]
            }
            Self::TooManyRequests => {
                let message = "slow down".to_owned();
                let error =
                    ModelError::Status { provider: provider(), status: 429, message, retry_after: None };
                vec![looks(), Step::Fail(error)]
            }
            Self::ModelHangs => {
                let error = ModelError::Silent { provider: provider(), waited: Duration::from_secs(60) };
                vec![looks(), Step::Fail(error)]
            }
            Self::Turns => vec![looks(), Step::Reply(text("summed up"))],
            Self::Budget => vec![looks()],
            Self::Schema => (0..4).map(|_| submits(r#"{"data": 7}"#)).collect(),
            Self::Abort => vec![submits(r#"{"error": "it cannot be done"}"#)],
            Self::Panic => vec![looks(), Step::Panic],
            Self::ToolPanic => {
                vec![Step::Reply(calls("so far", &[("a", name::LS, "{}")])), Step::Reply(text("done"))]
            }
            Self::Deadline | Self::TreeDeadline | Self::CallerGone | Self::Stop | Self::Drain => {
                vec![looks(), Step::Hang]
            }
        }
    }

    fn config(self) -> Config {
        let mut config = Config::default();
        match self {
            Self::QueueWait => config.limits.max_running = Bound::Of(1),
            Self::TreeDeadline => {
                config.limits.worker_wall_time = Bound::Unlimited;
                config.limits.tree_wall_time = Bound::Of(Span::seconds(60));
            }
            Self::Turns => config.limits.max_turns = Bound::Of(1),
            _ => {}
        }
        config
    }

    fn call(self) -> crate::dispatch::Call {
        let mut spawn = call("Go.");
        match self {
            Self::Budget => spawn.budget.tokens = Some(110),
            Self::Schema => spawn.output_schema = Some(r#"{"type": "object", "required": ["a"]}"#.to_owned()),
            _ => {}
        }
        spawn
    }
}

/// A tool that panics on the thread where it works, and passes that on.
struct Broken(ToolSpec);

#[async_trait]
impl Tool for Broken {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn class(&self) -> Class {
        Class::Read
    }

    async fn call(&self, _: &Context, _: &Value) -> Result<String, tool::Error> {
        let working = tokio::task::spawn_blocking(|| panic!("a defect, as the test says"));
        working.await.expect("it is passed on")
    }
}

fn trouble(number: u32) -> Trouble {
    let slow = [0, 1, 700, 3_000, 8_000][(number / 5 % 5) as usize];
    let failing = number % 5;
    // At least one of the two.
    let failing = if slow == 0 { failing + 1 } else { failing };
    Trouble { slow: Duration::from_millis(slow), failing, loses_answers: number % 2 == 1, lasting: false }
}

async fn go(way: Way, number: u32) {
    let tool = Broken(ToolSpec {
        name: name::LS.to_owned(),
        description: String::new(),
        input_schema: serde_json::json!({ "type": "object" }),
    });
    let surroundings = Surroundings { tools: vec![Arc::new(tool)], ..Surroundings::default() };
    let fixture = Fixture::among(way.config(), Arc::new(MemoryLog::default()), surroundings, way.steps());
    let kernel = Arc::clone(&fixture.kernel);
    let holder = match way {
        Way::QueueWait => {
            let holder = kernel.dispatch(&anybody(), call("Hold."), None).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some(holder)
        }
        _ => None,
    };
    fixture.log.trouble(trouble(number));
    let dispatched = kernel.dispatch(&anybody(), way.call(), None).await.unwrap();
    let id = dispatched.worker.id.clone();

    let told = match way {
        Way::CallerGone => {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(dispatched);
            kernel.open.emptied().await;
            fixture.log.kept(&id)
        }
        Way::Stop => {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let wish = StopWish { by: "somebody".to_owned(), reason: String::new() };
            kernel.stop(&id, wish, Some(Duration::from_secs(60))).await.unwrap();
            end_of(dispatched).await
        }
        Way::Drain => {
            tokio::time::sleep(Duration::from_secs(1)).await;
            fixture.shutdown.begin();
            end_of(dispatched).await
        }
        _ => end_of(dispatched).await,
    };

    check_closed(&fixture, way, &told);
    assert!(fixture.log.troubles_met() > 0, "the store was in trouble");
    drop(holder);
    if way == Way::QueueWait {
        kernel.open.emptied().await;
    }
    assert!(kernel.open.is_empty(), "nothing is open any more");
    assert_eq!((kernel.slots.taken(), kernel.open.queued()), (0, 0), "every slot and place came back");
    fixture.end().await;
}

#[track_caller]
fn check_closed(fixture: &Fixture, way: Way, told: &Worker) {
    let Expected { reason, turns, result } = way.expected();
    let kept = fixture.log.kept(&told.id);
    assert_eq!(*told, kept, "who waited is told what is kept");
    assert_eq!(kept.stop_reason, Some(reason), "{way:?}: {}", kept.error);
    assert_eq!(kept.status, reason.status());
    assert_eq!(
        (kept.result.as_str(), kept.partial),
        (result, reason != StopReason::Finished && !result.is_empty())
    );
    let Usage { input_tokens, output_tokens, turns: used, .. } = kept.usage;
    assert_eq!((used, input_tokens, output_tokens), (turns, u64::from(turns) * 100, u64::from(turns) * 10));
    assert!(kept.close_time >= kept.start_time);
    let bodies = fixture.log.bodies(&told.id);
    assert_eq!(bodies.last(), Some(&Body::Finished));
    assert_eq!(bodies.iter().filter(|body| **body == Body::Finished).count(), 1, "{bodies:?}");
    let finals =
        bodies.iter().filter(|body| matches!(body, Body::StateChanged { status } if status.is_final()));
    assert_eq!(finals.count(), 1, "{bodies:?}");
    if way == Way::TreeDeadline {
        assert!(kept.error.contains("limits.tree_wall_time"), "{}", kept.error);
    }
}

macro_rules! ways {
    ($($name:ident: $way:ident;)*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                for number in 0..TRIES {
                    go(Way::$way, number).await;
                }
            }
        )*
    };
}

ways! {
    a_result_closes_the_record: Result;
    a_wait_that_was_too_long_closes_the_record: QueueWait;
    a_model_that_fails_closes_the_record: ModelError;
    a_model_that_asks_to_slow_down_for_good_closes_the_record: TooManyRequests;
    a_model_that_hangs_closes_the_record: ModelHangs;
    a_hard_deadline_closes_the_record: Deadline;
    a_deadline_of_the_tree_closes_the_record: TreeDeadline;
    used_up_turns_close_the_record: Turns;
    a_used_up_budget_closes_the_record: Budget;
    a_result_that_never_matches_closes_the_record: Schema;
    a_worker_that_gives_up_closes_the_record: Abort;
    a_panic_in_the_task_closes_the_record: Panic;
    a_panic_in_a_blocking_tool_is_the_tools_answer_and_the_result_closes_the_record: ToolPanic;
    a_caller_who_leaves_closes_the_record: CallerGone;
    a_stop_closes_the_record: Stop;
    a_drain_closes_the_record: Drain;
}

#[tokio::test(start_paused = true)]
async fn a_result_that_the_store_can_never_keep_ends_the_worker_as_a_defect_and_is_not_asked_for_again() {
    let fixture = Fixture::new([Step::Reply(text("done"))]);
    fixture.log.trouble(Trouble { failing: 1, lasting: true, ..Trouble::default() });

    let worker = end_of(spawn(&fixture).await).await;

    assert_eq!(worker.stop_reason, Some(StopReason::Panic));
    assert_eq!(fixture.model.asked().len(), 1);
    assert_eq!(fixture.log.troubles_met(), 1);
    fixture.end().await;
}
