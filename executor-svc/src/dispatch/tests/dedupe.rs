//! Identical calls below a named root: one worker for all of them, for as long as its result is fresh.

use std::collections::HashSet;

use futures::future::join_all;

use super::*;
use crate::{
    double::{Acting, Step, text},
    model::{self, Turn},
    worker::{Status, StopReason},
};

/// How long the model takes.
const WORK: Duration = Duration::from_millis(50);

/// Counts how often a model is asked that answers late.
fn counting(act: impl Fn(usize) -> Step + Send + Sync + 'static) -> (Arc<dyn Models>, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let model = Acting::new(move |_: &Turn<'_>| act(counter.fetch_add(1, Ordering::Relaxed)));
    (Arc::new(model), asked)
}

fn late(answer: usize) -> Step {
    Step::After(WORK, text(&format!("answer {answer}")))
}

/// A call below a root of the caller's own, without which anonymous calls are never merged.
fn chat(prompt: &str) -> Call {
    Call { place: Place::NamedRoot("chat".to_owned()), ..call(prompt) }
}

async fn dispatch(world: &World, core: &Core, call: Call) -> Dispatched {
    world.until(core.kernel.dispatch(&anybody(), call, None)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn sixty_four_identical_calls_at_once_make_one_worker_and_get_equal_answers() {
    let world = World::begin();
    let (models, asked) = counting(late);
    let core = world.core(Config::default(), agents(&["task"]), models);

    let caller = anybody();
    let calls = (0..64).map(|_| core.kernel.dispatch(&caller, chat("Go."), None));
    let dispatched: Vec<Dispatched> =
        world.until(join_all(calls)).await.into_iter().collect::<Result<_, _>>().unwrap();
    let joined = dispatched.iter().filter(|dispatched| dispatched.deduplicated).count();
    let root = dispatched[0].worker.root.clone();
    let mut answers = Vec::new();
    for dispatched in dispatched {
        answers.push(world.end_of(dispatched).await);
    }

    assert_eq!(joined, 63);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_eq!((answers[0].status, answers[0].result.as_str()), (Status::Completed, "answer 0"));
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(world.store.descendants(&root, 100).await.unwrap().len(), 1);
    world.end(core).await;
}

#[tokio::test(start_paused = true)]
async fn a_result_is_fresh_for_119_seconds_after_its_end_and_not_for_121() {
    for (age, is_fresh) in [(119, true), (121, false)] {
        let world = World::begin();
        let (models, asked) =
            counting(|answer| Step::After(Duration::from_secs(600), text(&answer.to_string())));
        let core = world.core(Config::default(), agents(&["task"]), models);
        let first = dispatch(&world, &core, chat("Go.")).await;
        world.until_asked(&asked).await;
        tokio::time::advance(Duration::from_secs(600)).await;
        let first = world.end_of(first).await;
        let due = first.close_time.unwrap().0 + age * 1_000;
        let wait = u64::try_from(due - core.kernel.clock.now().0).unwrap();
        tokio::time::advance(Duration::from_millis(wait)).await;

        // Time stands still while it is answered.
        let again = core.kernel.dispatch(&anybody(), chat("Go."), None).await.unwrap();

        assert_eq!(again.deduplicated, is_fresh, "{age} s");
        assert_eq!(again.worker.id == first.id, is_fresh, "{age} s");
        drop(again);
        world.end(core).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_worker_failed_is_run_again() {
    let world = World::begin();
    let (models, asked) = counting(|answer| match answer {
        0 => Step::Fail(model::Error::Unreachable { provider: "test".to_owned(), source: "refused".into() }),
        _ => Step::Reply(text("done")),
    });
    let core = world.core(Config::default(), agents(&["task"]), models);

    let first = dispatch(&world, &core, chat("Go.")).await;
    let first = world.end_of(first).await;
    let second = dispatch(&world, &core, chat("Go.")).await;
    let is_new = !second.deduplicated;
    let second = world.end_of(second).await;

    assert_eq!((first.status, second.status), (Status::Failed, Status::Completed));
    assert!(is_new && first.id != second.id);
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    world.end(core).await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_differ_in_one_thing_are_never_merged() {
    let schema = |name: &str| Some(format!(r#"{{"type": "object", "required": ["{name}"]}}"#));
    let variants = [
        chat("Go."),
        chat("go."),
        Call { place: Place::NamedRoot("other".to_owned()), ..chat("Go.") },
        Call { agent: "other".to_owned(), ..chat("Go.") },
        Call { output_schema: schema("a"), ..chat("Go.") },
        Call { output_schema: schema("b"), ..chat("Go.") },
        Call { output_schema: schema("a"), schema_is_permissive: true, ..chat("Go.") },
        Call { plan_mode: true, ..chat("Go.") },
        Call { locale: "de".to_owned(), ..chat("Go.") },
    ];
    let world = World::begin();
    let (models, _) = counting(late);
    let core = world.core(Config::default(), agents(&["task", "other"]), Arc::clone(&models));
    let mut running = Vec::new();
    for call in &variants {
        running.push(dispatch(&world, &core, call.clone()).await);
    }
    let ids: HashSet<SessionId> = running.iter().map(|dispatched| dispatched.worker.id.clone()).collect();
    assert_eq!(ids.len(), variants.len());
    for (call, first) in variants.iter().zip(&running) {
        let again = dispatch(&world, &core, call.clone()).await;
        assert_eq!(again.worker.id, first.worker.id, "the same call is merged: {call:?}");
    }
    let first = world.end_of(running.remove(0)).await;
    drop(running);
    world.until(core.end()).await;

    // The same name with another definition, and the same place of another operator.
    let mut changed = definition("task");
    changed.digest = "another".to_owned();
    let core = world.core(Config::default(), Agents([("task".to_owned(), changed)].into()), models);
    let redefined = dispatch(&world, &core, chat("Go.")).await;
    let stranger = Caller { operator: "ada".to_owned(), is_anonymous: false, ..anybody() };
    let foreign = world.until(core.kernel.dispatch(&stranger, chat("Go."), None)).await.unwrap();

    assert!(!redefined.deduplicated && !foreign.deduplicated);
    assert!(redefined.worker.id != first.id && foreign.worker.id != redefined.worker.id);
    drop((redefined, foreign));
    world.end(core).await;
}

#[tokio::test(start_paused = true)]
async fn one_of_two_waiting_callers_who_leaves_stops_nothing() {
    for first_leaves in [true, false] {
        let world = World::begin();
        let (models, asked) = counting(late);
        let core = world.core(Config::default(), agents(&["task"]), models);
        let first = dispatch(&world, &core, chat("Go.")).await;
        let second = dispatch(&world, &core, chat("Go.")).await;
        assert_eq!(first.worker.id, second.worker.id);

        let stays = if first_leaves { (first, second).1 } else { (second, first).1 };
        let worker = world.end_of(stays).await;

        assert_eq!((worker.stop_reason, worker.result.as_str()), (Some(StopReason::Finished), "answer 0"));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        world.end(core).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_all_its_callers_left_is_stopped_and_not_joined() {
    let world = World::begin();
    let (models, _) = counting(late);
    let core = world.core(Config::default(), agents(&["task"]), models);
    let first = dispatch(&world, &core, chat("Go.")).await;
    let second = dispatch(&world, &core, chat("Go.")).await;
    let left = first.worker.id.clone();

    drop((first, second));
    let third = dispatch(&world, &core, chat("Go.")).await;
    let third = world.end_of(third).await;

    let stopped = world.store.worker(&left).await.unwrap().unwrap();
    assert_eq!(stopped.stop_reason, Some(StopReason::CallerGone));
    assert!(third.id != left && third.stop_reason == Some(StopReason::Finished), "{}", third.error);
    world.end(core).await;
}
