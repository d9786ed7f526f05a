//! Characters a reader cannot see and a model can: bidirectional controls, zero-width characters and tags.

use unicode_properties::{GeneralCategoryGroup, UnicodeEmoji as _, UnicodeGeneralCategory as _};

use super::finding::Position;

/// Places that one message names.
const PLACES_MAX: usize = 8;

const ZERO_WIDTH_NON_JOINER: char = '\u{200c}';
const ZERO_WIDTH_JOINER: char = '\u{200d}';
const BLACK_FLAG: char = '\u{1f3f4}';
const CANCEL_TAG: char = '\u{e007f}';

/// Hidden characters of one text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hidden {
    places: Vec<(char, Position)>,
    count: usize,
}

impl Hidden {
    /// Where the first one stands.
    pub(super) fn first(&self) -> Position {
        self.places[0].1
    }

    /// Says which, and where.
    pub(super) fn describe(&self) -> String {
        let mut places: Vec<String> = self
            .places
            .iter()
            .map(|(character, at)| format!("U+{:04X} at {}:{}", u32::from(*character), at.line, at.column))
            .collect();
        if self.count > self.places.len() {
            places.push(format!("{} more", self.count - self.places.len()));
        }
        places.join(", ")
    }
}

/// Finds the hidden characters of `text`, whose first character stands at `start`.
pub(super) fn find(text: &str, start: Position) -> Option<Hidden> {
    if is_plain(text) {
        return None;
    }
    let mut hidden = Hidden { places: Vec::new(), count: 0 };
    let mut at = start;
    for (offset, character) in text.char_indices() {
        if is_candidate(character)
            && !is_joining(text, offset, character)
            && !is_flag_part(text, offset, character)
        {
            hidden.count += 1;
            if hidden.places.len() < PLACES_MAX {
                hidden.places.push((character, at));
            }
        }
        if character == '\n' {
            at = Position { line: at.line + 1, column: 1 };
        } else {
            at.column += 1;
        }
    }
    (hidden.count > 0).then_some(hidden)
}

/// True for every character that is hidden where nothing excuses it.
pub(super) fn is_candidate(character: char) -> bool {
    matches!(
        character,
        '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// A quick look: no lead byte of any candidate.
fn is_plain(text: &str) -> bool {
    text.is_ascii() || !text.bytes().any(|byte| matches!(byte, 0xd8 | 0xe2 | 0xef | 0xf3))
}

/// A joiner between letters with their marks, or between emoji with their selectors and skin tones.
fn is_joining(text: &str, offset: usize, character: char) -> bool {
    if !matches!(character, ZERO_WIDTH_NON_JOINER | ZERO_WIDTH_JOINER) {
        return false;
    }
    let before = &text[..offset];
    let after = &text[offset + character.len_utf8()..];
    let is_letter = |character: Option<char>| {
        character.is_some_and(|character| group(character) == GeneralCategoryGroup::Letter)
    };
    let is_emoji = |character: Option<char>| {
        character.is_some_and(|character| !character.is_ascii() && character.is_emoji_char())
    };
    let letters = is_letter(before.chars().rev().take(RUN_MAX).find(|character| !is_mark(*character)))
        && is_letter(after.chars().take(RUN_MAX).find(|character| !is_mark(*character)));
    letters
        || is_emoji(before.chars().rev().take(RUN_MAX).find(|character| !is_emoji_modifier(*character)))
            && is_emoji(after.chars().next())
}

/// Marks on one letter that are looked through; longer runs are no script's, and would cost their square.
const RUN_MAX: usize = 32;

/// Part of a flag of a region: a black flag, tags, a cancel tag.
fn is_flag_part(text: &str, offset: usize, character: char) -> bool {
    if !matches!(character, '\u{e0020}'..='\u{e007f}') {
        return false;
    }
    let is_tag = |character: &char| matches!(character, '\u{e0020}'..='\u{e007e}');
    let begins =
        text[..offset].chars().rev().take(RUN_MAX).find(|character| !is_tag(character)) == Some(BLACK_FLAG);
    let ends = text[offset..].chars().take(RUN_MAX).find(|character| !is_tag(character)) == Some(CANCEL_TAG);
    let has_tags = character != CANCEL_TAG || !text[..offset].ends_with(BLACK_FLAG);
    begins && ends && has_tags
}

fn is_mark(character: char) -> bool {
    group(character) == GeneralCategoryGroup::Mark
}

fn is_emoji_modifier(character: char) -> bool {
    matches!(character, '\u{fe0e}' | '\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}')
}

fn group(character: char) -> GeneralCategoryGroup {
    character.general_category_group()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, count: usize) {
        assert_eq!(find(text, Position::START).map_or(0, |hidden| hidden.count), count, "{text:?}");
    }

    #[test]
    fn every_hidden_character_is_found() {
        for character in ('\u{200e}'..='\u{200f}')
            .chain('\u{202a}'..='\u{202e}')
            .chain('\u{2066}'..='\u{2069}')
            .chain('\u{e0000}'..='\u{e007f}')
            .chain(['\u{61c}', '\u{200b}', '\u{2060}', '\u{feff}'])
        {
            check(&format!("a{character}b"), 1);
        }
        check("plain, – dash, ﬁ ligature, 日本語", 0);
    }

    #[test]
    fn a_joiner_is_hidden_but_between_letters_or_emoji() {
        check("می\u{200c}خواهم", 0);
        check("क\u{94d}\u{200d}ष", 0);
        check("র\u{200c}\u{9cd}য", 0);
        check("👩\u{200d}💻", 0);
        check("👩🏽\u{200d}💻", 0);
        check("❤\u{fe0f}\u{200d}🔥", 0);
        check("🏳\u{fe0f}\u{200d}🌈 🧑\u{200d}🦰 🏴\u{200d}☠\u{fe0f} 🤷🏽\u{200d}♂\u{fe0f}", 0);
        check("👨\u{200d}👩\u{200d}👧 🧑🏽\u{200d}🤝\u{200d}🧑🏻", 0);
        check("\u{200d}a", 1);
        check("a\u{200d}", 1);
        check("a \u{200d}b", 1);
        check("1\u{200d}2", 1);
        check("a\u{200d}💻", 1);
        check("a\u{200d}\u{200d}b", 2);
        check("\u{200c}", 1);
    }

    #[test]
    fn tags_belong_to_flags_only() {
        check("🏴\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}", 0);
        check("🏴\u{e0067}\u{e0062}", 2);
        check("🏴\u{e007f}", 1);
        check("\u{e0067}\u{e007f}", 2);
    }

    #[test]
    fn positions_are_counted_in_characters() {
        let hidden = find("äö\nü\u{200b}x\u{202e}", Position::new(5, 3)).unwrap();

        assert_eq!(hidden.first(), Position::new(6, 2));
        assert_eq!(hidden.describe(), "U+200B at 6:2, U+202E at 6:4");
    }

    #[test]
    fn only_some_places_are_named() {
        let hidden = find(&"\u{200b}".repeat(1_000), Position::START).unwrap();

        assert!(hidden.describe().ends_with("U+200B at 1:8, 992 more"), "{}", hidden.describe());
    }
}
