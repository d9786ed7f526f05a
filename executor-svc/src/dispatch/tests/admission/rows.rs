//! Spawns from outside and from inside.

use super::*;
use crate::definition::PermissionMode;

/// One reason to refuse, and how the refusal begins.
struct Row {
    name: &'static str,
    /// For a spawner at a depth, where that matters.
    arrange: fn(&mut Setup, u64),
    call: fn(&mut Call),
    /// What a spawner at a depth is told.
    refusal: fn(u32) -> String,
    /// The argument is not one of the spawn tool's.
    only_outside: bool,
    /// Another worker of the tree runs before the call comes from outside.
    is_spent: bool,
}

/// A refusal that is the same at every depth.
macro_rules! says {
    ($text:expr) => {
        |_| $text.to_owned()
    };
}

const PLAIN: Row = Row {
    name: "",
    arrange: |_, _| {},
    call: |_| {},
    refusal: |_| String::new(),
    only_outside: false,
    is_spent: false,
};

/// The rows of the contract's table in their order.
fn rows() -> Vec<Row> {
    let mut rows = vec![
        Row {
            name: "0 workspace",
            call: |call| call.workspace = "elsewhere".to_owned(),
            refusal: says!("workspace `elsewhere` is not there"),
            only_outside: true,
            ..PLAIN
        },
        Row {
            name: "3 session not found",
            call: |call| call.place = Place::Below("worker-0190c2f0-0000-7000-8000-000000000000".to_owned()),
            refusal: says!("session `worker-0190c2f0-0000-7000-8000-000000000000` is not there"),
            only_outside: true,
            ..PLAIN
        },
        Row {
            name: "4 depth",
            arrange: |setup, depth| setup.config.limits.max_recursion_depth = Bound::Of(depth),
            refusal: |depth| {
                format!("Depth limit reached: this session is at depth {depth} and the maximum is {depth}.")
            },
            ..PLAIN
        },
        Row {
            name: "5 blocked",
            arrange: |setup, _| setup.config.limits.blocked_agents = vec!["leaf".to_owned()],
            refusal: says!(
                "Agent 'leaf' must not spawn itself (recursion prevention). Choose another agent."
            ),
            ..PLAIN
        },
        Row {
            name: "6 policy",
            arrange: |setup, _| {
                let names = ["one", "two"].map(str::to_owned).to_vec();
                setup.config.limits.root_spawns = crate::limits::Names::Listed(names);
            },
            refusal: says!("Cannot spawn 'leaf'. Allowed: one, two"),
            ..PLAIN
        },
        Row {
            name: "7 reserved reviewer",
            call: |call| call.agent = "reviewer".to_owned(),
            refusal: says!("Agent 'reviewer' is reserved and cannot be spawned."),
            ..PLAIN
        },
        Row {
            name: "7 reserved coordinator",
            call: |call| call.agent = "default".to_owned(),
            refusal: says!("Agent 'default' is reserved and cannot be spawned."),
            ..PLAIN
        },
        Row {
            name: "8 unknown",
            // The list inside of a tree is cut to whom one may spawn.
            arrange: |setup, _| setup.config.limits.disabled_agents = vec!["leaf".to_owned()],
            call: |call| call.agent = "nobody".to_owned(),
            refusal: |depth| match depth {
                0 => "Unknown agent \"nobody\". Available: all".to_owned(),
                _ => "Unknown agent \"nobody\". Available: one, two".to_owned(),
            },
            ..PLAIN
        },
        Row {
            name: "8 broken",
            call: |call| call.agent = "broken".to_owned(),
            refusal: says!("Agent \"broken\" cannot be used: no body."),
            ..PLAIN
        },
        Row {
            name: "8 unavailable",
            call: |call| call.agent = "away".to_owned(),
            refusal: says!("the registry cannot be reached"),
            ..PLAIN
        },
        Row {
            name: "9 disabled",
            arrange: |setup, _| setup.config.limits.disabled_agents = vec!["leaf".to_owned()],
            refusal: says!("Agent \"leaf\" is switched off by the operator. Available: one, two"),
            ..PLAIN
        },
    ];
    rows.extend(late_rows());
    rows
}

/// Rows 10 and 11.
fn late_rows() -> Vec<Row> {
    vec![
        Row {
            name: "10 no model",
            arrange: |setup, _| setup.add("leaf", |leaf| leaf.models = vec!["nowhere/model".to_owned()]),
            refusal: says!("no model for `nowhere/model`"),
            ..PLAIN
        },
        Row {
            name: "10 schema of the call",
            call: |call| call.output_schema = Some(r#"{"type": 7}"#.to_owned()),
            refusal: says!("the output schema of the call is not usable: "),
            ..PLAIN
        },
        Row {
            name: "10 schema of the definition",
            arrange: |setup, _| {
                setup.add("leaf", |leaf| leaf.output_schema = Some(r#"{"type": 7}"#.to_owned()))
            },
            refusal: says!("the output schema of the definition is not usable: "),
            ..PLAIN
        },
        Row {
            name: "10 identity",
            arrange: |setup, _| {
                setup.add("leaf", |leaf| leaf.permission_mode = Some(PermissionMode::DualSign))
            },
            refusal: says!("permission mode `dual-sign` needs an operator with credentials"),
            ..PLAIN
        },
        Row {
            name: "11 budget of the definition",
            arrange: |setup, _| setup.add("leaf", |leaf| leaf.max_turns = Some(0)),
            refusal: says!("the budget `turns` is used up (agent)"),
            ..PLAIN
        },
        Row {
            name: "11 budget of the call",
            call: |call| call.budget.tokens = Some(0),
            refusal: says!("the budget `tokens` is used up (request)"),
            only_outside: true,
            ..PLAIN
        },
        Row {
            name: "11 spawns of the tree",
            arrange: |setup, depth| setup.config.limits.max_spawns_per_tree = Bound::Of(depth),
            refusal: says!("the budget `max_spawns_per_tree` is used up (config)"),
            ..PLAIN
        },
        Row {
            name: "11 tokens of the tree",
            // Each of those above has had one turn of 110, and another worker beside them. A worker that asks from inside
            // ends for this budget before it could say what it is told.
            arrange: |setup, depth| setup.config.limits.tree_tokens = Bound::Of(110 * (depth + 1)),
            refusal: says!("the budget `tree_tokens` is used up (config)"),
            only_outside: true,
            is_spent: true,
            ..PLAIN
        },
        Row {
            name: "11 open workers",
            arrange: |setup, depth| setup.config.limits.max_open = Bound::Of(depth),
            refusal: says!("too many open workers"),
            ..PLAIN
        },
    ]
}

impl Row {
    fn setup(&self, depth: u32) -> Setup {
        let mut setup = Setup::plain();
        (self.arrange)(&mut setup, u64::from(depth));
        setup
    }

    fn wanted(&self) -> Call {
        let mut call = chat("leaf", "Go.");
        (self.call)(&mut call);
        call
    }

    #[track_caller]
    fn check(&self, depth: u32, told: &str) {
        let expected = (self.refusal)(depth);
        assert!(told.starts_with(&expected), "row {} at depth {depth}: {told}", self.name);
    }

    async fn ask_from_outside(&self, depth: u32) {
        let world = World::begin();
        let (core, asked) = self.setup(depth).start(&world);
        let caller = anybody();
        let mut wanted = self.wanted();
        let mut held = None;
        if depth > 0 {
            let hold = chat("one", &format!("hold {depth}"));
            let top = world.until(core.kernel.dispatch(&caller, hold, None)).await.unwrap();
            world.until_asked(&asked).await;
            if wanted.place == chat("", "").place {
                wanted.place = Place::Below(deepest(&world, &top).await.to_string());
            }
            held = Some(top);
        }
        if self.is_spent {
            let other = world.until(core.kernel.dispatch(&caller, chat("leaf", "Use some."), None)).await;
            world.end_of(other.unwrap()).await;
        }
        let before = count(&world).await;
        wanted.request = request("again");

        for _ in 0..2 {
            let refused = world.until(core.kernel.dispatch(&caller, wanted.clone(), None)).await;
            self.check(depth, &refused.map(|dispatched| dispatched.worker.id).unwrap_err().to_string());
        }

        assert_eq!(count(&world).await, before, "row {}: a refusal writes nothing", self.name);
        drop(held);
        world.until(core.end()).await;
        if depth == 0 {
            self.retry_where_nothing_forbids(&world).await;
        }
        world.store.close().await;
    }

    /// A refused request is not remembered: the same one is let in later.
    async fn retry_where_nothing_forbids(&self, world: &World) {
        let (core, _) = Setup::plain().start(world);
        let call = Call { request: request("again"), ..chat("leaf", "Go.") };

        let dispatched = world.until(core.kernel.dispatch(&anybody(), call, None)).await.unwrap();
        let worker = world.end_of(dispatched).await;

        assert_eq!(worker.status, Status::Completed, "row {}", self.name);
        world.until(core.end()).await;
    }

    async fn ask_from_inside(&self, depth: u32) {
        let world = World::begin();
        let (core, _) = self.setup(depth).start(&world);
        let Call { agent, prompt, output_schema, .. } = self.wanted();
        let mut arguments = json!({ "subagent_type": agent, "prompt": prompt });
        if let Some(schema) = output_schema {
            arguments["output_schema"] = schema.into();
        }

        let ask = chat("one", &format!("ask {depth} {arguments}"));
        let dispatched = world.until(core.kernel.dispatch(&anybody(), ask, None)).await.unwrap();
        let worker = world.end_of(dispatched).await;

        // The run that was refused a child goes on.
        assert_eq!(worker.stop_reason, Some(StopReason::Finished), "row {}: {}", self.name, worker.error);
        self.check(depth, &worker.result);
        assert_eq!(count(&world).await, depth as usize, "row {}: a refusal writes nothing", self.name);
        world.end(core).await;
    }
}

/// The worker that holds still at the end of a chain.
async fn deepest(world: &World, top: &Dispatched) -> SessionId {
    let mut below = world.store.descendants(&top.worker.id, 10).await.unwrap();
    below.sort_by_key(|worker| worker.depth);
    below.pop().map_or_else(|| top.worker.id.clone(), |worker| worker.id)
}

#[tokio::test(start_paused = true)]
async fn every_row_refuses_a_spawn_from_outside_below_a_root() {
    for row in rows() {
        row.ask_from_outside(0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_row_refuses_a_spawn_from_outside_below_a_running_worker() {
    for row in rows() {
        row.ask_from_outside(1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_row_refuses_a_spawn_from_outside_below_a_running_workers_child() {
    for row in rows() {
        row.ask_from_outside(2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_row_refuses_a_spawn_from_inside_a_running_worker_at_every_depth() {
    let mut rows = rows();
    rows.push(Row {
        name: "1 arguments",
        call: |call| call.prompt = " \n".to_owned(),
        refusal: says!("`prompt`: it is required"),
        ..PLAIN
    });
    rows.push(Row {
        name: "1 names",
        call: |call| call.agent = " ".to_owned(),
        refusal: says!("`subagent_type`: it is required"),
        ..PLAIN
    });
    for row in rows.iter().filter(|row| !row.only_outside) {
        for depth in [1, 2] {
            row.ask_from_inside(depth).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_name_itself_is_refused_to_itself_from_outside_and_inside() {
    let row = Row {
        name: "5 self-recursion",
        call: |call| call.agent = "one".to_owned(),
        refusal: says!("Agent 'one' must not spawn itself (recursion prevention). Choose another agent."),
        ..PLAIN
    };

    row.ask_from_outside(1).await;
    row.ask_from_inside(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_id_answers_before_every_later_row_and_refuses_other_content() {
    let world = World::begin();
    let (core, _) = Setup::plain().start(&world);
    let wanted = Call { request: request("once"), ..chat("leaf", "Go.") };
    let first = world.until(core.kernel.dispatch(&anybody(), wanted.clone(), None)).await.unwrap();
    let first = world.end_of(first).await;
    world.until(core.end()).await;

    let mut strict = Setup::plain();
    strict.config.limits.max_recursion_depth = Bound::Of(0);
    strict.config.limits.disabled_agents = vec!["leaf".to_owned()];
    let (core, _) = strict.start(&world);
    let again = world.until(core.kernel.dispatch(&anybody(), wanted.clone(), None)).await.unwrap();
    let other = Request { id: "once".to_owned(), content: [8; 32] };
    let wanted = Call { request: Some(other), ..wanted };
    let refused = world.until(core.kernel.dispatch(&anybody(), wanted, None)).await.unwrap_err();

    assert_eq!((again.worker, again.deduplicated), (first, false));
    assert_eq!(refused.to_string(), "request id `once` was used with other content");
    assert_eq!(count(&world).await, 1);
    world.end(core).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_stopping_or_closed_takes_no_children() {
    let world = World::begin();
    let (core, asked) = Setup::plain().start(&world);
    let caller = anybody();
    let held = world.until(core.kernel.dispatch(&caller, chat("one", "hold 1"), None)).await.unwrap();
    world.until_asked(&asked).await;
    let (id, root) = (held.worker.id.clone(), held.worker.root.clone());
    let below = |id: &SessionId| Call { place: Place::Below(id.to_string()), ..chat("leaf", "Go.") };
    assert!(world.until(core.kernel.dispatch(&caller, below(&id), None)).await.is_ok());

    let stopping = core.kernel.open.get(&id).unwrap();
    stopping.stop(crate::open::Cause { reason: StopReason::Stopped, error: String::new() });
    let refused = world.until(core.kernel.dispatch(&caller, below(&id), None)).await.unwrap_err();
    assert_eq!(refused.to_string(), format!("session `{id}` is closed"));
    world.end_of(held).await;
    let refused = world.until(core.kernel.dispatch(&caller, below(&id), None)).await.unwrap_err();
    assert_eq!(refused.to_string(), format!("session `{id}` is closed"));

    world.until(core.kernel.close_session(&root, "somebody")).await.unwrap();
    // A closed root goes before every later row, by its id and by its name.
    for place in [Place::Below(root.to_string()), Place::NamedRoot("chat".to_owned())] {
        let call = Call { place, ..chat("nobody", "Go.") };
        let refused = world.until(core.kernel.dispatch(&caller, call, None)).await.unwrap_err();
        assert_eq!(refused.to_string(), format!("session `{root}` is closed"));
    }
    world.end(core).await;
}
