//! Collects what is found in one document, and knows which faults concern a restriction.

use crate::diagnostic::{Code, Diagnostic, Severity};

/// Findings of one severity that are kept for one document: enough to mend it, bounded for a hostile one.
const FINDINGS_MAX: usize = 100;

/// Characters of an offending value that a message repeats.
const SHOWN_MAX: usize = 60;

/// A place in a document; both count from 1, the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// All that was found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    warnings: Vec<Diagnostic>,
    errors: Vec<Diagnostic>,
    concerns_restriction: bool,
}

impl Position {
    /// The first character of a document.
    pub(super) const START: Self = Self { line: 1, column: 1 };

    pub(super) fn new(line: usize, column: usize) -> Self {
        let bounded = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Self { line: bounded(line), column: bounded(column) }
    }
}

impl Findings {
    /// Notes something that was ignored or repaired.
    pub(super) fn warn(&mut self, code: Code, at: Position, message: impl Into<String>) {
        if self.warnings.len() < FINDINGS_MAX {
            self.warnings.push(Diagnostic::new(Severity::Warning, code, at.line, at.column, message));
        }
    }

    /// Notes something for which the document is refused.
    pub(super) fn refuse(&mut self, code: Code, at: Position, message: impl Into<String>) {
        self.concerns_restriction |= always_concerns_restriction(code);
        if self.errors.len() < FINDINGS_MAX {
            self.errors.push(Diagnostic::new(Severity::Error, code, at.line, at.column, message));
        }
    }

    /// Refuses the value of a field that restricts.
    pub(super) fn refuse_restriction(&mut self, at: Position, message: impl Into<String>) {
        self.concerns_restriction = true;
        self.refuse(Code::InvalidField, at, message);
    }

    /// Refuses a key that occurs twice, naming both lines.
    pub(super) fn refuse_duplicate(&mut self, key: &str, first: Position, second: Position) {
        let key = shown(key);
        let message =
            format!("{key} on line {} is there already on line {}, keep one", second.line, first.line);
        self.refuse(Code::DuplicateKey, second, message);
    }

    /// True when something was refused with `code`.
    pub(super) fn has_refused(&self, code: Code) -> bool {
        self.errors.iter().any(|diagnostic| diagnostic.code == code)
    }

    /// False once further warnings would be dropped, so that nobody works for them.
    pub(super) fn takes_warnings(&self) -> bool {
        self.warnings.len() < FINDINGS_MAX
    }

    /// True when the document cannot be used.
    pub(super) fn is_refused(&self) -> bool {
        !self.errors.is_empty()
    }

    /// True when it cannot be used because of a fault in a restriction.
    pub(super) fn concerns_restriction(&self) -> bool {
        self.concerns_restriction
    }

    /// Everything in order of line and column.
    pub(super) fn into_diagnostics(self, agent: Option<&str>) -> Vec<Diagnostic> {
        let mut all = self.errors;
        all.extend(self.warnings);
        all.sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
        if let Some(agent) = agent {
            for diagnostic in &mut all {
                diagnostic.agent = agent.to_owned();
            }
        }
        all
    }
}

/// A value for a message: in backticks, cut, and with nothing in it that a terminal would act on.
pub(super) fn shown(value: &str) -> String {
    let mut text = String::from("`");
    for (count, character) in value.chars().enumerate() {
        if count == SHOWN_MAX {
            text.push('…');
            break;
        }
        if character.is_control() || super::hidden::is_candidate(character) {
            text.extend(character.escape_unicode());
        } else {
            text.push(character);
        }
    }
    text.push('`');
    text
}

/// Faults behind which a restriction may be hidden, whatever field they are in.
fn always_concerns_restriction(code: Code) -> bool {
    matches!(
        code,
        Code::MisspeltRestriction
            | Code::ForeignRestriction
            | Code::InvalidOutputSchema
            | Code::YamlUnsupported
            | Code::TooLarge
            | Code::DuplicateKey
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_value_is_cut_and_escaped() {
        assert_eq!(shown("plain"), "`plain`");
        assert_eq!(shown("a\u{7}b\u{202e}c"), "`a\\u{7}b\\u{202e}c`");
        assert_eq!(shown(&"x".repeat(61)), format!("`{}…`", "x".repeat(60)));
    }

    #[test]
    fn findings_are_bounded_and_errors_are_not_crowded_out() {
        let mut findings = Findings::default();
        for _ in 0..1_000 {
            findings.warn(Code::UnknownKey, Position::new(2, 1), "odd");
        }
        findings.refuse(Code::MissingField, Position::START, "missing");

        let all = findings.into_diagnostics(Some("a"));

        assert_eq!(all.len(), FINDINGS_MAX + 1);
        assert_eq!(all[0].code, Code::MissingField);
        assert!(all.iter().all(|diagnostic| diagnostic.agent == "a"));
    }
}
