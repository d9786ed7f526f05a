//! `write`: a whole file at once.

use std::{
    io::Write as _,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use rustix::fs::{AtFlags, Mode, OFlags};
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::file_tool::{Approval, FileCall};
use crate::tool::{
    Class, Error,
    arguments::Arguments,
    boundary::{Boundary, Place, Work},
    name,
};

/// Largest file written in one call. What a model writes by itself is far smaller.
pub(super) const CONTENT_MAX: usize = 4 * 1024 * 1024;

const DESCRIPTION: &str = "Writes a whole file of the workspace, new or in place of an old one. Directories on the way are \
    made. To change a part of a file use `edit`.";

#[derive(Deserialize)]
pub(super) struct Write {
    path: String,
    content: String,
}

impl FileCall for Write {
    const CLASS: Class = Class::Write;

    fn arguments() -> Arguments {
        let properties = json!({
            "path": {"type": "string", "minLength": 1, "description": "the file, relative to the workspace"},
            "content": {"type": "string", "description": "the whole new content"},
        });
        let synonyms = &[
            ("file_path", "path"),
            ("filepath", "path"),
            ("filename", "path"),
            ("file", "path"),
            ("text", "content"),
            ("contents", "content"),
            ("file_text", "content"),
        ];
        Arguments::new(name::WRITE, DESCRIPTION, properties, &["path", "content"], synonyms)
    }

    fn target(self) -> Option<String> {
        Some(self.path)
    }

    fn run(self, boundary: Arc<Boundary>, work: Work, approval: Approval) -> Result<String, Error> {
        work.check()?;
        let place = boundary.locate_target(&self.path)?;
        let is_new = boundary.stat(&place).is_err();
        replace(&boundary, &place, &self.content, || approval.holds(&boundary, &work, &self.path))?;
        let verb = if is_new { "created" } else { "replaced" };
        let lines = self.content.lines().count();
        Ok(format!("{verb} `{}`: {lines} lines, {} bytes", place.show(), self.content.len()))
    }
}

/// Puts a file's new content in place at once, if `may` still allows it then: a reader sees the old or the new, never a half.
pub(super) fn replace(
    boundary: &Boundary,
    place: &Place,
    content: &str,
    may: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    if content.len() > CONTENT_MAX {
        return Err(Error::Failed(format!("the content is longer than {CONTENT_MAX} bytes")));
    }
    let failed =
        |error: std::io::Error| Error::Failed(format!("`{}` cannot be written: {error}", place.show()));
    let Some(file_name) = place.path().file_name() else {
        return Err(Error::Failed("the workspace itself cannot be written".to_owned()));
    };
    // A pipe or a directory in the file's place is refused; an old file passes its mode on.
    let mode = match boundary.stat(place) {
        Ok(_) => boundary.file(place)?.metadata().map(|metadata| mode_of(&metadata)).map_err(failed)?,
        Err(_) => Mode::from_raw_mode(0o644),
    };
    let directory = make_directories(boundary, &place.parent()).map_err(|error| failed(error.into()))?;
    let temporary = format!(".{}.tmp", Uuid::now_v7().simple());
    let put = || {
        fill(&directory, &temporary, content, mode).map_err(failed)?;
        may()?;
        rustix::fs::renameat(&directory, &temporary, &directory, file_name)
            .map_err(|error| failed(error.into()))
    };
    let done = put();
    if done.is_err() {
        // Best effort: the fault that is told is the first one.
        let _ = rustix::fs::unlinkat(&directory, &temporary, AtFlags::empty());
    }
    done
}

/// Writes a new file through to the disk.
fn fill(directory: &OwnedFd, file_name: &str, content: &str, mode: Mode) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = std::fs::File::from(rustix::fs::openat(directory, file_name, flags, mode)?);
    file.write_all(content.as_bytes())?;
    rustix::fs::fchmod(&file, mode)?;
    file.sync_all()
}

/// Opens a directory, and makes what of it is missing. No component on the way may be a link.
fn make_directories(boundary: &Boundary, place: &Place) -> Result<OwnedFd, rustix::io::Errno> {
    match boundary.directory(place) {
        Err(rustix::io::Errno::NOENT) => {}
        result => return result,
    }
    let parent = make_directories(boundary, &place.parent())?;
    let Some(name) = place.path().file_name() else { return Ok(parent) };
    match rustix::fs::mkdirat(parent.as_fd(), name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => boundary.directory(place),
        Err(error) => Err(error),
    }
}

fn mode_of(metadata: &std::fs::Metadata) -> Mode {
    use std::os::unix::fs::MetadataExt as _;

    // Without set-user-id and its like: the content is new.
    Mode::from_raw_mode(metadata.mode() & 0o777)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use serde_json::json;

    use super::Write;
    use crate::tool::builtin::{file_tool::FileTool, fixture::Fixture};

    #[tokio::test]
    async fn a_file_is_created_with_its_directories_or_replaced() {
        let fixture = Fixture::new(&[("old.sh", "old")]);
        fs::set_permissions(fixture.path("old.sh"), fs::Permissions::from_mode(0o750)).unwrap();
        let write = FileTool::<Write>::new();

        let created = fixture.ok(&write, json!({"path": "a/b/new.txt", "content": "one\ntwo\n"})).await;
        let replaced = fixture.ok(&write, json!({"file_path": "old.sh", "contents": "new"})).await;

        assert_eq!(created, "created `a/b/new.txt`: 2 lines, 8 bytes");
        assert_eq!(replaced, "replaced `old.sh`: 1 lines, 3 bytes");
        assert_eq!(fixture.content("a/b/new.txt"), "one\ntwo\n");
        assert_eq!(fixture.content("old.sh"), "new");
        assert_eq!(fs::metadata(fixture.path("old.sh")).unwrap().permissions().mode() & 0o777, 0o750);
        assert_eq!(fs::read_dir(fixture.path("")).unwrap().count(), 2, "no temporary file is left");
    }

    #[tokio::test]
    async fn nothing_is_written_where_tools_may_not() {
        let fixture = Fixture::new(&[
            (".git/config", "token"),
            (".env", "KEY"),
            ("var/db", "rows"),
            ("../outside/x", "x"),
        ]);
        fixture.link("out", "../outside/x");
        fixture.link("away", "../outside");
        fixture.link("dangling", "../outside/new");
        fixture.link("hooks", ".git");
        let write = FileTool::<Write>::new();

        for (path, because) in [
            ("../outside/x", "outside of the workspace"),
            ("/etc/x", "outside of the workspace"),
            ("out", "leads out of the workspace"),
            ("away/new", "leads out of the workspace"),
            ("dangling", "leads nowhere"),
            (".env", "tools.read_deny"),
            ("deploy/id_rsa", "tools.read_deny"),
            ("var/db", "belongs to the service"),
            ("var/new", "belongs to the service"),
            (".git/HEAD", "tools never change"),
            ("hooks/HEAD", "tools never change"),
            (".claude/agents/reviewer.md", "tools never change"),
            ("sub/.codex/agents/x.toml", "tools never change"),
            ("agents/explore.md", "tools never change"),
            (".", "cannot be written"),
        ] {
            fixture.refused(&write, json!({"path": path, "content": "evil"}), because).await;
        }
        assert_eq!(fixture.content("../outside/x"), "x");
        assert_eq!(fixture.content("var/db"), "rows");
        assert!(!fixture.path("../outside/new").exists() && !fixture.path(".claude").exists());
    }

    #[tokio::test]
    async fn what_is_no_regular_file_is_not_replaced() {
        let fixture = Fixture::new(&[("directory/x", "")]);
        fixture.fifo("pipe");
        let write = FileTool::<Write>::new();

        fixture.refused(&write, json!({"path": "pipe", "content": ""}), "is no regular file").await;
        fixture.refused(&write, json!({"path": "directory", "content": ""}), "is a directory").await;
        fixture.refused(&write, json!({"path": "directory/x/y", "content": ""}), "`directory/x/y`").await;
        fixture
            .refused(&write, json!({"path": "x", "content": "x".repeat(5_000_000)}), "is longer than")
            .await;
    }

    #[tokio::test]
    async fn a_link_inside_is_written_through() {
        let fixture = Fixture::new(&[("real", "old")]);
        fixture.link("alias", "real");

        let text = fixture.ok(&FileTool::<Write>::new(), json!({"path": "alias", "content": "new"})).await;

        assert!(text.starts_with("replaced `real`"), "{text}");
        assert_eq!(fixture.content("real"), "new");
        assert!(fixture.path("alias").is_symlink());
    }
}
