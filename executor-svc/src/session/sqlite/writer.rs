//! The one writer, on a thread of its own. Everything that waits at a moment shares one transaction, and so one wait for
//! the disk; what is refused takes back only itself. Answers follow the commit.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::{
    sync::{mpsc, oneshot},
    task,
};

use super::{
    fault::{Fault, Halt, OpenError},
    lock::Lock,
};
use crate::session::StoreError;

/// Pieces of work that wait for the writer; beyond it, callers wait. Several transactions' worth, so that the writer is
/// never idle while there is work.
const WAITING_MAX: usize = 1_024;

/// Pieces of work in one transaction: bounds what the first of them waits for the last.
const TRANSACTION_MAX: usize = 256;

/// Gives work to the writing thread, which ends when this is closed or dropped, with what was given done.
pub(super) struct Writer {
    work: Mutex<Option<mpsc::Sender<Box<dyn Work>>>>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
    commits: Arc<AtomicU64>,
}

/// A piece of work on its way to the disk and back to its caller.
trait Work: Send {
    fn run(&mut self, connection: &Connection) -> Verdict;
    /// Once committed, or once it is sure that it never will be.
    fn answer(self: Box<Self>, commit: Result<(), Fault>);
}

/// What becomes of a piece of work within its transaction.
enum Verdict {
    Keep,
    /// Taken back, by its own choice or for a fault.
    Undo(Option<Fault>),
}

struct Pending<T, E, W, C> {
    action: &'static str,
    work: W,
    result: Option<Result<T, Halt<E>>>,
    committed: C,
    caller: oneshot::Sender<Result<T, E>>,
}

impl Writer {
    /// Starts the thread. It holds the lock until it has closed the connection.
    pub(super) fn start(connection: Connection, lock: Lock) -> Result<Self, OpenError> {
        let (sender, mut receiver) = mpsc::channel(WAITING_MAX);
        let commits = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&commits);
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || {
                let mut batch = Vec::with_capacity(TRANSACTION_MAX);
                while receiver.blocking_recv_many(&mut batch, TRANSACTION_MAX) > 0 {
                    write(&connection, &mut batch, &counter);
                }
                drop(connection);
                drop(lock);
            })
            .map_err(OpenError::Thread)?;
        Ok(Self { work: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)), commits })
    }

    /// Does `work` in a transaction, perhaps twice until that is committed, and answers once it is on the disk.
    /// `committed` runs before the answer, also where the caller is gone: a dropped call leaves its work whole or undone.
    pub(super) async fn run<T, E>(
        &self,
        action: &'static str,
        work: impl FnMut(&Connection) -> Result<T, Halt<E>> + Send + 'static,
        committed: impl FnOnce(&T) + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let closed = || Fault::Closed.during(action);
        let (caller, answer) = oneshot::channel();
        let pending = Pending { action, work, result: None, committed, caller };
        let sender = self.work.lock().clone().ok_or_else(closed)?;
        sender.send(Box::new(pending)).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Ends the thread after what was given to it, and waits for that.
    pub(super) async fn close(&self) {
        self.work.lock().take();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // An error is a panic, which was reported on the thread itself.
            let _ = task::spawn_blocking(|| thread.join()).await;
        }
    }

    /// How many transactions were committed.
    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.work.get_mut().take();
        if let Some(thread) = self.thread.get_mut().take() {
            let _ = thread.join();
        }
    }
}

/// One transaction. Where it fails, all of the work in it has failed: none was answered yet.
fn write(connection: &Connection, batch: &mut Vec<Box<dyn Work>>, commits: &AtomicU64) {
    let outcome = commit(connection, batch);
    match &outcome {
        Ok(()) => {
            commits.fetch_add(1, Ordering::Relaxed);
        }
        Err(fault) => {
            tracing::error!(error = fault as &dyn std::error::Error, "a transaction of the store failed");
            if !connection.is_autocommit() {
                // SQLite rolls back by itself what it cannot roll back on demand.
                let _ = connection.execute_batch("ROLLBACK");
            }
        }
    }
    for work in batch.drain(..) {
        let outcome = outcome.clone();
        // What follows a commit is told to one caller only: its panic, reported by the hook, ends no other's work.
        let _ = catch_unwind(AssertUnwindSafe(|| work.answer(outcome)));
    }
}

fn commit(connection: &Connection, batch: &mut [Box<dyn Work>]) -> Result<(), Fault> {
    // A savepoint copies every page that is changed behind it. Work refuses before it changes anything, so the few that
    // have to be taken back can do with a second transaction.
    match transact(connection, batch, false)? {
        true => Ok(()),
        false => transact(connection, batch, true).map(drop),
    }
}

/// Answers false, with nothing committed, where work without a savepoint has to be taken back.
fn transact(
    connection: &Connection,
    batch: &mut [Box<dyn Work>],
    has_savepoints: bool,
) -> Result<bool, Fault> {
    let execute = |sql| connection.prepare_cached(sql)?.execute([]);
    execute("BEGIN IMMEDIATE")?;
    for work in batch {
        if has_savepoints {
            execute("SAVEPOINT work")?;
        }
        let before = connection.total_changes();
        match work.run(connection) {
            Verdict::Keep => {}
            // A full disk, and some other errors of it, end the whole transaction and not the statement alone.
            Verdict::Undo(Some(fault)) if connection.is_autocommit() => return Err(fault),
            Verdict::Undo(_) if connection.total_changes() == before => {}
            Verdict::Undo(_) if has_savepoints => {
                execute("ROLLBACK TO work")?;
            }
            Verdict::Undo(_) => {
                execute("ROLLBACK")?;
                return Ok(false);
            }
        }
        if has_savepoints {
            execute("RELEASE work")?;
        }
    }
    execute("COMMIT")?;
    Ok(true)
}

impl<T, E, W, C> Work for Pending<T, E, W, C>
where
    T: Send,
    E: From<StoreError> + Send,
    W: FnMut(&Connection) -> Result<T, Halt<E>> + Send,
    C: FnOnce(&T) + Send,
{
    fn run(&mut self, connection: &Connection) -> Verdict {
        // A panic ends its work, never the thread that all others wait for.
        let result = catch_unwind(AssertUnwindSafe(|| (self.work)(connection)))
            .unwrap_or(Err(Halt::Failed(Fault::Panicked)));
        let verdict = match &result {
            Ok(_) => Verdict::Keep,
            Err(Halt::Refused(_)) => Verdict::Undo(None),
            Err(Halt::Failed(fault)) => Verdict::Undo(Some(fault.clone())),
        };
        self.result = Some(result);
        verdict
    }

    fn answer(self: Box<Self>, commit: Result<(), Fault>) {
        let Self { action, work: _, result, committed, caller } = *self;
        // A refusal may rest on what stood earlier in the transaction, so it counts only with the commit.
        let result = match (commit, result) {
            (Ok(()), Some(Ok(value))) => {
                committed(&value);
                Ok(value)
            }
            (Ok(()), Some(Err(Halt::Refused(error)))) => Err(error),
            (Ok(()), Some(Err(Halt::Failed(fault)))) | (Err(fault), _) => Err(fault.during(action).into()),
            (Ok(()), None) => unreachable!("a transaction is committed after all of its work ran"),
        };
        // The caller may have gone away. What was committed stays.
        let _ = caller.send(result);
    }
}
