//! The registry, but for one place in its writes at which it ends itself: `registry-failpoint DIRECTORY STEP:MOMENT:PASSES`.
//!
//! It counts while [`armed_file`] is there. It is the service of the library over a store and a log that end the process. The program itself has no such switch.

use std::{
    env, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use registry_svc::{
    STORE_DIRECTORY,
    config::{Config, WorkspaceConfig},
    error::StoreError,
    store::{
        Commit, Store, Stored,
        directory::{DirectoryStore, Disk, RealDisk},
    },
};
use rustix::process::{Signal, getpid, kill_process};
use service_kit::{auth, server::Listeners, shutdown::Shutdown};
use tests::{
    failpoint::{Failpoint, Moment, Step},
    registry_program::armed_file,
};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// Ends the process at its failpoint, while a file says so: what is written before the test proper does not count.
struct Trap {
    failpoint: Failpoint,
    armed: PathBuf,
    passed: AtomicUsize,
}

impl Trap {
    /// Whether the process is to end here.
    fn is_sprung(&self, step: Step, moment: Moment) -> bool {
        let Failpoint { step: of, moment: at, passes } = self.failpoint;
        (of, at) == (step, moment)
            && self.armed.exists()
            && self.passed.fetch_add(1, Ordering::SeqCst) == passes
    }

    fn pass(&self, step: Step, moment: Moment) {
        if self.is_sprung(step, moment) {
            self.spring();
        }
    }

    fn spring(&self) -> ! {
        eprintln!("failpoint {}", self.failpoint);
        kill_process(getpid(), Signal::KILL).expect("a process may end itself");
        unreachable!("nobody survives that signal")
    }

    fn around<T>(&self, step: Step, work: impl FnOnce() -> T) -> T {
        self.pass(step, Moment::Before);
        let done = work();
        self.pass(step, Moment::After);
        done
    }
}

struct Trapped<T> {
    inner: T,
    trap: Arc<Trap>,
}

impl Disk for Trapped<RealDisk> {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if self.trap.is_sprung(Step::Write, Moment::Halfway) {
            self.inner.write(path, &bytes[..bytes.len() / 2])?;
            self.trap.spring();
        }
        self.trap.around(Step::Write, || self.inner.write(path, bytes))
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if self.trap.is_sprung(Step::Append, Moment::Halfway) {
            self.inner.append(path, &bytes[..bytes.len() / 2])?;
            self.trap.spring();
        }
        self.trap.around(Step::Append, || self.inner.append(path, bytes))
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.trap.around(Step::Sync, || self.inner.sync(path))
    }

    fn truncate(&self, path: &Path, length: u64) -> io::Result<()> {
        self.inner.truncate(path, length)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.trap.around(Step::Rename, || self.inner.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.trap.around(Step::Remove, || self.inner.remove(path))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.trap.around(Step::SyncDirectory, || self.inner.sync_directory(path))
    }
}

#[async_trait]
impl Store for Trapped<DirectoryStore> {
    fn id(&self) -> &str {
        self.inner.id()
    }

    async fn load(&self, workspace: &str) -> Result<Stored, StoreError> {
        self.inner.load(workspace).await
    }

    async fn commit(&self, workspace: &str, commit: Commit) -> Result<(), StoreError> {
        self.inner.commit(workspace, commit).await?;
        self.trap.pass(Step::Swap, Moment::Before);
        Ok(())
    }
}

/// Listens to what the service logs: it names each change after the swap and before the answer.
struct Listener(Arc<Trap>);

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("registry_svc")
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message(&self.0));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Message<'a>(&'a Trap);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" && (text == "definition written" || text == "definition removed") {
            self.0.pass(Step::Answer, Moment::Before);
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [directory, failpoint] = arguments.as_slice() else {
        anyhow::bail!("usage: registry-failpoint DIRECTORY STEP:MOMENT:PASSES")
    };
    let directory = PathBuf::from(directory);
    let failpoint = failpoint.parse().map_err(anyhow::Error::msg)?;
    let trap = Arc::new(Trap { failpoint, armed: armed_file(&directory), passed: AtomicUsize::new(0) });
    tracing::subscriber::set_global_default(Listener(Arc::clone(&trap)))?;

    let config = config(&directory);
    let listeners = Listeners::bind(config.listen, config.admin).await?;
    auth::ensure_token(&config.data)?;
    println!("{}", listeners.announcement()?);
    let disk = Trapped { inner: RealDisk, trap: Arc::clone(&trap) };
    let inner = DirectoryStore::open_on(config.data.join(STORE_DIRECTORY), Arc::new(disk)).await?;
    let store = Trapped { inner, trap };
    registry_svc::serve_from(Arc::new(store), config, listeners, Shutdown::new()).await
}

/// What the program has by its flags.
fn config(directory: &Path) -> Config {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let workspace = WorkspaceConfig {
        cwd: directory.join("project"),
        home: Some(directory.join("home")),
        ..WorkspaceConfig::default()
    };
    Config {
        listen: any,
        admin: any,
        data: directory.join("var"),
        workspaces: [("default".to_owned(), workspace)].into(),
        ..Config::default()
    }
}
