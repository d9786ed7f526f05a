//! Followers on a real store: no gap, no repeat, and an end.

use futures::FutureExt as _;

use super::*;
use crate::{
    session::sqlite::tests::Fixture,
    worker::{Status, StopReason, Usage, Worker},
};

/// A worker whose events go to the log and then to whoever follows.
struct Told {
    fixture: Fixture,
    hub: Hub,
    worker: Worker,
    position: u64,
}

impl Told {
    async fn new() -> Self {
        let fixture = Fixture::new();
        let worker = Worker { status: Status::Running, ..fixture.pending().await };
        Self { fixture, hub: Hub::default(), worker, position: 3 }
    }

    fn follow(&self, after: u64) -> Follow {
        self.hub.follow(self.fixture.store.clone(), &self.worker.id, after)
    }

    /// Keeps an event, and answers it untold.
    async fn keep(&mut self, body: Body) -> Vec<Event> {
        let record = crate::session::Record::Event { body };
        let appended = self.fixture.append(self.position, &self.worker, vec![record]).await.unwrap();
        self.position = appended.position;
        appended.events
    }

    async fn turn(&mut self, turn: u32) {
        let events = self.keep(Body::TurnStarted { turn }).await;
        self.hub.publish(&events);
    }

    async fn finish(&mut self) -> Vec<Event> {
        self.worker.status = Status::Failed;
        self.worker.stop_reason = Some(StopReason::Overloaded);
        self.keep(Body::Finished).await
    }
}

async fn sequence(follow: &mut Follow) -> u64 {
    match follow.next().await.unwrap() {
        Some(Update::Event(event)) => event.sequence,
        update => panic!("{update:?} is no event"),
    }
}

async fn rest(follow: &mut Follow) -> Vec<u64> {
    let mut sequences = Vec::new();
    while let Some(update) = follow.next().await.unwrap() {
        if let Update::Event(event) = update {
            sequences.push(event.sequence);
        }
    }
    sequences
}

#[tokio::test]
async fn a_follower_gets_what_was_kept_and_then_what_happens_to_the_end() {
    let mut told = Told::new().await;
    told.turn(1).await;
    let mut follow = told.follow(0);
    let mut later = told.follow(1);

    assert_eq!(sequence(&mut follow).await, 1);
    // Kept already, and told once more while the log is being read.
    told.turn(2).await;
    assert_eq!([sequence(&mut follow).await, sequence(&mut follow).await], [2, 3]);
    told.turn(3).await;
    told.hub.text(&told.worker.id, 3, "Hel");
    let finished = told.finish().await;
    told.hub.publish(&finished);

    assert_eq!(sequence(&mut follow).await, 4);
    assert_eq!(follow.next().await.unwrap(), Some(Update::Text("Hel".into())));
    assert_eq!(rest(&mut follow).await, [5]);
    assert_eq!(rest(&mut later).await, [2, 3, 4, 5]);
    assert_eq!(follow.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_slow_follower_misses_text_and_never_an_event() {
    let mut told = Told::new().await;
    let mut follow = told.follow(0);
    assert_eq!(sequence(&mut follow).await, 1);
    assert!(follow.next().now_or_never().is_none());
    let told_too_much = BACKLOG_MAX * 2;

    for turn in 1..=20 {
        told.turn(turn).await;
        for _ in 0..told_too_much / 20 {
            told.hub.text(&told.worker.id, turn, "text");
        }
    }
    let finished = told.finish().await;
    told.hub.publish(&finished);

    let (mut sequences, mut texts) = (Vec::new(), 0);
    while let Some(update) = follow.next().await.unwrap() {
        match update {
            Update::Event(event) => sequences.push(event.sequence),
            Update::Text(_) => texts += 1,
        }
    }
    assert!(sequences.iter().copied().eq(2..=22), "{sequences:?}");
    assert!(texts < told_too_much / 20 * 20, "it was told more than it kept");
}

#[tokio::test]
async fn text_of_a_turn_does_not_follow_its_end() {
    let mut told = Told::new().await;
    let mut follow = told.follow(1);
    told.turn(1).await;
    told.hub.text(&told.worker.id, 1, "late");
    let usage = Usage::default();
    let ended = told.keep(Body::TurnFinished { turn: 1, text: "late".to_owned(), usage }).await;

    // Both from the log, with the text still waiting.
    assert_eq!([sequence(&mut follow).await, sequence(&mut follow).await], [2, 3]);
    told.hub.publish(&ended);
    told.hub.text(&told.worker.id, 2, "next");

    assert_eq!(follow.next().await.unwrap(), Some(Update::Text("next".into())));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_nobody_told_is_found_in_the_log() {
    let mut told = Told::new().await;
    let mut follow = told.follow(1);
    assert!(follow.next().now_or_never().is_none());

    told.keep(Body::TurnStarted { turn: 1 }).await;
    told.finish().await;

    assert_eq!(rest(&mut follow).await, [2, 3]);
}

#[tokio::test]
async fn a_session_that_is_over_has_nothing_more_to_follow() {
    let mut told = Told::new().await;
    told.finish().await;

    assert_eq!(rest(&mut told.follow(0)).await, [1, 2]);
    assert_eq!(rest(&mut told.follow(2)).await, [0_u64; 0]);
    assert_eq!(rest(&mut told.follow(9)).await, [0_u64; 0]);
}

#[tokio::test]
async fn a_session_takes_room_only_while_somebody_follows_it() {
    let mut told = Told::new().await;
    told.turn(1).await;
    assert_eq!(told.hub.followed(), 0);

    let (first, mut second) = (told.follow(0), told.follow(0));
    assert_eq!(told.hub.followed(), 1);
    drop(first);
    assert_eq!(told.hub.followed(), 1);
    let finished = told.finish().await;
    told.hub.publish(&finished);
    assert_eq!(told.hub.followed(), 0);
    let late = told.follow(0);
    assert_eq!(rest(&mut second).await, [1, 2, 3]);
    drop(second);
    assert_eq!(told.hub.followed(), 1, "the place of the late one stays");
    drop(late);

    assert_eq!(told.hub.followed(), 0);
}
