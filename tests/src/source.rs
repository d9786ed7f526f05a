//! The text of the repository's Rust files as the checks of `tidy` look at it.

use std::sync::LazyLock;

use regex::Regex;

use crate::repository;

const SERVICES: [&str; 2] = ["registry-svc", "executor-svc"];

/// One Rust file, its path below the root.
#[derive(Debug)]
pub struct Source {
    pub path: String,
    pub text: String,
}

/// A function, without the tests' ones.
#[derive(Debug)]
pub struct Function {
    pub name: String,
    pub line: usize,
    pub lines: usize,
}

/// Every Rust file of the crates that make up the programs.
pub fn program_sources() -> Vec<Source> {
    let crates = ["service-kit/src/", "registry-svc/src/", "executor-svc/src/"];
    let sources: Vec<Source> = all_sources()
        .into_iter()
        .filter(|source| crates.iter().any(|name| source.path.starts_with(name)))
        .collect();
    assert!(sources.len() > 10, "the sources were not found");
    sources
}

/// Every Rust file of the repository.
pub fn all_sources() -> Vec<Source> {
    let rust = repository::files().into_iter().filter(|path| path.ends_with(".rs"));
    rust.map(|path| Source { text: repository::read(&path), path }).collect()
}

/// The domain's modules of a service: those below that heading in its module map.
pub fn domain_modules(service: &str) -> Vec<String> {
    static MODULE: LazyLock<Regex> = LazyLock::new(|| regex(r"^(?:pub(?:\([^)]*\))? )?mod (\w+)"));
    let map = repository::read(&format!("{service}/src/lib.rs"));
    let modules: Vec<String> = map
        .lines()
        .skip_while(|line| *line != "// -- domain --")
        .skip(1)
        .take_while(|line| !line.starts_with("// -- "))
        .filter_map(|line| Some(MODULE.captures(line)?[1].to_owned()))
        .collect();
    assert!(modules.len() >= 3, "`{service}/src/lib.rs` has no heading `// -- domain --` any more");
    modules
}

/// Compiles a pattern that is written down in the checks.
pub fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is written here and compiles")
}

impl Source {
    /// The service whose source this is.
    pub fn service(&self) -> Option<&'static str> {
        SERVICES.into_iter().find(|service| self.path.starts_with(&format!("{service}/src/")))
    }

    /// The top-level module of a service that it belongs to.
    pub fn module(&self) -> Option<&str> {
        let inside = self.path.strip_prefix(self.service()?)?.strip_prefix("/src/")?;
        inside.split(['/', '.']).next()
    }

    /// True for a file that holds nothing but the tests of its module.
    pub fn is_tests(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }

    /// Its lines without the tests, which stand at its end or in files of their own.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        let text = if self.is_tests() { "" } else { &self.text };
        text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"))
    }

    /// Its numbered lines without tests and comments.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let numbered = self.lines().enumerate().map(|(index, line)| (index + 1, line));
        numbered
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
            .map(|(number, line)| (number, line.split(" // ").next().unwrap_or(line)))
    }

    /// A complaint for each line of code that the pattern matches.
    pub fn matching(&self, pattern: &Regex, complaint: &str) -> Vec<String> {
        let offending = self.code().filter(|(_, line)| pattern.is_match(line));
        offending
            .map(|(number, line)| format!("{}:{number}: {complaint}: {}", self.path, line.trim()))
            .collect()
    }

    /// Its functions that have a body of several lines.
    pub fn functions(&self) -> Vec<Function> {
        static HEAD: LazyLock<Regex> =
            LazyLock::new(|| regex(r"^(\s*)(?:pub(?:\([^)]*\))? )?(?:const )?(?:async )?fn (\w+)"));
        let lines: Vec<&str> = self.lines().collect();
        let mut functions = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            let Some(head) = HEAD.captures(line) else { continue };
            let rest = &lines[index..];
            // A declaration without a body ends by a semicolon before any brace opens one.
            let opens = rest.iter().find(|line| line.ends_with(['{', '}', ';']));
            if opens.is_none_or(|line| !line.ends_with('{')) {
                continue;
            }
            // The formatter puts the closing brace exactly below the function's own beginning.
            let end = format!("{}}}", &head[1]);
            if let Some(length) = rest.iter().position(|line| *line == end) {
                functions.push(Function { name: head[2].to_owned(), line: index + 1, lines: length + 1 });
            }
        }
        functions
    }
}
