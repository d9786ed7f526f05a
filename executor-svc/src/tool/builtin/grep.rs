//! `grep`: lines that match a regular expression.

mod search;

use std::sync::Arc;

use globset::GlobMatcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use serde::Deserialize;
use serde_json::json;

use self::search::Search;
use super::{
    file_tool::{Approval, FileCall},
    find,
};
use crate::tool::{
    Class, Error,
    arguments::Arguments,
    boundary::{Boundary, Kind, Purpose, Walk, Work},
    name,
};

/// Matching lines shown when no limit is given, and the most that may be asked for.
const MATCHES_DEFAULT: usize = 100;
const MATCHES_MAX: usize = 1_000;

/// Most lines of context on each side of a match.
const CONTEXT_MAX: usize = 20;

/// Longest pattern, and most memory of what it is compiled to. Matching is linear in the text, whatever the pattern.
const PATTERN_MAX: usize = 4 * 1024;
const AUTOMATON_MAX: usize = 4 * 1024 * 1024;

const DESCRIPTION: &str = "Searches the text files of the workspace for lines that match a regular expression (Rust syntax: \
    no look-around, no back-references). Answers, for each file, its path and the matching lines with their numbers. Ignored, \
    closed and binary files are not searched.";

#[derive(Deserialize)]
pub(super) struct Grep {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    ignore_case: Option<bool>,
    literal: Option<bool>,
    context: Option<usize>,
    files_only: Option<bool>,
    limit: Option<usize>,
}

impl FileCall for Grep {
    const CLASS: Class = Class::Read;

    fn arguments() -> Arguments {
        let properties = json!({
            "pattern": {"type": "string", "minLength": 1, "description": "the regular expression"},
            "path": {"type": "string", "description": "the file or directory to search, relative to the workspace; its root if left out"},
            "glob": {"type": "string", "minLength": 1, "description": "only files whose path matches, such as `*.rs`"},
            "ignore_case": {"type": "boolean", "description": "true matches without regard to case"},
            "literal": {"type": "boolean", "description": "true takes the pattern as plain text"},
            "context": {"type": "integer", "minimum": 0, "maximum": CONTEXT_MAX, "description": "lines to show around each match"},
            "files_only": {"type": "boolean", "description": "true answers only the paths of files with a match"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MATCHES_MAX, "description": "most matches to show, 100 if left out"},
        });
        let synonyms = &[
            ("regex", "pattern"),
            ("query", "pattern"),
            ("search", "pattern"),
            ("directory", "path"),
            ("dir_path", "path"),
            ("file_path", "path"),
            ("include", "glob"),
            ("case_insensitive", "ignore_case"),
            ("-i", "ignore_case"),
            ("fixed_strings", "literal"),
            ("-C", "context"),
            ("head_limit", "limit"),
            ("max_results", "limit"),
        ];
        Arguments::new(name::GREP, DESCRIPTION, properties, &["pattern"], synonyms)
    }

    fn run(self, boundary: Arc<Boundary>, work: Work, _: Approval) -> Result<String, Error> {
        let matcher = matcher(&self)?;
        let glob = self.glob.as_deref().map(find::matcher).transpose()?;
        grep(boundary, work, &self, matcher, glob.as_ref())
    }
}

fn matcher(taken: &Grep) -> Result<RegexMatcher, Error> {
    if taken.pattern.len() > PATTERN_MAX {
        return Err(Error::Failed(format!("the pattern is longer than {PATTERN_MAX} bytes")));
    }
    RegexMatcherBuilder::new()
        .case_insensitive(taken.ignore_case.unwrap_or(false))
        .fixed_strings(taken.literal.unwrap_or(false))
        .multi_line(true)
        .crlf(true)
        .size_limit(AUTOMATON_MAX)
        .dfa_size_limit(AUTOMATON_MAX)
        .build(&taken.pattern)
        .map_err(|error| {
            Error::Failed(format!(
                "the pattern is no regular expression: {error}. For plain text set `literal` to true"
            ))
        })
}

fn grep(
    boundary: Arc<Boundary>,
    work: Work,
    taken: &Grep,
    matcher: RegexMatcher,
    glob: Option<&GlobMatcher>,
) -> Result<String, Error> {
    let place = boundary.locate(taken.path.as_deref().unwrap_or("."), Purpose::Read)?;
    let mut search = Search::new(
        matcher,
        taken.context.unwrap_or(0),
        taken.files_only.unwrap_or(false),
        taken.limit.unwrap_or(MATCHES_DEFAULT),
        work.clone(),
    );
    if boundary.directory(&place).is_err() {
        search.file(&place, boundary.file(&place)?)?;
        return Ok(search.finish(&taken.pattern, &place, None));
    }
    let mut walk = Walk::new(boundary.clone(), &place, usize::MAX, work)?;
    while let Some(entry) = walk.next()? {
        let relative = entry.place.path().strip_prefix(place.path()).expect("a walk stays below its start");
        if entry.kind != Kind::File || glob.is_some_and(|glob| !glob.is_match(relative)) {
            continue;
        }
        // What cannot be opened any more is left, as it would be had it gone a moment earlier.
        let Ok(file) = boundary.file(&entry.place) else { continue };
        search.file(&entry.place, file)?;
        if search.is_full() {
            break;
        }
    }
    Ok(search.finish(&taken.pattern, &place, walk.incomplete()))
}

#[cfg(test)]
mod tests;
