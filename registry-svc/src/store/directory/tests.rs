//! Every operation on a file is made to fail, once, in each way a disk can fail; each test proves that it did.

use std::{
    collections::BTreeMap,
    fs,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, SystemTime},
};

use super::*;
use crate::{
    agent::AgentName,
    document::Authored,
    store::{Entry, Mark, Request, Write},
};

/// What happens at the chosen operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// It fails, the next ones work again.
    Error,
    /// The process ends before it.
    Kill,
    /// The process ends in the middle of it: of bytes to write, half are written.
    KillHalfway,
    /// The machine loses power before it: names that were not synced are as before.
    PowerLoss,
}

/// A disk with a fault at one operation.
struct FaultyDisk {
    trouble: Option<(usize, Trouble)>,
    operations: AtomicUsize,
    is_dead: Mutex<bool>,
    /// Undoes the names that are not synced, newest last.
    unsynced_names: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    /// Files whose contents are not synced, and how many of their bytes a loss of power leaves.
    unsynced_contents: Mutex<HashMap<PathBuf, u64>>,
    /// What a store that forgets something would do is simulated by a disk that does not do it.
    forgets: Option<Forgotten>,
}

/// What a store must not forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forgotten {
    SyncOfContents,
    SyncOfDirectory,
}

impl FaultyDisk {
    fn new(trouble: Option<(usize, Trouble)>) -> Self {
        Self {
            trouble,
            operations: AtomicUsize::new(0),
            is_dead: Mutex::new(false),
            unsynced_names: Mutex::default(),
            unsynced_contents: Mutex::default(),
            forgets: None,
        }
    }

    fn fault_happened(&self) -> bool {
        self.trouble.is_some_and(|(at, _)| self.operations.load(Ordering::SeqCst) > at)
    }

    /// Runs an operation, or the half of it, or lets it fail.
    fn run(&self, whole: impl FnOnce() -> io::Result<()>, half: impl FnOnce()) -> io::Result<()> {
        let number = self.operations.fetch_add(1, Ordering::SeqCst);
        let mut is_dead = self.is_dead.lock();
        if *is_dead {
            return Err(io::Error::other("the process is dead"));
        }
        let Some((_, trouble)) = self.trouble.filter(|(at, _)| *at == number) else { return whole() };
        match trouble {
            Trouble::Error => return Err(io::Error::other("no space left")),
            Trouble::Kill => {}
            Trouble::KillHalfway => half(),
            Trouble::PowerLoss => self.lose_power(),
        }
        *is_dead = true;
        Err(io::Error::other("the process is dead"))
    }

    fn lose_power(&self) {
        for (path, length) in self.unsynced_contents.lock().drain() {
            OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
        }
        self.unsynced_names.lock().drain(..).rev().for_each(|undo| undo());
    }

    fn undo_later(&self, undo: impl FnOnce() + Send + 'static) {
        self.unsynced_names.lock().push(Box::new(undo));
    }

    /// Until the file is synced, a loss of power leaves half of what was added.
    fn tear_later(&self, path: &Path, kept: u64, added: &[u8]) {
        let half = kept + added.len() as u64 / 2;
        self.unsynced_contents.lock().insert(path.to_owned(), half);
    }
}

/// Puts a file back as it was.
fn restore(path: &Path) -> impl FnOnce() + Send + 'static {
    let path = path.to_owned();
    let before = fs::read(&path).ok();
    move || match before {
        Some(bytes) => fs::write(&path, bytes).unwrap(),
        None => drop(fs::remove_file(&path)),
    }
}

impl Disk for FaultyDisk {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let undo = restore(path);
        let half = || fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        self.run(|| RealDisk.write(path, bytes), half)?;
        self.undo_later(undo);
        self.tear_later(path, 0, bytes);
        Ok(())
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let before = fs::metadata(path)?.len();
        self.run(
            || RealDisk.append(path, bytes),
            || RealDisk.append(path, &bytes[..bytes.len() / 2]).unwrap(),
        )?;
        self.tear_later(path, before, bytes);
        Ok(())
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.run(|| RealDisk.sync(path), || {})?;
        if self.forgets != Some(Forgotten::SyncOfContents) {
            self.unsynced_contents.lock().remove(path);
        }
        Ok(())
    }

    fn truncate(&self, path: &Path, length: u64) -> io::Result<()> {
        self.run(|| RealDisk.truncate(path, length), || {})?;
        self.unsynced_contents.lock().remove(path);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (undo_from, undo_to) = (restore(from), restore(to));
        self.run(|| RealDisk.rename(from, to), || {})?;
        let mut unsynced = self.unsynced_contents.lock();
        if let Some(length) = unsynced.remove(from) {
            unsynced.insert(to.to_owned(), length);
        }
        self.undo_later(move || {
            undo_to();
            undo_from();
        });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let undo = restore(path);
        self.run(|| RealDisk.remove(path), || {})?;
        self.unsynced_contents.lock().remove(path);
        self.undo_later(undo);
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.run(|| RealDisk.sync_directory(path), || {})?;
        if self.forgets != Some(Forgotten::SyncOfDirectory) {
            // What was done to names in other directories is synced by then, since one thing happens at a time.
            self.unsynced_names.lock().clear();
        }
        Ok(())
    }
}

fn name(text: &str) -> AgentName {
    AgentName::new_valid(text)
}

fn mark(text: &str) -> Mark {
    Mark { digest: Digest::of(text.as_bytes()), place: Digest::of(b"place") }
}

fn put(generation: u64, agent: &str, text: &str) -> Commit {
    let authored = Authored {
        document: text.to_owned().into(),
        by_administrator: false,
        shadowed: vec![("/u/a.md".to_owned(), Digest::of(b"below"))],
    };
    let request = Request {
        caller: "me".to_owned(),
        id: format!("request-{generation}"),
        content: Digest::of(text.as_bytes()),
        created: true,
    };
    Commit {
        entry: Entry {
            generation,
            time: SystemTime::now(),
            state: Digest::of(&generation.to_be_bytes()),
            upserted: vec![(name(agent), mark(text))],
            removed: Vec::new(),
            request: Some(request),
        },
        write: Some(Write::Put(name(agent), authored)),
    }
}

fn remove(generation: u64, agent: &str) -> Commit {
    let entry = Entry {
        upserted: Vec::new(),
        removed: vec![name(agent)],
        request: None,
        ..put(generation, agent, "").entry
    };
    Commit { entry, write: Some(Write::Remove(name(agent))) }
}

/// A life of a workspace: each commit, and the authored texts after it.
fn life() -> Vec<(Commit, BTreeMap<&'static str, &'static str>)> {
    vec![
        (put(1, "a", "first a"), [("a", "first a")].into()),
        (put(2, "b", "first b"), [("a", "first a"), ("b", "first b")].into()),
        (put(3, "a", "second a"), [("a", "second a"), ("b", "first b")].into()),
        (remove(4, "b"), [("a", "second a")].into()),
        (put(5, "b", "second b"), [("a", "second a"), ("b", "second b")].into()),
        (remove(6, "a"), [("b", "second b")].into()),
    ]
}

fn texts(stored: &Stored) -> BTreeMap<&str, &str> {
    let text = |authored: &Authored| -> String { String::from_utf8(authored.document.to_vec()).unwrap() };
    let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    stored.authored.iter().map(|(name, authored)| (name.as_str(), leak(text(authored)))).collect()
}

/// Lives until the trouble, opens the store again, and compares. Returns whether the trouble happened.
async fn live_and_return(disk: Arc<FaultyDisk>) -> bool {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("registry");
    let mut answered = 0;
    let mut refused = Vec::new();
    if let Ok(store) = DirectoryStore::open_on(root.clone(), Arc::clone(&disk) as Arc<dyn Disk>).await
        && store.load("default").await.is_ok()
    {
        for (index, (commit, _)) in life().into_iter().enumerate() {
            match store.commit("default", commit).await {
                Ok(()) if refused.is_empty() => answered = index + 1,
                Ok(()) => panic!("a commit was accepted behind a gap"),
                Err(_) => {
                    refused.push(index);
                    break;
                }
            }
        }
    }

    let store = DirectoryStore::open(&root).await.unwrap();
    let stored = store.load("default").await.unwrap();
    let life = life();
    let after = |count: usize| match count {
        0 => BTreeMap::new(),
        count => life[count - 1].1.clone(),
    };
    let found = texts(&stored);
    let count = usize::try_from(stored.generation).unwrap();
    let trouble = disk.trouble;
    assert!(count == answered || count == answered + 1, "{trouble:?}: {count} of {answered} answered");
    assert_eq!(found, after(count), "{trouble:?}: the definitions are not those of generation {count}");
    assert!(stored.damaged.is_empty(), "{trouble:?}: {:?}", stored.damaged);
    let in_force: Vec<_> = stored.in_force.keys().map(AgentName::as_str).collect();
    assert_eq!(in_force, found.keys().copied().collect::<Vec<_>>(), "{trouble:?}");
    assert_eq!(stored.entries.len(), count, "{trouble:?}");

    // Life goes on.
    store.commit("default", put(stored.generation + 1, "c", "c")).await.unwrap();
    disk.fault_happened()
}

async fn operations_of_a_life() -> usize {
    let disk = Arc::new(FaultyDisk::new(None));
    live_and_return(Arc::clone(&disk)).await;
    disk.operations.load(Ordering::SeqCst)
}

#[tokio::test]
async fn whatever_operation_ends_the_process_a_change_is_there_whole_or_not_at_all() {
    let count = operations_of_a_life().await;
    assert!(count > 20, "{count}");

    for trouble in [Trouble::Kill, Trouble::KillHalfway, Trouble::PowerLoss] {
        for at in 0..count {
            assert!(
                live_and_return(Arc::new(FaultyDisk::new(Some((at, trouble))))).await,
                "{trouble:?} at {at}"
            );
        }
    }
}

#[tokio::test]
async fn a_sync_that_is_forgotten_is_caught() {
    let count = operations_of_a_life().await;
    for forgotten in [Forgotten::SyncOfContents, Forgotten::SyncOfDirectory] {
        let mut caught = 0;
        for at in 0..count {
            let disk =
                FaultyDisk { forgets: Some(forgotten), ..FaultyDisk::new(Some((at, Trouble::PowerLoss))) };
            let life = tokio::spawn(async move { live_and_return(Arc::new(disk)).await });
            caught += usize::from(life.await.is_err());
        }

        assert!(caught > 0, "{forgotten:?}: losing power at {count} places changed nothing");
    }
}

#[tokio::test]
async fn a_failing_operation_is_an_error_answered_and_nothing_of_it_stays() {
    let count = operations_of_a_life().await;
    let (mut errors, mut refusing) = (0, 0);
    for at in 0..count {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("registry");
        let disk = Arc::new(FaultyDisk::new(Some((at, Trouble::Error))));
        let Ok(store) = DirectoryStore::open_on(root.clone(), Arc::clone(&disk) as Arc<dyn Disk>).await
        else {
            continue;
        };
        if store.load("default").await.is_err() {
            continue;
        }
        let mut expected = BTreeMap::new();
        for (commit, after) in life() {
            let retry = commit.clone();
            if store.commit("default", commit).await.is_err() {
                errors += 1;
                // The disk works again: what failed is either possible now, or everything is refused.
                match store.commit("default", retry).await {
                    Ok(()) => {}
                    Err(StoreError::Refusing) => {
                        refusing += 1;
                        break;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            expected = after;
        }
        let is_refusing =
            matches!(store.commit("default", put(9, "z", "z")).await, Err(StoreError::Refusing));
        drop(store);

        let stored = DirectoryStore::open(&root).await.unwrap().load("default").await.unwrap();
        let mut found = texts(&stored);
        found.remove("z");
        if !is_refusing {
            assert_eq!(found, expected, "operation {at}");
        }
        assert!(disk.fault_happened(), "operation {at}");
    }
    assert!(errors >= 12 && refusing >= 1, "{errors} errors, {refusing} refusing");
}

#[tokio::test]
async fn everything_comes_back_as_it_was_written() {
    let place = tempfile::tempdir().unwrap();
    let store = DirectoryStore::open(place.path()).await.unwrap();
    let id = store.id().to_owned();
    assert_eq!(store.load("default").await.unwrap().generation, 0);
    let commit = put(1, "a", "text of a");
    store.commit("default", commit.clone()).await.unwrap();
    drop(store);

    let store = DirectoryStore::open(place.path()).await.unwrap();
    let stored = store.load("default").await.unwrap();

    assert_eq!(store.id(), id);
    let Some(Write::Put(name, authored)) = commit.write else { unreachable!("it was made above") };
    assert_eq!(stored.authored, BTreeMap::from([(name, authored)]));
    let entry = &stored.entries[0];
    assert_eq!((entry.generation, &entry.request), (1, &commit.entry.request));
    assert_eq!(stored.in_force, commit.entry.upserted.into_iter().collect());
    assert_eq!(stored.state, Some(commit.entry.state));
    assert_eq!(store.load("another").await.unwrap().generation, 0);
}

#[tokio::test]
async fn one_process_at_a_time_has_the_store() {
    let place = tempfile::tempdir().unwrap();
    let _store = DirectoryStore::open(place.path()).await.unwrap();

    let second = DirectoryStore::open(place.path()).await;

    assert!(matches!(second.err(), Some(StoreError::InUse { .. })));
}

#[tokio::test]
async fn a_definition_that_rotted_is_damaged_and_a_log_that_rotted_is_said() {
    let place = tempfile::tempdir().unwrap();
    let store = DirectoryStore::open(place.path()).await.unwrap();
    store.load("default").await.unwrap();
    store.commit("default", put(1, "a", "text of a")).await.unwrap();
    store.commit("default", put(2, "b", "text of b")).await.unwrap();
    let directory = store.directory("default");
    drop(store);
    let of_a = directory.join(format!("{}.definition", Digest::of(b"a")));
    let bytes = fs::read_to_string(&of_a).unwrap();
    fs::write(&of_a, bytes.replace("text of a", "text of A")).unwrap();

    let stored = DirectoryStore::open(place.path()).await.unwrap().load("default").await.unwrap();
    assert_eq!(stored.damaged.keys().map(AgentName::as_str).collect::<Vec<_>>(), ["a"]);
    assert_eq!(texts(&stored), [("b", "text of b")].into());

    let log = directory.join("changes.log");
    let bytes = fs::read_to_string(&log).unwrap();
    fs::write(&log, bytes.replacen("\"generation\":1", "\"generation\":7", 1)).unwrap();
    let fault = DirectoryStore::open(place.path()).await.unwrap().load("default").await;
    assert!(matches!(fault, Err(StoreError::Damaged { line: 2, .. })), "{fault:?}");
}

#[tokio::test]
async fn a_log_written_anew_keeps_the_state_and_the_latest_changes() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().to_owned();
    let (mut shelf, _) = Shelf::open(directory.clone(), Arc::new(RealDisk)).unwrap();
    shelf.rewrite_at = 2000;
    for generation in 1..=40 {
        shelf.commit(put(generation, &format!("agent-{generation}"), "text")).unwrap();
    }
    let log = fs::read_to_string(directory.join("changes.log")).unwrap();
    assert!(log.contains("{\"kept\":") && log.matches("{\"base\":").count() == 1, "it was not written anew");

    let (_, stored) = Shelf::open(directory, Arc::new(RealDisk)).unwrap();

    assert_eq!(stored.generation, 40);
    assert_eq!(stored.in_force.len(), 40);
    let kept: Vec<u64> = stored.entries.iter().map(|entry| entry.generation).collect();
    assert_eq!(kept, (1..=40).collect::<Vec<_>>());
}

#[test]
fn what_is_kept_no_longer_is_forgotten() {
    let mut stored = Stored::default();
    let day = Duration::from_secs(24 * 60 * 60);
    let now = SystemTime::now();
    for (generation, age) in
        [(1, 2 * day), (2, day + Duration::from_secs(1)), (3, day / 2), (4, Duration::ZERO)]
    {
        stored.apply(Entry { time: now - age, ..put(generation, "a", "x").entry });
    }

    assert_eq!(stored.forget(now), 2);

    assert_eq!(stored.entries.iter().map(|entry| entry.generation).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(stored.generation, 4);
}
