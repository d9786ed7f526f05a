//! Text for a person's terminal: what models and files wrote must not steer it.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, IsTerminal as _},
};

/// Colours of command output; none where the output is not a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    Red,
    Green,
    Yellow,
    Dim,
    Bold,
}

/// How to write to one output.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    coloured: bool,
}

impl Style {
    /// For standard output. `no_colour` is the presence of the environment's `NO_COLOR`.
    pub fn stdout(no_colour: bool) -> Self {
        Self { coloured: !no_colour && io::stdout().is_terminal() }
    }

    pub fn plain() -> Self {
        Self { coloured: false }
    }

    /// `text`, escaped, in a colour where there are colours.
    pub fn paint(self, colour: Colour, text: &str) -> String {
        let text = escape(text);
        if !self.coloured {
            return text.into_owned();
        }
        let code = match colour {
            Colour::Red => 31,
            Colour::Green => 32,
            Colour::Yellow => 33,
            Colour::Dim => 2,
            Colour::Bold => 1,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// `text` with control, bidi and invisible characters written out; line feeds and tabs stay.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hostile) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_hostile(character) {
            let _ = write!(escaped, "\\u{{{:x}}}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

/// [`escape`] on one line: line feeds and tabs are written out too.
pub fn escape_line(text: &str) -> String {
    escape(text).replace('\n', "\\n").replace('\t', "\\t")
}

fn is_hostile(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{61c}'
        | '\u{200b}'
        | '\u{200e}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2028}'..='\u{2029}' => true,
        '\u{2060}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}' => true,
        _ => character.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_elsewhere_cannot_steer_a_terminal() {
        assert_eq!(escape("\x1b[2Jgone\r\u{9b}1m"), "\\u{1b}[2Jgone\\u{d}\\u{9b}1m");
        assert_eq!(escape("abc\u{202e}fed"), "abc\\u{202e}fed");
        assert_eq!(escape_line("a\nb\tc"), "a\\nb\\tc");
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        assert!(matches!(escape("naïve 日本 👩‍🚀\n\tindented"), Cow::Borrowed(_)));
    }

    #[test]
    fn colours_are_for_terminals() {
        assert_eq!(Style::plain().paint(Colour::Red, "error"), "error");
        assert_eq!(Style { coloured: true }.paint(Colour::Red, "a\x1b"), "\x1b[31ma\\u{1b}\x1b[0m");
    }
}
