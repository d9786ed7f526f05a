//! Log and queue in memory, with the same promises: a step only at the expected position, a final state never left.

mod queue;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    clock::Clock,
    event::Event,
    review::{Decision, ENDED, Proposal},
    session::{
        AcceptError, Acceptance, Accepted, Append, AppendError, Appended, Deletion, Log, Parent, Position,
        Record, Request, Root, RootFilter, StopWish, StoreError, Stored, Sweep, Swept, WorkerFilter,
    },
    transcript::Message,
    worker::{SessionId, Time, Usage, Worker},
};

#[derive(Default)]
pub(crate) struct MemoryLog(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    delivered: Notify,
}

/// What happens to the steps that close a record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trouble {
    /// How long the first one takes.
    pub(crate) slow: Duration,
    /// How many fail.
    pub(crate) failing: u32,
    /// Those that fail are kept all the same: only the answer is lost.
    pub(crate) loses_answers: bool,
    /// Those that fail do so for good.
    pub(crate) lasting: bool,
}

#[derive(Default)]
struct State {
    trouble: Trouble,
    troubles_met: u32,
    listing_takes: Duration,
    clock: Option<Clock>,
    roots: HashMap<SessionId, Root>,
    workers: BTreeMap<SessionId, Kept>,
    wishes: HashMap<SessionId, StopWish>,
    queue: VecDeque<(SessionId, bool)>,
    proposals: Vec<Proposal>,
}

#[derive(Clone)]
struct Kept {
    worker: Worker,
    records: Vec<Stored>,
}

impl MemoryLog {
    /// Puts a worker in as another process left it: it is delivered again.
    pub(crate) fn leave_behind(&self, worker: Worker, records: Vec<Record>) {
        let mut state = self.0.state.lock();
        let root = root_of(&worker, String::new());
        state.roots.insert(worker.root.clone(), root);
        let id = worker.id.clone();
        let now = state.now();
        let mut kept = Kept { worker, records: Vec::new() };
        kept.append(records, now);
        state.workers.insert(id.clone(), kept);
        state.queue.push_back((id, true));
        self.0.delivered.notify_one();
    }

    /// Troubles the steps that close a record from here on.
    pub(crate) fn trouble(&self, trouble: Trouble) {
        self.0.state.lock().trouble = trouble;
    }

    /// Makes it slow to list workers from here on.
    pub(crate) fn list_slowly(&self, time: Duration) {
        self.0.state.lock().listing_takes = time;
    }

    /// How often a step that closes a record was slow or failed.
    pub(crate) fn troubles_met(&self) -> u32 {
        self.0.state.lock().troubles_met
    }

    pub(crate) fn kept(&self, id: &SessionId) -> Worker {
        self.0.state.lock().workers[id].worker.clone()
    }

    /// The trouble of a step that closes a record: how long it takes, and whether it fails.
    fn meet_trouble(&self) -> (Duration, bool) {
        let mut state = self.0.state.lock();
        let slow = std::mem::take(&mut state.trouble.slow);
        let fails = state.trouble.failing > 0;
        state.trouble.failing = state.trouble.failing.saturating_sub(1);
        state.troubles_met += u32::from(fails || !slow.is_zero());
        (slow, fails)
    }

    /// The only worker there is.
    pub(crate) fn only(&self) -> Worker {
        let state = self.0.state.lock();
        assert_eq!(state.workers.len(), 1, "one worker");
        state.workers.values().next().expect("just counted").worker.clone()
    }

    /// The events of a worker, as they were kept.
    pub(crate) fn bodies(&self, id: &SessionId) -> Vec<crate::event::Body> {
        let state = self.0.state.lock();
        let bodies = state.workers[id].records.iter().filter_map(|stored| match &stored.record {
            Record::Event { body } => Some(body.clone()),
            Record::Spec(_) | Record::Message { .. } => None,
        });
        bodies.collect()
    }
}

impl State {
    fn now(&mut self) -> Time {
        self.clock.get_or_insert_with(Clock::start).now()
    }
}

impl Kept {
    fn append(&mut self, records: Vec<Record>, time: Time) -> Vec<Event> {
        let mut events = Vec::new();
        for record in records {
            let alike =
                |kept: &&Stored| std::mem::discriminant(&kept.record) == std::mem::discriminant(&record);
            let sequence = self.records.iter().filter(alike).count() as u64 + 1;
            if let Record::Event { body } = &record {
                let (session, body) = (self.worker.id.clone(), body.clone());
                events.push(Event { session, sequence, time, body });
            }
            let position = self.records.len() as u64 + 1;
            self.records.push(Stored { position, sequence, time, record });
        }
        events
    }
}

fn root_of(worker: &Worker, caller_root_id: String) -> Root {
    Root {
        id: worker.root.clone(),
        workspace: worker.workspace.clone(),
        agent: String::new(),
        operator: worker.operator.clone(),
        caller_root_id,
        create_time: worker.create_time,
        close_time: None,
        usage: Usage::default(),
        open_workers: 1,
        turn_running: false,
    }
}

#[async_trait]
impl Log for MemoryLog {
    async fn accept(&self, acceptance: Acceptance) -> Result<Accepted, AcceptError> {
        let Acceptance { worker, records, parent, is_review, .. } = acceptance;
        let mut state = self.0.state.lock();
        match parent {
            Parent::UnnamedRoot => {
                state.roots.insert(worker.root.clone(), root_of(&worker, String::new()));
            }
            Parent::NamedRoot { caller_root_id } => {
                state.roots.insert(worker.root.clone(), root_of(&worker, caller_root_id));
            }
            Parent::Root(_) | Parent::Worker(_) => {}
            Parent::Turn(_) => unreachable!("conversations are tested over the real store"),
        }
        let now = state.now();
        let mut kept = Kept { worker: worker.clone(), records: Vec::new() };
        let events = kept.append(records, now);
        let position = kept.records.len() as u64;
        state.workers.insert(worker.id.clone(), kept);
        if !is_review {
            state.queue.push_back((worker.id.clone(), false));
            self.0.delivered.notify_one();
        }
        Ok(Accepted::New { worker, position, events })
    }

    async fn append(&self, append: Append) -> Result<Appended, AppendError> {
        let Append { session, expected, records, worker } = append;
        let fails = match worker.status.is_final() {
            true => {
                let (slow, fails) = self.meet_trouble();
                tokio::time::sleep(slow).await;
                fails
            }
            false => false,
        };
        let mut state = self.0.state.lock();
        let Trouble { loses_answers, lasting, .. } = state.trouble;
        let failure =
            || StoreError { action: "append a step", source: "the test says so".into(), transient: !lasting };
        if fails && !loses_answers {
            return Err(AppendError::Store(failure()));
        }
        let now = state.now();
        let kept = state.workers.get_mut(&session).expect("the tests append to workers that are there");
        let actual = kept.records.len() as u64;
        if actual != expected || kept.worker.status.is_final() {
            return Err(AppendError::Moved { session, expected, actual });
        }
        let events = kept.append(records, now);
        kept.worker = worker;
        let (position, is_closed) = (kept.records.len() as u64, kept.worker.status.is_final());
        let left_open = |proposal: &&mut Proposal| {
            is_closed && proposal.session == session && proposal.decision == Decision::Pending
        };
        for proposal in state.proposals.iter_mut().filter(left_open) {
            *proposal = proposal.decided(Decision::Rejected, "", ENDED, now);
        }
        match fails {
            true => Err(AppendError::Store(failure())),
            false => Ok(Appended { position, events }),
        }
    }

    async fn repeated(&self, _: &str, _: &str, _: &Request) -> Result<Option<Worker>, AcceptError> {
        Ok(None)
    }

    async fn worker(&self, id: &SessionId) -> Result<Option<Worker>, StoreError> {
        Ok(self.0.state.lock().workers.get(id).map(|kept| kept.worker.clone()))
    }

    async fn root(&self, id: &SessionId) -> Result<Option<Root>, StoreError> {
        Ok(self.0.state.lock().roots.get(id).cloned())
    }

    async fn turn(&self, id: &SessionId, until: Option<Position>) -> Result<Position, StoreError> {
        let records = self.records(id, 0, usize::MAX).await?;
        let is_seen = |stored: &&Stored| until.is_none_or(|until| stored.position <= until);
        let mut specs =
            records.iter().filter(is_seen).filter(|stored| matches!(stored.record, Record::Spec(_)));
        Ok(specs.next_back().map_or(0, |stored| stored.position - 1))
    }

    async fn recent(&self, id: &SessionId, limit: usize) -> Result<Vec<(u64, Message)>, StoreError> {
        let messages = self.messages(id, 0, usize::MAX).await?;
        let skipped = messages.len().saturating_sub(limit);
        Ok(messages.into_iter().skip(skipped).map(|(sequence, _, message)| (sequence, message)).collect())
    }

    async fn named_root(
        &self,
        workspace: &str,
        operator: &str,
        caller_root_id: &str,
    ) -> Result<Option<Root>, StoreError> {
        let state = self.0.state.lock();
        let found = state.roots.values().find(|root| {
            (root.workspace.as_str(), root.operator.as_str(), root.caller_root_id.as_str())
                == (workspace, operator, caller_root_id)
        });
        Ok(found.cloned())
    }

    async fn records(
        &self,
        id: &SessionId,
        after: Position,
        limit: usize,
    ) -> Result<Vec<Stored>, StoreError> {
        let state = self.0.state.lock();
        let records = state.workers.get(id).map(|kept| kept.records.clone()).unwrap_or_default();
        Ok(records.into_iter().filter(|stored| stored.position > after).take(limit).collect())
    }

    async fn events(&self, id: &SessionId, after: u64, limit: usize) -> Result<Vec<Event>, StoreError> {
        let records = self.records(id, 0, usize::MAX).await?;
        let events = records.into_iter().filter_map(|stored| match stored.record {
            Record::Event { body } => {
                Some(Event { session: id.clone(), sequence: stored.sequence, time: stored.time, body })
            }
            Record::Spec(_) | Record::Message { .. } => None,
        });
        Ok(events.filter(|event| event.sequence > after).take(limit).collect())
    }

    async fn messages(
        &self,
        id: &SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Time, Message)>, StoreError> {
        let records = self.records(id, 0, usize::MAX).await?;
        let messages = records.into_iter().filter_map(|stored| match stored.record {
            Record::Message { message } => Some((stored.sequence, stored.time, message)),
            Record::Spec(_) | Record::Event { .. } => None,
        });
        Ok(messages.filter(|(sequence, ..)| *sequence > after).take(limit).collect())
    }

    async fn workers(&self, filter: WorkerFilter) -> Result<Vec<Worker>, StoreError> {
        let listing_takes = self.0.state.lock().listing_takes;
        tokio::time::sleep(listing_takes).await;
        let state = self.0.state.lock();
        let found = state.workers.values().map(|kept| kept.worker.clone()).filter(|worker| {
            (filter.statuses.is_empty() || filter.statuses.contains(&worker.status))
                && filter.after.as_ref().is_none_or(|after| worker.id > *after)
        });
        Ok(found.take(filter.limit).collect())
    }

    async fn descendants(&self, id: &SessionId, limit: usize) -> Result<Vec<Worker>, StoreError> {
        let state = self.0.state.lock();
        let mut found: Vec<Worker> = Vec::new();
        for kept in state.workers.values() {
            let parent = &kept.worker.parent;
            if parent == id || found.iter().any(|above| above.id == *parent) {
                found.push(kept.worker.clone());
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    async fn wish_stop(&self, id: &SessionId, wish: StopWish) -> Result<(), StoreError> {
        self.0.state.lock().wishes.insert(id.clone(), wish);
        Ok(())
    }

    async fn stop_wish(&self, id: &SessionId) -> Result<Option<StopWish>, StoreError> {
        Ok(self.0.state.lock().wishes.get(id).cloned())
    }

    async fn roots(&self, _: RootFilter) -> Result<Vec<Root>, StoreError> {
        Ok(self.0.state.lock().roots.values().cloned().collect())
    }

    async fn close_root(&self, id: &SessionId) -> Result<Option<Root>, StoreError> {
        let mut state = self.0.state.lock();
        let now = state.now();
        let root = state.roots.get_mut(id);
        Ok(root.map(|root| {
            root.close_time = Some(now);
            root.clone()
        }))
    }

    async fn delete_tree(&self, _: &SessionId) -> Result<Deletion, StoreError> {
        Ok(Deletion::NotFound)
    }

    async fn sweep(&self, _: Sweep) -> Result<Swept, StoreError> {
        Ok(Swept { closed: 0, deleted: 0 })
    }
}
