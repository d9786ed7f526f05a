use std::{convert::Infallible, future};

use futures::stream;
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::model::{Finish, sample};

const LIMITS: Limits = Limits { first_token: Duration::from_secs(60), next_token: Duration::from_secs(30) };

/// A wire format of words: each is a token, `.` ends the answer, `!` the stream, `-` says nothing.
#[derive(Default)]
struct Words(Vec<String>);

impl Assembly for Words {
    fn event(&mut self, event: &sse::Event) -> Result<Step, Fault> {
        let word = event.data.as_str();
        let progress = match word {
            "." => Progress::Trailer,
            "!" => Progress::Done,
            _ => Progress::More,
        };
        let is_token = !matches!(word, "." | "!" | "-");
        let text = if is_token { word.to_owned() } else { String::new() };
        self.0.push(text.clone());
        Ok(Step { text, is_token, progress })
    }

    fn whole(&mut self, body: &Value) -> Result<Step, Fault> {
        let text = body["text"].as_str().unwrap_or_default().to_owned();
        self.0.push(text.clone());
        Ok(Step { text, is_token: true, progress: Progress::Done })
    }

    fn finish(self) -> Result<Reply, Fault> {
        let usage = sample::usage(0, 0);
        Ok(Reply { text: self.0.concat(), tool_calls: Vec::new(), usage, finish: Finish::Stop })
    }
}

/// A body of pieces, each after a wait in seconds, that then stays open.
fn body(pieces: Vec<(u64, String)>) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::iter(pieces)
        .then(async |(seconds, piece)| {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(Bytes::from(piece))
        })
        .chain(stream::once(future::pending()))
}

async fn read_words(pieces: &[(u64, &str)]) -> (Result<Reply, (Trouble<Infallible>, bool)>, Duration) {
    let pieces = pieces.iter().map(|(wait, word)| (*wait, format!("data: {word}\n\n"))).collect();
    let start = Instant::now();
    let first_token = start + LIMITS.first_token;
    let redactor = Redactor::new(None);
    let outcome = read(body(pieces), Words::default(), LIMITS, first_token, &redactor, &|_: &str| ()).await;
    (outcome, start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn silence_before_the_first_token_has_its_limit() {
    for pieces in [&[][..], &[(59, "-")][..], &[(20, "-"), (20, "-"), (30, "late")][..]] {
        let (outcome, took) = read_words(pieces).await;
        let (trouble, has_begun) = outcome.unwrap_err();
        assert!(matches!(trouble, Trouble::Silent(waited) if waited == LIMITS.first_token), "{trouble:?}");
        assert!(!has_begun);
        assert_eq!(took.as_secs(), 60);
    }
}

#[tokio::test(start_paused = true)]
async fn silence_between_tokens_has_its_own_limit_that_only_tokens_renew() {
    let (outcome, took) = read_words(&[(50, "a"), (29, "b"), (20, "-"), (9, "-"), (9, "late")]).await;

    let (trouble, has_begun) = outcome.unwrap_err();
    assert!(matches!(trouble, Trouble::Silent(waited) if waited == LIMITS.next_token), "{trouble:?}");
    assert!(has_begun);
    assert_eq!(took.as_secs(), 50 + 29 + 30);
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_within_the_limits_is_read() {
    let (outcome, took) = read_words(&[(59, "a"), (29, "b"), (29, "c"), (29, "!")]).await;

    assert_eq!(outcome.unwrap().text, "abc");
    assert_eq!(took.as_secs(), 59 + 3 * 29);
}

#[tokio::test(start_paused = true)]
async fn an_end_mark_that_does_not_come_is_not_waited_for_long() {
    let (outcome, took) = read_words(&[(1, "a"), (1, ".")]).await;

    assert_eq!(outcome.unwrap().text, "a");
    assert_eq!(took, Duration::from_secs(2) + TRAILER_WAIT);
}

#[tokio::test]
async fn a_body_is_bounded() {
    let piece = Bytes::from(format!(": {}\n\n", "x".repeat(64 * 1024)));
    let endless = stream::repeat_with(|| Ok::<_, Infallible>(piece.clone()));
    let deadline = Instant::now() + LIMITS.first_token;
    let redactor = Redactor::new(None);

    let outcome = read(endless, Words::default(), LIMITS, deadline, &redactor, &|_: &str| ()).await;

    let Err((Trouble::Fault(Fault::Malformed(message)), _)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(message, format!("the answer is over {BODY_BYTES_MAX} bytes"));
}

proptest! {
    #[test]
    fn the_answer_is_the_same_however_the_body_is_split(
        text in prop_oneof![
            Just(" \n{\"text\": \"a{key}b\"}".to_owned()),
            Just("data: a\n\ndata: sk-\n\ndata: canary-1\n\ndata: b\n\ndata: !\n\n".to_owned()),
            Just("\r\n: comment\r\ndata: a\r\n\r\ndata: b\r\n\r\ndata: .".to_owned()),
        ],
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]).collect();

        prop_assert_eq!(read_now(&pieces), read_now(&[text.as_bytes()]));
    }
}

/// Reply text and shown text of a body that is there at once.
fn read_now(pieces: &[&[u8]]) -> (String, String) {
    let pieces: Vec<_> =
        pieces.iter().map(|piece| Ok::<_, Infallible>(Bytes::copy_from_slice(piece))).collect();
    let shown = Mutex::new(String::new());
    let redactor = Redactor::new(Some("sk-canary-1"));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime starts");
    let reply = runtime.block_on(async {
        let deadline = Instant::now() + LIMITS.first_token;
        let listener = |text: &str| shown.lock().push_str(text);
        read(stream::iter(pieces), Words::default(), LIMITS, deadline, &redactor, &listener).await
    });
    (reply.expect("the body is whole").text, shown.into_inner())
}
