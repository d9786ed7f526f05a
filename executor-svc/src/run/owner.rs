//! The log of one worker in the hands of its owner: every step is appended only if nobody else appended before.

use std::{sync::Arc, time::Duration};

use service_kit::status::chain;
use tracing::warn;

use crate::{
    event::Body,
    kernel::Kernel,
    meter,
    react::{End, State},
    session::{Append, AppendError, Position, Record, Spec, StoreError},
    worker::{SessionId, Status, StopReason, Worker},
};

/// How many records are read at once.
const PAGE: usize = 500;

/// How long a step waits before it is tried again where the store says that it may succeed later. Doubled each time.
const STORE_WAIT_MIN: Duration = Duration::from_millis(50);

/// A store that comes back is noticed within a few seconds, however long it was away.
const STORE_WAIT_MAX: Duration = Duration::from_secs(5);

/// Longest result and error in a record.
const RESULT_BYTES_MAX: usize = 1024 * 1024;
const ERROR_BYTES_MAX: usize = 16 * 1024;

/// A worker's record and log.
pub struct Owner<'k> {
    kernel: &'k Arc<Kernel>,
    worker: Worker,
    spec: Arc<Spec>,
    position: Position,
    state: State,
}

/// The waits between tries while the store is away.
pub struct Patience {
    wait: Duration,
}

/// Why a run leaves its worker.
#[derive(Debug, thiserror::Error)]
pub enum Left {
    #[error("the record is closed")]
    Closed,
    #[error("somebody else appended")]
    Moved,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Default for Patience {
    fn default() -> Self {
        Self { wait: STORE_WAIT_MIN }
    }
}

impl Patience {
    /// Waits before the next try.
    ///
    /// # Errors
    ///
    /// The failure itself, where another try is of no use.
    pub async fn after(&mut self, id: &SessionId, failure: StoreError) -> Result<(), StoreError> {
        if !failure.transient {
            return Err(failure);
        }
        warn!(worker = %id, error = %chain(&failure), wait = ?self.wait, "the store is asked again");
        tokio::time::sleep(self.wait).await;
        self.wait = (self.wait * 2).min(STORE_WAIT_MAX);
        Ok(())
    }
}

impl<'k> Owner<'k> {
    /// Reads a worker. `None` where it is not there.
    pub async fn load(kernel: &'k Arc<Kernel>, id: &SessionId) -> Result<Option<Self>, StoreError> {
        let Some(worker) = kernel.log.worker(id).await? else { return Ok(None) };
        let mut state = State::default();
        let mut spec = None;
        // A coordinator's session holds its earlier turns too.
        let mut position = if id.is_worker() { 0 } else { kernel.log.turn(id, None).await? };
        loop {
            let page = kernel.log.records(id, position, PAGE).await?;
            for stored in &page {
                position = stored.position;
                if let Record::Spec(first) = &stored.record {
                    spec = Some(Arc::new(Spec::clone(first)));
                    if let Some(earlier) = first.earlier {
                        let messages = kernel.log.messages(id, earlier.after, earlier.count).await?;
                        state = State::behind(messages.into_iter().map(|(.., message)| message));
                    }
                }
                state.apply(&stored.record);
            }
            if page.len() < PAGE {
                break;
            }
        }
        let Some(spec) = spec else { return Ok(None) };
        Ok(Some(Self { kernel, worker, spec, position, state }))
    }

    /// Reads it again, and leaves where it was closed in between.
    pub async fn reload(&mut self) -> Result<(), Left> {
        let id = self.worker.id.clone();
        match Self::load(self.kernel, &id).await? {
            Some(owner) => *self = owner,
            None => return Err(Left::Closed),
        }
        self.leave_closed()
    }

    /// Leaves a worker that is closed, and tells those who wait for it.
    pub fn leave_closed(&self) -> Result<(), Left> {
        if self.worker.status.is_final() {
            self.kernel.open.close(&self.worker.id, Some(self.worker.clone()));
            return Err(Left::Closed);
        }
        Ok(())
    }

    /// Takes the worker: it runs from here on, or is taken over.
    pub async fn begin(&mut self, redelivered: bool) -> Result<(), Left> {
        match self.worker.status {
            Status::Running if !redelivered => Ok(()),
            Status::Running => {
                self.worker.takeovers += 1;
                meter::taken_over();
                self.worker.replica = self.kernel.replica.clone();
                // Nothing is said, but the record tells who runs it now, and whoever ran it before is refused.
                self.append(vec![Record::Event { body: Body::StateChanged { status: Status::Running } }])
                    .await
            }
            Status::Pending => {
                self.worker.status = Status::Running;
                self.worker.start_time = Some(self.kernel.clock.now());
                self.worker.replica = self.kernel.replica.clone();
                self.append(vec![Record::Event { body: Body::StateChanged { status: Status::Running } }])
                    .await
            }
            Status::Completed | Status::Failed | Status::Killed => Err(Left::Closed),
        }
    }

    /// Appends a step. Nothing to append is no step.
    pub async fn append(&mut self, records: Vec<Record>) -> Result<(), Left> {
        if records.is_empty() {
            return Ok(());
        }
        for record in &records {
            self.state.apply(record);
        }
        self.worker.usage = self.usage();
        self.commit(records).await
    }

    /// Closes the record, with the last records in the same step.
    pub async fn close(&mut self, mut records: Vec<Record>, end: End) -> Result<(), Left> {
        self.leave_closed()?;
        for record in &records {
            self.state.apply(record);
        }
        let End { reason, result, structured_output, schema_valid, error } = end;
        let status = reason.status();
        self.worker.usage = self.usage();
        self.worker.status = status;
        self.worker.stop_reason = Some(reason);
        self.worker.partial = reason != StopReason::Finished && !result.is_empty();
        self.worker.result = crate::event::cut(&result, RESULT_BYTES_MAX);
        self.worker.structured_output = structured_output;
        self.worker.schema_valid = schema_valid;
        self.worker.error = crate::event::cut(&error, ERROR_BYTES_MAX);
        self.worker.close_time = Some(self.kernel.clock.now());
        records.push(Record::Event { body: Body::StateChanged { status } });
        let last = match self.worker.is_turn() {
            true => Body::Answered { worker: Box::new(self.worker.clone()) },
            false => Body::Finished,
        };
        records.push(Record::Event { body: last });
        self.commit(records).await?;
        meter::ended(status, reason, Duration::from_millis(self.worker.usage.duration_ms));
        self.kernel.open.close(&self.worker.id, Some(self.worker.clone()));
        Ok(())
    }

    pub fn kernel(&self) -> &'k Arc<Kernel> {
        self.kernel
    }

    /// How many records the session has.
    pub fn position(&self) -> Position {
        self.position
    }

    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    pub fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// What is left of the worker's wall time, after what it has `waited` for decisions.
    pub fn time_left(&self, waited: Duration) -> Duration {
        let elapsed = self.worker.start_time.map_or(Duration::ZERO, |start| self.kernel.clock.since(start));
        self.spec.wall_time.saturating_sub(elapsed.saturating_sub(waited))
    }

    async fn commit(&mut self, records: Vec<Record>) -> Result<(), Left> {
        let append = Append {
            session: self.worker.id.clone(),
            expected: self.position,
            records,
            worker: self.worker.clone(),
        };
        // A step is never given up while the process lives: what it says happened cannot be taken back.
        let mut patience = Patience::default();
        let appended = loop {
            match self.kernel.log.append(append.clone()).await {
                Ok(appended) => break appended,
                Err(AppendError::Moved { .. }) => return Err(Left::Moved),
                Err(AppendError::Store(failure)) => patience.after(&self.worker.id, failure).await?,
            }
        };
        self.position = appended.position;
        self.kernel.hub.publish(&appended.events);
        Ok(())
    }

    fn usage(&self) -> crate::worker::Usage {
        let mut usage = self.state.usage();
        let elapsed = self.worker.start_time.map_or(Duration::ZERO, |start| self.kernel.clock.since(start));
        usage.duration_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        usage
    }
}
