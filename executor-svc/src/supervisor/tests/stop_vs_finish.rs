//! Workers that are stopped, finish and run out of time in the same few milliseconds, over the real store: a thousand, and
//! ten thousand at full scale.

use std::collections::HashMap;

use futures::future::join_all;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use super::*;
use crate::{
    clock::Clock,
    double::{Acting, Agents, Core, Standstill, definition},
    session::sqlite::Store,
};

/// As `tests::scale` has it, which this crate cannot use.
fn workers() -> usize {
    let is_full = std::env::var("ROSTER_TEST_SCALE").is_ok_and(|scale| scale == "full");
    if is_full { 10_000 } else { 1_000 }
}

/// Workers at a time.
const BATCH: usize = 500;

/// Everything happens within these first milliseconds, so that much of it happens at once.
const TICKS: u64 = 8;

/// When a worker would finish, is stopped, and runs out of time.
struct Fate {
    finish: u64,
    stop: u64,
    deadline: u64,
}

impl Fate {
    fn draw(random: &mut StdRng) -> Self {
        let mut tick = || random.random_range(1..TICKS);
        Self { finish: tick(), stop: tick(), deadline: tick() }
    }
}

async fn dispatch(kernel: &Arc<Kernel>, fate: &Fate) -> Dispatched {
    let mut spawn = call(&fate.finish.to_string());
    spawn.budget.wall_time = Some(Duration::from_millis(fate.deadline));
    kernel.dispatch(&anybody(), spawn, None).await.unwrap()
}

async fn run_batch(core: &Core, random: &mut StdRng, reasons: &mut HashMap<StopReason, usize>) {
    let kernel = &core.kernel;
    let fates: Vec<Fate> = (0..BATCH).map(|_| Fate::draw(random)).collect();
    let workers = join_all(fates.iter().map(|fate| dispatch(kernel, fate))).await;
    let mut stops = tokio::task::JoinSet::new();
    let mut tick = 0;
    while !kernel.open.is_empty() {
        tick += 1;
        let due = workers.iter().zip(&fates).filter(|(_, fate)| fate.stop == tick);
        for (dispatched, _) in due {
            let (kernel, id) = (Arc::clone(kernel), dispatched.worker.id.clone());
            let wish = StopWish { by: "somebody".to_owned(), reason: String::new() };
            stops.spawn(async move { kernel.stop(&id, wish, Some(Duration::from_secs(1))).await.unwrap() });
        }
        tokio::time::advance(Duration::from_millis(1)).await;
        // One transaction of the store: what was asked of it in this millisecond shares it, or just misses it.
        kernel.log.close_root(&SessionId::new_root()).await.unwrap();
    }
    let receipts = stops.join_all().await;
    let seen: HashMap<_, _> = receipts
        .into_iter()
        .flat_map(|receipt| receipt.entries)
        .map(|entry| (entry.worker, entry.after))
        .collect();

    for dispatched in workers {
        let told = end_of(dispatched).await;
        let kept = kernel.log.worker(&told.id).await.unwrap().unwrap();
        assert_eq!(told, kept, "who waited is told what is kept");
        let reason = kept.stop_reason.expect("it has ended");
        assert_eq!(kept.status, reason.status());
        assert_eq!(kept.result, if reason == StopReason::Finished { "done" } else { "" });
        if let Some(after) = seen.get(&kept.id).filter(|after| after.is_final()) {
            assert_eq!(*after, kept.status, "a receipt that names a final state names this one");
        }
        let events = kernel.log.events(&kept.id, 0, 100).await.unwrap();
        let ends = events.iter().filter(|event| event.body == Body::Finished).count();
        assert_eq!((ends, &events.last().unwrap().body), (1, &Body::Finished));
        *reasons.entry(reason).or_default() += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_comes_first_is_the_one_end_and_a_committed_result_is_never_lost() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::start();
    let store = Arc::new(Store::open(directory.path(), Arc::new(move || clock.now())).unwrap());
    let model = Acting::new(|turn| {
        let wait = Duration::from_millis(turn.prompt.parse().unwrap());
        Step::After(wait, text("done"))
    });
    let agents = Agents([("task".to_owned(), definition("task"))].into());
    let mut config = Config::default();
    config.limits.max_running = Bound::Unlimited;
    config.limits.queue_length = Bound::Unlimited;
    let _still = Standstill::begin();
    let core = Core::start(config, clock, Arc::clone(&store), Arc::new(agents), Arc::new(model), Vec::new());
    let mut random = StdRng::seed_from_u64(4);
    let mut reasons = HashMap::new();

    for _ in 0..workers() / BATCH {
        run_batch(&core, &mut random, &mut reasons).await;
    }

    for reason in [StopReason::Finished, StopReason::Stopped, StopReason::Timeout] {
        let count = reasons.get(&reason).copied().unwrap_or_default();
        assert!(count > workers() / 100, "the three of them raced: {reasons:?}");
    }
    assert_eq!(core.kernel.slots.taken(), 0);
    core.end().await;
    store.close().await;
}
