//! What the registry promises of a write: once answered it survives `kill -9`; unanswered it is whole or absent.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use proto::registry::v1::{
    ByNameRequest, GetDocumentRequest, ListRequest, RemoveRequest, ReplaceRequest,
    registry_service_client::RegistryServiceClient,
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use registry_svc::agent::Digest;
use service_kit::client::Connection;
use tempfile::TempDir;
use tests::{
    failpoint::{self, Failpoint},
    refusal::reason,
    registry::document,
    registry_program::{self, Program},
    scale::{is_full, scaled},
};
use tokio::{sync::watch, task::JoinSet, time::timeout};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

const WRITERS: usize = 8;

/// Names of each writer. Nobody else writes them, so that their history is known.
const NAMES: usize = 2;

/// Longest time from a start to the first answer.
const READY_MAX: Duration = Duration::from_secs(2);

/// A start that is slow for lack of a processor is not slow so many times on the same files.
const STARTS_MAX: usize = 5;

/// The process is killed at a random moment of this time, which is that of several writes even on a slow disk.
const ROUND_MAX: Duration = Duration::from_millis(300);

/// Bytes of the largest document: several pages of the disk, so that it could be torn.
const DOCUMENT_MAX: usize = 64 * 1024;

/// A failpoint ends the process at one of its first passes, which is soon.
const PASSES_MAX: usize = 12;

/// Far longer than a writer takes to get to a failpoint.
const PATIENCE: Duration = Duration::from_secs(60);

type Client = RegistryServiceClient<Connection>;

/// The document of a name, where it is defined.
type State = Option<Vec<u8>>;

/// One change that somebody asks for.
#[derive(Clone, Debug)]
struct Write {
    name: String,
    after: State,
    request_id: String,
}

/// How a process ends.
#[derive(Clone, Copy, Debug)]
enum Ending {
    AtSomeTime(Duration),
    At(Failpoint),
    /// As soon as somebody has this many answers.
    OnceAnswered(usize),
}

/// Writes one thing after the other, and knows what it was answered.
struct Writer {
    number: usize,
    random: StdRng,
    serial: usize,
    answered: BTreeMap<String, State>,
    unanswered: Option<Write>,
    /// That of the last answer.
    generation: u64,
}

/// What happened, so that a run without its fault is not taken for a proof.
#[derive(Debug, Default)]
struct Tally {
    answered: usize,
    repeated: usize,
    at_failpoints: usize,
    unanswered_present: usize,
    unanswered_absent: usize,
    left_over: usize,
    slow_starts: usize,
    slowest_start: Duration,
}

impl Write {
    /// Answers the generation with it.
    async fn send(&self, client: &mut Client) -> Result<u64, Status> {
        let Self { name, after, request_id } = self.clone();
        match after {
            Some(document) => {
                let request = ReplaceRequest { document, request_id, ..ReplaceRequest::default() };
                client.replace(request).await.map(|answer| answer.into_inner().generation)
            }
            None => {
                let request = RemoveRequest { name, request_id, ..RemoveRequest::default() };
                client.remove(request).await.map(|answer| answer.into_inner().generation)
            }
        }
    }
}

impl Writer {
    fn new(number: usize) -> Self {
        let names = (0..NAMES).map(|name| (format!("scout-{number}-{name}"), None));
        let random = StdRng::from_os_rng();
        Self { number, random, serial: 0, answered: names.collect(), unanswered: None, generation: 0 }
    }

    /// No two writes of one name leave the same behind.
    fn next(&mut self) -> Write {
        self.serial += 1;
        let (number, serial) = (self.number, self.serial);
        let name = format!("scout-{number}-{}", self.random.random_range(0..NAMES));
        let is_removal = self.answered[&name].is_some() && self.random.random_ratio(1, 4);
        let length = self.random.random_range(0..DOCUMENT_MAX);
        let text = document(&name, &format!("{serial} {}", "x".repeat(length)));
        let after = (!is_removal).then(|| text.into_bytes());
        Write { name, after, request_id: format!("{number}-{serial}") }
    }

    /// Writes until the process is gone.
    async fn run(mut self, mut client: Client, answers: watch::Sender<usize>) -> Self {
        loop {
            let write = self.next();
            match write.send(&mut client).await {
                Ok(generation) => {
                    self.note(write, generation);
                    answers.send_modify(|answers| *answers += 1);
                }
                Err(status) => {
                    assert!(status.get_details_error_info().is_none(), "refused: {status:?}");
                    self.unanswered = Some(write);
                    return self;
                }
            }
        }
    }

    fn note(&mut self, write: Write, generation: u64) {
        assert!(generation > self.generation, "{generation} after {}", self.generation);
        self.generation = generation;
        self.answered.insert(write.name, write.after);
    }
}

/// The generation, and the digests of what is authored.
async fn list(client: &mut Client) -> (u64, BTreeMap<String, String>) {
    let kinds = vec![proto::agent::v1::source::Kind::Authored.into()];
    let request = ListRequest { page_size: 200, kinds, ..ListRequest::default() };
    let listed = client.list(request).await.expect("the registry answers").into_inner();
    assert!(listed.next_page_token.is_empty(), "one page holds all");
    (listed.generation, listed.agents.into_iter().map(|agent| (agent.name, agent.digest)).collect())
}

/// What a name is now, in the eyes of every call.
async fn state(client: &mut Client, name: &str, listed: &BTreeMap<String, String>) -> State {
    let request = ByNameRequest { workspace: String::new(), name: name.to_owned() };
    let by_name = client.by_name(request).await;
    let request = GetDocumentRequest { name: name.to_owned(), ..GetDocumentRequest::default() };
    let document = client.get_document(request).await;
    match listed.get(name) {
        Some(digest) => {
            let (agent, fetched) =
                (by_name.expect("it is listed").into_inner().agent, document.expect("it is listed"));
            let fetched = fetched.into_inner().document;
            let agent = agent.expect("an agent");
            assert_eq!((&agent.digest, Digest::of(&fetched).to_string()), (digest, digest.clone()));
            Some(fetched)
        }
        None => {
            reason(&by_name.expect_err("it is refused"), Code::NotFound, "UNKNOWN_AGENT");
            reason(&document.expect_err("it is refused"), Code::NotFound, "UNKNOWN_AGENT");
            None
        }
    }
}

/// Holds what a restarted process says against what writers were answered, then asks again for what was not answered.
async fn verify(client: &mut Client, writers: &mut [Writer], tally: &mut Tally) {
    let (generation, listed) = list(client).await;
    for writer in writers.iter_mut() {
        assert!(generation >= writer.generation, "{generation} fell below {}", writer.generation);
        for (name, answered) in &mut writer.answered {
            let found = state(client, name, &listed).await;
            let unanswered = writer.unanswered.as_ref().filter(|write| write.name == *name);
            match unanswered {
                Some(write) if found == write.after => tally.unanswered_present += 1,
                Some(_) if found == *answered => tally.unanswered_absent += 1,
                Some(_) => panic!("half a write of `{name}`: {found:?}"),
                None => assert!(found == *answered, "an answered write of `{name}` is lost: {found:?}"),
            }
            *answered = found;
        }
    }

    let mut current = generation;
    for writer in writers {
        let Some(write) = writer.unanswered.take() else { continue };
        let was_there = writer.answered[&write.name] == write.after;
        let answered = write.send(client).await.expect("the registry answers");
        assert_eq!(was_there, answered <= generation, "a repeated write counts once: {}", write.name);
        current = current.max(answered);
        writer.note(write, answered);
        tally.repeated += 1;
    }
    let (after, listed) = list(client).await;
    assert_eq!(after, current);
    assert!(listed.len() <= WRITERS * NAMES);
}

/// The files of the store, but for its log.
fn files(directory: &Path) -> Vec<PathBuf> {
    let workspaces = fs::read_dir(directory.join("var/registry/workspaces")).expect("the disk works");
    let entries = workspaces.flat_map(|workspace| {
        fs::read_dir(workspace.expect("the disk works").path()).expect("the disk works")
    });
    entries.map(|entry| entry.expect("the disk works").path()).collect()
}

/// Checks that every definition's file is whole, and answers how many steps the last process left unfinished.
fn check_files(directory: &Path) -> usize {
    let mut left_over = 0;
    for path in files(directory) {
        let bytes = fs::read(&path).expect("the disk works");
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("definition") => {
                let end = bytes.iter().position(|byte| *byte == b'\n').expect("a whole first line");
                let header: serde_json::Value = serde_json::from_slice(&bytes[..end]).expect("JSON");
                assert_eq!(header["digest"], Digest::of(&bytes[end + 1..]).to_string(), "{path:?} is torn");
            }
            Some("new") => left_over += 1,
            Some("log") => left_over += usize::from(!bytes.ends_with(b"\n")),
            _ => panic!("{path:?} belongs to nobody"),
        }
    }
    left_over
}

/// A copy of the store and all that lies beside it.
fn copy(directory: &Path) -> TempDir {
    let copy = tempfile::tempdir().expect("the disk works");
    let mut command = Command::new("cp");
    command.arg("-a").arg(directory.join(".")).arg(copy.path());
    assert!(command.status().expect("cp runs").success());
    copy
}

/// The quickest of some starts on these files.
async fn quickest_start(files: &Path) -> Duration {
    let mut quickest = Duration::MAX;
    for _ in 0..STARTS_MAX {
        let copy = copy(files);
        let program = Program::start(copy.path()).await;
        quickest = quickest.min(program.ready_in);
        program.kill().await;
        if quickest <= READY_MAX {
            break;
        }
    }
    quickest
}

impl Ending {
    /// Every other one at a random time, the others at each place in turn, and just after an answer.
    fn of_round(round: usize, random: &mut StdRng) -> Self {
        let passes = random.random_range(0..PASSES_MAX);
        if round.is_multiple_of(2) {
            return Self::AtSomeTime(random.random_range(Duration::ZERO..ROUND_MAX));
        }
        match failpoint::PLACES.get(round / 2 % (failpoint::PLACES.len() + 1)) {
            Some(&(step, moment)) => Self::At(Failpoint { step, moment, passes }),
            None => Self::OnceAnswered(passes + 1),
        }
    }

    async fn start(self, directory: &Path) -> Program {
        match self {
            Self::At(failpoint) => Program::start_with(directory, failpoint).await,
            Self::AtSomeTime(_) | Self::OnceAnswered(_) => Program::start(directory).await,
        }
    }

    /// Ends the process amid the work of the writers, and returns them.
    async fn bring(self, directory: &Path, program: Program, writers: Vec<Writer>) -> Vec<Writer> {
        let (answers, mut answered) = watch::channel(0);
        let mut running = JoinSet::new();
        for writer in writers {
            running.spawn(writer.run(program.client.clone(), answers.clone()));
        }
        match self {
            Self::AtSomeTime(moment) => {
                let early = timeout(moment, running.join_next()).await;
                assert!(early.is_err(), "a writer ended before the kill");
                program.kill().await;
            }
            Self::At(failpoint) => {
                registry_program::arm(directory);
                let ended = timeout(PATIENCE, program.killed()).await;
                ended.unwrap_or_else(|_| panic!("`{failpoint}` was not reached"));
                registry_program::disarm(directory);
            }
            Self::OnceAnswered(count) => {
                answered.wait_for(|answered| *answered >= count).await.expect("somebody writes");
                program.kill().await;
            }
        }
        running.join_all().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answered_write_is_lost_to_kill_9_and_no_other_is_there_by_half() {
    let kills = scaled(16, 600);
    let directory = registry_program::directory();
    let mut random = StdRng::from_os_rng();
    // A reduced run takes some of the places, another one each time.
    let first = random.random_range(0..2 * failpoint::PLACES.len());
    let mut writers: Vec<Writer> = (0..WRITERS).map(Writer::new).collect();
    let mut tally = Tally::default();

    for round in 0..=kills {
        let ending = Ending::of_round(first + round, &mut random);
        let found = copy(directory.path());
        let mut program = ending.start(directory.path()).await;
        if program.ready_in > READY_MAX {
            tally.slow_starts += 1;
            let quickest = quickest_start(found.path()).await;
            assert!(quickest <= READY_MAX, "round {round}: ready only after {quickest:?}");
        }
        tally.slowest_start = tally.slowest_start.max(program.ready_in);
        assert!(files(directory.path()).iter().all(|path| !path.ends_with(".new")));
        verify(&mut program.client, &mut writers, &mut tally).await;
        if round == kills {
            program.kill().await;
            break;
        }

        let before: usize = writers.iter().map(|writer| writer.serial).sum();
        writers = ending.bring(directory.path(), program, writers).await;
        let asked = writers.iter().map(|writer| writer.serial).sum::<usize>() - before;
        tally.answered += asked - WRITERS;
        tally.at_failpoints += usize::from(matches!(ending, Ending::At(_)));
        tally.left_over += check_files(directory.path());
    }

    println!("{kills} kills: {tally:?}");
    assert_eq!(tally.unanswered_present + tally.unanswered_absent, kills * WRITERS, "{tally:?}");
    assert_eq!(tally.repeated, kills * WRITERS, "{tally:?}");
    assert!(tally.at_failpoints >= kills / 3, "{tally:?}");
    assert!(tally.answered >= kills, "hardly anything was written: {tally:?}");
    assert!(tally.unanswered_absent > 0, "no kill came amid a write: {tally:?}");
    assert!(!is_full() || (tally.unanswered_present > 0 && tally.left_over > 0), "{tally:?}");
}
