//! Many watchers, some of them coming and going, over changes, a slow reader and a killed process.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use proto::registry::v1::{
    ListRequest, ReloadRequest, RemoveRequest, ReplaceRequest, View, WatchRequest, WatchResponse,
    registry_service_client::RegistryServiceClient, watch_response::Body,
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use service_kit::client::Connection;
use tests::{
    admin::metric,
    refusal::reason,
    registry::{Registry, document},
    registry_program::{self, Program},
    scale::scaled,
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};
use tonic::{
    Code, Status, Streaming,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;

const WATCHERS: usize = 20;

/// Changes come ten a second.
const PACE: Duration = Duration::from_millis(100);

/// Names that come and go; the last of them are files.
const NAMES: usize = 8;
const FILES: usize = 2;

/// More changes than are kept for a reader that does not read, and what waits for it on the way.
const BURST: usize = 400;

/// Longest time until a reader that lags is told so.
const LAGGED_WITHIN: Duration = Duration::from_secs(5);

/// How often the metrics are looked at, where only they tell.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Documents of 8 KB that are more than a reader's window holds.
const MORE_THAN_A_WINDOW: usize = 20;

/// Far longer than anything here takes; only a fault reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// HTTP/2's smallest usual window: a reader that does not read fills it at once.
const WINDOW_BYTES: u32 = 65_535;

const WATCH: &str = "/roster.registry.v1.RegistryService/Watch";

type Client = RegistryServiceClient<Connection>;

/// Digests in force by name.
type State = BTreeMap<String, String>;

/// What was in force at each generation.
type Record = BTreeMap<u64, State>;

/// How far the test has come, for those who watch.
#[derive(Clone)]
struct Stage {
    client: Client,
    /// Counts the processes.
    process: usize,
    /// Where to end, once it is known.
    last: Option<u64>,
}

/// Somebody who applies what a watch says.
#[derive(Default)]
struct Follower {
    generation: u64,
    store_id: String,
    state: State,
    record: Record,
    /// Whether the next message may be a snapshot.
    fresh_is_fine: bool,
    /// Watches begun.
    begun: usize,
}

impl Follower {
    fn request(&self, view: View) -> WatchRequest {
        WatchRequest {
            from_generation: self.generation,
            store_id: self.store_id.clone(),
            view: view.into(),
            ..WatchRequest::default()
        }
    }

    /// Takes a message in, and refuses what a watch may not do.
    fn apply(&mut self, message: WatchResponse) {
        let WatchResponse { generation, store_id, body } = message;
        assert!(self.store_id.is_empty() || self.store_id == store_id, "another store");
        self.store_id = store_id;
        match body.expect("a body") {
            Body::Snapshot(snapshot) => {
                assert!(self.fresh_is_fine && generation >= self.generation, "{generation} begins afresh");
                assert!(snapshot.last, "all of it is one part");
                self.state.clear();
                self.upsert(snapshot.agents);
            }
            Body::Change(change) => {
                assert_eq!(generation, self.generation + 1, "a gap, a repeat or another order");
                assert!(change.last, "all of it is one part");
                self.upsert(change.upserted);
                for name in change.removed {
                    assert!(self.state.remove(&name).is_some(), "`{name}` was not there");
                }
            }
            Body::Bookmark(_) => assert_eq!(generation, self.generation),
        }
        self.generation = generation;
        self.fresh_is_fine = false;
        self.record.insert(generation, self.state.clone());
    }

    fn upsert(&mut self, agents: Vec<proto::agent::v1::AgentDefinition>) {
        self.state.extend(agents.into_iter().map(|agent| (agent.name, agent.digest)));
    }

    /// Follows over reconnections and processes until the last generation.
    async fn run(mut self, mut stage: watch::Receiver<Stage>, mut random: StdRng) -> Self {
        self.fresh_is_fine = true;
        let mut process = 0;
        loop {
            let Stage { mut client, process: now, last } = stage.borrow_and_update().clone();
            if last == Some(self.generation) {
                return self;
            }
            // What only the last process knew cannot be sent again; then the state is.
            self.fresh_is_fine |= now != process;
            process = now;
            let messages = match client.watch(self.request(View::Basic)).await {
                Ok(messages) => messages.into_inner(),
                Err(status) => {
                    lost(&status);
                    stage.changed().await.expect("the test goes on");
                    continue;
                }
            };
            self.begun += 1;
            let most = random.random_range(1..60);
            if let Err(status) = self.some(messages, most, &mut stage).await {
                lost(&status);
                stage.changed().await.expect("the test goes on");
            }
        }
    }

    /// Reads so many messages, or until the stage changes or ends, and hangs up.
    async fn some(
        &mut self,
        mut messages: Streaming<WatchResponse>,
        most: usize,
        stage: &mut watch::Receiver<Stage>,
    ) -> Result<(), Status> {
        for _ in 0..most {
            tokio::select! {
                message = messages.message() => self.apply(message?.expect("a watch does not end well")),
                changed = stage.changed() => {
                    changed.expect("the test goes on");
                    break;
                }
            }
            if stage.borrow().last == Some(self.generation) {
                break;
            }
        }
        Ok(())
    }
}

/// A process that is gone says nothing of its own.
#[track_caller]
fn lost(status: &Status) {
    assert!(status.get_details_error_info().is_none(), "{status:?}");
}

/// Makes changes, one after the other, and records what is in force after each.
struct Changer {
    files: PathBuf,
    serial: usize,
    random: StdRng,
    generation: u64,
    record: Record,
}

impl Changer {
    async fn change(&mut self, client: &mut Client) {
        self.serial += 1;
        let number = self.random.random_range(0..NAMES);
        let name = format!("scout-{number}");
        let is_there = self.record.last_key_value().is_some_and(|(_, state)| state.contains_key(&name));
        let is_removal = is_there && self.random.random_ratio(1, 3);
        let text = document(&name, &format!("{} {}", self.serial, "x".repeat(8_000)));
        if number >= NAMES - FILES {
            let path = self.files.join(format!("{name}.md"));
            match is_removal {
                true => fs::remove_file(path).expect("the disk works"),
                false => write_whole(&path, &text),
            }
            client.reload(ReloadRequest::default()).await.expect("the registry answers");
        } else if is_removal {
            client
                .remove(RemoveRequest { name, ..RemoveRequest::default() })
                .await
                .expect("the registry answers");
        } else {
            let request = ReplaceRequest { document: text.into_bytes(), ..ReplaceRequest::default() };
            client.replace(request).await.expect("the registry answers");
        }
        self.list(client).await;
    }

    async fn list(&mut self, client: &mut Client) {
        let request = ListRequest { page_size: 200, ..ListRequest::default() };
        let listed = client.list(request).await.expect("the registry answers").into_inner();
        assert!(listed.next_page_token.is_empty(), "one page holds all");
        self.generation = listed.generation;
        let agents = listed.agents.into_iter().map(|agent| (agent.name, agent.digest));
        self.record.insert(listed.generation, agents.collect());
    }

    async fn changes(&mut self, client: &mut Client, count: usize, pace: Option<Duration>) {
        let mut ticks = pace.map(interval);
        if let Some(ticks) = &mut ticks {
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        for _ in 0..count {
            if let Some(ticks) = &mut ticks {
                ticks.tick().await;
            }
            self.change(client).await;
        }
    }
}

/// As editors do, so that nobody reads half of it.
fn write_whole(path: &Path, text: &str) {
    let hidden = path.with_file_name(".new");
    fs::write(&hidden, text).expect("the disk works");
    fs::rename(hidden, path).expect("the disk works");
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_see_every_generation_once_and_in_order_whatever_happens() {
    let changes = scaled(60, 1_200);
    let directory = registry_program::directory();
    let files = directory.path().join("project/.claude/agents");
    fs::create_dir_all(&files).expect("the disk works");
    let mut program = Program::start(directory.path()).await;
    let (stages, stage) = watch::channel(Stage { client: program.client.clone(), process: 0, last: None });
    let mut watchers = JoinSet::new();
    for _ in 0..WATCHERS {
        watchers.spawn(Follower::default().run(stage.clone(), StdRng::from_os_rng()));
    }
    let random = StdRng::from_os_rng();
    let mut changer = Changer { files, serial: 0, random, generation: 0, record: Record::new() };
    changer.list(&mut program.client).await;

    changer.changes(&mut program.client, changes / 2, Some(PACE)).await;
    let before = changer.generation;
    program.kill().await;
    program = Program::start(directory.path()).await;
    changer.list(&mut program.client).await;
    assert_eq!(changer.generation, before, "a restart changes nothing");
    stages.send_replace(Stage { client: program.client.clone(), process: 1, last: None });
    changer.changes(&mut program.client, changes - changes / 2, Some(PACE)).await;

    let mut slow = Follower { fresh_is_fine: true, ..Follower::default() };
    let mut client = narrow(program.address).await;
    let mut unread = client.watch(slow.request(View::Full)).await.expect("the registry answers").into_inner();
    changer.changes(&mut program.client, BURST, None).await;
    stages.send_replace(Stage { client: program.client.clone(), process: 1, last: Some(changer.generation) });

    let mut begun = 0;
    let record = Arc::new(std::mem::take(&mut changer.record));
    let ended = timeout(PATIENCE, async {
        while let Some(watcher) = watchers.join_next().await {
            let watcher = watcher.expect("no watcher saw what it may not see");
            begun += watcher.begun;
            check(&watcher, &record, changer.generation);
            // Only what a killed process alone knew may come as a state instead of changes.
            assert!(watcher.record.len() > record.len() / 2, "{} of {}", watcher.record.len(), record.len());
        }
    });
    ended.await.expect("every watcher reaches the last generation");
    println!("{} generations, {WATCHERS} watchers, {begun} watches", record.len());
    assert!(begun > 3 * WATCHERS, "hardly anybody came again: {begun}");

    let told = timeout(LAGGED_WITHIN, async {
        loop {
            match unread.message().await {
                Ok(message) => slow.apply(message.expect("a watch does not end well")),
                Err(status) => break status,
            }
        }
    });
    reason(&told.await.expect("a reader that lags is told so"), Code::Aborted, "WATCH_LAGGED");
    assert!(slow.generation < changer.generation, "it did not lag");
    let mut rest = client.watch(slow.request(View::Full)).await.expect("the registry answers").into_inner();
    while slow.generation < changer.generation {
        let message = timeout(PATIENCE, rest.message()).await.expect("the rest comes");
        slow.apply(message.unwrap().expect("a watch does not end well"));
    }
    check(&slow, &record, changer.generation);
    program.kill().await;
}

#[tokio::test]
async fn a_watcher_that_never_reads_is_ended_by_the_server() {
    let registry = Registry::start().await;
    let mut administrator = registry.administrator().await;
    let mut unread = narrow(registry.address).await;
    let request = WatchRequest { view: View::Full.into(), ..WatchRequest::default() };
    let mut unread = unread.watch(request).await.expect("the registry answers").into_inner();
    let of_watch = |name: &str, labels: &str| format!("{name}{{method=\"{WATCH}\"{labels}}}");
    let (in_flight, aborted) =
        (of_watch("grpc_server_in_flight", ""), of_watch("grpc_server_handled_total", ",code=\"ABORTED\""));
    assert_eq!(metric(registry.admin, &in_flight).await, Some(1.0));

    for serial in 0..MORE_THAN_A_WINDOW {
        let text = document("scout", &format!("{serial} {}", "x".repeat(8_000)));
        let request = ReplaceRequest { document: text.into_bytes(), ..ReplaceRequest::default() };
        administrator.replace(request).await.expect("the registry answers");
    }

    let mut looks = interval(LOOK_INTERVAL);
    let ended = timeout(LAGGED_WITHIN, async {
        while metric(registry.admin, &in_flight).await != Some(0.0) {
            looks.tick().await;
        }
    });
    ended.await.expect("its slot is given back");
    assert_eq!(metric(registry.admin, &aborted).await, Some(1.0));
    let mut read = 0;
    let status = loop {
        match timeout(PATIENCE, unread.message()).await.expect("it is told how it ended") {
            Ok(message) => read += usize::from(message.is_some()),
            Err(status) => break status,
        }
    };
    reason(&status, Code::Aborted, "WATCH_LAGGED");
    assert!((2..MORE_THAN_A_WINDOW).contains(&read), "{read} messages were on the way");
    registry.stop().await;
}

/// A connection that takes no more than it has to before it is read.
async fn narrow(address: SocketAddr) -> RegistryServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("a URL");
    let endpoint =
        endpoint.initial_stream_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
    RegistryServiceClient::new(endpoint.connect().await.expect("the registry answers"))
}

/// What somebody applied is what a listing said at the same generation.
fn check(follower: &Follower, record: &Record, last: u64) {
    assert_eq!(follower.generation, last);
    for (generation, state) in &follower.record {
        assert_eq!(Some(state), record.get(generation), "generation {generation}");
    }
}
