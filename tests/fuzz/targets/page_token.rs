//! Any text as a page token: it is refused, or it is the one token of its place.

#![no_main]

use fuzz::bounded;
use libfuzzer_sys::fuzz_target;
use service_kit::page::{Position, decode, encode};

const QUERY: [&str; 3] = ["List", "default", "FULL"];

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    if let Ok(Some(position)) = bounded("reading a token", || decode(&QUERY, &text)) {
        assert_eq!(encode(&QUERY, &position), text);
    }

    // A place made of the same bytes comes back, and for its own listing only.
    let (generation, after) = input.split_first_chunk().unwrap_or((&[0; 8], input));
    let position = Position {
        generation: u64::from_be_bytes(*generation),
        after: String::from_utf8_lossy(after).chars().take(100).collect(),
    };
    let token = encode(&QUERY, &position);
    assert_eq!(decode(&QUERY, &token), Ok(Some(position)));
    assert!(decode(&QUERY[..2], &token).is_err());
});
