//! The end of a stream whose peer takes nothing: nobody asks its body for more then, so something beside it must end it.

use std::{cell::RefCell, future::Future, pin::Pin, sync::Arc, task::Poll, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep, sleep_until},
};
use tonic::{Code, Status};

use super::metrics::Meter;

/// A peer that has filled its window and takes nothing for this long has stopped to read.
pub(super) const STALL_MAX: Duration = Duration::from_secs(3);

/// Time that a peer has to come back and read how its stream ended. Then HTTP/2 resets it.
pub(super) const LINGER: Duration = Duration::from_secs(60);

/// What a stream ends with whose peer has stopped to read. A handler puts it into the extensions of its response;
/// without it a stream may stand still up to its deadline.
#[derive(Clone, Debug)]
pub struct OnStall(pub Status);

type Watchdog = Pin<Box<dyn Future<Output = ()> + Send>>;

tokio::task_local! {
    /// The watchdog of the stream that the present task serves, once it has one.
    static WATCHDOG: RefCell<Option<Watchdog>>;
}

/// A stream as its body and its watchdog know it.
pub(super) struct Stream(Mutex<State>);

struct State {
    /// Its slot and its measure, given back where it ends.
    held: Option<(Meter, Option<OwnedSemaphorePermit>)>,
    /// When the last frame was given out, where nobody has asked for more since: it waits for the peer.
    given: Option<Instant>,
    /// What the body still has to say where the watchdog ended it.
    last_word: Option<Status>,
}

impl Stream {
    pub(super) fn new(meter: Meter, permit: Option<OwnedSemaphorePermit>) -> Arc<Self> {
        let held = Some((meter, permit));
        Arc::new(Self(Mutex::new(State { held, given: None, last_word: None })))
    }

    /// Notes that the peer has room. Answers the end of the stream where the watchdog has decided on it.
    pub(super) fn asked(&self) -> Option<Status> {
        let mut state = self.0.lock();
        state.given = None;
        state.last_word.take()
    }

    /// Notes that a frame was given out.
    pub(super) fn given(&self) {
        self.0.lock().given = Some(Instant::now());
    }

    pub(super) fn set(&self, code: Code) {
        if let Some((meter, _)) = &mut self.0.lock().held {
            meter.set(code);
        }
    }

    /// Ends it in the eyes of the server. Its body says so when it is asked again.
    fn end(&self, status: Status) {
        let mut state = self.0.lock();
        if let Some((mut meter, _permit)) = state.held.take() {
            meter.set(status.code());
            state.last_word = Some(status);
        }
    }

    fn stalled_at(&self) -> Option<Instant> {
        self.0.lock().given.map(|given| given + STALL_MAX)
    }
}

/// Sets a watchdog on the stream that this task serves. Without anything to watch for there is none.
pub(super) fn watch(stream: &Arc<Stream>, deadline: Option<(Instant, Status)>, on_stall: Option<OnStall>) {
    if deadline.is_none() && on_stall.is_none() {
        return;
    }
    let watchdog: Watchdog = Box::pin(guard(Arc::clone(stream), deadline, on_stall));
    // A body outside of a connection is asked by whoever holds it.
    let _ = WATCHDOG.try_with(|place| *place.borrow_mut() = Some(watchdog));
}

/// Runs what serves one stream, and drops it where its watchdog comes to an end: then HTTP/2 resets the stream.
pub(super) async fn watched(serving: impl Future) {
    let watchdog = std::future::poll_fn(|context| {
        WATCHDOG.with(|place| match &mut *place.borrow_mut() {
            Some(watchdog) => watchdog.as_mut().poll(context),
            None => Poll::Pending,
        })
    });
    let either = async {
        tokio::select! {
            biased;
            _ = serving => {}
            () = watchdog => {}
        }
    };
    WATCHDOG.scope(RefCell::default(), either).await;
}

async fn guard(stream: Arc<Stream>, deadline: Option<(Instant, Status)>, on_stall: Option<OnStall>) {
    loop {
        let now = Instant::now();
        let stalled_at = stream.stalled_at();
        if let Some((_, status)) = deadline.as_ref().filter(|(deadline, _)| *deadline <= now) {
            stream.end(status.clone());
            break;
        }
        if let Some(OnStall(status)) = on_stall.as_ref().filter(|_| stalled_at.is_some_and(|at| at <= now)) {
            stream.end(status.clone());
            break;
        }
        let look_again = stalled_at.unwrap_or(now + STALL_MAX);
        sleep_until(deadline.as_ref().map_or(look_again, |(deadline, _)| look_again.min(*deadline))).await;
    }
    sleep(LINGER).await;
}
