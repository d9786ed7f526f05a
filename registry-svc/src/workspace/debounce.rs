//! When to read the sources after something touched them: not at each event, and not never under a stream of events.

use std::time::Duration;

use tokio::time::Instant;

/// Quiet time after the last event. Editors and `kubectl` write a change in several steps within a few milliseconds.
pub(super) const QUIET: Duration = Duration::from_millis(250);

/// Longest delay under a stream of events, so that a change is visible within a second.
pub(super) const DELAY_MAX: Duration = Duration::from_millis(750);

/// The time of the next reading that events call for.
#[derive(Debug, Default)]
pub(super) struct Debounce {
    window: Option<Window>,
}

#[derive(Debug)]
struct Window {
    first: Instant,
    last: Instant,
}

impl Debounce {
    /// Takes an event in.
    pub(super) fn note(&mut self, now: Instant) {
        match &mut self.window {
            Some(window) => window.last = now,
            None => self.window = Some(Window { first: now, last: now }),
        }
    }

    /// When to read; nothing while no event waits.
    pub(super) fn due(&self) -> Option<Instant> {
        self.window.as_ref().map(|window| (window.last + QUIET).min(window.first + DELAY_MAX))
    }

    /// Forgets the events: a reading that begins now sees what they were about.
    pub(super) fn clear(&mut self) {
        self.window = None;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, advance};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reading_waits_until_it_has_been_quiet() {
        let mut debounce = Debounce::default();
        assert_eq!(debounce.due(), None);

        debounce.note(Instant::now());
        advance(Duration::from_millis(200)).await;
        debounce.note(Instant::now());

        assert_eq!(debounce.due(), Some(Instant::now() + QUIET));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_of_events_does_not_put_the_reading_off_for_ever() {
        let mut debounce = Debounce::default();
        let start = Instant::now();

        for _ in 0..20 {
            debounce.note(Instant::now());
            advance(Duration::from_millis(100)).await;
        }

        assert_eq!(debounce.due(), Some(start + DELAY_MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reading_answers_the_events_before_it() {
        let mut debounce = Debounce::default();
        debounce.note(Instant::now());

        debounce.clear();

        assert_eq!(debounce.due(), None);
    }
}
