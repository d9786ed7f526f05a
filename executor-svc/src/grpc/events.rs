//! A worker's events as a stream of messages.

use std::sync::Arc;

use ::proto::executor::v1::WorkerEvent;
use futures::{Stream, stream};
use tokio_util::task::task_tracker::TaskTrackerToken;
use tonic::Status as Failure;

use super::to_proto::{self, Answer, View};
use crate::{
    error::Error,
    event::Body,
    hint,
    kernel::Kernel,
    live::{Follow, Update},
    open::Waiter,
    worker::{SessionId, Status, Usage, Worker},
};

/// What a stream follows.
pub(super) struct Watch {
    kernel: Arc<Kernel>,
    id: SessionId,
    follow: Follow,
    view: View,
    deduplicated: bool,
    /// A watch ends with the service; a spawn sees its worker's end.
    ends_at_drain: bool,
    /// Ends with the end of a coordinator's turn, though others may follow.
    ends_with_turn: bool,
    is_over: bool,
    /// Holds the service up until the last event is sent.
    _stream: Option<TaskTrackerToken>,
    /// Stops the worker when the stream is dropped before its end.
    _waiter: Option<Waiter>,
}

impl Watch {
    pub(super) fn new(kernel: &Arc<Kernel>, id: &SessionId, after: u64, view: View) -> Self {
        Self {
            kernel: Arc::clone(kernel),
            id: id.clone(),
            follow: kernel.hub.follow(Arc::clone(&kernel.log), id, after),
            view,
            deduplicated: false,
            ends_at_drain: false,
            ends_with_turn: false,
            is_over: false,
            _stream: None,
            _waiter: None,
        }
    }

    /// Follows as the answer to a spawn.
    pub(super) fn answering(self, deduplicated: bool, waiter: Option<Waiter>) -> Self {
        let _stream = Some(self.kernel.streams.token());
        Self { deduplicated, _stream, _waiter: waiter, ..self }
    }

    /// Follows until the drain begins.
    pub(super) fn until_drain(self) -> Self {
        Self { ends_at_drain: true, ..self }
    }

    /// Follows one turn of a coordinator.
    pub(super) fn until_answer(self) -> Self {
        Self { ends_with_turn: true, ..self }
    }

    /// The events up to the last one.
    pub(super) fn into_stream(self) -> impl Stream<Item = Result<WorkerEvent, Failure>> + Send + 'static {
        stream::try_unfold(self, |mut watch| async move {
            match watch.next().await {
                Ok(Some(event)) => Ok(Some((event, watch))),
                Ok(None) => Ok(None),
                Err(error) => Err(Failure::from(error)),
            }
        })
    }

    async fn next(&mut self) -> Result<Option<WorkerEvent>, Error> {
        if self.is_over {
            return Ok(None);
        }
        loop {
            let draining = async {
                match self.ends_at_drain {
                    true => self.kernel.shutdown.begun().await,
                    false => std::future::pending().await,
                }
            };
            let update = tokio::select! {
                biased;
                update = self.follow.next() => update?,
                () = draining => return Err(Error::Draining),
            };
            let event = match update {
                None => return Ok(None),
                // What a model says is content.
                Some(Update::Text(_)) if self.view == View::Basic => continue,
                Some(Update::Text(text)) => {
                    return Ok(Some(to_proto::text_delta(&self.id, &text, self.kernel.clock.now())));
                }
                Some(Update::Event(event)) => event,
            };
            let answer = match &event.body {
                Body::Accepted | Body::Finished => Some(self.answer(&event.body).await?),
                Body::Answered { worker } => {
                    self.is_over = self.ends_with_turn;
                    Some(self.kernel.answer(Worker::clone(worker), self.deduplicated))
                }
                Body::StateChanged { .. }
                | Body::TurnStarted { .. }
                | Body::TurnFinished { .. }
                | Body::ToolStarted { .. }
                | Body::ToolFinished { .. }
                | Body::Review { .. }
                | Body::ChildSpawned { .. }
                | Body::OutputRejected { .. } => None,
            };
            return Ok(Some(to_proto::event(event, answer.as_ref(), self.view)));
        }
    }

    /// The record that goes with the first and the last event.
    async fn answer(&self, body: &Body) -> Result<Answer, Error> {
        let worker = self.kernel.log.worker(&self.id).await?;
        let worker = worker.ok_or_else(|| Error::SessionNotFound(self.id.to_string()))?;
        let worker = match *body == Body::Accepted && !self.deduplicated {
            true => as_accepted(worker),
            false => worker,
        };
        Ok(self.kernel.answer(worker, self.deduplicated))
    }
}

/// The record as it was accepted, not as it stands when the event is read later.
fn as_accepted(worker: Worker) -> Worker {
    Worker {
        status: Status::Pending,
        stop_reason: None,
        result: String::new(),
        partial: false,
        structured_output: None,
        schema_valid: None,
        error: String::new(),
        usage: Usage::default(),
        replica: String::new(),
        start_time: None,
        close_time: None,
        takeovers: 0,
        ..worker
    }
}

impl Kernel {
    /// A record with what a calling model is told of it.
    pub(super) fn answer(&self, worker: Worker, deduplicated: bool) -> Answer {
        let hint = hint::of(&worker, deduplicated, self.is_rehearsal(&worker.model), self.clock.now());
        Answer { worker, deduplicated, hint }
    }
}
