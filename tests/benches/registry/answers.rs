//! Calls of `ByName` at full load, at rest and while everything is read again and again.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, Instant},
};

use prost::Message as _;
use proto::registry::v1::{ByNameRequest, ReloadRequest, registry_service_client::RegistryServiceClient};
use tempfile::TempDir;
use tests::{
    bench::{Cost, Goal, Part, Table, median},
    repository,
};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use crate::{
    agents,
    files::COUNT,
    load::{self, Round, Target},
    peer::{self, Etcd},
    service::{self, Registry, path},
};

const BY_NAME: &str = "/roster.registry.v1.RegistryService/ByName";

/// Rounds of a measurement; the one in the middle counts.
const ROUNDS: usize = 5;

/// Length of the prompt with which an answer has 4 KiB.
const PROMPT_BYTES: usize = 3_840;

/// The definition that is asked for.
const NAME: &str = "asked";

/// What the descriptions of two sets differ in. Of one length, so that answers are too.
const MARKS: [&str; 2] = ["this", "that"];

/// Between two calls that only check: they are not to be a load of their own.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Beside a bare handler, and beside etcd.
pub(crate) async fn by_name(table: &mut Table) {
    const RATE: &str = "ByName of 4 KiB, rate beside a bare handler";
    const COST: &str = "ByName of 4 KiB, processor time beside it";
    const ETCD: &str = "ByName of 4 KiB, rate beside etcd";
    if !load::is_installed() {
        return [RATE, COST, ETCD].iter().for_each(|what| table.skipped(what, "h2load is not installed"));
    }
    let directory = tempfile::tempdir_in(repository::root().join("target")).expect("a directory");
    let project = directory.path().join("project");
    write_asked(&service::agents(&project));
    let mut registry = Registry::start(directory.path()).await;
    let (request, answer) = ask(&mut registry.client).await;
    let file = directory.path().join("answer");
    fs::write(&file, &answer).expect("the answer is written");
    let mut bare = Part::start("bare", &[NAME, path(&file)]);
    let bare_address = bare.line();
    let ours =
        Target { address: &registry.address, method: BY_NAME, request: &request, answer_bytes: answer.len() };
    let floor = Target { address: &bare_address, ..ours };
    let etcd = Etcd::start(directory.path()).await;
    let etcd = match etcd {
        Ok(etcd) => {
            let (request, length) = etcd.put(NAME, answer.clone()).await;
            Ok((etcd, request, length))
        }
        Err(why) => Err(why),
    };

    let (mut our_rounds, mut floor_rounds, mut etcd_rates) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        floor_rounds.push(load::round(&floor, bare.process(), directory.path()).await);
        our_rounds.push(load::round(&ours, registry.part.process(), directory.path()).await);
        if let Ok((etcd, request, answer_bytes)) = &etcd {
            let target =
                Target { address: &etcd.address, method: peer::RANGE, request, answer_bytes: *answer_bytes };
            etcd_rates.push(load::round(&target, etcd.process(), directory.path()).await.rate);
        }
    }
    let rate = ratio(&our_rounds, &floor_rounds, |round| round.rate);
    let cost = ratio(&our_rounds, &floor_rounds, |round| round.processor_us);
    let [our_rate, floor_rate] = [&our_rounds, &floor_rounds].map(|rounds| middle(rounds, |it| it.rate));
    let [our_cost, floor_cost] =
        [&our_rounds, &floor_rounds].map(|rounds| middle(rounds, |it| it.processor_us));
    table.ratio(RATE, rate, Goal::AtLeast(0.95), format!("{our_rate:.0}/s of {floor_rate:.0}"));
    table.ratio(COST, cost, Goal::AtMost(1.10), format!("{our_cost:.2} µs of {floor_cost:.2}"));
    match etcd {
        Ok(_) => {
            let etcd_rate = median(etcd_rates);
            let figures = format!("{our_rate:.0}/s, etcd {etcd_rate:.0}");
            table.ratio(ETCD, our_rate / etcd_rate, Goal::AtLeast(3.5), figures);
        }
        Err(why) => table.skipped(ETCD, why),
    }
}

/// While 10,000 definitions are read again in a loop, each time all of them changed.
pub(crate) async fn reloading(table: &mut Table) {
    const RATE: &str = "ByName while 10,000 are reloaded, rate a core left";
    const LATENCY: &str = "ByName while 10,000 are reloaded, p99 beside rest";
    if !load::is_installed() {
        return [RATE, LATENCY].iter().for_each(|what| table.skipped(what, "h2load is not installed"));
    }
    let (mut rest, mut under, mut shares, mut reloads) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        // Each from the beginning: the number of a generation is part of an answer's length.
        let swapped = Swapped::new();
        let mut registry = Registry::start(swapped.directory.path()).await;
        let (request, answer) = ask(&mut registry.client).await;
        let target = Target {
            address: &registry.address,
            method: BY_NAME,
            request: &request,
            answer_bytes: answer.len(),
        };
        rest.push(load::round(&target, registry.part.process(), swapped.directory.path()).await);

        let cost = Cost::of(registry.part.process());
        for mark in [MARKS[1], MARKS[0]] {
            swapped.show(mark);
            reload(&mut registry.client).await;
        }
        let cost = cost.processor().as_secs_f64() / 2.0;

        let began = Instant::now();
        let stop = CancellationToken::new();
        let checked = tokio::spawn(check_sets(registry.client.clone(), swapped.names.clone(), stop.clone()));
        let (measured, count) = tokio::join!(
            async {
                let measured = load::round(&target, registry.part.process(), swapped.directory.path()).await;
                stop.cancel();
                measured
            },
            swapped.swap_until(registry.client.clone(), &stop)
        );
        let busy = cost * count as f64 / began.elapsed().as_secs_f64();
        checked.await.expect("no call fails or sees half a set");
        shares.push((1.0 - busy / cores()).max(0.0));
        under.push(measured);
        reloads += count;
    }
    let left = median(shares);
    let [at_rest, loaded] = [&rest, &under].map(|rounds| middle(rounds, |round| round.rate));
    let figures = format!(
        "{loaded:.0}/s of {at_rest:.0}, {reloads} reloads left {:.0} % of the processor time",
        left * 100.0
    );
    table.ratio(RATE, loaded / at_rest / left, Goal::AtLeast(0.85), figures);
    let [at_rest, loaded] = [&rest, &under].map(|rounds| middle(rounds, |round| round.p99_us / 1e3));
    let figures = format!("{loaded:.1} ms of {at_rest:.1}");
    table.ratio(LATENCY, loaded / at_rest, Goal::AtMost(2.0), figures);
}

/// A project whose directory of definitions is a link to one of two sets, the same but for a word in every description.
struct Swapped {
    directory: TempDir,
    names: Vec<String>,
}

impl Swapped {
    fn new() -> Self {
        let directory = tempfile::tempdir_in(repository::root().join("target")).expect("a directory");
        let project = directory.path().join("project");
        fs::create_dir_all(project.join(".git")).expect("a project");
        let mut names = Vec::new();
        for mark in MARKS {
            names = agents::write(&project.join(mark), COUNT, mark).names;
            write_asked(&project.join(mark));
        }
        let agents = service::agents(&project);
        fs::create_dir_all(agents.parent().expect("a family")).expect("a family");
        let swapped = Self { directory, names };
        swapped.show(MARKS[0]);
        swapped
    }

    /// Swaps the link, at once.
    fn show(&self, mark: &str) {
        let project = self.directory.path().join("project");
        let next = project.join("next");
        symlink(project.join(mark), &next).expect("a link");
        fs::rename(next, service::agents(&project)).expect("the link is swapped");
    }

    /// Swaps and reloads until it is told to stop. Answers how often.
    async fn swap_until(
        &self,
        mut client: RegistryServiceClient<Channel>,
        stop: &CancellationToken,
    ) -> usize {
        let mut count = 0;
        while !stop.is_cancelled() {
            count += 1;
            self.show(MARKS[count % 2]);
            reload(&mut client).await;
        }
        count
    }
}

/// Asks for one definition after the other: those of one generation all come from one set.
async fn check_sets(mut client: RegistryServiceClient<Channel>, names: Vec<String>, stop: CancellationToken) {
    let mut sets: HashMap<u64, bool> = HashMap::new();
    for name in names.iter().cycle() {
        if stop.is_cancelled() {
            break;
        }
        let request = ByNameRequest { workspace: String::new(), name: name.clone() };
        let response = client.by_name(request).await.expect("the name is in force").into_inner();
        let is_first = response.agent.expect("an agent").description.contains(MARKS[0]);
        let of_generation = *sets.entry(response.generation).or_insert(is_first);
        assert_eq!(of_generation, is_first, "generation {} is of both sets", response.generation);
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    assert!(sets.len() > 2, "no set was swapped");
}

async fn reload(client: &mut RegistryServiceClient<Channel>) {
    let response = client.reload(ReloadRequest::default()).await.expect("it reloads").into_inner();
    assert!(response.added.is_empty() && response.removed.is_empty(), "all names stay");
}

/// The definition whose answer has 4 KiB.
fn write_asked(directory: &Path) {
    fs::create_dir_all(directory).expect("a directory for agents");
    let text =
        format!("---\nname: {NAME}\ndescription: Made for a benchmark.\n---\n{}\n", "p".repeat(PROMPT_BYTES));
    fs::write(directory.join(format!("{NAME}.md")), text).expect("an agent is written");
}

/// The request for it, and its answer as it comes over the wire.
async fn ask(client: &mut RegistryServiceClient<Channel>) -> (Vec<u8>, Vec<u8>) {
    let request = ByNameRequest { workspace: String::new(), name: NAME.to_owned() };
    let answer = client.by_name(request.clone()).await.expect("it is in force").into_inner();
    (request.encode_to_vec(), answer.encode_to_vec())
}

/// The middle of what two kinds of rounds that took turns make of each other.
fn ratio(ours: &[Round], floor: &[Round], figure: impl Fn(&Round) -> f64) -> f64 {
    median(ours.iter().zip(floor).map(|(ours, floor)| figure(ours) / figure(floor)).collect())
}

fn middle(rounds: &[Round], figure: impl Fn(&Round) -> f64) -> f64 {
    median(rounds.iter().map(figure).collect())
}

fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1, usize::from) as f64
}
