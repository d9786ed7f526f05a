//! Trees as wide and as deep as the limits allow end although there is one slot: whoever waits gives it back.

use super::*;
use crate::{
    clock::Clock,
    double::{Acting, Agents, Core, definition},
    model::Turn,
    tool::name,
};

/// How long a leaf holds its slot.
const WORK: Duration = Duration::from_millis(20);

/// As many as one turn of a model may have.
const CALLS_A_TURN: usize = 64;

/// Two agents that spawn each other, so that nobody spawns itself.
const AGENTS: [&str; 2] = ["even", "odd"];

/// A tree below one worker: how many levels, and how many children everybody has who has any.
#[derive(Clone, Copy, Debug)]
struct Shape {
    levels: u32,
    width: usize,
}

impl Shape {
    fn leaves(self) -> usize {
        self.width.pow(self.levels)
    }

    fn workers(self) -> usize {
        (0..=self.levels).map(|level| self.width.pow(level)).sum()
    }
}

/// What a worker does whose prompt is `LEVELS WIDTH PATH`: spawn the level below, as many at once as a turn may, or work.
fn act(turn: &Turn<'_>) -> Step {
    let mut words = turn.prompt.split(' ');
    let mut number = || words.next().expect("three words").parse::<usize>().expect("a number");
    let (levels, width) = (number(), number());
    let path = turn.prompt.rsplit(' ').next().expect("three words");
    if levels == 0 {
        // One leaf in three waits for a retry, and needs its slot a second time.
        return match path.len() % 3 {
            0 => Step::Pause(WORK, text("done")),
            _ => Step::After(WORK, text("done")),
        };
    }
    let agent = AGENTS[levels % 2];
    let from = (turn.number as usize - 1) * CALLS_A_TURN;
    if from >= width {
        return Step::Reply(text("done"));
    }
    let children: Vec<(String, String)> = (from..width.min(from + CALLS_A_TURN))
        .map(|child| {
            let prompt = format!("{} {width} {path}-{child}", levels - 1);
            let arguments = serde_json::json!({ "subagent_type": agent, "prompt": prompt });
            (format!("call {child}"), arguments.to_string())
        })
        .collect();
    let children: Vec<(&str, &str, &str)> =
        children.iter().map(|(id, arguments)| (id.as_str(), name::SPAWN, arguments.as_str())).collect();
    Step::Reply(calls("", &children))
}

async fn grow(config: Config, shape: Shape, trees: usize) {
    let log = Arc::new(MemoryLog::default());
    let agents = Agents(AGENTS.map(|name| (name.to_owned(), definition(name))).into());
    let model = Arc::new(Acting::new(act));
    let core = Core::start(config, Clock::start(), Arc::clone(&log), Arc::new(agents), model, Vec::new());
    let began = Instant::now();

    let caller = anybody();
    let roots = (0..trees).map(|tree| {
        let mut spawn = call(&format!("{} {} {tree}", shape.levels, shape.width));
        spawn.agent = AGENTS[(shape.levels as usize + 1) % 2].to_owned();
        core.kernel.dispatch(&caller, spawn, None)
    });
    for dispatched in futures::future::join_all(roots).await {
        let worker = end_of(dispatched.unwrap()).await;
        assert_eq!(worker.status, Status::Completed, "{shape:?}: {}", worker.error);
    }

    let workers = log.workers(WorkerFilter { limit: usize::MAX, ..WorkerFilter::default() }).await.unwrap();
    assert_eq!(workers.len(), trees * shape.workers(), "{shape:?}: nobody was refused");
    for worker in workers {
        assert_eq!(worker.stop_reason, Some(StopReason::Finished), "{shape:?}: {}", worker.error);
    }
    let holding = trees * shape.leaves() / 2;
    assert!(began.elapsed() >= WORK * u32::try_from(holding).unwrap(), "{shape:?}: one at a time");
    assert!(core.kernel.open.is_empty());
    assert_eq!(core.kernel.slots.taken(), 0);
    core.end().await;
}

/// The defaults, but for one slot and what is not about slots.
fn one_slot() -> Config {
    let mut config = Config::default();
    config.limits.max_running = Bound::Of(1);
    config
}

#[tokio::test(start_paused = true)]
async fn a_tree_as_wide_as_the_limits_allow_ends_with_one_slot() {
    // Two hundred spawns, the worker below the root among them.
    grow(one_slot(), Shape { levels: 1, width: 199 }, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_tree_of_one_slot_of_its_own_ends_among_free_ones() {
    let mut config = Config::default();
    config.limits.max_running_per_tree = Bound::Of(1);
    grow(config, Shape { levels: 1, width: 199 }, 1).await;
}

#[tokio::test(start_paused = true)]
async fn trees_that_branch_at_every_level_end_with_one_slot() {
    let mut config = one_slot();
    config.limits.max_recursion_depth = Bound::Of(7);
    config.limits.queue_length = Bound::Unlimited;
    // 127 workers in each of the trees.
    grow(config, Shape { levels: 6, width: 2 }, 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_chain_as_long_as_the_budget_of_spawns_ends_with_one_slot() {
    let mut config = one_slot();
    config.limits.max_recursion_depth = Bound::Unlimited;
    grow(config, Shape { levels: 199, width: 1 }, 1).await;
}
