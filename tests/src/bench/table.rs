//! Ratios with their goals, as one table at the end of a run.

use std::fmt::{self, Display};

/// What a ratio is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

/// The lines of a report.
#[derive(Debug, Default)]
pub struct Table {
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    what: String,
    figures: String,
    /// A ratio and its goal; none for what could not be measured here.
    result: Option<(f64, Goal)>,
}

impl Goal {
    pub fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(bound) => ratio <= bound,
            Self::AtLeast(bound) => ratio >= bound,
        }
    }
}

impl Display for Goal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(bound) => write!(formatter, "≤ {bound:.2}"),
            Self::AtLeast(bound) => write!(formatter, "≥ {bound:.2}"),
        }
    }
}

impl Table {
    /// Adds a ratio, with the figures that it was made of.
    pub fn ratio(&mut self, what: &str, ratio: f64, goal: Goal, figures: impl Into<String>) {
        self.lines.push(Line { what: what.to_owned(), figures: figures.into(), result: Some((ratio, goal)) });
    }

    /// Says what was not measured, and why.
    pub fn skipped(&mut self, what: &str, why: impl Into<String>) {
        self.lines.push(Line { what: what.to_owned(), figures: why.into(), result: None });
    }

    /// True while every goal that was measured is met.
    pub fn holds(&self) -> bool {
        self.lines.iter().all(|line| line.result.is_none_or(|(ratio, goal)| goal.holds(ratio)))
    }
}

impl Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.lines.iter().map(|line| line.what.chars().count()).max().unwrap_or(0);
        for Line { what, figures, result } in &self.lines {
            match result {
                Some((ratio, goal)) => {
                    let mark = if goal.holds(*ratio) { "met   " } else { "MISSED" };
                    writeln!(formatter, "{mark}  {what:width$}  {ratio:>7.2}  ({goal})  {figures}")?;
                }
                None => writeln!(formatter, "skipped {what:width$}  {figures}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_holds_up_to_its_bound() {
        assert!(Goal::AtMost(2.0).holds(2.0) && !Goal::AtMost(2.0).holds(2.01));
        assert!(Goal::AtLeast(0.9).holds(0.9) && !Goal::AtLeast(0.9).holds(0.89));
    }

    #[test]
    fn one_goal_that_is_missed_is_seen_and_one_that_was_not_measured_is_said() {
        let mut table = Table::default();
        table.ratio("rate", 0.95, Goal::AtLeast(0.9), "95 of 100");
        table.skipped("peer", "it is not installed");
        assert!(table.holds());

        table.ratio("cost", 3.0, Goal::AtMost(2.0), "3 of 1");

        assert!(!table.holds());
        let text = table.to_string();
        assert!(text.contains("met     rate") && text.contains("MISSED  cost"), "{text}");
        assert!(text.contains("skipped peer"), "{text}");
    }
}
