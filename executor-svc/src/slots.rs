//! How many workers may be in a model or tool call at once. A worker that only waits gives its slot back; when it comes
//! back it takes the next free one before newcomers.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::{limits::Bound, worker::SessionId};

/// All slots of a replica. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Slots(Arc<Shared>);

/// The right to be in a call. Given back when dropped.
#[derive(Debug)]
pub struct Slot {
    shared: Arc<Shared>,
    root: SessionId,
}

/// Who asks for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// It held one already.
    Returning,
    Newcomer,
}

#[derive(Debug)]
struct Shared {
    max: Bound<u64>,
    state: Mutex<State>,
    /// True while a newcomer would get a slot at once, its own tree permitting.
    vacant: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    taken: u64,
    taken_by_tree: HashMap<SessionId, u64>,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    root: SessionId,
    per_tree_max: Bound<u64>,
    priority: Priority,
    grant: oneshot::Sender<Slot>,
}

impl Slots {
    pub fn new(max: Bound<u64>) -> Self {
        let (vacant, _) = watch::channel(max.has_room(0));
        Self(Arc::new(Shared { max, state: Mutex::default(), vacant }))
    }

    /// Waits for a slot of the replica and of the tree.
    pub async fn acquire(&self, root: &SessionId, per_tree_max: Bound<u64>, priority: Priority) -> Slot {
        let (grant, granted) = oneshot::channel();
        {
            let mut state = self.0.state.lock();
            let waiting = Waiting { root: root.clone(), per_tree_max, priority, grant };
            let place = match priority {
                Priority::Newcomer => state.waiting.len(),
                Priority::Returning => state
                    .waiting
                    .iter()
                    .position(|waiting| waiting.priority == Priority::Newcomer)
                    .unwrap_or(state.waiting.len()),
            };
            state.waiting.insert(place, waiting);
        }
        Shared::hand_out(&self.0);
        granted.await.expect("a waiting place is only removed to grant it")
    }

    /// Waits until a newcomer would get a slot.
    pub async fn vacancy(&self) {
        let mut vacant = self.0.vacant.subscribe();
        // The sender is in `self`, so the wait cannot fail.
        let _ = vacant.wait_for(|vacant| *vacant).await;
    }

    /// True while a newcomer would get a slot.
    pub fn is_vacant(&self) -> bool {
        *self.0.vacant.borrow()
    }

    /// How many wait for their first slot.
    pub fn newcomers(&self) -> usize {
        let state = self.0.state.lock();
        state.waiting.iter().filter(|waiting| waiting.priority == Priority::Newcomer).count()
    }

    /// How many are taken.
    pub fn taken(&self) -> u64 {
        self.0.state.lock().taken
    }
}

impl Shared {
    /// Grants slots to those that wait and may have one, in their order.
    fn hand_out(self: &Arc<Self>) {
        let mut granted = Vec::new();
        {
            let mut state = self.state.lock();
            // Whoever gave up waiting is forgotten.
            state.waiting.retain(|waiting| !waiting.grant.is_closed());
            while self.max.has_room(state.taken) {
                let next = state.waiting.iter().position(|waiting| {
                    let taken = state.taken_by_tree.get(&waiting.root).copied().unwrap_or(0);
                    waiting.per_tree_max.has_room(taken)
                });
                let Some(waiting) = next.and_then(|index| state.waiting.remove(index)) else { break };
                state.taken += 1;
                *state.taken_by_tree.entry(waiting.root.clone()).or_default() += 1;
                granted.push((waiting.grant, Slot { shared: Arc::clone(self), root: waiting.root }));
            }
            let is_vacant = self.max.has_room(state.taken);
            self.vacant.send_if_modified(|vacant| std::mem::replace(vacant, is_vacant) != is_vacant);
        }
        for (grant, slot) in granted {
            // A slot that nobody takes any more comes back through its drop, outside of the lock.
            drop(grant.send(slot));
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state.lock();
            state.taken -= 1;
            if let Some(taken) = state.taken_by_tree.get_mut(&self.root) {
                *taken -= 1;
                if *taken == 0 {
                    state.taken_by_tree.remove(&self.root);
                }
            }
        }
        Shared::hand_out(&self.shared);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt as _;

    use super::*;

    const FREE: Bound<u64> = Bound::Unlimited;

    #[tokio::test]
    async fn a_worker_that_returns_goes_before_newcomers() {
        let slots = Slots::new(Bound::Of(1));
        let root = SessionId::new_root();
        let held = slots.acquire(&root, FREE, Priority::Newcomer).await;
        let mut newcomer = pin!(slots.acquire(&root, FREE, Priority::Newcomer));
        let mut returning = pin!(slots.acquire(&root, FREE, Priority::Returning));
        assert!(newcomer.as_mut().now_or_never().is_none());
        assert!(returning.as_mut().now_or_never().is_none());

        drop(held);

        assert!(newcomer.as_mut().now_or_never().is_none());
        let slot = returning.as_mut().now_or_never().expect("the returning worker is first");
        drop(slot);
        assert!(newcomer.now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_full_tree_does_not_hold_others_up() {
        let slots = Slots::new(Bound::Of(3));
        let (full, other) = (SessionId::new_root(), SessionId::new_root());
        let held = slots.acquire(&full, Bound::Of(1), Priority::Newcomer).await;
        let mut waiting = pin!(slots.acquire(&full, Bound::Of(1), Priority::Newcomer));
        assert!(waiting.as_mut().now_or_never().is_none());

        let passed = slots.acquire(&other, Bound::Of(1), Priority::Newcomer).now_or_never();

        assert!(passed.is_some());
        assert_eq!(slots.newcomers(), 1);
        drop(held);
        assert!(waiting.now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_slot_whose_taker_gave_up_is_not_lost() {
        let slots = Slots::new(Bound::Of(1));
        let root = SessionId::new_root();
        let held = slots.acquire(&root, FREE, Priority::Newcomer).await;
        {
            let mut gone = pin!(slots.acquire(&root, FREE, Priority::Newcomer));
            assert!(gone.as_mut().now_or_never().is_none());
            // Granted while nobody polls, then dropped.
            drop(held);
        }

        assert!(slots.acquire(&root, FREE, Priority::Newcomer).now_or_never().is_some());
        assert_eq!(slots.taken(), 0);
    }

    #[tokio::test]
    async fn a_vacancy_is_told() {
        let slots = Slots::new(Bound::Of(1));
        let root = SessionId::new_root();
        slots.vacancy().await;
        let held = slots.acquire(&root, FREE, Priority::Newcomer).await;
        assert!(slots.vacancy().now_or_never().is_none());

        drop(held);

        slots.vacancy().await;
    }
}
