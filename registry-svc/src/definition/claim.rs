//! The name that a document which cannot be read would have had.

use super::{fence, key, line, name};

/// Bytes at the beginning of a document in which its name is looked for: as much as front matter may have.
const SEARCHED_MAX: usize = 64 * 1024;

/// The value of the first line `name: …` (`name = …` in TOML), where that is a valid name.
pub(super) fn name(document: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(&document[..document.len().min(SEARCHED_MAX)]);
    let head = head.trim_start_matches('\u{feff}');
    let value = fence::lines(head).find_map(value)?;
    name::check(value).ok().filter(|name| !name.is_empty())
}

/// The value of a line that gives a name.
fn value(text: &str) -> Option<&str> {
    let is_name = |text: &str| key::fold(text) == "name";
    let value = match line::key(text).filter(|key| is_name(key.text)) {
        Some(key) => &text[key.value..],
        None => text.split_once('=').filter(|(key, _)| is_name(key.trim()))?.1,
    };
    let value = value.trim();
    if value.starts_with(['"', '\'']) {
        return Some(line::closing_quote(value).map_or(value, |end| value[1..end].trim()));
    }
    let comment = value.find(" #").or_else(|| value.find("\t#"));
    Some(comment.map_or(value, |at| value[..at].trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(document: &str, expected: Option<&str>) {
        assert_eq!(name(document.as_bytes()).as_deref(), expected, "{document:?}");
    }

    #[test]
    fn the_first_name_line_counts() {
        check("---\nname: a\nname: b\n", Some("a"));
        check("---\r\nName:\t\"a b\" # c\r\n", Some("a b"));
        check("---\nname: a # b\n", Some("a"));
        check("name = 'a'\n", Some("a"));
        check("\u{feff}name: a", Some("a"));
        check("---\nx: y\n", None);
        check("", None);
    }

    #[test]
    fn only_a_valid_name_is_claimed() {
        check("name: ../x\nname: a\n", None);
        check("name:\n", None);
        check("name: \"a\nname: b\n", None);
        check("  name: a\n", None);
    }

    #[test]
    fn bytes_that_are_no_text_do_not_matter_elsewhere() {
        assert_eq!(name(b"---\nx: \xff\nname: a\n").as_deref(), Some("a"));
    }

    #[test]
    fn only_the_beginning_is_searched() {
        let far = format!("{}\nname: a\n", "x".repeat(SEARCHED_MAX));
        check(&far, None);
    }
}
