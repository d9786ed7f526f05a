//! One question at a time: whoever asks while the same is being asked shares the answer to the next question, which is
//! begun after all of them came. So an answer is never older than the call that gets it.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

/// Questions by what they ask. One that nobody asks takes no room.
#[derive(Debug)]
pub(super) struct Flights<K, V> {
    going: Mutex<HashMap<K, Arc<Flight<V>>>>,
}

#[derive(Debug)]
struct Flight<V> {
    /// How many were begun.
    begun: AtomicU64,
    /// Whoever holds it asks; the others wait for it, first come, first served.
    turn: Semaphore,
    /// The last answer, with the number of its question.
    last: Mutex<Option<(u64, V)>>,
}

/// A place among those who ask the same. The last one who leaves takes the question along.
struct Place<'f, K: Eq + Hash, V> {
    flights: &'f Flights<K, V>,
    key: K,
    flight: Arc<Flight<V>>,
}

impl<K: Clone + Eq + Hash, V: Clone> Flights<K, V> {
    /// Asks, or shares what somebody else asks after this call began. A failure is not shared: whoever waits asks again.
    /// One who has waited until `until` asks at once, beside the others.
    pub(super) async fn ask<E>(
        &self,
        key: K,
        until: Instant,
        question: impl Future<Output = Result<V, E>>,
    ) -> Result<V, E> {
        let place = self.place(key);
        let flight = &place.flight;
        let before = flight.begun.load(Ordering::Relaxed);
        let Ok(turn) = timeout_at(until, flight.turn.acquire()).await else { return question.await };
        let _turn = turn.expect("the semaphore is never closed");
        if let Some((number, answer)) = &*flight.last.lock()
            && *number > before
        {
            return Ok(answer.clone());
        }
        let number = flight.begun.fetch_add(1, Ordering::Relaxed) + 1;
        let answer = question.await?;
        *flight.last.lock() = Some((number, answer.clone()));
        Ok(answer)
    }

    fn place(&self, key: K) -> Place<'_, K, V> {
        let flight = Arc::clone(self.going.lock().entry(key.clone()).or_default());
        Place { flights: self, key, flight }
    }
}

impl<K, V> Default for Flights<K, V> {
    fn default() -> Self {
        Self { going: Mutex::default() }
    }
}

impl<V> Default for Flight<V> {
    fn default() -> Self {
        Self { begun: AtomicU64::new(0), turn: Semaphore::new(1), last: Mutex::default() }
    }
}

impl<K: Eq + Hash, V> Drop for Place<'_, K, V> {
    fn drop(&mut self) {
        let mut going = self.flights.going.lock();
        // The map's and this one's.
        if Arc::strong_count(&self.flight) == 2 {
            going.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, pin::pin, time::Duration};

    use futures::{FutureExt as _, future::join_all};
    use tokio::sync::oneshot;

    use super::*;

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[tokio::test]
    async fn an_answer_is_shared_by_those_who_came_before_its_question() {
        let flights = Flights::default();
        let asked = Cell::new(0);
        let (release, held) = oneshot::channel();
        let ask = || async {
            asked.set(asked.get() + 1);
            Ok::<_, ()>(asked.get())
        };
        let mut first = pin!(flights.ask("key", later(), async {
            held.await.map_err(drop)?;
            ask().await
        }));
        assert!(first.as_mut().now_or_never().is_none());
        // The first question is on its way: what it answers may be older than these.
        let mut others = pin!(join_all((0..10).map(|_| flights.ask("key", later(), ask()))));
        assert!(others.as_mut().now_or_never().is_none());

        release.send(()).unwrap();

        assert_eq!(first.await, Ok(1));
        assert_eq!(others.await, vec![Ok(2); 10]);
        assert_eq!(flights.ask("key", later(), ask()).await, Ok(3), "what comes later is asked anew");
        assert!(flights.going.lock().is_empty());
    }

    #[tokio::test]
    async fn a_failure_and_a_call_that_is_given_up_are_not_shared() {
        let flights = Flights::default();
        let (_never, held) = oneshot::channel::<()>();
        let mut given_up = Box::pin(flights.ask("key", later(), async {
            let _ = held.await;
            Ok::<_, u8>("late")
        }));
        assert!(given_up.as_mut().now_or_never().is_none());
        let mut failing = pin!(flights.ask("key", later(), async { Err(7) }));
        assert!(failing.as_mut().now_or_never().is_none());
        let mut last = pin!(flights.ask("key", later(), async { Ok::<_, u8>("mine") }));
        assert!(last.as_mut().now_or_never().is_none());

        drop(given_up);

        assert_eq!(failing.await, Err(7));
        assert_eq!(last.await, Ok("mine"));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_waited_long_enough_asks_beside_the_others() {
        let flights = Flights::default();
        let mut held = pin!(flights.ask("key", later(), std::future::pending::<Result<u8, ()>>()));
        assert!(held.as_mut().now_or_never().is_none());
        let until = Instant::now() + Duration::from_secs(2);

        let answer = flights.ask("key", until, async { Ok::<_, ()>(7) }).await;

        assert_eq!((answer, Instant::now()), (Ok(7), until));
    }

    #[tokio::test]
    async fn other_questions_do_not_wait() {
        let flights = Flights::default();
        let mut held = pin!(flights.ask("one", later(), std::future::pending::<Result<(), ()>>()));
        assert!(held.as_mut().now_or_never().is_none());

        assert_eq!(flights.ask("other", later(), async { Ok::<_, ()>(()) }).now_or_never(), Some(Ok(())));
    }
}
