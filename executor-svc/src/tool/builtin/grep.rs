//! `grep`: lines that match a regular expression.

use std::{
    io::{self, Read},
    sync::Arc,
};

use async_trait::async_trait;
use globset::GlobMatcher;
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{blocking, find};
use crate::{
    model::ToolSpec,
    tool::{
        Class, Context, Error, Tool,
        arguments::Arguments,
        boundary::{Boundary, Kind, Place, Purpose, Walk, Work},
        limits::{HeadTail, start},
        name,
    },
};

/// Matching lines shown when no limit is given, and the most that may be asked for.
const MATCHES_DEFAULT: usize = 100;
const MATCHES_MAX: usize = 1_000;

/// Most lines of context on each side of a match.
const CONTEXT_MAX: usize = 20;

/// Longest line shown: minified files have lines of megabytes.
const LINE_MAX: usize = 500;

/// Most of one file that is searched.
const FILE_MAX: u64 = 64 * 1024 * 1024;

/// Longest line that is held in memory; a file with a longer one is left.
const HEAP_MAX: usize = 8 * 1024 * 1024;

/// Longest pattern, and most memory of what it is compiled to. Matching is linear in the text, whatever the pattern.
const PATTERN_MAX: usize = 4 * 1024;
const AUTOMATON_MAX: usize = 4 * 1024 * 1024;

const DESCRIPTION: &str = "Searches the text files of the workspace for lines that match a regular expression (Rust syntax: \
    no look-around, no back-references). Answers, for each file, its path and the matching lines with their numbers. Ignored, \
    closed and binary files are not searched.";

pub(super) struct Grep {
    arguments: Arguments,
}

#[derive(Deserialize)]
struct Taken {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    ignore_case: Option<bool>,
    literal: Option<bool>,
    context: Option<usize>,
    files_only: Option<bool>,
    limit: Option<usize>,
}

/// A search over several files.
struct Search {
    boundary: Arc<Boundary>,
    work: Work,
    matcher: RegexMatcher,
    searcher: Searcher,
    files_only: bool,
    limit: usize,
    found: usize,
    kept: HeadTail,
}

/// Collects what is found in one file.
struct Matches<'a> {
    found: &'a mut usize,
    limit: usize,
    kept: &'a mut HeadTail,
    heading: Option<String>,
    files_only: bool,
}

/// A file that stops being readable when the call is over.
struct Reader<'a, R> {
    file: R,
    work: &'a Work,
}

impl Grep {
    pub(super) fn new() -> Self {
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
        Self { arguments: Arguments::new(name::GREP, DESCRIPTION, properties, &["pattern"], synonyms) }
    }
}

#[async_trait]
impl Tool for Grep {
    fn spec(&self) -> &ToolSpec {
        self.arguments.spec()
    }

    fn class(&self) -> Class {
        Class::Read
    }

    async fn call(&self, context: &Context, arguments: &Value) -> Result<String, Error> {
        let taken: Taken = self.arguments.parse(arguments)?;
        let matcher = matcher(&taken)?;
        let glob = taken.glob.as_deref().map(find::matcher).transpose()?;
        blocking(context, move |boundary, work| grep(boundary, work, &taken, matcher, glob.as_ref())).await
    }
}

fn matcher(taken: &Taken) -> Result<RegexMatcher, Error> {
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
    taken: &Taken,
    matcher: RegexMatcher,
    glob: Option<&GlobMatcher>,
) -> Result<String, Error> {
    let place = boundary.locate(taken.path.as_deref().unwrap_or("."), Purpose::Read)?;
    let context = taken.context.unwrap_or(0);
    let mut search = Search {
        searcher: SearcherBuilder::new()
            .line_number(true)
            .line_terminator(LineTerminator::crlf())
            .before_context(context)
            .after_context(context)
            .heap_limit(Some(HEAP_MAX))
            .binary_detection(BinaryDetection::quit(0))
            .build(),
        files_only: taken.files_only.unwrap_or(false),
        limit: taken.limit.unwrap_or(MATCHES_DEFAULT),
        found: 0,
        kept: HeadTail::default(),
        boundary: boundary.clone(),
        work: work.clone(),
        matcher,
    };

    if boundary.directory(&place).is_err() {
        let file = boundary.file(&place)?;
        search.file(&place, file)?;
        return Ok(search.finish(taken, &place, None));
    }
    let mut walk = Walk::new(boundary, &place, usize::MAX, work)?;
    while let Some(entry) = walk.next()? {
        let relative = entry.place.path().strip_prefix(place.path()).expect("a walk stays below its start");
        let wanted = entry.kind == Kind::File && glob.is_none_or(|glob| glob.is_match(relative));
        // What cannot be opened any more is left, as it would be had it gone a moment earlier.
        let Some(file) = wanted.then(|| search.boundary.file(&entry.place).ok()).flatten() else { continue };
        search.file(&entry.place, file)?;
        if search.is_full() {
            break;
        }
    }
    Ok(search.finish(taken, &place, walk.incomplete()))
}

impl Search {
    fn file(&mut self, place: &Place, file: std::fs::File) -> Result<(), Error> {
        let reader = Reader { file: file.take(FILE_MAX), work: &self.work };
        let matches = Matches {
            found: &mut self.found,
            limit: self.limit,
            kept: &mut self.kept,
            heading: Some(place.show()),
            files_only: self.files_only,
        };
        // A file that cannot be searched to its end keeps what was found in it.
        let _ = self.searcher.search_reader(&self.matcher, reader, matches);
        self.work.check()
    }

    fn is_full(&self) -> bool {
        self.found > self.limit
    }

    fn finish(mut self, taken: &Taken, place: &Place, incomplete: Option<String>) -> String {
        let what = if self.files_only { "files" } else { "matches" };
        if self.found == 0 {
            self.kept.push(&format!(
                "(nothing in `{}` matches `{}`)\n",
                place.show(),
                start(&taken.pattern, LINE_MAX)
            ));
        }
        if self.is_full() {
            let limit = self.limit;
            self.kept.push(&format!(
                "({limit} {what} shown, there are more: narrow `pattern`, `path` or `glob`)\n"
            ));
        }
        if let Some(incomplete) = incomplete {
            self.kept.push(&format!("({incomplete})\n"));
        }
        self.kept.finish("narrow `pattern`, `path` or `glob`")
    }
}

impl Matches<'_> {
    fn line(&mut self, number: Option<u64>, mark: char, bytes: &[u8]) {
        if let Some(path) = self.heading.take() {
            self.kept.push(&format!("{path}\n"));
        }
        let text = String::from_utf8_lossy(bytes);
        let text = start(text.trim_end_matches(['\n', '\r']), LINE_MAX);
        self.kept.push(&format!("{:>6}{mark} {text}\n", number.unwrap_or_default()));
    }
}

impl Sink for Matches<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        // One more than is shown is looked for, to know whether there are more.
        *self.found += 1;
        if *self.found > self.limit {
            return Ok(false);
        }
        if self.files_only {
            if let Some(path) = self.heading.take() {
                self.kept.push(&format!("{path}\n"));
            }
            return Ok(false);
        }
        self.line(found.line_number(), ':', found.bytes());
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        if *self.found < self.limit {
            self.line(context.line_number(), '-', context.bytes());
        }
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        if *self.found < self.limit {
            self.kept.push("    --\n");
        }
        Ok(true)
    }
}

impl<R: Read> Read for Reader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.work.is_cancelled() || self.work.is_late() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.file.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Grep;
    use crate::tool::{Error, builtin::fixture::Fixture, limits::RESULT_MAX};

    #[tokio::test]
    async fn matches_come_by_file_with_line_numbers() {
        let fixture = Fixture::new(&[
            ("src/b.rs", "fn main() {}\nlet x = 1;\nfn other() {}\r\n"),
            ("src/a.py", "def main(): pass\n"),
            ("README.md", "Nothing\n"),
        ]);
        let grep = Grep::new();

        for (arguments, found) in [
            (json!({"pattern": "^fn "}), "src/b.rs\n     1: fn main() {}\n     3: fn other() {}\n"),
            (json!({"pattern": "main\\(", "glob": "*.py"}), "src/a.py\n     1: def main(): pass\n"),
            (json!({"pattern": "MAIN", "ignore_case": "true", "files_only": true}), "src/a.py\nsrc/b.rs\n"),
            (
                json!({"pattern": "main(", "literal": true, "path": "src/a.py"}),
                "src/a.py\n     1: def main(): pass\n",
            ),
            (
                json!({"pattern": "}$", "path": "src/b.rs"}),
                "src/b.rs\n     1: fn main() {}\n     3: fn other() {}\n",
            ),
            (
                json!({"pattern": "let", "context": 1}),
                "src/b.rs\n     1- fn main() {}\n     2: let x = 1;\n     3- fn other() {}\n",
            ),
            (json!({"pattern": "absent", "path": "src"}), "(nothing in `src` matches `absent`)\n"),
        ] {
            assert_eq!(fixture.ok(&grep, arguments.clone()).await, found, "{arguments}");
        }
    }

    #[tokio::test]
    async fn what_tools_must_not_open_is_not_searched() {
        let fixture = Fixture::new(&[
            (".env", "needle"),
            ("var/log", "needle"),
            (".git/config", "needle"),
            ("target/x", "needle"),
            (".gitignore", "target/\n"),
            ("../outside/x", "needle"),
            ("seen", "needle"),
        ]);
        fixture.file("binary", b"\0needle\n");
        fixture.link("out", "../outside/x");
        fixture.fifo("pipe");
        let grep = Grep::new();

        assert_eq!(fixture.ok(&grep, json!({"pattern": "needle"})).await, "seen\n     1: needle\n");
        for path in [".env", ".git/config"] {
            fixture.refused(&grep, json!({"pattern": "needle", "path": path}), "tools.read_deny").await;
        }
        fixture.refused(&grep, json!({"pattern": "needle", "path": "target"}), "is ignored").await;
        fixture.refused(&grep, json!({"pattern": "needle", "path": "out"}), "leads out").await;
        fixture.refused(&grep, json!({"pattern": "needle", "path": "pipe"}), "is no regular file").await;
    }

    #[tokio::test]
    async fn results_are_limited_and_say_so() {
        let fixture = Fixture::new(&[("many", &"needle\n".repeat(500)), ("wide", &"needle ".repeat(50_000))]);
        let grep = Grep::new();

        let few = fixture.ok(&grep, json!({"pattern": "needle", "limit": 2})).await;
        let all = fixture.ok(&grep, json!({"pattern": "needle", "limit": 1000, "context": 20})).await;

        assert_eq!(
            few,
            "many\n     1: needle\n     2: needle\n(2 matches shown, there are more: narrow `pattern`, `path` or `glob`)\n"
        );
        assert!(all.len() <= RESULT_MAX && all.contains("bytes more)"), "{all}");
    }

    #[tokio::test]
    async fn patterns_are_refused_when_they_cannot_be_run_safely() {
        let fixture = Fixture::new(&[("a", &"a".repeat(100_000))]);
        let grep = Grep::new();

        fixture.refused(&grep, json!({"pattern": "main("}), "set `literal` to true").await;
        fixture.refused(&grep, json!({"pattern": "(?=x)"}), "no regular expression").await;
        fixture.refused(&grep, json!({"pattern": "((a{1000}){1000}){1000}"}), "no regular expression").await;
        fixture.refused(&grep, json!({"pattern": "x".repeat(5_000)}), "longer than 4096 bytes").await;
        // Takes for ever where matching backtracks.
        let text = fixture.ok(&grep, json!({"pattern": "(a*)*b"})).await;
        assert!(text.starts_with("(nothing"), "{text}");
    }

    #[tokio::test]
    async fn a_cancelled_call_ends() {
        let fixture = Fixture::new(&[("a", "x")]);
        fixture.context.cancel.cancel();

        let result = fixture.call(&Grep::new(), json!({"pattern": "x"})).await;

        assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    }
}
