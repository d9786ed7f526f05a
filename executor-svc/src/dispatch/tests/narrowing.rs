//! Whatever definitions say and workers ask for, nobody gets more than what is above allows; and however many ask at once,
//! no count passes its limit.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures::future::join_all;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use serde_json::json;

use super::*;
use crate::{
    double::{Acting, MemoryLog, Step, calls, text},
    limits::{Bound, Names},
    model::Turn,
    session::{Record, Spec, WorkerFilter},
    tool::name,
    worker::Status,
};

const AGENTS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

const MODES: [PermissionMode; 3] =
    [PermissionMode::ReadOnly, PermissionMode::DualSign, PermissionMode::MutatingWithReview];

/// Trees of one run. Each has up to a few dozen workers.
const TREES: u64 = 150;

/// Everything that a tree comes from.
struct Draw {
    config: Config,
    agents: Agents,
    call: Call,
}

/// What all trees came to, to see that there was something to narrow.
#[derive(Debug, Default)]
struct Tally {
    workers: usize,
    refused: usize,
    narrowed: usize,
    planned: usize,
    deep: usize,
}

fn some_names(random: &mut StdRng) -> Vec<String> {
    AGENTS.iter().filter(|_| random.random_bool(0.6)).map(|name| (*name).to_owned()).collect()
}

fn draw(random: &mut StdRng) -> Draw {
    let mut config = Config::default();
    config.limits.max_recursion_depth = Bound::Of(random.random_range(1..=4));
    config.limits.permission_mode = *MODES.choose(random).unwrap();
    if random.random_bool(0.5) {
        config.limits.root_spawns = Names::Listed(some_names(random));
    }
    let agents = AGENTS.iter().map(|name| {
        let spawns = match random.random_range(0..4) {
            0 => SpawnPolicy::None,
            1 => SpawnPolicy::All,
            _ => SpawnPolicy::Listed(some_names(random)),
        };
        let permission_mode = random.random_bool(0.7).then(|| *MODES.choose(random).unwrap());
        let max_turns = random.random_bool(0.3).then(|| random.random_range(1..4));
        ((*name).to_owned(), Definition { spawns, permission_mode, max_turns, ..definition(name) })
    });
    let agents = Agents(agents.collect());
    let mut first = call(&random.random::<u32>().to_string());
    let agent: &str = AGENTS.choose(random).unwrap();
    agent.clone_into(&mut first.agent);
    first.plan_mode = random.random_bool(0.2);
    first.budget.tokens = random.random_bool(0.5).then(|| random.random_range(200..5_000));
    first.budget.wall_time = Some(Duration::from_secs(random.random_range(60..600)));
    Draw { config, agents, call: first }
}

/// Spawns anybody, allowed or not, as the number in the prompt has it.
fn act(turn: &Turn<'_>) -> Step {
    if turn.number > 2 {
        return Step::Reply(text("done"));
    }
    let mut random = StdRng::seed_from_u64(turn.prompt.parse::<u64>().expect("a number"));
    let children: Vec<String> = (0..random.random_range(0..4))
        .map(|_| {
            let agent = AGENTS.choose(&mut random).unwrap();
            let prompt = random.random::<u32>().to_string();
            json!({ "subagent_type": agent, "prompt": prompt }).to_string()
        })
        .collect();
    let children: Vec<(&str, &str, &str)> = ["x", "y", "z"]
        .into_iter()
        .zip(&children)
        .map(|(id, arguments)| (id, name::SPAWN, arguments.as_str()))
        .collect();
    Step::Reply(calls("so far", &children))
}

/// What is recorded of every worker of a store.
async fn recorded(log: &MemoryLog) -> BTreeMap<SessionId, (Worker, Spec)> {
    let filter = WorkerFilter { limit: usize::MAX, ..WorkerFilter::default() };
    let mut all = BTreeMap::new();
    for worker in log.workers(filter).await.unwrap() {
        let first = log.records(&worker.id, 0, 1).await.unwrap().remove(0);
        let Record::Spec(spec) = first.record else { panic!("a record begins with its spec") };
        all.insert(worker.id.clone(), (worker, *spec));
    }
    all
}

fn is_within(policy: &SpawnPolicy, above: &SpawnPolicy) -> bool {
    match (policy, above) {
        (SpawnPolicy::None, _) | (_, SpawnPolicy::All) => true,
        (SpawnPolicy::All, _) => false,
        (SpawnPolicy::Listed(names), above) => names.iter().all(|name| above.allows(name)),
    }
}

async fn check_tree(log: &MemoryLog, config: &Config, tally: &mut Tally) {
    let all = recorded(log).await;
    let root_policy = config.limits.root_spawns.policy();
    let depth_max = config.limits.max_recursion_depth.get().unwrap();
    for (worker, spec) in all.values() {
        tally.workers += 1;
        assert!(worker.status.is_final());
        assert!(u64::from(worker.depth) <= depth_max, "{worker:?}");
        assert!(root_policy.allows(&worker.agent), "{worker:?}");
        assert!(is_within(&worker.spawns, &root_policy), "{worker:?}");
        assert!(worker.permission_mode <= config.limits.permission_mode);
        // The last one is without tools, to sum up.
        assert!(worker.usage.turns <= spec.max_turns.saturating_add(1), "{worker:?}");
        if u64::from(worker.depth) == depth_max || worker.plan_mode {
            assert_eq!(worker.spawns, SpawnPolicy::None, "{worker:?}");
        }
        tally.deep += usize::from(worker.depth > 2);
        tally.planned += usize::from(worker.plan_mode);
        tally.refused += refusals(log, &worker.id);
        let Some((parent, above)) = all.get(&worker.parent) else { continue };
        assert_eq!(worker.depth, parent.depth + 1);
        assert!(parent.spawns.allows(&worker.agent), "{parent:?} has spawned {worker:?}");
        assert!(!parent.plan_mode, "plan mode spawns nobody");
        assert!(worker.permission_mode <= parent.permission_mode, "{parent:?} {worker:?}");
        assert!(is_within(&spec.root_spawns, &above.root_spawns));
        assert!(spec.wall_time <= above.wall_time);
        assert!(above.tokens_max.is_none_or(|max| spec.tokens_max.is_some_and(|own| own <= max)));
        let own = spec.definition.permission_mode.unwrap_or(config.limits.permission_mode);
        tally.narrowed += usize::from(worker.permission_mode < own);
    }
}

fn refusals(log: &MemoryLog, id: &SessionId) -> usize {
    let denied = |body: &crate::event::Body| {
        matches!(body, crate::event::Body::ToolFinished { outcome: crate::tool::Outcome::Denied, .. })
    };
    log.bodies(id).iter().filter(|body| denied(body)).count()
}

#[tokio::test(start_paused = true)]
async fn in_random_trees_nobody_gets_more_than_what_is_above_allows() {
    let mut tally = Tally::default();
    for seed in 0..TREES {
        let Draw { config, agents, call } = draw(&mut StdRng::seed_from_u64(seed));
        let log = Arc::new(MemoryLog::default());
        let model = Arc::new(Acting::new(act));
        let core = Core::start(
            config.clone(),
            Clock::start(),
            Arc::clone(&log),
            Arc::new(agents),
            model,
            Vec::new(),
        );
        let operator = Caller { operator: "ann".to_owned(), is_anonymous: false, ..anybody() };

        match core.kernel.dispatch(&operator, call, None).await {
            Ok(dispatched) => {
                dispatched.waiter.as_ref().expect("it is in the foreground").closed().await;
                core.kernel.open.emptied().await;
            }
            Err(_) => tally.refused += 1,
        }

        check_tree(&log, &config, &mut tally).await;
        core.end().await;
    }

    let Tally { workers, refused, narrowed, planned, deep } = tally;
    assert!(workers > 200 && refused > 100 && narrowed > 20 && planned > 5 && deep > 20, "{tally:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_spawns_at_the_edge_pass_neither_the_trees_budget_nor_its_slots() {
    let world = World::begin();
    let mut config = Config::default();
    config.limits.max_spawns_per_tree = Bound::Of(60);
    config.limits.max_running_per_tree = Bound::Of(5);
    config.limits.max_running = Bound::Of(7);
    let model = Acting::new(|_: &Turn<'_>| Step::After(Duration::from_millis(3), text("done")));
    let core = world.core(config, agents(&["task"]), Arc::new(model));
    let caller = anybody();
    let chat = |root: &str, number: usize| Call {
        place: Place::NamedRoot(root.to_owned()),
        ..call(&format!("{root} {number}"))
    };

    let spawns = (0..200).map(|number| {
        let root = if number % 2 == 0 { "one" } else { "other" };
        core.kernel.dispatch(&caller, chat(root, number), None)
    });
    let (let_in, refused): (Vec<_>, Vec<_>) =
        world.until(join_all(spawns)).await.into_iter().partition(Result::is_ok);
    let told: HashSet<String> =
        refused.iter().map(|refused| refused.as_ref().unwrap_err().to_string()).collect();
    let let_in: Vec<Dispatched> = let_in.into_iter().map(Result::unwrap).collect();

    assert_eq!((let_in.len(), refused.len()), (120, 80));
    assert_eq!(
        told.into_iter().collect::<Vec<_>>(),
        ["the budget `max_spawns_per_tree` is used up (config)"]
    );
    let mut peak = 0;
    for _ in 0..TICKS_MAX {
        let running = running_by_tree(&world).await;
        assert!(running.values().all(|count| *count <= 5), "{running:?}");
        assert!(core.kernel.slots.taken() <= 7);
        peak = peak.max(core.kernel.slots.taken());
        if core.kernel.open.is_empty() {
            break;
        }
        world.tick().await;
    }
    assert_eq!(peak, 7, "the slots were all taken");
    for dispatched in let_in {
        assert_eq!(world.end_of(dispatched).await.status, Status::Completed);
    }
    world.end(core).await;
}

/// Workers that run by the record. None here ever waits for another.
async fn running_by_tree(world: &World) -> HashMap<SessionId, usize> {
    let filter =
        WorkerFilter { statuses: vec![Status::Running], limit: usize::MAX, ..WorkerFilter::default() };
    let mut counts = HashMap::new();
    for worker in world.store.workers(filter).await.unwrap() {
        *counts.entry(worker.root).or_default() += 1;
    }
    counts
}

#[tokio::test(start_paused = true)]
async fn children_that_a_worker_spawns_at_once_do_not_pass_its_own_budget() {
    let world = World::begin();
    let model = Acting::new(|turn: &Turn<'_>| {
        if turn.agent == "leaf" || turn.number > 1 {
            return Step::Reply(text("done"));
        }
        let arguments: Vec<(String, String)> = (0..64)
            .map(|child| {
                (
                    child.to_string(),
                    json!({ "subagent_type": "leaf", "prompt": child.to_string() }).to_string(),
                )
            })
            .collect();
        let children: Vec<(&str, &str, &str)> =
            arguments.iter().map(|(id, arguments)| (id.as_str(), name::SPAWN, arguments.as_str())).collect();
        Step::Reply(calls("", &children))
    });
    let core = world.core(Config::default(), agents(&["task", "leaf"]), Arc::new(model));
    let mut spawn = call("Go.");
    spawn.budget.spawns = Some(10);

    let dispatched = world.until(core.kernel.dispatch(&anybody(), spawn, None)).await.unwrap();
    let worker = world.end_of(dispatched).await;

    assert_eq!(worker.status, Status::Completed, "{}", worker.error);
    assert_eq!(world.store.descendants(&worker.id, 100).await.unwrap().len(), 10);
    world.end(core).await;
}
