//! Shortens long strings in a stream of JSON while it is read, so that an answer of any size is never held whole.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, ReadBuf};

/// Most bytes of one string, as it is written in JSON. Far more than is ever shown of a result.
const STRING_MAX: usize = 512 * 1024;

/// Most bytes of one message after its strings are shortened. The connection to a server that sends more is given up.
const MESSAGE_MAX: usize = 8 * 1024 * 1024;

/// How much is read at once.
const CHUNK: usize = 16 * 1024;

/// A reader that passes JSON lines on with their long strings shortened.
pub(super) struct Shorten<R> {
    inner: R,
    strings: Strings,
    /// Read and not passed on yet, from `start`.
    ready: Vec<u8>,
    start: usize,
}

/// A message is too long though its strings are shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message is longer than {bytes_max} bytes")]
pub(super) struct TooLong {
    pub(super) bytes_max: usize,
}

/// Where in a line of JSON the next byte stands.
#[derive(Default)]
pub(super) struct Strings {
    /// How much of the message was kept.
    message: usize,
    /// Lines are not messages of their own: all there is counts as one.
    is_one_message: bool,
    string: Option<Inside>,
}

/// Inside of a string.
#[derive(Default)]
struct Inside {
    kept: usize,
    dropped: usize,
    escape: Escape,
    /// The character before is the first half of a pair of escapes, which is not torn apart.
    is_half: bool,
}

#[derive(Clone, Copy, Default)]
enum Escape {
    #[default]
    No,
    Begun,
    /// Of `\uXXXX`: how many digits are to come, and the value so far.
    Unicode(u8, u32),
}

impl<R> Shorten<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, strings: Strings::default(), ready: Vec::new(), start: 0 }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Shorten<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.start == this.ready.len() {
            let mut chunk = [0; CHUNK];
            let mut chunk = ReadBuf::new(&mut chunk);
            std::task::ready!(Pin::new(&mut this.inner).poll_read(context, &mut chunk))?;
            if chunk.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.start = 0;
            this.ready = this
                .strings
                .shorten(chunk.filled())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
        let count = buffer.remaining().min(this.ready.len() - this.start);
        buffer.put_slice(&this.ready[this.start..this.start + count]);
        this.start += count;
        Poll::Ready(Ok(()))
    }
}

impl Strings {
    /// For the answer to one request, whatever its lines are.
    pub(super) fn of_one_message() -> Self {
        Self { is_one_message: true, ..Self::default() }
    }

    /// Takes what was read, and returns what is to be kept of it.
    pub(super) fn shorten(&mut self, read: &[u8]) -> Result<Vec<u8>, TooLong> {
        let mut kept = Vec::with_capacity(read.len());
        for &byte in read {
            self.pass(byte, &mut kept);
        }
        match self.message > MESSAGE_MAX {
            true => Err(TooLong { bytes_max: MESSAGE_MAX }),
            false => Ok(kept),
        }
    }

    /// Takes one byte, and passes on what is to be kept.
    fn pass(&mut self, byte: u8, kept: &mut Vec<u8>) {
        let before = kept.len();
        match (&mut self.string, byte) {
            // JSON has no line break inside of a string: whatever this was, it is over.
            (_, b'\n') => {
                self.string = None;
                kept.push(byte);
                if !self.is_one_message {
                    self.message = 0;
                    return;
                }
            }
            (None, b'"') => {
                self.string = Some(Inside::default());
                kept.push(byte);
            }
            (None, _) => kept.push(byte),
            (Some(inside), _) if inside.ends_with(byte) => {
                if inside.dropped > 0 {
                    kept.extend_from_slice(format!("… ({} bytes more)", inside.dropped).as_bytes());
                }
                kept.push(byte);
                self.string = None;
            }
            (Some(inside), _) => {
                if inside.keeps(byte) {
                    kept.push(byte);
                }
            }
        }
        self.message += kept.len() - before;
    }
}

impl Inside {
    fn ends_with(&self, byte: u8) -> bool {
        byte == b'"' && matches!(self.escape, Escape::No)
    }

    fn keeps(&mut self, byte: u8) -> bool {
        let is_continuation = byte & 0b1100_0000 == 0b1000_0000;
        let begins_character = matches!(self.escape, Escape::No) && !is_continuation;
        let is_over = self.kept >= STRING_MAX && begins_character && !self.is_half;
        self.step(byte);
        if self.dropped > 0 || is_over {
            self.dropped += 1;
            return false;
        }
        self.kept += 1;
        true
    }

    fn step(&mut self, byte: u8) {
        let (escape, is_half) = match (self.escape, byte) {
            (Escape::No, b'\\') => (Escape::Begun, self.is_half),
            (Escape::Begun, b'u') => (Escape::Unicode(4, 0), self.is_half),
            (Escape::No | Escape::Begun, _) => (Escape::No, false),
            (Escape::Unicode(left, value), _) => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                let value = value * 16 + digit;
                match left {
                    1 => (Escape::No, (0xD800..0xDC00).contains(&value)),
                    _ => (Escape::Unicode(left - 1, value), self.is_half),
                }
            }
        };
        (self.escape, self.is_half) = (escape, is_half);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use tokio::io::AsyncReadExt as _;

    use super::*;

    async fn read(text: &[u8]) -> io::Result<Vec<u8>> {
        let mut read = Vec::new();
        Shorten::new(text).read_to_end(&mut read).await.map(|_| read)
    }

    #[tokio::test]
    async fn long_strings_are_shortened_and_everything_else_stays() {
        let long = format!("{}\"end", "x".repeat(STRING_MAX + 1000));
        let line = json!({"id": 7, "result": {"text": long, "other": ["a \\ \" b", "é😀", 1.5, null]}});

        let read = read(format!("{line}\nbanner with a \" quote\n{{\"id\":8}}\n").as_bytes()).await.unwrap();

        let text = String::from_utf8(read).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let value: Value = serde_json::from_str(lines[0]).unwrap();
        let shortened = value["result"]["text"].as_str().unwrap();
        assert!(shortened.ends_with("x… (1005 bytes more)"), "{}", &shortened[STRING_MAX..]);
        assert_eq!(shortened.find('…'), Some(STRING_MAX));
        assert_eq!(value["result"]["other"], line["result"]["other"]);
        assert_eq!(lines[1..], ["banner with a \" quote", "{\"id\":8}"]);
    }

    #[tokio::test]
    async fn no_character_is_torn_apart() {
        for (unit, plain) in
            [("é", "é"), ("😀", "😀"), (r"\ud83d\ude00", "😀"), (r"\\", "\\"), (r"\u00e9", "é")]
        {
            for pad in 0..unit.len() {
                let line = format!("\"{}{}\"\n", "-".repeat(pad), unit.repeat(STRING_MAX / unit.len() + 10));
                let read = read(line.as_bytes()).await.unwrap();
                let value: String = serde_json::from_slice(&read)
                    .unwrap_or_else(|error| panic!("{unit} behind {pad}: {error}"));
                let kept = value.trim_start_matches('-').split('…').next().unwrap();
                assert_eq!(kept.replace(plain, ""), "", "{unit} behind {pad}");
                assert!(value.ends_with(" bytes more)"), "{unit} behind {pad}");
            }
        }
    }

    #[tokio::test]
    async fn a_message_without_end_is_refused() {
        let many = format!("[{}]", "\"text\",".repeat(MESSAGE_MAX / 7 + CHUNK));

        assert_eq!(read(many.as_bytes()).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    proptest! {
        #[test]
        fn short_lines_pass_unchanged(lines in proptest::collection::vec(any::<Vec<u8>>(), 0..20)) {
            let text = lines.join(&b'\n');
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            prop_assert_eq!(runtime.block_on(read(&text)).unwrap(), text);
        }
    }
}
