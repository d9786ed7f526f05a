//! How many requests a provider gets at once: after a 429 no more than it took, and then slowly more.

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
    /// Up to here the limit grows by one with each success, above by one with each window of successes.
    known: f64,
    cut: Option<Cut>,
}

/// A wave of refusals.
#[derive(Clone, Copy, Debug)]
struct Cut {
    began: Instant,
    /// Half of what there was when it began: what is believed to be taken where the wave itself does not tell.
    half: f64,
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
            state: Mutex::new(State { in_flight: 0, limit: requests_max, known: requests_max, cut: None }),
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
        let step = if state.limit < state.known { 1.0 } else { 1.0 / state.limit };
        state.limit = (state.limit + step).min(self.pace.requests_max);
    }

    /// The provider wants fewer. What it works on beside the refused request is what it took: a wave of refusals ends at
    /// that number, however high it began.
    pub(super) fn slowed(self) {
        let mut state = self.pace.state.lock();
        let now = Instant::now();
        let last = state.cut.filter(|cut| now.duration_since(cut.began) < CUT_INTERVAL);
        let cut = last.unwrap_or_else(|| {
            let half = (state.limit.min(f64::from(state.in_flight)) / 2.0).max(1.0);
            state.limit = half;
            Cut { began: now, half }
        });
        state.cut = Some(cut);
        let taken = f64::from(state.in_flight - 1);
        state.known = if taken > 0.0 { taken } else { cut.half };
        state.limit = state.limit.min(taken).max(1.0);
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
    async fn a_wave_of_refusals_leaves_as_many_as_were_taken() {
        let pace = Pace::new(16);
        let mut wave = Vec::new();
        for _ in 0..16 {
            wave.push(pace.enter().await);
        }
        assert!(pace.enter().now_or_never().is_none());

        let taken = wave.split_off(11);
        wave.into_iter().for_each(Permit::slowed);
        assert_eq!(limit(&pace), 5.0);

        taken.into_iter().for_each(Permit::taken);
        assert!(limit(&pace) > 5.9 && limit(&pace) < 6.0, "one more after a window: {}", limit(&pace));
    }

    #[tokio::test(start_paused = true)]
    async fn where_all_were_refused_half_of_them_is_tried_again_soon() {
        let pace = Pace::new(16);
        let mut wave = Vec::new();
        for _ in 0..16 {
            wave.push(pace.enter().await);
        }

        wave.into_iter().for_each(Permit::slowed);
        assert_eq!(limit(&pace), 1.0);

        for _ in 0..7 {
            pace.enter().await.taken();
        }
        assert_eq!(limit(&pace), 8.0);
        pace.enter().await.taken();
        assert!(limit(&pace) < 8.2, "slowly from there");
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_never_falls_below_one_and_recovers_to_its_maximum() {
        let pace = Pace::new(3);
        for _ in 0..5 {
            pace.enter().await.slowed();
            advance(CUT_INTERVAL).await;
        }
        assert_eq!(limit(&pace), 1.0);

        for _ in 0..30 {
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
