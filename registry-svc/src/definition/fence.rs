//! Splits a Markdown document at its fences. Line ends become LF here, once, so that nothing behind it sees CR.

use std::borrow::Cow;

use super::finding::Position;

/// A document in its two parts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Split<'a> {
    /// The lines between the fences, each ended by LF.
    pub(crate) front_matter: Cow<'a, str>,
    /// The document's line with which the front matter begins.
    pub(crate) front_matter_line: u32,
    /// Bytes of the front matter in the document, with the line ends it has there.
    pub(crate) front_matter_size: usize,
    pub(crate) body: Body,
}

/// The part below the closing fence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) text: String,
    /// The document's line with which the text begins.
    pub(crate) line: u32,
}

/// Why a document has no front matter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Missing,
    /// The opening fence, which nothing closes.
    Unclosed(Position),
}

/// Splits `document`, which has no byte-order mark any more.
pub(crate) fn split(document: &str) -> Result<Split<'_>, Fault> {
    let mut lines = lines(document).zip(1..);
    let opening = lines.find(|(line, _)| !is_blank(line)).filter(|(line, _)| is_fence(line));
    let Some((_, opening_line)) = opening else {
        return Err(Fault::Missing);
    };

    let offset = |line: &str| line.as_ptr() as usize - document.as_ptr() as usize;
    let mut begin = None;
    while let Some((line, number)) = lines.next() {
        let begin = *begin.get_or_insert_with(|| offset(line));
        if is_fence(line) {
            let front_matter = &document[begin..offset(line)];
            let rest = lines.next().map_or("", |(next, _)| &document[offset(next)..]);
            return Ok(Split {
                front_matter_size: front_matter.len(),
                front_matter: with_line_feeds(front_matter),
                front_matter_line: opening_line + 1,
                body: body(rest, number + 1),
            });
        }
    }
    Err(Fault::Unclosed(Position { line: opening_line, column: 1 }))
}

/// A body from `text`, which begins on `line`: whole blank lines at both ends go.
pub(crate) fn body(text: &str, line: u32) -> Body {
    let text = with_line_feeds(text);
    let first = text.split('\n').take_while(|line| is_blank(line));
    let (blank_lines, skipped) =
        first.fold((0, 0), |(count, length), line| (count + 1, length + line.len() + 1));
    let rest = text.get(skipped..).unwrap_or_default();
    let last = rest.rsplit('\n').take_while(|line| is_blank(line));
    let behind: usize = last.map(|line| line.len() + 1).sum();
    let kept = rest.len().saturating_sub(behind);
    Body { text: rest[..kept].to_owned(), line: line + blank_lines }
}

fn with_line_feeds(text: &str) -> Cow<'_, str> {
    match text.bytes().any(|byte| byte == b'\r') {
        true => Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n")),
        false => Cow::Borrowed(text),
    }
}

/// The lines of `text`, ended by LF, CRLF or a lone CR.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.bytes().position(|byte| matches!(byte, b'\n' | b'\r')) else {
            rest = None;
            return (!text.is_empty()).then_some(text);
        };
        let length = if text[end..].starts_with("\r\n") { 2 } else { 1 };
        rest = Some(&text[end + length..]);
        Some(&text[..end])
    })
}

fn is_fence(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(is_blank)
}

fn is_blank(line: &str) -> bool {
    line.bytes().all(|byte| matches!(byte, b' ' | b'\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(document: &str, front_matter: &str, body: &str) {
        let split = split(document).unwrap();
        assert_eq!(split.front_matter, front_matter, "{document:?}");
        assert_eq!(split.body.text, body, "{document:?}");
    }

    #[track_caller]
    fn refused(document: &str, fault: Fault) {
        assert_eq!(split(document), Err(fault), "{document:?}");
    }

    #[test]
    fn a_fence_is_three_dashes_and_trailing_blanks() {
        check("---\na\n---\nb", "a\n", "b");
        check("--- \t\na\n---\t\nb", "a\n", "b");
        check("---\na\n ---\n----\n---x\n--- x\n---\nb", "a\n ---\n----\n---x\n--- x\n", "b");
        refused("----\na\n----\n", Fault::Missing);
        refused(" ---\na\n---\n", Fault::Missing);
        refused("---x\na\n---\n", Fault::Missing);
    }

    #[test]
    fn blank_lines_may_stand_before_the_first_fence() {
        check("\n \t\r\n---\na\n---", "a\n", "");
        refused("text\n---\na\n---\n", Fault::Missing);
        refused("", Fault::Missing);
        refused("\n\n", Fault::Missing);
    }

    #[test]
    fn the_closing_fence_may_end_the_document() {
        check("---\na\n---", "a\n", "");
        check("---\n---", "", "");
        refused("\n---\na\n", Fault::Unclosed(Position { line: 2, column: 1 }));
        refused("---", Fault::Unclosed(Position { line: 1, column: 1 }));
    }

    #[test]
    fn every_kind_of_line_end_counts_and_becomes_a_line_feed() {
        check("---\r\na\r\nb\r\n---\r\nc\r\nd", "a\nb\n", "c\nd");
        check("---\ra\rb\r---\rc\r\rd\r", "a\nb\n", "c\n\nd");
        check("---\na\n---\nc\r\nd\re\n", "a\n", "c\nd\ne");
    }

    #[test]
    fn only_whole_blank_lines_at_the_ends_leave_the_body() {
        check("---\n---\n\n  \n    code  \n\n \nend \n\t\n\n", "", "    code  \n\n \nend ");
        check("---\n---\n\n \n", "", "");
    }

    #[test]
    fn lines_are_counted_through_all_parts() {
        let split = split("\n---\na\n---\n\n\nbody").unwrap();

        assert_eq!(split.front_matter_line, 3);
        assert_eq!(split.body.line, 7);
    }
}
