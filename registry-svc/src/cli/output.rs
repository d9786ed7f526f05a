//! Findings and tables as people, editors and programs read them.

use service_kit::{
    command::Output,
    console::{Colour, escape_line},
};

use crate::diagnostic::Severity;

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

impl Finding {
    /// `path:line:col: severity CODE message`
    pub(super) fn line(&self, output: &Output) -> String {
        let Self { path, line, column, severity, code, message, agent: _ } = self;
        let colour = if *severity == "error" { Colour::Red } else { Colour::Yellow };
        let severity = output.paint(colour, severity);
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
            finding.line(&Output::new(true)),
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
