//! The measurements, each against its floor or its peer in the same run.

use std::{
    iter::repeat_with,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use proto::executor::v1::{ListProposalsRequest, SpawnRequest, review_service_client::ReviewServiceClient};
use serde_json::Value;
use tempfile::TempDir;
use tests::{
    bench::{Cost, Goal, Part, Table, median, resident_bytes},
    executor::call,
    repository,
};
use tokio::task::JoinSet;

use crate::{
    floor::Figures,
    peer::Peer,
    services::{Pair, channel, spawn},
};

/// Rounds of a measurement; the one in the middle counts.
const ROUNDS: usize = 3;

/// Callers at a time where nothing else is said.
const CALLERS: usize = 64;

/// Calls at a time on one connection.
const CALLS_PER_CONNECTION: usize = 16;

/// How long the store and its floor are measured, milliseconds.
const STORE_TIME: &str = "1500";

/// The model, and what is measured with it.
pub(crate) struct Bench {
    _mock: Part,
    model: String,
    http: reqwest::Client,
}

impl Bench {
    pub(crate) fn start() -> Self {
        let mut mock = Part::start("mock", &[]);
        let model = mock.line();
        Self { _mock: mock, model, http: reqwest::Client::new() }
    }

    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    /// Processor time of a spawn and its run, record and call included.
    pub(crate) async fn cost(&self, pair: &Pair, table: &mut Table) {
        const RUNS: usize = 4_000;
        let (mut calls, mut rows) = (Vec::new(), Vec::new());
        let (mut loops, mut ours) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for _ in 0..ROUNDS {
            calls.push(empty_calls().await.each_us());
            rows.push(in_store("rows", CALLERS).0.each_us());
            for (index, agent) in ["plain", "parent"].into_iter().enumerate() {
                loops[index].push(self.by_hand(agent, CALLERS, RUNS).each_us());
                ours[index].push(spawns(pair, CALLERS, RUNS, || call(agent, "go")).await.each_us());
            }
        }
        let (call, row) = (median(calls), median(rows));
        let [plain, parent] = loops.map(median);
        let [our_plain, our_parent] = ours.map(median);
        for (what, ours, hand, workers, goal) in [
            ("spawn and plain run, processor time", our_plain, plain, 1.0, 2.0),
            ("parent with one sub-agent, processor time", our_parent, parent, 2.0, 1.8),
        ] {
            let floor = hand + workers * (call + row);
            let figures = format!(
                "{ours:.0} µs of {floor:.0}: loop {hand:.0} + {workers:.0} × (call {call:.0} + row {row:.0})"
            );
            table.ratio(what, ours / floor, Goal::AtMost(goal), figures);
        }
        self.check().await;
    }

    /// As many at once as there are callers, with a model that takes its time.
    pub(crate) async fn latency(&self, pair: &Pair, table: &mut Table) {
        const RUNS: usize = CALLERS * 20;
        const DELAY: Duration = Duration::from_millis(50);
        const TURNS: f64 = 3.0;
        spawns(pair, CALLERS, CALLERS, || call("parent", "go")).await;
        self.delay(DELAY).await;
        let rate = spawns(pair, CALLERS, RUNS, || call("parent", "go")).await.rate();
        self.delay(Duration::ZERO).await;
        let ideal = float(CALLERS) / (TURNS * DELAY.as_secs_f64());
        let text = format!("{rate:.0}/s of {ideal:.0}/s");
        table.ratio("64 parents at once, model of 50 ms, rate", rate / ideal, Goal::AtLeast(0.9), text);
        self.check().await;
    }

    /// A thousand parents at once, beside what others make of it.
    pub(crate) async fn crowd(&self, pair: &Pair, table: &mut Table) {
        const CROWD: usize = 1_000;
        let (mut ours, mut rigs) = (Vec::new(), Vec::new());
        let mut rig = Ok(());
        for _ in 0..ROUNDS {
            ours.push(spawns(pair, CROWD, CROWD, || call("parent", "go")).await.rate());
            rig = Peer::Rig.parents(&self.model, CROWD).map(|figures| rigs.push(figures.rate()));
        }
        let ours = median(ours);
        let autogen = Peer::Autogen.parents(&self.model, CROWD).map(|figures| figures.rate());
        for (name, rate, goal) in [("rig", rig.map(|()| median(rigs)), 1.6), ("AutoGen", autogen, 40.0)] {
            let what = format!("1,000 parents at once, rate beside {name}");
            match rate {
                Ok(rate) => {
                    let text = format!("{ours:.0}/s of {rate:.0}/s");
                    table.ratio(&what, ours / rate, Goal::AtLeast(goal), text);
                }
                Err(why) => table.skipped(&what, format!("{ours:.0}/s; {why}")),
            }
        }
        self.check().await;
    }

    /// A call that an earlier worker answers.
    pub(crate) async fn dedupe(&self, pair: &Pair, table: &mut Table) {
        const CALLS: usize = 20_000;
        let named = || SpawnRequest { root_id: "bench".to_owned(), ..call("plain", "go") };
        spawns(pair, 1, 1, named).await;
        let (mut calls, mut hits) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            calls.push(empty_calls().await.each_us());
            hits.push(spawns(pair, CALLERS, CALLS, named).await.each_us());
        }
        let (call, hit) = (median(calls), median(hits));
        let text = format!("{hit:.1} µs of {call:.1} µs");
        table.ratio("dedupe hit, processor time", hit / call, Goal::AtMost(2.0), text);
    }

    /// Letting workers in, durably.
    pub(crate) fn durable(&self, table: &mut Table) {
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        let (mut waits, mut syncs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            floor.push(in_store("rows", CALLERS).0.rate());
            ours.push(in_store("accepts", CALLERS).0.rate());
            syncs.push(in_store("syncs", 1).1);
            waits.push(in_store("accepts", 1).1);
        }
        let (ours, floor) = (median(ours), median(floor));
        let text = format!("{ours:.0}/s of {floor:.0}/s");
        table.ratio("durable spawns of 64 callers, rate", ours / floor, Goal::AtLeast(0.6), text);
        let (wait, sync) = (median(waits), median(syncs));
        let text = format!("{wait:.0} µs of {sync:.0} µs");
        table.ratio("durable spawn of one caller, wait", wait / sync, Goal::AtMost(2.0), text);
    }

    /// Memory of runs that wait for their model.
    pub(crate) async fn memory(&self, pair: &Pair, table: &mut Table) {
        const PARKED: usize = 10_000;
        let at_once = PARKED.to_string();
        let mut hand = Part::start("loop", &[&self.model, "plain", &at_once, &at_once]);
        hand.line();
        self.delay(PARKING_TIME).await;
        let before = resident_bytes(hand.process());
        hand.tell("go");
        self.waiting(PARKED).await;
        let floor = resident_bytes(hand.process()) - before;
        drop(hand);
        self.delay(Duration::ZERO).await;
        self.waiting(0).await;

        spawns(pair, CALLERS, CALLERS, || call("plain", "go")).await;
        self.delay(PARKING_TIME).await;
        let before = resident_bytes(pair.executor.process());
        let background = || SpawnRequest { background: true, ..call("plain", "go") };
        spawns(pair, CALLERS, PARKED, background).await;
        self.waiting(PARKED).await;
        let ours = resident_bytes(pair.executor.process()) - before;
        self.delay(Duration::ZERO).await;
        let [ours, floor] = [ours, floor].map(|bytes| kibibytes(bytes) / float(PARKED));
        let text = format!(
            "{ours:.1} KiB of {floor:.1} KiB, {PARKED} parked, {:.0} MiB before",
            kibibytes(before) / 1024.0
        );
        table.ratio("memory of a parked run", ours / floor, Goal::AtMost(1.3), text);
    }

    /// A thousand workers at once, over and over: memory after the last round beside memory after the second.
    pub(crate) async fn flat(&self, pair: &Pair, table: &mut Table) {
        const CROWD: usize = 1_000;
        const FLAT_ROUNDS: usize = 20;
        self.delay(Duration::from_millis(50)).await;
        let mut resident = Vec::new();
        for _ in 0..FLAT_ROUNDS {
            spawns(pair, CROWD, CROWD * 5, || call("plain", "go")).await;
            resident.push(kibibytes(resident_bytes(pair.executor.process())) / 1024.0);
        }
        self.delay(Duration::ZERO).await;
        // The first rounds fill what is kept: connections, caches of the store, pages of the allocator.
        let (early, late) = (median(resident[2..7].to_vec()), median(resident[FLAT_ROUNDS - 5..].to_vec()));
        let text = format!("{late:.1} MiB of {early:.1} MiB over {} workers", CROWD * 5 * FLAT_ROUNDS);
        table.ratio("1,000 workers at once, memory over time", late / early, Goal::AtMost(1.05), text);
    }

    fn by_hand(&self, work: &str, at_once: usize, runs: usize) -> Figures {
        let mut part = Part::start("loop", &[&self.model, work, &at_once.to_string(), &runs.to_string()]);
        part.line();
        part.tell("go");
        Figures::read(&part.line())
    }

    async fn delay(&self, delay: Duration) {
        let url = format!("http://{}/delay/{}", self.model, delay.as_millis());
        self.http.post(url).send().await.expect("the mock answers");
    }

    /// Waits until so many requests wait in the model.
    async fn waiting(&self, count: usize) {
        let url = format!("http://{}/waiting/{count}", self.model);
        self.http.get(url).send().await.expect("the mock answers");
    }

    /// What parents were told by their sub-agents has to be what those answered.
    async fn check(&self) {
        let url = format!("http://{}/counts", self.model);
        let response = self.http.get(url).send().await.expect("the mock answers");
        let counts: Value = response.json().await.expect("counts are JSON");
        assert_eq!(counts["bad_results"], 0, "a sub-agent's result is not what it answered: {counts}");
    }
}

/// Longer than it takes to begin and to measure all parked runs.
const PARKING_TIME: Duration = Duration::from_secs(300);

/// Calls of a bare server, as many at a time as there are callers.
async fn empty_calls() -> Figures {
    const CALLS: usize = 60_000;
    let mut part = Part::start("empty", &[]);
    let address = part.line();
    let clients = connections(CALLERS, || async { ReviewServiceClient::new(channel(&address).await) });
    let clients = clients.await;
    let cost = Cost::of(part.process());
    callers(clients, CALLERS, CALLS, |mut client| async move {
        client.list_proposals(ListProposalsRequest::default()).await.expect("an answer");
    })
    .await;
    Figures::since(&cost, CALLS)
}

/// Spawns, so many at a time and so many in all, and what they cost the executor.
async fn spawns(
    pair: &Pair,
    at_a_time: usize,
    count: usize,
    request: impl Fn() -> SpawnRequest + Clone + Send + 'static,
) -> Figures {
    let clients = connections(at_a_time, || pair.client()).await;
    let cost = Cost::of(pair.executor.process());
    callers(clients, at_a_time, count, move |mut client| {
        let request = request();
        async move {
            spawn(&mut client, request).await.expect("the spawn is let in");
        }
    })
    .await;
    Figures::since(&cost, count)
}

/// So many callers, each of which calls again once it is answered, until so many calls were made.
async fn callers<C, F>(
    clients: Vec<C>,
    at_a_time: usize,
    count: usize,
    call: impl Fn(C) -> F + Clone + Send + 'static,
) where
    C: Clone + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let left = Arc::new(AtomicUsize::new(count));
    let mut tasks = JoinSet::new();
    for client in clients.into_iter().cycle().take(at_a_time) {
        let (left, call) = (Arc::clone(&left), call.clone());
        tasks.spawn(async move {
            let take = |left: usize| left.checked_sub(1);
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                call(client.clone()).await;
            }
        });
    }
    tasks.join_all().await;
}

/// As many connections as so many calls at a time need.
async fn connections<C, F: Future<Output = C>>(at_a_time: usize, connect: impl FnMut() -> F) -> Vec<C> {
    futures::future::join_all(repeat_with(connect).take(at_a_time.div_ceil(CALLS_PER_CONNECTION))).await
}

/// What a part measures over a file of its own, and the wait of one caller in microseconds.
fn in_store(part: &str, callers: usize) -> (Figures, f64) {
    // Where the build is, and not where temporary files are: that may be memory, which has no wait for the disk.
    let directory: TempDir = tempfile::tempdir_in(repository::root().join("target")).expect("a directory");
    let path = directory.path().to_str().expect("a path of text");
    let mut part = Part::start(part, &[path, &callers.to_string(), STORE_TIME]);
    let figures = Figures::read(&part.line());
    let wait = part.line().parse().expect("a time");
    (figures, wait)
}

fn kibibytes(bytes: u64) -> f64 {
    float(usize::try_from(bytes / 1024).expect("a size that fits"))
}

/// Counts of a benchmark are far below what a float holds exactly.
#[allow(clippy::cast_precision_loss)]
fn float(count: usize) -> f64 {
    count as f64
}
