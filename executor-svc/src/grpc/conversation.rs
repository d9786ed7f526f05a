//! A root session's events as one stream: the coordinator's, and those of the workers below it from their beginning on.

use std::{collections::HashSet, pin::Pin, sync::Arc, time::Duration};

use ::proto::executor::v1::{
    ConverseResponse, WorkerEvent,
    converse_response::{Answer, Body},
    worker_event::{Body as Sent, ChildSpawned, Finished},
};
use futures::{
    Stream, StreamExt as _,
    stream::{self, SelectAll},
};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::task_tracker::TaskTrackerToken;
use tonic::Status;

use super::{events::Watch, to_proto::View};
use crate::{dispatch::Turn, error::Error, kernel::Kernel, open::Waiter, worker::SessionId};

/// How long a turn runs on when everybody who followed it has left.
const GRACE: Duration = Duration::from_secs(60);

/// How long the last events of workers are waited for when the turn above them has ended.
const LAST_EVENTS_MAX: Duration = Duration::from_secs(5);

type Events = Pin<Box<dyn Stream<Item = Result<WorkerEvent, Status>> + Send>>;

/// One who follows a root session.
pub(super) struct Conversation {
    kernel: Arc<Kernel>,
    root: SessionId,
    view: View,
    events: SelectAll<Events>,
    followed: HashSet<SessionId>,
    ends_at_drain: bool,
    /// Of the last turn that ended: sent when nothing comes before it any more.
    answer: Option<Answer>,
    /// When the workers below a turn that has ended are no longer waited for.
    until: Option<Instant>,
    state: State,
    /// Keeps the turn running.
    attendance: Attendance,
    /// Holds the service up until the answer is sent.
    _stream: Option<TaskTrackerToken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// One turn, to its end.
    Turn,
    /// All turns that the log has, and the one that runs.
    Session,
    Done,
}

/// A place among those who follow a turn. Given back a while after its holder has left.
struct Attendance {
    kernel: Arc<Kernel>,
    waiter: Option<Waiter>,
}

impl Conversation {
    /// Follows the turn that comes behind an event, to its answer.
    pub(super) fn of_turn(kernel: &Arc<Kernel>, turn: Turn) -> Self {
        let Turn { root, after, waiter } = turn;
        let own = Watch::new(kernel, &root, after, View::Full).until_answer();
        let stream = Some(kernel.streams.token());
        Self { _stream: stream, ..Self::new(kernel, root, View::Full, own, waiter) }
    }

    /// Follows a session from behind an event to the end of the turn that runs, or of the last one.
    pub(super) fn of_session(
        kernel: &Arc<Kernel>,
        root: SessionId,
        after: u64,
        view: View,
        waiter: Option<Waiter>,
    ) -> Self {
        let own = Watch::new(kernel, &root, after, view);
        let following = Self::new(kernel, root, view, own, waiter);
        Self { ends_at_drain: true, state: State::Session, ..following }
    }

    fn new(kernel: &Arc<Kernel>, root: SessionId, view: View, own: Watch, waiter: Option<Waiter>) -> Self {
        let own: Events = Box::pin(own.into_stream());
        Self {
            kernel: Arc::clone(kernel),
            root,
            view,
            events: SelectAll::from_iter([own]),
            followed: HashSet::new(),
            ends_at_drain: false,
            answer: None,
            until: None,
            state: State::Turn,
            attendance: Attendance { kernel: Arc::clone(kernel), waiter },
            _stream: None,
        }
    }

    pub(super) fn into_stream(self) -> impl Stream<Item = Result<ConverseResponse, Status>> + Send + 'static {
        stream::try_unfold(self, |mut conversation| async move {
            let body = conversation.next().await?;
            let session_id = conversation.root.to_string();
            Ok(body.map(|body| (ConverseResponse { session_id, body: Some(body) }, conversation)))
        })
    }

    async fn next(&mut self) -> Result<Option<Body>, Status> {
        if self.state == State::Done {
            return Ok(None);
        }
        if let Some(event) = self.next_event().await? {
            self.take_note(&event);
            return Ok(Some(Body::Event(event)));
        }
        self.state = State::Done;
        if let Some(waiter) = &self.attendance.waiter {
            // Whoever reads the answer may send the next message at once.
            let _ = timeout(LAST_EVENTS_MAX, waiter.closed()).await;
        }
        Ok(self.answer.take().map(Body::Answer))
    }

    /// The next event of any of those who are followed.
    async fn next_event(&mut self) -> Result<Option<WorkerEvent>, Status> {
        let too_late = async {
            match self.until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let draining = async {
            match self.ends_at_drain {
                true => self.kernel.shutdown.begun().await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = self.events.next() => event.transpose(),
            () = too_late => Ok(None),
            () = draining => Err(Error::Draining.into()),
        }
    }

    fn take_note(&mut self, event: &WorkerEvent) {
        match &event.body {
            Some(Sent::ChildSpawned(ChildSpawned { worker_id, .. })) => self.follow(worker_id),
            Some(Sent::Finished(finished)) if event.worker_id == self.root.as_str() => {
                self.answer = Some(answer(finished));
                if self.state == State::Turn {
                    self.until = Some(Instant::now() + LAST_EVENTS_MAX);
                }
            }
            _ => {}
        }
    }

    fn follow(&mut self, child: &str) {
        if let Some(id) = SessionId::parse(child)
            && self.followed.insert(id.clone())
        {
            self.events.push(Box::pin(Watch::new(&self.kernel, &id, 0, self.view).into_stream()));
        }
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        self.kernel.tasks.spawn(async move {
            // Whoever comes in this time takes the turn over.
            let _ = timeout(GRACE, waiter.closed()).await;
        });
    }
}

/// The answer that a turn's record has. Where it has no text, what was handed in, or why it ended.
fn answer(Finished { worker, .. }: &Finished) -> Answer {
    let Some(worker) = worker else { return Answer::default() };
    let texts = [worker.result.as_str(), worker.structured_output(), worker.error.as_str()];
    let text = texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default().to_owned();
    Answer { text, stop_reason: worker.stop_reason, usage: worker.usage }
}

#[cfg(test)]
mod tests;
