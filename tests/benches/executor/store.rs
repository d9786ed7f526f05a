//! The store alone: callers that let workers in, each waiting until its own is on the disk.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use executor_svc::{
    definition::{Definition, PermissionMode, SpawnPolicy, ToolSelection},
    event::Body,
    session::{Acceptance, Accepted, Log, Parent, Record, Spec, sqlite::Store},
    transcript::Message,
    worker::{SessionId, Status, Time, Usage, Worker},
};
use tests::bench::Cost;
use tokio::task::JoinSet;

use crate::{
    floor::{store_arguments, tell_waits},
    services,
};

/// Lets workers in for so many callers at a time, and tells how many, and how long one of them waited in the middle.
pub(crate) async fn accepts(arguments: Vec<String>) {
    let (directory, callers, time) = store_arguments(&arguments);
    let store = Store::open(&directory.join("store"), Arc::new(now)).expect("a store");
    let store = Arc::new(store);
    let cost = Cost::of(std::process::id());
    let until = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let mut waits = Vec::new();
            while Instant::now() < until {
                let began = Instant::now();
                let accepted = store.accept(acceptance()).await.expect("the worker is let in");
                assert!(matches!(accepted, Accepted::New { .. }));
                waits.push(began.elapsed());
            }
            waits
        });
    }
    tell_waits(&cost, tasks.join_all().await.into_iter().flatten().collect());
    store.close().await;
}

fn now() -> Time {
    let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970");
    Time(i64::try_from(elapsed.as_millis()).expect("a time that fits"))
}

/// What a plain spawn records.
fn acceptance() -> Acceptance {
    let prompt = "go".to_owned();
    let spec = Spec {
        definition: definition(),
        earlier: None,
        request_id: String::new(),
        system: services::instructions(),
        prompt: prompt.clone(),
        output_schema: None,
        schema_is_permissive: false,
        locale: String::new(),
        thinking: None,
        max_turns: 30,
        tokens_max: None,
        wall_time: Duration::from_secs(1_800),
        spawns_max: None,
        root_spawns: SpawnPolicy::All,
    };
    Acceptance {
        worker: worker(),
        records: vec![
            Record::Spec(Box::new(spec)),
            Record::Event { body: Body::Accepted },
            Record::Message { message: Message::User { text: prompt } },
        ],
        parent: Parent::UnnamedRoot,
        open_max: u32::MAX,
        spawns_per_tree_max: Some(200),
        tokens_per_tree_max: None,
        tree_window: Duration::from_secs(86_400),
        request: None,
        dedupe: None,
        is_review: false,
    }
}

fn definition() -> Definition {
    Definition {
        name: "plain".to_owned(),
        description: "Made for a benchmark.".to_owned(),
        system_prompt: services::instructions(),
        tools: ToolSelection::Listed(Vec::new()),
        disallowed_tools: Vec::new(),
        spawns: SpawnPolicy::None,
        models: Vec::new(),
        thinking_level: None,
        output_schema: None,
        permission_mode: None,
        max_turns: None,
        critical_reminder: String::new(),
        skills: Vec::new(),
        mcp_servers: Vec::new(),
        blocking: false,
        digest: "sha256:0".to_owned(),
    }
}

fn worker() -> Worker {
    let root = SessionId::new_root();
    Worker {
        id: SessionId::new_worker(),
        parent: root.clone(),
        root,
        workspace: "default".to_owned(),
        agent: "plain".to_owned(),
        agent_digest: "sha256:0".to_owned(),
        depth: 1,
        description: String::new(),
        status: Status::Pending,
        stop_reason: None,
        result: String::new(),
        partial: false,
        structured_output: None,
        schema_valid: None,
        schema_source: None,
        error: String::new(),
        usage: Usage::default(),
        background: false,
        spawns: SpawnPolicy::None,
        model: "local/model".to_owned(),
        replica: String::new(),
        operator: "anonymous".to_owned(),
        create_time: now(),
        start_time: None,
        close_time: None,
        labels: BTreeMap::new(),
        continues: None,
        plan_mode: false,
        permission_mode: PermissionMode::MutatingWithReview,
        takeovers: 0,
    }
}
