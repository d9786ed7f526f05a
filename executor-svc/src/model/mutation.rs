//! Streams that are broken at random: whatever comes of one, it is an answer or a fault, the same however it is split, and
//! without the key. `PROPTEST_CASES` says how many are tried.

use proptest::{
    prelude::*,
    sample::Index,
    test_runner::{Config, TestRunner},
};

use super::{answer::Assembly, trial};

/// What parsers trip over.
const WORDS: [&[u8]; 22] = [
    b"data: ",
    b"data:",
    b"\n\n",
    b"\r",
    b"\r\n",
    b"event: error\n",
    b"[DONE]",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b"\\ud800",
    b"\xff",
    b"\xef\xbb\xbf",
    b"null",
    b"-1",
    b"99999999999999999999",
    b"1e400",
    b"{\"error\":{\"code\":429}}",
    b"sk-0123456789",
];

/// One way to break a stream.
#[derive(Clone, Debug)]
enum Edit {
    Byte(Index, u8),
    Word(Index, usize),
    Remove(Index, usize),
    Repeat(Index, usize),
    /// Goes on with another stream from somewhere.
    Splice(Index, Index, Index),
    End(Index),
}

/// Breaks the streams of one wire format.
pub(super) fn check<A: Assembly + Default>(streams: &[String]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let strategy =
        (any::<Index>(), prop::collection::vec(edit(), 0..12), prop::collection::vec(any::<Index>(), 0..12));
    let config = Config { failure_persistence: None, ..Config::default() };
    let tried = TestRunner::new(config).run(&strategy, |(stream, edits, cuts)| {
        let mut bytes = stream.get(streams).clone().into_bytes();
        for edit in edits {
            apply(edit, &mut bytes, streams);
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();

        trial::check::<A>(&runtime, &pieces);
        Ok(())
    });
    if let Err(error) = tried {
        panic!("{error}");
    }
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<Index>;
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Edit::Byte(at, byte)),
        (at(), 0..WORDS.len()).prop_map(|(at, word)| Edit::Word(at, word)),
        (at(), 1..40_usize).prop_map(|(at, count)| Edit::Remove(at, count)),
        (at(), 1..200_usize).prop_map(|(at, count)| Edit::Repeat(at, count)),
        (at(), at(), at()).prop_map(|(at, stream, from)| Edit::Splice(at, stream, from)),
        at().prop_map(Edit::End),
    ]
}

fn apply(edit: Edit, bytes: &mut Vec<u8>, streams: &[String]) {
    let length = bytes.len();
    match edit {
        Edit::Byte(at, byte) => {
            if let Some(place) = bytes.get_mut(at.index(length + 1)) {
                *place = byte;
            }
        }
        Edit::Word(at, word) => {
            let at = at.index(length + 1);
            bytes.splice(at..at, WORDS[word].iter().copied());
        }
        Edit::Remove(at, count) => {
            let at = at.index(length + 1);
            bytes.drain(at..(at + count).min(length));
        }
        Edit::Repeat(at, count) => {
            let at = at.index(length + 1);
            let part = bytes[at..(at + count).min(length)].to_vec();
            bytes.splice(at..at, part);
        }
        Edit::Splice(at, stream, from) => {
            let other = stream.get(streams).as_bytes();
            bytes.truncate(at.index(length + 1));
            bytes.extend_from_slice(&other[from.index(other.len() + 1)..]);
        }
        Edit::End(at) => bytes.truncate(at.index(length + 1)),
    }
}
