//! Searches one file after the other and collects what is found.

use std::{
    fs::File,
    io::{self, Read},
};

use grep_matcher::LineTerminator;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};

use crate::tool::{
    Error,
    boundary::{Place, Work},
    limits::{HeadTail, start},
};

/// Longest line shown: minified files have lines of megabytes.
const LINE_MAX: usize = 500;

/// Most of one file that is searched.
const FILE_MAX: u64 = 64 * 1024 * 1024;

/// Longest line that is held in memory; a file with a longer one is left.
const HEAP_MAX: usize = 8 * 1024 * 1024;

/// A search over several files.
pub(super) struct Search {
    matcher: RegexMatcher,
    searcher: Searcher,
    files_only: bool,
    limit: usize,
    work: Work,
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

impl Search {
    pub(super) fn new(
        matcher: RegexMatcher,
        context: usize,
        files_only: bool,
        limit: usize,
        work: Work,
    ) -> Self {
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .line_terminator(LineTerminator::crlf())
            .before_context(context)
            .after_context(context)
            .heap_limit(Some(HEAP_MAX))
            .binary_detection(BinaryDetection::quit(0))
            .build();
        Self { matcher, searcher, files_only, limit, work, found: 0, kept: HeadTail::default() }
    }

    pub(super) fn file(&mut self, place: &Place, file: File) -> Result<(), Error> {
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

    /// True once there is more than will be shown.
    pub(super) fn is_full(&self) -> bool {
        self.found > self.limit
    }

    /// What was found in `place`, with what the caller has to know about it.
    pub(super) fn finish(mut self, pattern: &str, place: &Place, incomplete: Option<String>) -> String {
        let what = if self.files_only { "files" } else { "matches" };
        if self.found == 0 {
            self.kept.push(&format!(
                "(nothing in `{}` matches `{}`)\n",
                place.show(),
                start(pattern, LINE_MAX)
            ));
        }
        if self.is_full() {
            let limit = self.limit;
            self.kept.push(&format!(
                "({limit} {what} shown, there are more: narrow `pattern`, `path` or `glob`)\n"
            ));
        }
        let late = || self.work.is_late().then(|| "the search took too long".to_owned());
        if let Some(incomplete) = incomplete.or_else(late) {
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
