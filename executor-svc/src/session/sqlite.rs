//! The session store of one machine: a SQLite database in process, with the queue in memory. All SQL of the executor is
//! in this directory.

mod accept;
mod answers;
mod append;
mod fault;
mod lock;
mod proposals;
mod read;
mod readers;
mod row;
mod schema;
mod trees;
mod writer;

use std::{fs, path::Path, sync::Arc};

use async_trait::async_trait;
use rusqlite::Connection;

pub use self::fault::{Fault, OpenError};
use self::{fault::Halt, lock::Lock, readers::Readers, writer::Writer};
use super::{
    AcceptError, Acceptance, Accepted, Append, AppendError, Appended, Claim, Deletion, Log, Position,
    ProposalFilter, Proposals, Queue, Request, Root, RootFilter, StopWish, StoreError, Stored, Sweep, Swept,
    WorkerFilter, local_queue::LocalQueue,
};
use crate::{
    event::Event,
    review::Proposal,
    transcript::Message,
    worker::{SessionId, Time, Worker},
};

/// The database, with `-wal` and `-shm` beside it.
const DATABASE: &str = "sessions.sqlite";

/// Held by the process that uses the database.
const LOCK: &str = "sessions.lock";

/// What time it is, as it is recorded.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// The log and the queue of one machine.
pub struct Store {
    // Dropped in this order: the writer's connection goes last and leaves one whole file behind.
    readers: Readers,
    writer: Writer,
    queue: LocalQueue,
    clock: Clock,
}

impl Store {
    /// Opens the store in a directory, which is made where it is missing. Blocks: for the start of a process.
    ///
    /// # Errors
    ///
    /// Where another process uses it, where a newer version wrote it, and where the file is broken or cannot be used.
    pub fn open(directory: &Path, clock: Clock) -> Result<Self, OpenError> {
        fs::create_dir_all(directory)
            .map_err(|source| OpenError::Directory { path: directory.to_owned(), source })?;
        let lock = Lock::take(&directory.join(LOCK))?;
        let database = directory.join(DATABASE);
        let connection = schema::open_writer(&database)?;
        let left_open = read::open_workers(&connection).map_err(Fault::from)?;
        let readers = Readers::open(&database)?;
        let writer = Writer::start(connection, lock)?;
        Ok(Self { readers, writer, queue: LocalQueue::new(left_open), clock })
    }

    /// Ends what waits, finishes what was begun, and gives the directory back. Later calls fail.
    pub async fn close(&self) {
        self.queue.close();
        self.readers.close().await;
        self.writer.close().await;
    }

    /// Transactions committed since it was opened: fewer than the calls that wrote, where some shared one.
    pub fn transactions(&self) -> u64 {
        self.writer.commits()
    }

    async fn read<T: Send + 'static>(
        &self,
        action: &'static str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.readers.read(action, |connection| read(connection).map_err(Halt::from)).await
    }

    async fn write<T: Send + 'static>(
        &self,
        action: &'static str,
        mut write: impl FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.writer.run(action, move |connection| write(connection).map_err(Halt::from), |_| ()).await
    }
}

#[async_trait]
impl Log for Store {
    async fn accept(&self, acceptance: Acceptance) -> Result<Accepted, AcceptError> {
        let now = (self.clock)();
        let queue = self.queue.clone();
        let is_delivered = !acceptance.is_review;
        let deliver = move |accepted: &Accepted| match accepted {
            Accepted::New { worker, .. } if is_delivered => queue.push(worker.id.clone()),
            Accepted::New { .. } | Accepted::Deduplicated(_) | Accepted::Repeated(_) => {}
        };
        self.writer
            .run("accept a worker", move |connection| accept::accept(connection, &acceptance, now), deliver)
            .await
    }

    async fn append(&self, append: Append) -> Result<Appended, AppendError> {
        let now = (self.clock)();
        self.writer
            .run("append a step", move |connection| append::append(connection, &append, now), |_| ())
            .await
    }

    async fn repeated(
        &self,
        workspace: &str,
        operator: &str,
        request: &Request,
    ) -> Result<Option<Worker>, AcceptError> {
        let (workspace, operator, request) = (workspace.to_owned(), operator.to_owned(), request.clone());
        let now = (self.clock)();
        let find = move |connection: &Connection| {
            let caller = answers::Caller { workspace: &workspace, operator: &operator };
            answers::repeated(connection, caller, &request, now)
        };
        self.readers.read("look for a repeated request", find).await
    }

    async fn worker(&self, id: &SessionId) -> Result<Option<Worker>, StoreError> {
        let id = id.clone();
        self.read("read a worker", move |connection| row::find_worker(connection, &id)).await
    }

    async fn root(&self, id: &SessionId) -> Result<Option<Root>, StoreError> {
        let id = id.clone();
        self.read("read a root session", move |connection| row::find_root(connection, &id)).await
    }

    async fn turn(&self, id: &SessionId, until: Option<Position>) -> Result<Position, StoreError> {
        let id = id.clone();
        self.read("find a turn", move |connection| read::turn(connection, &id, until)).await
    }

    async fn named_root(
        &self,
        workspace: &str,
        operator: &str,
        caller_root_id: &str,
    ) -> Result<Option<Root>, StoreError> {
        let name = [workspace, operator, caller_root_id].map(str::to_owned);
        self.read("read a named root session", move |connection| row::find_named_root(connection, &name))
            .await
    }

    async fn records(
        &self,
        id: &SessionId,
        after: Position,
        limit: usize,
    ) -> Result<Vec<Stored>, StoreError> {
        let id = id.clone();
        self.read("read records", move |connection| read::records(connection, &id, after, limit)).await
    }

    async fn events(&self, id: &SessionId, after: u64, limit: usize) -> Result<Vec<Event>, StoreError> {
        let id = id.clone();
        self.read("read events", move |connection| read::events(connection, &id, after, limit)).await
    }

    async fn messages(
        &self,
        id: &SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Time, Message)>, StoreError> {
        let id = id.clone();
        self.read("read messages", move |connection| read::messages(connection, &id, after, limit)).await
    }

    async fn recent(&self, id: &SessionId, limit: usize) -> Result<Vec<(u64, Message)>, StoreError> {
        let id = id.clone();
        self.read("read the last messages", move |connection| read::recent(connection, &id, limit)).await
    }

    async fn workers(&self, filter: WorkerFilter) -> Result<Vec<Worker>, StoreError> {
        self.read("list workers", move |connection| read::workers(connection, &filter)).await
    }

    async fn descendants(&self, id: &SessionId, limit: usize) -> Result<Vec<Worker>, StoreError> {
        let id = id.clone();
        self.read("list descendants", move |connection| read::descendants(connection, &id, limit)).await
    }

    async fn wish_stop(&self, id: &SessionId, wish: StopWish) -> Result<(), StoreError> {
        let id = id.clone();
        self.write("record a wish to stop", move |connection| trees::wish_stop(connection, &id, &wish)).await
    }

    async fn stop_wish(&self, id: &SessionId) -> Result<Option<StopWish>, StoreError> {
        let id = id.clone();
        self.read("read a wish to stop", move |connection| read::stop_wish(connection, &id)).await
    }

    async fn roots(&self, filter: RootFilter) -> Result<Vec<Root>, StoreError> {
        self.read("list root sessions", move |connection| read::roots(connection, &filter)).await
    }

    async fn close_root(&self, id: &SessionId) -> Result<Option<Root>, StoreError> {
        let (id, now) = (id.clone(), (self.clock)());
        self.write("close a root session", move |connection| trees::close_root(connection, &id, now)).await
    }

    async fn delete_tree(&self, id: &SessionId) -> Result<Deletion, StoreError> {
        let id = id.clone();
        self.write("delete a tree", move |connection| trees::delete_tree(connection, &id)).await
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        let now = (self.clock)();
        self.write("sweep old trees", move |connection| trees::sweep(connection, sweep, now)).await
    }
}

#[async_trait]
impl Proposals for Store {
    async fn propose(&self, proposal: Proposal) -> Result<(), StoreError> {
        self.write("record a proposal", move |connection| proposals::insert(connection, &proposal)).await
    }

    async fn proposal(&self, id: &str) -> Result<Option<Proposal>, StoreError> {
        let id = id.to_owned();
        self.read("read a proposal", move |connection| proposals::find(connection, &id)).await
    }

    async fn proposals(&self, filter: ProposalFilter) -> Result<Vec<Proposal>, StoreError> {
        self.read("list proposals", move |connection| read::proposals(connection, &filter)).await
    }

    async fn exchange(&self, before: Proposal, after: Proposal) -> Result<bool, StoreError> {
        self.write("decide a proposal", move |connection| proposals::exchange(connection, &before, &after))
            .await
    }
}

#[async_trait]
impl Queue for Store {
    async fn claim(&self) -> Result<Box<dyn Claim>, StoreError> {
        self.queue.claim().await.ok_or_else(|| Fault::Closed.during("claim a worker"))
    }

    async fn depth(&self) -> Result<usize, StoreError> {
        Ok(self.queue.depth())
    }
}

#[cfg(test)]
pub(crate) mod tests;
