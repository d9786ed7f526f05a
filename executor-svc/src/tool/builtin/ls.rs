//! `ls`: what lies in a directory.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use super::file_tool::{Approval, FileCall};
use crate::tool::{
    Class, Error,
    arguments::Arguments,
    boundary::{Boundary, Entry, Kind, Purpose, Walk, Work},
    limits::HeadTail,
    name,
};

/// Most entries shown. More than a model makes use of in one look.
const ENTRIES_MAX: usize = 500;

const DESCRIPTION: &str = "Lists a directory of the workspace, sorted by name. Directories end in `/`, links in `@`, files \
    come with their size in bytes. Ignored and closed files are not shown. For files by name anywhere below use `find`.";

#[derive(Deserialize)]
pub(super) struct Ls {
    path: Option<String>,
    depth: Option<usize>,
}

impl FileCall for Ls {
    const CLASS: Class = Class::Read;

    fn arguments() -> Arguments {
        let properties = json!({
            "path": {"type": "string", "description": "the directory, relative to the workspace; its root if left out"},
            "depth": {"type": "integer", "minimum": 1, "maximum": 8, "description": "how many levels to show, 1 if left out"},
        });
        let synonyms = &[
            ("directory", "path"),
            ("dir", "path"),
            ("dir_path", "path"),
            ("file_path", "path"),
            ("max_depth", "depth"),
        ];
        Arguments::new(name::LS, DESCRIPTION, properties, &[], synonyms)
    }

    fn run(self, boundary: Arc<Boundary>, work: Work, _: Approval) -> Result<String, Error> {
        ls(boundary, work, &self)
    }
}

fn ls(boundary: Arc<Boundary>, work: Work, taken: &Ls) -> Result<String, Error> {
    let place = boundary.locate(taken.path.as_deref().unwrap_or("."), Purpose::Read)?;
    let mut walk = Walk::new(boundary.clone(), &place, taken.depth.unwrap_or(1), work)?;

    let mut kept = HeadTail::default();
    let mut shown = 0;
    while let Some(entry) = walk.next()? {
        if shown == ENTRIES_MAX {
            kept.push(&format!(
                "({ENTRIES_MAX} entries shown, there are more: list a directory below, or use `find`)\n"
            ));
            break;
        }
        shown += 1;
        kept.push(&line(&boundary, &entry));
    }
    if shown == 0 {
        kept.push(&format!("(`{}` has nothing to show)\n", place.show()));
    }
    if walk.left_out() > 0 {
        kept.push(&format!("(not shown, because ignored or closed to tools: {})\n", walk.left_out()));
    }
    if let Some(incomplete) = walk.incomplete() {
        kept.push(&format!("({incomplete})\n"));
    }
    Ok(kept.finish("list a directory below"))
}

fn line(boundary: &Boundary, entry: &Entry) -> String {
    let indent = "  ".repeat(entry.depth - 1);
    let name = entry.place.path().file_name().unwrap_or_default().to_string_lossy();
    match entry.kind {
        Kind::Directory => format!("{indent}{name}/\n"),
        Kind::Link => format!("{indent}{name}@\n"),
        Kind::Other => format!("{indent}{name} (no regular file)\n"),
        Kind::File => match boundary.stat(&entry.place) {
            Ok(stat) => format!("{indent}{name} ({})\n", stat.st_size),
            Err(_) => format!("{indent}{name}\n"),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Ls;
    use crate::tool::{
        builtin::{file_tool::FileTool, fixture::Fixture},
        limits::RESULT_MAX,
    };

    #[tokio::test]
    async fn a_directory_is_listed_in_order_with_kinds_and_sizes() {
        let fixture = Fixture::new(&[("b.txt", "12345"), ("a/inner/deep", ""), ("a/x", "1")]);
        fixture.link("to-a", "a");
        fixture.fifo("pipe");
        let ls = FileTool::<Ls>::new();

        assert_eq!(fixture.ok(&ls, json!({})).await, "a/\nb.txt (5)\npipe (no regular file)\nto-a@\n");
        assert_eq!(fixture.ok(&ls, json!({"path": "a", "depth": 2})).await, "inner/\n  deep (0)\nx (1)\n");
        assert_eq!(fixture.ok(&ls, json!({"path": "to-a/"})).await, "inner/\nx (1)\n");
    }

    #[tokio::test]
    async fn closed_and_ignored_names_are_only_counted() {
        let fixture = Fixture::new(&[
            (".env", ""),
            (".gitignore", "target\n"),
            ("target/a", ""),
            ("var/db", ""),
            (".git/HEAD", ""),
            ("src/.gitignore", "*.o\n!keep.o\n"),
            ("src/a.o", ""),
            ("src/keep.o", ""),
        ]);
        let ls = FileTool::<Ls>::new();

        let root = fixture.ok(&ls, json!({"path": null})).await;
        let below = fixture.ok(&ls, json!({"path": "src"})).await;

        assert_eq!(root, ".gitignore (7)\nsrc/\n(not shown, because ignored or closed to tools: 4)\n");
        assert!(below.contains("keep.o (0)\n") && !below.contains("a.o"), "{below}");
        fixture.refused(&ls, json!({"path": "target"}), "is ignored by `.gitignore`").await;
        fixture.refused(&ls, json!({"path": "var"}), "belongs to the service").await;
    }

    #[tokio::test]
    async fn only_directories_inside_are_listed() {
        let fixture = Fixture::new(&[("../outside/secret", ""), ("file", "")]);
        fixture.link("out", "../outside");
        let ls = FileTool::<Ls>::new();

        fixture.refused(&ls, json!({"path": ".."}), "outside of the workspace").await;
        fixture.refused(&ls, json!({"path": "/"}), "outside of the workspace").await;
        fixture.refused(&ls, json!({"path": "out"}), "leads out of the workspace").await;
        fixture.refused(&ls, json!({"path": "file"}), "cannot be listed").await;
        fixture.refused(&ls, json!({"depth": 99}), "99 is greater than the maximum").await;
    }

    #[tokio::test]
    async fn many_entries_and_odd_names_stay_bounded() {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

        let fixture = Fixture::new(&[]);
        for number in 0..600 {
            fixture.file(&format!("{number:03}-{}", "x".repeat(60)), "");
        }
        std::fs::write(fixture.path("").join(OsStr::from_bytes(b"\xff\xfe")), "").unwrap();

        let text = fixture.ok(&FileTool::<Ls>::new(), json!({})).await;

        assert!(text.len() <= RESULT_MAX && text.contains("(500 entries shown, there are more"), "{text}");
    }
}
