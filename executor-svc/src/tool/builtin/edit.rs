//! `edit`: one piece of a file, exactly as it stands there, exchanged for another.

use std::{io::Read as _, sync::Arc};

use serde::Deserialize;
use serde_json::json;

use super::{
    file_tool::{Approval, FileCall},
    write,
};
use crate::tool::{
    Class, Error,
    arguments::Arguments,
    boundary::{Boundary, Purpose, Work},
    limits, name,
};

/// Most places named when a piece of text stands in several.
const PLACES_MAX: usize = 10;

/// Lines shown before and after a change.
const AROUND: usize = 3;

const DESCRIPTION: &str = "Exchanges a piece of a text file of the workspace. `old_string` must stand in the file exactly, with \
    its indentation and without the line numbers that `read` shows, and only once: take in lines around it until it does, or set \
    `replace_all`. An empty `new_string` deletes it.";

#[derive(Deserialize)]
pub(super) struct Edit {
    path: String,
    old_string: String,
    new_string: String,
    replace_all: Option<bool>,
}

impl FileCall for Edit {
    const CLASS: Class = Class::Write;

    fn arguments() -> Arguments {
        let properties = json!({
            "path": {"type": "string", "minLength": 1, "description": "the file, relative to the workspace"},
            "old_string": {"type": "string", "minLength": 1, "description": "the text to be exchanged, exactly as it stands"},
            "new_string": {"type": "string", "description": "the text in its place"},
            "replace_all": {"type": "boolean", "description": "true exchanges it everywhere in the file"},
        });
        let synonyms = &[
            ("file_path", "path"),
            ("filepath", "path"),
            ("filename", "path"),
            ("file", "path"),
            ("old_str", "old_string"),
            ("old_text", "old_string"),
            ("oldText", "old_string"),
            ("new_str", "new_string"),
            ("new_text", "new_string"),
            ("newText", "new_string"),
        ];
        let required = &["path", "old_string", "new_string"];
        Arguments::new(name::EDIT, DESCRIPTION, properties, required, synonyms)
    }

    fn target(self) -> Option<String> {
        Some(self.path)
    }

    fn run(self, boundary: Arc<Boundary>, work: Work, approval: Approval) -> Result<String, Error> {
        edit(&boundary, &work, &self, &approval)
    }
}

fn edit(boundary: &Boundary, work: &Work, taken: &Edit, approval: &Approval) -> Result<String, Error> {
    let place = boundary.locate(&taken.path, Purpose::Write)?;
    let shown = place.show();
    let mut bytes = Vec::new();
    boundary
        .file(&place)?
        .take(write::CONTENT_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::Failed(format!("`{shown}` cannot be read: {error}")))?;
    if bytes.len() > write::CONTENT_MAX {
        return Err(Error::Failed(format!("`{shown}` is longer than {} bytes", write::CONTENT_MAX)));
    }
    approval.covers(&bytes)?;
    let old = String::from_utf8(bytes)
        .map_err(|_| Error::Failed(format!("`{shown}` is no UTF-8 text, so it cannot be edited")))?;
    let changed =
        change(&old, taken).map_err(|why| Error::Failed(format!("`{shown}` was not changed: {why}")))?;
    work.check()?;
    write::replace(boundary, &place, &changed.text, || approval.holds(boundary, work, &taken.path))?;
    Ok(limits::cut(format!("changed `{shown}` in {} places:\n{}", changed.lines.len(), changed.excerpt())))
}

/// A changed text, and the lines (from 1) at which it was changed.
#[derive(Debug, PartialEq, Eq)]
struct Changed {
    text: String,
    lines: Vec<usize>,
    /// How many lines the new piece has.
    height: usize,
}

/// Exchanges the piece, or says why it cannot be.
fn change(text: &str, taken: &Edit) -> Result<Changed, String> {
    let Edit { path: _, old_string, new_string, replace_all } = taken;
    if old_string == new_string {
        return Err("`old_string` and `new_string` are the same".to_owned());
    }
    // Models write LF; a file with CRLF throughout stays one.
    let (old, new) = match text.contains(old_string.as_str()) || !is_crlf(text) {
        true => (old_string.clone(), new_string.clone()),
        false => (to_crlf(old_string), to_crlf(new_string)),
    };
    let places: Vec<usize> = text.match_indices(&old).map(|(start, _)| start).collect();
    let line_of = |start: usize| text[..start].matches('\n').count() + 1;
    match places.len() {
        0 => Err(why_absent(text, &old)),
        1 => Ok(()),
        _ if replace_all.unwrap_or(false) => Ok(()),
        count => {
            let lines: Vec<String> =
                places.iter().take(PLACES_MAX).map(|&start| line_of(start).to_string()).collect();
            Err(format!(
                "`old_string` stands in it {count} times, at lines {}: take in lines around it, or set `replace_all`",
                lines.join(", ")
            ))
        }
    }?;

    // Each exchange before a place moves it by as many lines as the pieces differ.
    let (shrunk, grown) = (old.matches('\n').count(), new.matches('\n').count());
    let lines = places
        .iter()
        .zip(0..)
        .map(|(&start, before)| line_of(start) + before * grown - before * shrunk)
        .collect();
    Ok(Changed { text: text.replace(&old, &new), lines, height: new.lines().count().max(1) })
}

/// The nearest cause for a piece that is not there.
fn why_absent(text: &str, old: &str) -> String {
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let first = old.lines().find(|line| !line.trim().is_empty()).unwrap_or(old).trim();
    let numbered = old.lines().next().is_some_and(|line| {
        line.trim_start().split_once('\t').is_some_and(|(number, _)| number.parse::<usize>().is_ok())
    });
    let near: Vec<String> = text
        .lines()
        .zip(1..)
        .filter(|(line, _)| !first.is_empty() && line.contains(first))
        .take(PLACES_MAX)
        .map(|(_, number)| number.to_string())
        .collect();
    if numbered {
        "`old_string` has line numbers before its lines, as `read` shows them: leave them out".to_owned()
    } else if !squeezed(old).is_empty() && squeezed(text).contains(&squeezed(old)) {
        format!(
            "`old_string` stands in it only with other white space, near line {}: read it again",
            near.join(", ")
        )
    } else if !near.is_empty() {
        format!("`old_string` does not stand in it; its first line does, at line {}", near.join(", "))
    } else {
        "`old_string` does not stand in it: read the file again".to_owned()
    }
}

fn is_crlf(text: &str) -> bool {
    let ends = text.matches('\n').count();
    ends > 0 && text.matches("\r\n").count() == ends
}

fn to_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

impl Changed {
    /// The changed lines with some around them, numbered as `read` does.
    fn excerpt(&self) -> String {
        let lines: Vec<&str> = self.text.lines().collect();
        let pieces: Vec<String> = self
            .lines
            .iter()
            .take(PLACES_MAX)
            .map(|&line| {
                let first = line.saturating_sub(AROUND).max(1);
                let last = (line + self.height - 1 + AROUND).min(lines.len());
                (first..=last).map(|number| format!("{number:>6}\t{}\n", lines[number - 1])).collect()
            })
            .collect();
        pieces.join("   ---\n")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Edit;
    use crate::tool::builtin::{file_tool::FileTool, fixture::Fixture};

    #[tokio::test]
    async fn a_piece_that_stands_once_is_exchanged() {
        let fixture = Fixture::new(&[("a.rs", "one\ntwo\nthree\nfour\nfive\nsix\nseven\n")]);

        let arguments = json!({"path": "a.rs", "old_str": "three\nfour", "new_str": "3\n4"});
        let text = fixture.ok(&FileTool::<Edit>::new(), arguments).await;

        assert_eq!(fixture.content("a.rs"), "one\ntwo\n3\n4\nfive\nsix\nseven\n");
        assert_eq!(
            text,
            "changed `a.rs` in 1 places:\n     1\tone\n     2\ttwo\n     3\t3\n     4\t4\n     5\tfive\n     6\tsix\n     7\tseven\n"
        );
    }

    #[tokio::test]
    async fn all_places_are_exchanged_when_that_is_said() {
        let fixture = Fixture::new(&[("a", "x\n.\nx\n.\nx")]);
        let edit = FileTool::<Edit>::new();

        let arguments = json!({"path": "a", "old_string": "x", "new_string": "y\nz"});
        fixture.refused(&edit, arguments, "3 times, at lines 1, 3, 5").await;
        assert_eq!(fixture.content("a"), "x\n.\nx\n.\nx");

        let arguments = json!({"path": "a", "old_string": "x", "new_string": "y\nz", "replace_all": "true"});
        let text = fixture.ok(&edit, arguments).await;
        assert_eq!(fixture.content("a"), "y\nz\n.\ny\nz\n.\ny\nz");
        assert!(
            text.starts_with("changed `a` in 3 places:") && text.ends_with("     7\ty\n     8\tz\n"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn line_ends_of_the_file_stay() {
        let fixture = Fixture::new(&[("a", "one\r\ntwo\r\nthree\r\n")]);

        fixture
            .ok(
                &FileTool::<Edit>::new(),
                json!({"path": "a", "old_string": "one\ntwo", "new_string": "1\n2"}),
            )
            .await;

        assert_eq!(fixture.content("a"), "1\r\n2\r\nthree\r\n");
    }

    #[tokio::test]
    async fn a_piece_that_is_not_there_is_explained() {
        let fixture = Fixture::new(&[("a", "fn main() {\n    run();\n}\n")]);
        fixture.file("latin", b"caf\xe9");
        let edit = FileTool::<Edit>::new();

        for (old, because) in [
            ("fn main() {\n\trun();", "other white space, near line 1"),
            ("fn main() {\n    stop();", "its first line does, at line 1"),
            ("     1\tfn main() {", "leave them out"),
            ("nothing like it", "read the file again"),
            ("new", "are the same"),
        ] {
            let arguments = json!({"path": "a", "old_string": old, "new_string": "new"});
            fixture.refused(&edit, arguments, because).await;
        }
        let arguments = json!({"path": "latin", "old_string": "caf", "new_string": "x"});
        fixture.refused(&edit, arguments, "no UTF-8 text").await;
        fixture
            .refused(&edit, json!({"path": "a", "old_string": "", "new_string": "x"}), "`old_string`")
            .await;
        fixture
            .refused(&edit, json!({"path": "b", "old_string": "x", "new_string": "y"}), "there is no `b`")
            .await;
    }

    #[tokio::test]
    async fn nothing_is_edited_where_tools_may_not() {
        let fixture = Fixture::new(&[
            (".git/HEAD", "ref"),
            (".env", "KEY=ref"),
            ("agents/a.md", "ref"),
            ("../outside/x", "ref"),
        ]);
        fixture.link("out", "../outside/x");
        fixture.link("head", ".git/HEAD");
        let edit = FileTool::<Edit>::new();

        for (path, because) in [
            (".git/HEAD", "tools never change"),
            ("head", "tools never change"),
            (".env", "tools.read_deny"),
            ("agents/a.md", "tools never change"),
            ("out", "leads out"),
            ("../outside/x", "outside of the workspace"),
        ] {
            fixture
                .refused(&edit, json!({"path": path, "old_string": "ref", "new_string": "evil"}), because)
                .await;
        }
        assert_eq!(fixture.content("../outside/x"), "ref");
    }
}
