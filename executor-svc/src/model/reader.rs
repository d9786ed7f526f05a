//! Reads one answer from a body: an event stream, or the one JSON document that some servers send in its place. Knows time
//! and size limits, but neither HTTP nor a wire format.

use std::{mem, time::Duration};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, pin_mut};
use tokio::time::{Instant, timeout_at};

use super::{
    Listener, Reply,
    answer::{Assembly, Fault, Progress, Step, starts_like_html},
    redact::{self, Redactor},
    sse,
};

/// One answer with all its framing. Text and arguments have bounds of their own below it.
const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How long usage or the end mark may come behind the last token. Servers that send neither keep the connection open.
const TRAILER_WAIT: Duration = Duration::from_secs(2);

/// How long silence may last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) first_token: Duration,
    pub(super) next_token: Duration,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Trouble<E> {
    Fault(Fault),
    Connection(E),
    Silent(Duration),
}

/// Reads until the answer is whole. `first_token` is when the first token must have come, counted from the request. The flag
/// beside the trouble says whether one had.
pub(super) async fn read<A: Assembly, E>(
    body: impl Stream<Item = Result<Bytes, E>>,
    assembly: A,
    limits: Limits,
    first_token: Instant,
    redactor: &Redactor,
    listener: &dyn Listener,
) -> Result<Reply, (Trouble<E>, bool)> {
    let shown = redactor.stream();
    let mut reading = Reading { assembly, shown, listener, has_begun: false, progress: Progress::More };
    let outcome = reading.read(body, limits, first_token).await;
    let Reading { assembly, shown, has_begun, .. } = reading;
    show(listener, &shown.finish());
    let reply = outcome
        .and_then(|()| assembly.finish().map_err(Trouble::Fault))
        .map_err(|trouble| (trouble, has_begun))?;
    Ok(redacted(reply, redactor))
}

struct Reading<'a, A> {
    assembly: A,
    shown: redact::Stream<'a>,
    listener: &'a dyn Listener,
    has_begun: bool,
    progress: Progress,
}

/// What the body turns out to be, whatever its content type claims.
enum Form {
    Unknown,
    Events(sse::Parser),
    Document,
}

impl<A: Assembly> Reading<'_, A> {
    async fn read<E>(
        &mut self,
        body: impl Stream<Item = Result<Bytes, E>>,
        limits: Limits,
        first_token: Instant,
    ) -> Result<(), Trouble<E>> {
        pin_mut!(body);
        let mut deadline = first_token;
        let mut form = Form::Unknown;
        let mut document = Vec::new();
        let mut size = 0;
        while self.progress != Progress::Done {
            let Ok(piece) = timeout_at(deadline, body.next()).await else {
                if self.progress == Progress::Trailer {
                    return Ok(());
                }
                let waited = if self.has_begun { limits.next_token } else { limits.first_token };
                return Err(Trouble::Silent(waited));
            };
            let piece = match piece {
                Some(Ok(piece)) => piece,
                // All that matters was said before the connection broke.
                Some(Err(_)) if self.progress == Progress::Trailer => return Ok(()),
                Some(Err(error)) => return Err(Trouble::Connection(error)),
                None => return self.end(form, &document).map_err(Trouble::Fault),
            };
            size += piece.len();
            if size > BODY_BYTES_MAX {
                return Err(malformed(format!("the answer is over {BODY_BYTES_MAX} bytes")));
            }
            if let Form::Unknown = form {
                form = guess(&piece);
            }
            match &mut form {
                Form::Unknown | Form::Document => document.extend_from_slice(&piece),
                Form::Events(parser) => {
                    let before = mem::take(&mut document);
                    for bytes in [&before[..], &piece[..]] {
                        let events = parser.push(bytes).map_err(|error| malformed(error.to_string()))?;
                        if self.take_events(&events).map_err(Trouble::Fault)? {
                            deadline = Instant::now() + limits.next_token;
                        }
                    }
                    if self.progress == Progress::Trailer {
                        deadline = deadline.min(Instant::now() + TRAILER_WAIT);
                    }
                }
            }
        }
        Ok(())
    }

    /// True when a token was among them.
    fn take_events(&mut self, events: &[sse::Event]) -> Result<bool, Fault> {
        let mut has_token = false;
        for event in events {
            if self.progress == Progress::Done {
                break;
            }
            let step = self.assembly.event(event)?;
            has_token |= step.is_token;
            self.take(step);
        }
        Ok(has_token)
    }

    fn take(&mut self, Step { text, is_token, progress }: Step) {
        self.has_begun |= is_token;
        self.progress = progress;
        let text = self.shown.push(&text);
        show(self.listener, &text);
    }

    fn end(&mut self, form: Form, document: &[u8]) -> Result<(), Fault> {
        match form {
            Form::Events(parser) => {
                let last: Vec<_> = parser.finish().into_iter().collect();
                self.take_events(&last).map(|_| ())
            }
            Form::Unknown if document.trim_ascii().is_empty() => Err(Fault::Cut),
            Form::Unknown | Form::Document if starts_like_html(document) => {
                Err(Fault::Malformed("an HTML page".to_owned()))
            }
            Form::Unknown | Form::Document => {
                let value = serde_json::from_slice(document)
                    .map_err(|error| Fault::Malformed(format!("the answer is no JSON: {error}")))?;
                let step = self.assembly.whole(&value)?;
                self.take(step);
                Ok(())
            }
        }
    }
}

/// No line of an event stream begins with a brace or an angle bracket, and no document with anything else. What came before
/// this piece was blank.
fn guess(piece: &[u8]) -> Form {
    match piece.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => Form::Unknown,
        Some(b'{' | b'[' | b'<' | b'"') => Form::Document,
        Some(_) => Form::Events(sse::Parser::default()),
    }
}

fn show(listener: &dyn Listener, text: &str) {
    if !text.is_empty() {
        listener.text(text);
    }
}

fn malformed<E>(message: String) -> Trouble<E> {
    Trouble::Fault(Fault::Malformed(message))
}

fn redacted(reply: Reply, redactor: &Redactor) -> Reply {
    let Reply { text, mut tool_calls, usage, finish } = reply;
    for call in &mut tool_calls {
        for part in [&mut call.id, &mut call.tool, &mut call.arguments] {
            *part = redactor.redact(mem::take(part));
        }
    }
    Reply { text: redactor.redact(text), tool_calls, usage, finish }
}

#[cfg(test)]
mod tests;
