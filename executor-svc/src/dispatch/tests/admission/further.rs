//! Further messages: the whole admission but dedupe, with the definition as it was and everything else as it is.

use super::*;
use crate::{definition::PermissionMode, limits::Names};

struct Row {
    name: &'static str,
    /// What has changed since the first run, for an earlier parent at a depth.
    arrange: fn(&mut Setup, u64),
    refusal: fn(u64) -> String,
}

fn rows() -> Vec<Row> {
    vec![
        Row {
            name: "4 depth",
            arrange: |setup, depth| setup.config.limits.max_recursion_depth = Bound::Of(depth),
            refusal: |depth| {
                format!("Depth limit reached: this session is at depth {depth} and the maximum is {depth}.")
            },
        },
        Row {
            name: "5 blocked",
            arrange: |setup, _| setup.config.limits.blocked_agents = vec!["leaf".to_owned()],
            refusal: |_| {
                "Agent 'leaf' must not spawn itself (recursion prevention). Choose another agent.".to_owned()
            },
        },
        Row {
            name: "6 policy",
            arrange: |setup, _| setup.config.limits.root_spawns = Names::Listed(vec!["one".to_owned()]),
            refusal: |_| "Cannot spawn 'leaf'. Allowed: one".to_owned(),
        },
        Row {
            name: "9 disabled",
            arrange: |setup, _| setup.config.limits.disabled_agents = vec!["leaf".to_owned()],
            refusal: |_| "Agent \"leaf\" is switched off by the operator. Available: one, two".to_owned(),
        },
        Row {
            name: "10 no model",
            arrange: |setup, _| setup.models_missing = vec!["test/acting"],
            refusal: |_| "no model for `test/acting`".to_owned(),
        },
        Row {
            name: "10 identity",
            arrange: |setup, _| setup.config.limits.permission_mode = PermissionMode::DualSign,
            refusal: |_| "permission mode `dual-sign` needs an operator with credentials".to_owned(),
        },
        Row {
            name: "11 turns",
            arrange: |setup, _| setup.config.limits.max_turns = Bound::Of(0),
            refusal: |_| "the budget `max_turns` is used up (config)".to_owned(),
        },
        Row {
            name: "11 spawns of the tree",
            arrange: |setup, depth| setup.config.limits.max_spawns_per_tree = Bound::Of(depth + 1),
            refusal: |_| "the budget `max_spawns_per_tree` is used up (config)".to_owned(),
        },
        Row {
            name: "11 tokens of the tree",
            // Two turns of 110 for each of those above, and one for the leaf.
            arrange: |setup, depth| setup.config.limits.tree_tokens = Bound::Of(110 * (2 * depth + 1)),
            refusal: |_| "the budget `tree_tokens` is used up (config)".to_owned(),
        },
        Row {
            name: "11 open workers",
            arrange: |setup, _| setup.config.limits.max_open = Bound::Of(0),
            refusal: |_| "too many open workers".to_owned(),
        },
    ]
}

/// A completed worker whose parent stood at a depth.
async fn completed(world: &World, depth: u32) -> Worker {
    let (core, _) = Setup::plain().start(world);
    let wanted = match depth {
        0 => chat("leaf", "Go."),
        depth => {
            let arguments = json!({ "subagent_type": "leaf", "prompt": "Go." });
            chat("one", &format!("ask {depth} {arguments}"))
        }
    };
    let dispatched = world.until(core.kernel.dispatch(&anybody(), wanted, None)).await.unwrap();
    world.end_of(dispatched).await;
    world.until(core.end()).await;
    let workers = world.store.workers(WorkerFilter { limit: 10, ..WorkerFilter::default() }).await.unwrap();
    let leaf = workers.into_iter().find(|worker| worker.agent == "leaf").unwrap();
    assert_eq!((leaf.status, leaf.depth), (Status::Completed, depth + 1));
    leaf
}

fn further(earlier: &Worker) -> Further {
    Further {
        worker: earlier.id.clone(),
        message: "And then?".to_owned(),
        background: false,
        budget: Budget::default(),
        request: request("again"),
    }
}

#[tokio::test(start_paused = true)]
async fn every_row_refuses_a_further_message_at_every_depth_and_lets_it_in_once_nothing_forbids_it() {
    for depth in 0..3 {
        let world = World::begin();
        let earlier = completed(&world, depth).await;
        let before = count(&world).await;
        for row in rows() {
            let mut setup = Setup::plain();
            (row.arrange)(&mut setup, u64::from(depth));
            let (core, _) = setup.start(&world);

            for _ in 0..2 {
                let refused =
                    world.until(core.kernel.send_further(&anybody(), further(&earlier), None)).await;
                let told = refused.map(|dispatched| dispatched.worker.id).unwrap_err().to_string();
                let expected = (row.refusal)(u64::from(depth));
                assert!(told.starts_with(&expected), "row {} at depth {depth}: {told}", row.name);
            }

            assert_eq!(count(&world).await, before, "row {}: a refusal writes nothing", row.name);
            world.until(core.end()).await;
        }

        let (core, _) = Setup::plain().start(&world);
        let dispatched =
            world.until(core.kernel.send_further(&anybody(), further(&earlier), None)).await.unwrap();
        let worker = world.end_of(dispatched).await;
        assert_eq!((worker.status, worker.depth), (Status::Completed, depth + 1), "{}", worker.error);
        let again = world.until(core.kernel.send_further(&anybody(), further(&earlier), None)).await.unwrap();
        assert_eq!(again.worker, worker, "a retry answers the same worker");
        world.end(core).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_further_message_needs_an_open_root_and_a_completed_worker() {
    let world = World::begin();
    let earlier = completed(&world, 1).await;
    let (core, asked) = Setup::plain().start(&world);
    let caller = anybody();
    let held = world.until(core.kernel.dispatch(&caller, chat("one", "hold 1"), None)).await.unwrap();
    world.until_asked(&asked).await;

    let running = Further { request: None, ..further(&held.worker) };
    let refused = world.until(core.kernel.send_further(&caller, running, None)).await.unwrap_err();
    assert_eq!(refused.to_string(), format!("worker `{}` has not completed", held.worker.id));

    world.until(core.kernel.close_session(&earlier.root, "somebody")).await.unwrap();
    let refused = world.until(core.kernel.send_further(&caller, further(&earlier), None)).await.unwrap_err();
    assert_eq!(refused.to_string(), format!("session `{}` is closed", earlier.root));

    core.kernel.shutdown.begin();
    for refused in [
        world.until(core.kernel.send_further(&caller, further(&earlier), None)).await.unwrap_err(),
        world.until(core.kernel.dispatch(&caller, chat("leaf", "Go."), None)).await.unwrap_err(),
    ] {
        assert_eq!(refused.to_string(), "this executor is shutting down");
    }
    drop(held);
    world.end(core).await;
}
