//! A parser for `text/event-stream`: bytes as they come, whole events out. Pure, so that every split can be tested.

use std::mem;

/// One event with its fields joined. Providers send at most some KiB; a whole tool call at once may be larger.
pub(super) const EVENT_BYTES_MAX: usize = 1024 * 1024;

/// One event. `id` and `retry` have no meaning for a model's answer and are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// Empty where the server names none.
    pub(super) name: String,
    pub(super) data: String,
}

/// An event is over [`EVENT_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is over {EVENT_BYTES_MAX} bytes")]
pub(super) struct TooLarge;

/// The state between two pieces of a stream.
#[derive(Debug, Default)]
pub(super) struct Parser {
    line: Vec<u8>,
    event: Event,
    has_data: bool,
    /// The last byte was a CR, so that an LF belongs to the same line end.
    after_cr: bool,
    is_past_first_line: bool,
}

impl Parser {
    /// Takes the next bytes and returns the events that they complete.
    ///
    /// # Errors
    ///
    /// [`TooLarge`], after which the parser must not be used again.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<Event>, TooLarge> {
        let mut events = Vec::new();
        if mem::take(&mut self.after_cr) {
            match bytes {
                [] => self.after_cr = true,
                [b'\n', rest @ ..] => bytes = rest,
                _ => {}
            }
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
            self.extend_line(&bytes[..end])?;
            events.extend(self.end_line());
            bytes = match &bytes[end..] {
                [b'\r', b'\n', rest @ ..] => rest,
                [b'\r'] => {
                    self.after_cr = true;
                    &[]
                }
                [_, rest @ ..] => rest,
                [] => &[],
            };
        }
        self.extend_line(bytes)?;
        Ok(events)
    }

    /// The event at the end of a stream that lacks the closing blank line. The standard drops it; servers forget the line.
    pub(super) fn finish(mut self) -> Option<Event> {
        if !self.line.is_empty() {
            self.field();
        }
        self.dispatch()
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        let size = self.line.len() + bytes.len() + self.event.data.len();
        if size > EVENT_BYTES_MAX {
            return Err(TooLarge);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Option<Event> {
        if !mem::replace(&mut self.is_past_first_line, true)
            && let Some(rest) = self.line.strip_prefix(b"\xEF\xBB\xBF")
        {
            self.line = rest.to_vec();
        }
        if self.line.is_empty() {
            return self.dispatch();
        }
        self.field();
        None
    }

    fn field(&mut self) {
        let line = mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event.name = value.to_owned(),
            "data" => {
                if mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            // An empty field name is a comment: the servers' keep-alive.
            _ => {}
        }
    }

    fn dispatch(&mut self) -> Option<Event> {
        let event = mem::take(&mut self.event);
        mem::take(&mut self.has_data).then_some(event)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(pieces: &[&[u8]]) -> Vec<Event> {
        let mut parser = Parser::default();
        let mut events: Vec<Event> =
            pieces.iter().flat_map(|piece| parser.push(piece).expect("the event is small")).collect();
        events.extend(parser.finish());
        events
    }

    #[track_caller]
    fn check(stream: &str, expected: &[(&str, &str)]) {
        let events = parse(&[stream.as_bytes()]);
        let found: Vec<_> = events.iter().map(|event| (event.name.as_str(), event.data.as_str())).collect();
        assert_eq!(found, expected, "{stream:?}");
    }

    #[test]
    fn fields_are_read_with_every_kind_of_line_end() {
        check("data: a\n\ndata: b\n\n", &[("", "a"), ("", "b")]);
        check("data: a\r\n\r\ndata: b\r\n\r\n", &[("", "a"), ("", "b")]);
        check("data: a\r\rdata: b\r\r", &[("", "a"), ("", "b")]);
        check("event: delta\ndata:a\n\n", &[("delta", "a")]);
        check("data: a\ndata:  b\ndata\n\n", &[("", "a\n b\n")]);
        check("id: 7\nretry: 9\ndata: a: b\n\n", &[("", "a: b")]);
        check("\u{feff}data: a\n\n", &[("", "a")]);
    }

    #[test]
    fn comments_and_events_without_data_are_dropped() {
        check(": keep-alive\n\n", &[]);
        check("event: ping\n\ndata: a\n\n", &[("", "a")]);
        check("\n\n\n", &[]);
        check("", &[]);
    }

    #[test]
    fn a_forgotten_last_blank_line_loses_nothing() {
        check("data: [DONE]", &[("", "[DONE]")]);
        check("data: a\n", &[("", "a")]);
    }

    #[test]
    fn bytes_that_are_no_text_do_not_stop_the_stream() {
        check("data: ok\n\n", &[("", "ok")]);
        let events = parse(&[b"data: \xff\xfe\n\ndata: b\n\n"]);
        assert_eq!(events.len(), 2);
        assert_eq!(events[1].data, "b");
    }

    #[test]
    fn an_event_is_bounded_in_one_line_and_over_many() {
        let long = "x".repeat(EVENT_BYTES_MAX);
        assert_eq!(Parser::default().push(format!("data: {long}").as_bytes()), Err(TooLarge));

        let mut parser = Parser::default();
        let line = format!("data: {}\n", "x".repeat(EVENT_BYTES_MAX / 4));
        let outcomes: Vec<_> = (0..5).map(|_| parser.push(line.as_bytes())).collect();
        assert!(outcomes[0].is_ok());
        assert_eq!(outcomes.iter().find(|outcome| outcome.is_err()), Some(&Err(TooLarge)));
    }

    proptest! {
        #[test]
        fn events_are_the_same_however_the_bytes_are_split(
            lines in prop::collection::vec(r"(data|event|id|:|x)?(:| : |: )?[ -~é\u{feff}]{0,6}(\r|\n|\r\n|\n\n|\r\n\r\n)", 0..20),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let stream = lines.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]).collect();
            let bytes: Vec<&[u8]> = stream.chunks(1).collect();

            let whole = parse(&[&stream]);
            prop_assert_eq!(&parse(&pieces), &whole);
            prop_assert_eq!(&parse(&bytes), &whole);
        }

        #[test]
        fn no_bytes_make_it_panic(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..10)) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            parse(&pieces);
        }
    }
}
