//! Connections that only read, each used by one blocking thread at a time. They see what was committed, and never wait
//! for the writer.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
};

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::{sync::Semaphore, task};

use super::{
    fault::{Fault, Halt, OpenError},
    schema,
};
use crate::session::StoreError;

/// Reads at a time. They are short and mostly served from memory; beyond it, callers wait.
const READERS: u32 = 4;

pub(super) struct Readers {
    idle: Arc<Mutex<Vec<Connection>>>,
    free: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let connections = (0..READERS).map(|_| schema::open_reader(path)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { idle: Arc::new(Mutex::new(connections)), free: Arc::new(Semaphore::new(READERS as usize)) })
    }

    /// Reads on a blocking thread, within one snapshot.
    pub(super) async fn read<T, E>(
        &self,
        action: &'static str,
        read: impl FnOnce(&Connection) -> Result<T, Halt<E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let closed = || Fault::Closed.during(action);
        let permit = Arc::clone(&self.free).acquire_owned().await.map_err(|_| closed())?;
        let idle = Arc::clone(&self.idle);
        let reading = task::spawn_blocking(move || {
            // Given back with the connection, so that `close` waits for a read whose caller went away.
            let _permit = permit;
            let Some(mut connection) = idle.lock().pop() else { return Err(Fault::Closed.into()) };
            // A panic ends its read; the connection is as good as before, since a snapshot ends with its drop.
            let result = catch_unwind(AssertUnwindSafe(|| snapshot(&mut connection, read)));
            idle.lock().push(connection);
            result.unwrap_or(Err(Halt::Failed(Fault::Panicked)))
        });
        reading.await.map_err(|_| closed())?.map_err(|halt| match halt {
            Halt::Refused(error) => error,
            Halt::Failed(fault) => fault.during(action).into(),
        })
    }

    /// Waits for what is being read and closes all connections.
    pub(super) async fn close(&self) {
        if let Ok(_permits) = self.free.acquire_many(READERS).await {
            self.free.close();
            self.idle.lock().clear();
        }
    }
}

fn snapshot<T, E>(
    connection: &mut Connection,
    read: impl FnOnce(&Connection) -> Result<T, Halt<E>>,
) -> Result<T, Halt<E>> {
    // Never written to, so it ends with its own drop.
    let transaction = connection.transaction()?;
    read(&transaction)
}
