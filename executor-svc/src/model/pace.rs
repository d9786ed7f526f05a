//! How many requests a provider gets at once: one more after a window of successes, half as many after a 429.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, Semaphore},
    time::Instant,
};

/// Requests that were sent together are refused together: that is one refusal.
const CUT_INTERVAL: Duration = Duration::from_secs(1);

/// The limit of one provider.
#[derive(Debug)]
pub(super) struct Pace {
    state: Mutex<State>,
    freed: Notify,
    /// Whoever holds it waits for the next free place, the others wait for it: first come, first served.
    head: Semaphore,
    requests_max: f64,
}

#[derive(Debug)]
struct State {
    in_flight: u32,
    limit: f64,
    last_cut: Option<Instant>,
}

/// A place among the requests in flight. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Permit<'a> {
    pace: &'a Pace,
}

impl Pace {
    /// Begins at the most that the operator allows, at least 1.
    pub(super) fn new(requests_max: u32) -> Self {
        let requests_max = f64::from(requests_max.max(1));
        Self {
            state: Mutex::new(State { in_flight: 0, limit: requests_max, last_cut: None }),
            freed: Notify::new(),
            head: Semaphore::new(1),
            requests_max,
        }
    }

    /// Waits for a place.
    pub(super) async fn enter(&self) -> Permit<'_> {
        let _head = self.head.acquire().await.expect("the semaphore is never closed");
        loop {
            let freed = self.freed.notified();
            if self.try_enter() {
                return Permit { pace: self };
            }
            freed.await;
        }
    }

    fn try_enter(&self) -> bool {
        let mut state = self.state.lock();
        let is_free = f64::from(state.in_flight) < state.limit.floor();
        state.in_flight += u32::from(is_free);
        is_free
    }
}

impl Permit<'_> {
    /// The provider took the request.
    pub(super) fn taken(self) {
        let mut state = self.pace.state.lock();
        state.limit = (state.limit + 1.0 / state.limit).min(self.pace.requests_max);
    }

    /// The provider wants fewer.
    pub(super) fn slowed(self) {
        let mut state = self.pace.state.lock();
        let now = Instant::now();
        if state.last_cut.is_none_or(|last| now.duration_since(last) >= CUT_INTERVAL) {
            state.limit = (state.limit / 2.0).max(1.0);
            state.last_cut = Some(now);
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.pace.state.lock().in_flight -= 1;
        // One place may have become two, if the limit rose: the head of the line looks again each time it is woken, and
        // the next one looks by itself when it becomes the head.
        self.pace.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::time::advance;

    use super::*;

    fn limit(pace: &Pace) -> f64 {
        pace.state.lock().limit
    }

    #[tokio::test(start_paused = true)]
    async fn a_wave_of_refusals_halves_the_limit_once() {
        let pace = Pace::new(8);
        let mut wave = Vec::new();
        for _ in 0..8 {
            wave.push(pace.enter().await);
        }
        assert!(pace.enter().now_or_never().is_none());

        wave.into_iter().for_each(Permit::slowed);
        assert_eq!(limit(&pace), 4.0);

        advance(CUT_INTERVAL).await;
        pace.enter().await.slowed();
        assert_eq!(limit(&pace), 2.0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_never_falls_below_one_and_recovers_to_its_maximum() {
        let pace = Pace::new(3);
        for _ in 0..5 {
            pace.enter().await.slowed();
            advance(CUT_INTERVAL).await;
        }
        assert_eq!(limit(&pace), 1.0);

        for _ in 0..20 {
            pace.enter().await.taken();
        }
        assert_eq!(limit(&pace), 3.0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_enters_in_turn_as_places_are_given_back() {
        let pace = Pace::new(1);
        let first = pace.enter().await;
        let mut second = Box::pin(pace.enter());
        assert!(second.as_mut().now_or_never().is_none());
        let mut third = Box::pin(pace.enter());
        assert!(third.as_mut().now_or_never().is_none());

        drop(first);
        assert!(third.as_mut().now_or_never().is_none(), "the third waits behind the second");
        let second = second.await;
        assert!(third.as_mut().now_or_never().is_none());
        drop(second);
        third.await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_not_lost_when_its_waiter_gives_up() {
        let pace = Pace::new(1);
        let first = pace.enter().await;
        let mut waiting = Box::pin(pace.enter());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(first);
        drop(waiting);

        assert!(pace.enter().now_or_never().is_some());
    }
}
