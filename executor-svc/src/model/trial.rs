//! What holds of every stream, however broken: it is an answer or a fault, the same however it is split, and without the key.

use std::convert::Infallible;

use bytes::Bytes;
use futures::stream;
use parking_lot::Mutex;
use tokio::{runtime::Runtime, time::Instant};

use super::{
    answer::Assembly,
    reader::{self, Limits},
    redact::Redactor,
};

/// What the provider's key is meanwhile.
const KEY: &str = "sk-0123456789";

const LIMITS: Limits = Limits {
    first_token: std::time::Duration::from_secs(60),
    next_token: std::time::Duration::from_secs(60),
};

/// Panics where it does not hold.
pub(super) fn check<A: Assembly + Default>(runtime: &Runtime, pieces: &[&[u8]]) {
    let whole = read::<A>(runtime, &[&pieces.concat()]);

    assert_eq!(read::<A>(runtime, pieces), whole, "however it is split");
    assert!(!whole.0.contains(KEY) && !whole.1.contains(KEY), "{whole:?}");
}

/// The outcome in words, and the text that was shown.
fn read<A: Assembly + Default>(runtime: &Runtime, pieces: &[&[u8]]) -> (String, String) {
    let body: Vec<_> =
        pieces.iter().map(|piece| Ok::<_, Infallible>(Bytes::copy_from_slice(piece))).collect();
    let shown = Mutex::new(String::new());
    let listener = |text: &str| shown.lock().push_str(text);
    let redactor = Redactor::new(Some(KEY));
    let outcome = runtime.block_on(async {
        let deadline = Instant::now() + LIMITS.first_token;
        reader::read(stream::iter(body), A::default(), LIMITS, deadline, &redactor, &listener).await
    });
    let text = shown.lock().clone();
    match outcome {
        Ok(reply) => {
            assert_eq!(reply.text, text, "what was shown is what was said");
            assert!(reply.tool_calls.iter().all(|call| !call.tool.is_empty()), "{reply:?}");
            (format!("{reply:?}"), text)
        }
        // Its words are redacted where they become an error.
        Err((trouble, has_begun)) => (redactor.redact(format!("{trouble:?} {has_begun}")), text),
    }
}
