//! Events while they happen: whoever follows a session gets what the log keeps, then what is said and done, without a
//! gap and without a repeat.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::broadcast::{self, error::RecvError},
    time,
};

use crate::{
    event::{Body, Event},
    session::{Log, StoreError},
    worker::SessionId,
};

/// Signals a session keeps for a slow follower. One who is further behind reads the events from the log, and misses text
/// that is nowhere kept. A turn's events and a few seconds of a fast model's text.
const BACKLOG_MAX: usize = 256;

/// Events read from the log at once. Texts in them are cut at 64 KiB.
const PAGE_MAX: usize = 64;

/// How long a follower relies on being told. Then it asks the log, which is the truth, whatever became of the teller.
const RECHECK: Duration = Duration::from_secs(5);

/// Passes events on to those who follow a session. A session that nobody follows takes no room.
#[derive(Clone, Debug, Default)]
pub struct Hub {
    sessions: Arc<Mutex<Sessions>>,
}

/// What a follower gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// A kept event.
    Event(Event),
    /// A piece of the model's text, nowhere kept.
    Text(Arc<str>),
}

/// One who follows a session.
pub struct Follow {
    log: Arc<dyn Log>,
    subscription: Subscription,
    /// The last event's sequence that was given out.
    sequence: u64,
    /// The last turn whose end, with its whole text, was given out.
    turn: u32,
    /// Read from the log and not yet given out.
    kept: VecDeque<Event>,
    state: State,
}

type Sessions = HashMap<SessionId, broadcast::Sender<Signal>>;

#[derive(Clone, Debug)]
enum Signal {
    Event(Arc<Event>),
    Text { turn: u32, text: Arc<str> },
}

/// A place in a session's channel. The last one who leaves takes the channel along.
struct Subscription {
    session: SessionId,
    sessions: Arc<Mutex<Sessions>>,
    sender: broadcast::WeakSender<Signal>,
    receiver: broadcast::Receiver<Signal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The log may have more than was read.
    Behind,
    /// Everything that the log had was read.
    Live,
    /// Nothing more can come.
    Ended,
}

impl Hub {
    /// Passes on what was just appended. An event is published after it was committed, never before.
    pub fn publish(&self, events: &[Event]) {
        for event in events {
            let mut sessions = self.sessions.lock();
            let Some(sender) = sessions.get(&event.session) else { continue };
            // An error means that the last follower is just leaving.
            let _ = sender.send(Signal::Event(Arc::new(event.clone())));
            if event.body == Body::Finished {
                sessions.remove(&event.session);
            }
        }
    }

    /// Passes on a piece of what the model says in a turn.
    pub fn text(&self, session: &SessionId, turn: u32, text: &str) {
        if let Some(sender) = self.sessions.lock().get(session) {
            let _ = sender.send(Signal::Text { turn, text: text.into() });
        }
    }

    /// Follows a session from behind an event to its end.
    pub fn follow(&self, log: Arc<dyn Log>, session: &SessionId, after: u64) -> Follow {
        // The place is taken before the log is read, so that nothing falls between the two.
        let subscription = self.subscribe(session);
        Follow { log, subscription, sequence: after, turn: 0, kept: VecDeque::new(), state: State::Behind }
    }

    /// How many sessions are followed.
    pub fn followed(&self) -> usize {
        self.sessions.lock().len()
    }

    fn subscribe(&self, session: &SessionId) -> Subscription {
        let mut sessions = self.sessions.lock();
        let sender = sessions.entry(session.clone()).or_insert_with(|| broadcast::Sender::new(BACKLOG_MAX));
        Subscription {
            session: session.clone(),
            sessions: Arc::clone(&self.sessions),
            sender: sender.downgrade(),
            receiver: sender.subscribe(),
        }
    }
}

impl Follow {
    /// The next update; nothing after `Finished`. A dropped call loses nothing.
    ///
    /// # Errors
    ///
    /// Where the log cannot be read. The same call may be made again.
    pub async fn next(&mut self) -> Result<Option<Update>, StoreError> {
        loop {
            if let Some(event) = self.kept.pop_front() {
                return Ok(Some(self.give(event)));
            }
            match self.state {
                State::Ended => return Ok(None),
                State::Behind => self.catch_up().await?,
                State::Live => {
                    if let Some(update) = self.listen().await {
                        return Ok(Some(update));
                    }
                }
            }
        }
    }

    async fn catch_up(&mut self) -> Result<(), StoreError> {
        let mut events = self.page().await?;
        if events.is_empty() && self.is_over().await? {
            // Asked once more: the end may have come between the two questions.
            events = self.page().await?;
            if events.is_empty() {
                self.state = State::Ended;
                return Ok(());
            }
        }
        if events.len() < PAGE_MAX {
            self.state = State::Live;
        }
        self.kept = events.into();
        Ok(())
    }

    async fn page(&self) -> Result<Vec<Event>, StoreError> {
        self.log.events(&self.subscription.session, self.sequence, PAGE_MAX).await
    }

    /// True where nothing more can come: the worker has ended, or its record was deleted.
    async fn is_over(&self) -> Result<bool, StoreError> {
        let worker = self.log.worker(&self.subscription.session).await?;
        Ok(worker.is_none_or(|worker| worker.status.is_final()))
    }

    /// Waits for a signal. Nothing where it was known already, or where the log has to be asked.
    async fn listen(&mut self) -> Option<Update> {
        let Ok(received) = time::timeout(RECHECK, self.subscription.receiver.recv()).await else {
            self.state = State::Behind;
            return None;
        };
        match received {
            Ok(Signal::Text { turn, text }) if turn > self.turn => Some(Update::Text(text)),
            // It was waiting here while the log told how the turn ended.
            Ok(Signal::Text { .. }) => None,
            Ok(Signal::Event(event)) if event.sequence <= self.sequence => None,
            Ok(Signal::Event(event)) if event.sequence == self.sequence + 1 => {
                Some(self.give(Arc::unwrap_or_clone(event)))
            }
            Ok(Signal::Event(_)) | Err(RecvError::Lagged(_)) => {
                self.state = State::Behind;
                None
            }
            // The end was published, and missed: the log has it. A new place keeps this from spinning should it not.
            Err(RecvError::Closed) => {
                let hub = Hub { sessions: Arc::clone(&self.subscription.sessions) };
                self.subscription = hub.subscribe(&self.subscription.session);
                self.state = State::Behind;
                None
            }
        }
    }

    fn give(&mut self, event: Event) -> Update {
        self.sequence = event.sequence;
        match event.body {
            Body::TurnFinished { turn, .. } => self.turn = turn,
            Body::Finished => self.state = State::Ended,
            Body::Accepted
            | Body::StateChanged { .. }
            | Body::TurnStarted { .. }
            | Body::ToolStarted { .. }
            | Body::ToolFinished { .. }
            | Body::ChildSpawned { .. }
            | Body::Review { .. }
            | Body::OutputRejected { .. } => {}
            // More turns may be in the log already, or begin at once.
            Body::Answered { .. } => self.state = State::Behind,
        }
        Update::Event(event)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut sessions = self.sessions.lock();
        let Some(sender) = self.sender.upgrade() else { return };
        // A session that ended has no entry, or the entry of later followers, which is not ours to take.
        let is_ours = sessions.get(&self.session).is_some_and(|entry| entry.same_channel(&sender));
        if is_ours && sender.receiver_count() == 1 {
            sessions.remove(&self.session);
        }
    }
}

#[cfg(test)]
mod tests;
