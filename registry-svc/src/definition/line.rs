//! Reads single lines the way YAML does: keys, comments and headers of block scalars, without any library.

use std::ops::Range;

/// A `key:` at the beginning of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key<'a> {
    /// Without quotes.
    pub(super) text: &'a str,
    pub(super) quoted: bool,
    /// Where the value begins, blanks skipped; the length of the line when there is none.
    pub(super) value: usize,
}

/// Where the lines of `block` are, without their LF.
pub(super) fn ranges(block: &str) -> Vec<Range<usize>> {
    let mut start = 0;
    let range = |line: &str| {
        let range = start..start + line.trim_end_matches('\n').len();
        start += line.len();
        range
    };
    block.split_inclusive('\n').map(range).collect()
}

/// The key with which `line` begins, if it does. `line` has no indentation.
pub(super) fn key(line: &str) -> Option<Key<'_>> {
    let first = *line.as_bytes().first()?;
    if matches!(first, b'"' | b'\'') {
        let end = closing_quote(line)?;
        let behind = end + 1 + blanks(&line[end + 1..]);
        let value = value_behind_colon(line, behind)?;
        return Some(Key { text: &line[1..end], quoted: true, value });
    }
    if matches!(first, b'[' | b'{' | b'#') || entry(line).is_some() {
        return None;
    }
    let bytes = line.as_bytes();
    for at in 0..bytes.len() {
        match bytes[at] {
            b'#' if at > 0 && is_blank(bytes[at - 1]) => return None,
            b':' => {
                if let Some(value) = value_behind_colon(line, at) {
                    return Some(Key { text: line[..at].trim_end(), quoted: false, value });
                }
            }
            _ => {}
        }
    }
    None
}

/// Where the content behind a leading `- ` begins.
pub(super) fn entry(line: &str) -> Option<usize> {
    indicator(line, b'-')
}

/// Where the content behind a leading `indicator` and a blank begins.
pub(super) fn indicator(line: &str, indicator: u8) -> Option<usize> {
    let bytes = line.as_bytes();
    let is_indicator = bytes.first() == Some(&indicator) && bytes.get(1).is_none_or(|byte| is_blank(*byte));
    is_indicator.then(|| 1 + blanks(&line[1..]))
}

/// True for `|` and `>` with their indicators, alone on the line but for a comment.
pub(super) fn is_block_header(value: &str) -> bool {
    let Some(rest) = value.strip_prefix(['|', '>']) else {
        return false;
    };
    let indicators = rest.bytes().take_while(|byte| matches!(byte, b'1'..=b'9' | b'+' | b'-')).count();
    let behind = &rest[indicators..];
    indicators <= 2 && (behind.trim().is_empty() || is_comment(behind))
}

/// True where `text` is blanks and then a comment, the first blank included.
pub(super) fn is_comment(text: &str) -> bool {
    text.starts_with([' ', '\t']) && text.trim_start_matches([' ', '\t']).starts_with('#')
}

/// The offset of the quote that closes the one at the beginning of `text`.
pub(super) fn closing_quote(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let quote = *bytes.first()?;
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quote == b'"' => at += 1,
            byte if byte == quote => {
                if quote == b'"' || bytes.get(at + 1) != Some(&quote) {
                    return Some(at);
                }
                at += 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The number of leading blanks.
pub(super) fn blanks(text: &str) -> usize {
    text.bytes().take_while(|byte| is_blank(*byte)).count()
}

pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// True for a line that ends or begins a YAML document.
pub(super) fn is_document_marker(line: &str) -> bool {
    let rest = line.strip_prefix("---").or_else(|| line.strip_prefix("..."));
    rest.is_some_and(|rest| rest.is_empty() || is_blank(rest.as_bytes()[0]))
}

/// Where the value begins behind a colon at `at`, if one stands there and ends a key.
fn value_behind_colon(line: &str, at: usize) -> Option<usize> {
    let rest = line.get(at..)?.strip_prefix(':')?;
    (rest.is_empty() || is_blank(rest.as_bytes()[0])).then(|| at + 1 + blanks(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<(&str, &str)>) {
        let found = key(line).map(|key| (key.text, &line[key.value..]));
        assert_eq!(found, expected, "{line:?}");
    }

    #[test]
    fn a_key_ends_with_a_colon_and_a_blank() {
        check("a: b", Some(("a", "b")));
        check("a:", Some(("a", "")));
        check("a:\tb", Some(("a", "b")));
        check("a : b", Some(("a", "b")));
        check("a b: c: d", Some(("a b", "c: d")));
        check("a:b", None);
        check("a:b: c", Some(("a:b", "c")));
        check("<e>x: y</e>", Some(("<e>x", "y</e>")));
        check("plain", None);
        check("", None);
    }

    #[test]
    fn a_quoted_key_is_read_without_its_quotes() {
        check("\"a: b\": c", Some(("a: b", "c")));
        check("'it''s': c", Some(("it''s", "c")));
        check("\"a\\\"b\" : c", Some(("a\\\"b", "c")));
        check("\"a\" b: c", None);
        check("\"a: b", None);
    }

    #[test]
    fn comments_entries_and_flows_are_no_keys() {
        check("# a: b", None);
        check("a # b: c", None);
        check("a#b: c", Some(("a#b", "c")));
        check("- a: b", None);
        check("-a: b", Some(("-a", "b")));
        check("[a]: b", None);
        check("{a: b}", None);
    }

    #[test]
    fn block_headers_have_at_most_two_indicators() {
        for header in ["|", ">", "|-", ">+", "|2", "|2-", ">-2", "| # comment", "> "] {
            assert!(is_block_header(header), "{header:?}");
        }
        for header in ["|x", "> quoted", "|-+2", "|0", "|#x", "", "x"] {
            assert!(!is_block_header(header), "{header:?}");
        }
    }

    #[test]
    fn document_markers_stand_alone_or_before_a_blank() {
        for line in ["...", "... x", "--- x", "---"] {
            assert!(is_document_marker(line), "{line:?}");
        }
        for line in ["....", "---x", " ...", "..", ""] {
            assert!(!is_document_marker(line), "{line:?}");
        }
    }
}
