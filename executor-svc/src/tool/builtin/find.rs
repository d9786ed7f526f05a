//! `find`: files and directories by name.

use std::sync::Arc;

use globset::{GlobBuilder, GlobMatcher};
use serde::Deserialize;
use serde_json::json;

use super::file_tool::{Approval, FileCall};
use crate::tool::{
    Class, Error,
    arguments::Arguments,
    boundary::{Boundary, Kind, Purpose, Walk, Work},
    limits::HeadTail,
    name,
};

/// Paths shown when no limit is given, and the most that may be asked for.
const PATHS_DEFAULT: usize = 200;
const PATHS_MAX: usize = 1_000;

/// Longest pattern in bytes: it is compiled to a matcher.
const PATTERN_MAX: usize = 1_024;

const DESCRIPTION: &str = "Finds files and directories of the workspace by a glob on their path, such as `*.rs`, \
    `src/**/test_*.py` or `{Cargo,package}.*`. A pattern without `/` matches names at any depth. Answers paths relative to \
    the workspace, sorted, directories with `/` at the end. Ignored and closed files are not found.";

#[derive(Deserialize)]
pub(super) struct Find {
    pattern: String,
    path: Option<String>,
    limit: Option<usize>,
}

impl FileCall for Find {
    const CLASS: Class = Class::Read;

    fn arguments() -> Arguments {
        let properties = json!({
            "pattern": {"type": "string", "minLength": 1, "description": "the glob, relative to `path`"},
            "path": {"type": "string", "description": "the directory to search, relative to the workspace; its root if left out"},
            "limit": {"type": "integer", "minimum": 1, "maximum": PATHS_MAX, "description": "most paths to show, 200 if left out"},
        });
        let synonyms = &[
            ("glob", "pattern"),
            ("name", "pattern"),
            ("query", "pattern"),
            ("directory", "path"),
            ("dir", "path"),
            ("dir_path", "path"),
            ("max_results", "limit"),
        ];
        Arguments::new(name::FIND, DESCRIPTION, properties, &["pattern"], synonyms)
    }

    fn run(self, boundary: Arc<Boundary>, work: Work, _: Approval) -> Result<String, Error> {
        let matcher = matcher(&self.pattern)?;
        find(boundary, work, &self, &matcher)
    }
}

/// A glob over paths; one without a slash is about names.
pub(super) fn matcher(pattern: &str) -> Result<GlobMatcher, Error> {
    if pattern.len() > PATTERN_MAX {
        return Err(Error::Failed(format!("the pattern is longer than {PATTERN_MAX} bytes")));
    }
    let trimmed = pattern.trim_start_matches("./").trim_end_matches('/');
    let anywhere = match trimmed.contains('/') {
        true => trimmed.trim_start_matches('/').to_owned(),
        false => format!("**/{trimmed}"),
    };
    GlobBuilder::new(&anywhere)
        .literal_separator(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|error| Error::Failed(format!("`{pattern}` is no glob: {}", error.kind())))
}

fn find(boundary: Arc<Boundary>, work: Work, taken: &Find, matcher: &GlobMatcher) -> Result<String, Error> {
    let place = boundary.locate(taken.path.as_deref().unwrap_or("."), Purpose::Read)?;
    let mut walk = Walk::new(boundary, &place, usize::MAX, work)?;
    let limit = taken.limit.unwrap_or(PATHS_DEFAULT);

    let mut kept = HeadTail::default();
    let mut found = 0;
    while let Some(entry) = walk.next()? {
        let path = entry.place.path();
        let relative = path.strip_prefix(place.path()).expect("a walk stays below its start");
        if !matcher.is_match(relative) {
            continue;
        }
        if found == limit {
            kept.push(&format!("({limit} paths shown, there are more: narrow `pattern` or `path`)\n"));
            break;
        }
        found += 1;
        let end = if entry.kind == Kind::Directory { "/" } else { "" };
        kept.push(&format!("{}{end}\n", entry.place.show()));
    }
    if found == 0 {
        kept.push(&format!("(nothing in `{}` matches `{}`)\n", place.show(), taken.pattern));
    }
    if let Some(incomplete) = walk.incomplete() {
        kept.push(&format!("({incomplete})\n"));
    }
    Ok(kept.finish("narrow `pattern` or `path`"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Find;
    use crate::tool::{
        Error,
        builtin::{file_tool::FileTool, fixture::Fixture},
    };

    fn tree() -> Fixture {
        Fixture::new(&[
            ("Cargo.toml", ""),
            ("src/main.rs", ""),
            ("src/tool/main.rs", ""),
            ("src/tool/x.py", ""),
            ("target/out.rs", ""),
            (".gitignore", "/target\n"),
            (".github/workflows/ci.yml", ""),
            (".env.rs", ""),
            (".git/hooks/x.rs", ""),
        ])
    }

    #[tokio::test]
    async fn names_are_found_at_any_depth_and_paths_where_they_are() {
        let fixture = tree();
        let find = FileTool::<Find>::new();

        for (pattern, found) in [
            ("*.rs", "src/main.rs\nsrc/tool/main.rs\n"),
            ("main.rs", "src/main.rs\nsrc/tool/main.rs\n"),
            ("./src/*.rs", "src/main.rs\n"),
            ("src/**/*.py", "src/tool/x.py\n"),
            ("**/tool", "src/tool/\n"),
            ("tool/", "src/tool/\n"),
            ("*.{yml,toml}", ".github/workflows/ci.yml\nCargo.toml\n"),
            ("*.go", "(nothing in `.` matches `*.go`)\n"),
        ] {
            assert_eq!(fixture.ok(&find, json!({"pattern": pattern})).await, found, "{pattern}");
        }
    }

    #[tokio::test]
    async fn a_search_may_begin_below_and_be_limited() {
        let fixture = tree();
        let find = FileTool::<Find>::new();

        let below = fixture.ok(&find, json!({"pattern": "tool/*", "path": "src"})).await;
        let limited = fixture.ok(&find, json!({"glob": "*.rs", "limit": 1})).await;

        assert_eq!(below, "src/tool/main.rs\nsrc/tool/x.py\n");
        assert_eq!(limited, "src/main.rs\n(1 paths shown, there are more: narrow `pattern` or `path`)\n");
    }

    #[tokio::test]
    async fn links_are_found_but_not_followed() {
        let fixture = Fixture::new(&[("../outside/secret.rs", ""), ("a/b.rs", "")]);
        fixture.link("out", "../outside");
        fixture.link("a/up", "..");

        let text = fixture.ok(&FileTool::<Find>::new(), json!({"pattern": "*"})).await;

        assert_eq!(text, "a/\na/b.rs\na/up\nout\n");
    }

    #[tokio::test]
    async fn a_very_deep_tree_ends_the_search_with_a_note() {
        let fixture = Fixture::new(&[]);
        fixture.file(&format!("{}leaf", "d/".repeat(80)), "");

        let text = fixture.ok(&FileTool::<Find>::new(), json!({"pattern": "leaf"})).await;

        assert!(text.contains("lie too deep: 1"), "{text}");
    }

    #[tokio::test]
    async fn a_broken_pattern_and_a_cancelled_call_are_told_apart() {
        let fixture = tree();
        fixture.refused(&FileTool::<Find>::new(), json!({"pattern": "a["}), "`a[` is no glob").await;

        fixture.context.cancel.cancel();

        let result = fixture.call(&FileTool::<Find>::new(), json!({"pattern": "*"})).await;
        assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    }
}
