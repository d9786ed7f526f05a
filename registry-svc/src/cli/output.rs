//! Standard output of a command. A reader that went away, such as `head`, is no failure.

use std::io::{self, Write as _};

use service_kit::console::{Colour, Style, escape_line};

use super::{Ending, Outcome};
use crate::diagnostic::Severity;

/// Writes lines, coloured on a terminal.
pub(super) struct Output {
    style: Style,
}

/// One finding as a person and a program read it.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Finding {
    pub(super) path: String,
    pub(super) line: u32,
    pub(super) column: u32,
    pub(super) severity: &'static str,
    pub(super) code: String,
    pub(super) message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) agent: String,
}

impl Output {
    pub(super) fn new(no_colour: bool) -> Self {
        Self { style: Style::stdout(no_colour) }
    }

    pub(super) fn write(&self, text: &str) -> Outcome {
        self.bytes(text.as_bytes())
    }

    pub(super) fn bytes(&self, bytes: &[u8]) -> Outcome {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Ending::from(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// One line, at once: programs wait for it.
    pub(super) fn line(&self, text: &str) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{text}")?;
        stdout.flush()
    }

    /// Whatever can be written as JSON, with a line end.
    pub(super) fn json(&self, value: &impl serde::Serialize) -> Outcome {
        let text =
            serde_json::to_string_pretty(value).map_err(|error| Ending::FailedWith(error.to_string()))?;
        self.write(&format!("{text}\n"))
    }

    pub(super) fn paint(&self, colour: Colour, text: &str) -> String {
        self.style.paint(colour, text)
    }

    /// `path:line:col: severity CODE message`
    pub(super) fn finding(&self, finding: &Finding) -> String {
        let Finding { path, line, column, severity, code, message, agent: _ } = finding;
        let colour = if *severity == "error" { Colour::Red } else { Colour::Yellow };
        let severity = self.paint(colour, severity);
        format!("{}:{line}:{column}: {severity} {code} {}", escape_line(path), escape_line(message))
    }
}

/// The word for a severity.
pub(super) fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

/// Rows in columns, each as wide as its widest cell; the last one is not padded.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows.iter().map(Vec::len).max().unwrap_or(0)).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_of_a_form_that_editors_know() {
        let finding = Finding {
            path: "agents/a\u{1b}.md".to_owned(),
            line: 3,
            column: 1,
            severity: "error",
            code: "MISSING_FIELD".to_owned(),
            message: "`name` is missing\nadd it".to_owned(),
            agent: String::new(),
        };

        assert_eq!(
            Output::new(true).finding(&finding),
            "agents/a\\u{1b}.md:3:1: error MISSING_FIELD `name` is missing\\nadd it"
        );
    }

    #[test]
    fn columns_are_aligned() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect();

        assert_eq!(
            columns(&[row(&["a", "bundled", "x"]), row(&["long", "root", "y"])]),
            "a     bundled  x\nlong  root     y\n"
        );
    }
}
