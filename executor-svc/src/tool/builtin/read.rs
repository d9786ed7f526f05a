//! `read`: the lines of a text file.

use std::{
    borrow::Cow,
    fs::File,
    io::{BufRead, BufReader, Read as _},
    sync::Arc,
};

use serde::Deserialize;
use serde_json::json;

use super::file_tool::{Approval, FileCall};
use crate::tool::{
    Class, Error,
    arguments::Arguments,
    boundary::{Boundary, Place, Purpose, Work},
    limits::HeadTail,
    name,
};

/// Most bytes taken into memory in one call, from the first line asked for. What is shown is far less.
const WINDOW_MAX: u64 = 8 * 1024 * 1024;

/// How much of the window is looked at to tell text from binary content.
const PROBE: usize = 8 * 1024;

const DESCRIPTION: &str = "Reads a text file of the workspace. Every line is shown with its number and a tab before it. A \
    long file is shown with head and tail: read the middle with `offset` and `limit`. Directories are listed with `ls`.";

#[derive(Deserialize)]
pub(super) struct Read {
    path: String,
    offset: Option<usize>,
    limit: Option<usize>,
}

/// The part of a file that was asked for.
struct Window {
    bytes: Vec<u8>,
    /// The number of its first line.
    first: usize,
    /// True when the file goes on behind it.
    open: bool,
}

impl FileCall for Read {
    const CLASS: Class = Class::Read;

    fn arguments() -> Arguments {
        let properties = json!({
            "path": {"type": "string", "minLength": 1, "description": "the file, relative to the workspace"},
            "offset": {"type": "integer", "minimum": 1, "description": "the first line to read, from 1"},
            "limit": {"type": "integer", "minimum": 1, "description": "how many lines to read"},
        });
        let synonyms = &[
            ("file_path", "path"),
            ("filepath", "path"),
            ("absolute_path", "path"),
            ("filename", "path"),
            ("file", "path"),
            ("start_line", "offset"),
            ("line", "offset"),
            ("max_lines", "limit"),
        ];
        Arguments::new(name::READ, DESCRIPTION, properties, &["path"], synonyms)
    }

    fn run(self, boundary: Arc<Boundary>, work: Work, _: Approval) -> Result<String, Error> {
        read(&boundary, &work, &self)
    }
}

fn read(boundary: &Boundary, work: &Work, taken: &Read) -> Result<String, Error> {
    let place = boundary.locate(&taken.path, Purpose::Read)?;
    let file = boundary.file(&place)?;
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    let window =
        open_window(file, taken.offset.unwrap_or(1), work).map_err(|error| stopped(&place, &error, work))?;

    if window.bytes[..window.bytes.len().min(PROBE)].contains(&0) {
        return Err(Error::Failed(format!("`{}` is a binary file of {size} bytes", place.show())));
    }
    if window.bytes.is_empty() {
        return Ok(match size {
            0 => format!("(`{}` is empty)", place.show()),
            _ => format!("(`{}` has {} lines: there is none at `offset`)", place.show(), window.first - 1),
        });
    }
    Ok(render(&window, taken.limit))
}

/// Skips to a line without keeping what is before it.
fn open_window(file: File, offset: usize, work: &Work) -> std::io::Result<Window> {
    let mut reader = BufReader::new(file);
    let mut first = 1;
    while first < offset {
        if work.is_cancelled() || work.is_late() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            break;
        }
        let used = match buffer.iter().position(|&byte| byte == b'\n') {
            Some(end) => {
                first += 1;
                end + 1
            }
            None => buffer.len(),
        };
        reader.consume(used);
    }
    let mut bytes = Vec::new();
    reader.by_ref().take(WINDOW_MAX).read_to_end(&mut bytes)?;
    let open = !reader.fill_buf()?.is_empty();
    Ok(Window { bytes, first, open })
}

fn stopped(place: &Place, error: &std::io::Error, work: &Work) -> Error {
    match work.check() {
        Err(cancelled) => cancelled,
        Ok(()) => Error::Failed(format!("`{}` cannot be read: {error}", place.show())),
    }
}

fn render(window: &Window, limit: Option<usize>) -> String {
    let text = String::from_utf8_lossy(&window.bytes);
    let lines = text.lines().count();
    let shown = limit.unwrap_or(lines).min(lines);

    let mut kept = HeadTail::default();
    for (line, number) in text.lines().take(shown).zip(window.first..) {
        kept.push(&format!("{number:>6}\t{line}\n"));
    }
    let last = window.first + shown - 1;
    if shown < lines {
        kept.push(&format!("(the file goes on: read more with `offset` {})\n", last + 1));
    } else if window.open {
        kept.push(&format!("(the file goes on behind line {last}: read more with `offset` {last})\n"));
    }
    if matches!(text, Cow::Owned(_)) {
        kept.push("(the file is not UTF-8: what could not be read is shown as \u{fffd})\n");
    }
    kept.finish("read them with `offset` and `limit`")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::Read;
    use crate::tool::{
        Error,
        builtin::{file_tool::FileTool, fixture::Fixture},
        limits::RESULT_MAX,
    };

    #[tokio::test]
    async fn lines_come_with_their_numbers() {
        let fixture = Fixture::new(&[("src/a.rs", "one\ntwo\r\nthree")]);

        let whole = fixture.ok(&FileTool::<Read>::new(), json!({"path": "src/a.rs"})).await;
        let part = fixture
            .ok(
                &FileTool::<Read>::new(),
                json!({"file_path": "./src/../src/a.rs", "offset": "2", "limit": 1}),
            )
            .await;

        assert_eq!(whole, "     1\tone\n     2\ttwo\n     3\tthree\n");
        assert_eq!(part, "     2\ttwo\n(the file goes on: read more with `offset` 3)\n");
    }

    #[tokio::test]
    async fn a_long_file_keeps_head_and_tail() {
        let fixture = Fixture::new(&[]);
        fixture.file("long.txt", (1..=50_000).map(|number| format!("line {number}\n")).collect::<String>());

        let text = fixture.ok(&FileTool::<Read>::new(), json!({"path": "long.txt"})).await;

        assert!(text.len() <= RESULT_MAX);
        assert!(text.starts_with("     1\tline 1\n") && text.ends_with(" 50000\tline 50000\n"), "{text}");
        assert!(text.contains("bytes left out: read them with `offset` and `limit`"), "{text}");
    }

    #[tokio::test]
    async fn a_huge_file_costs_no_more_than_a_part_of_it() {
        let fixture = Fixture::new(&[("huge", "first\n")]);
        let file = fs::OpenOptions::new().append(true).open(fixture.path("huge")).unwrap();
        file.set_len(1 << 40).unwrap();

        let arguments = json!({"path": "huge", "limit": 1});
        fixture.refused(&FileTool::<Read>::new(), arguments, "binary file of 1099511627776 bytes").await;
    }

    #[tokio::test]
    async fn what_is_odd_about_a_file_is_said() {
        let fixture = Fixture::new(&[("empty", ""), ("short", "a\nb\n"), ("src/main.rs", "")]);
        fixture.file("latin", b"caf\xe9\n");
        fixture.file("binary", b"\x7fELF\0\0");
        let read = FileTool::<Read>::new();

        assert_eq!(fixture.ok(&read, json!({"path": "empty"})).await, "(`empty` is empty)");
        let text = fixture.ok(&read, json!({"path": "short", "offset": 9})).await;
        assert_eq!(text, "(`short` has 2 lines: there is none at `offset`)");
        assert!(fixture.ok(&read, json!({"path": "latin"})).await.contains("not UTF-8"));
        fixture.refused(&read, json!({"path": "binary"}), "binary file of 6 bytes").await;
        fixture.refused(&read, json!({"path": "src"}), "is a directory: list it with `ls`").await;
        fixture.refused(&read, json!({"path": "."}), "`.` is a directory").await;
        fixture.refused(&read, json!({"path": "src/man.rs"}), "did you mean `src/main.rs`?").await;
        fixture.refused(&read, json!({"path": "short/x"}), "cannot be opened").await;
    }

    #[tokio::test]
    async fn nothing_outside_is_read() {
        let fixture = Fixture::new(&[("../outside/secret", "s"), ("a/b", "inner")]);
        fixture.link("link", "../outside/secret");
        fixture.link("absolute", fixture.path("../outside/secret"));
        fixture.link("directory", "../outside");
        fixture.link("inner", "a/b");
        fixture.link("loop", "loop");
        let read = FileTool::<Read>::new();
        let absolute = fixture.path("../outside/secret");

        for path in ["../outside/secret", "a/../../outside/secret", "/etc/passwd", absolute.to_str().unwrap()]
        {
            fixture.refused(&read, json!({"path": path}), "outside of the workspace").await;
        }
        for path in ["link", "absolute", "directory/secret"] {
            fixture.refused(&read, json!({"path": path}), "leads out of the workspace").await;
        }
        fixture.refused(&read, json!({"path": "loop"}), "cannot be opened").await;
        fixture.refused(&read, json!({"path": "a\0b"}), "NUL").await;
        assert_eq!(fixture.ok(&read, json!({"path": "inner"})).await, "     1\tinner\n");
        let inside = fixture.path("a/b");
        assert_eq!(fixture.ok(&read, json!({"path": inside})).await, "     1\tinner\n");
    }

    #[tokio::test]
    async fn what_is_closed_to_tools_is_not_read_under_any_name() {
        let fixture = Fixture::new(&[
            (".env", "KEY=1"),
            ("tls/server.pem", "key"),
            (".ssh/id_rsa", "key"),
            (".git/config", "token"),
            ("var/executor/store.db", "rows"),
            ("executor.yaml", "key: x"),
            (".gitignore", "build/\n*.log\n!keep.log\n"),
            ("build/out", "o"),
            ("a.log", "l"),
            ("keep.log", "kept"),
        ]);
        fixture.link("harmless", ".env");
        fixture.link("data", "var/executor");
        fixture.link("built", "build/out");
        let read = FileTool::<Read>::new();

        for path in [".env", "tls/server.pem", ".ssh/id_rsa", ".git/config", "harmless"] {
            fixture.refused(&read, json!({"path": path}), "tools.read_deny").await;
        }
        for path in ["var/executor/store.db", "executor.yaml", "data/store.db"] {
            fixture.refused(&read, json!({"path": path}), "belongs to the service").await;
        }
        for path in ["build/out", "a.log", "built"] {
            fixture.refused(&read, json!({"path": path}), "is ignored by `.gitignore`").await;
        }
        assert_eq!(fixture.ok(&read, json!({"path": "keep.log"})).await, "     1\tkept\n");
    }

    #[tokio::test]
    async fn pipes_and_devices_are_refused_without_waiting() {
        let fixture = Fixture::new(&[("a", "x")]);
        fixture.fifo("pipe");
        fixture.fifo(".gitignore");
        fixture.link("null", "/dev/null");
        let _socket = std::os::unix::net::UnixListener::bind(fixture.path("socket")).unwrap();
        let read = FileTool::<Read>::new();

        fixture.refused(&read, json!({"path": "pipe"}), "is no regular file").await;
        fixture.refused(&read, json!({"path": "socket"}), "is no regular file").await;
        fixture.refused(&read, json!({"path": "null"}), "leads out of the workspace").await;
        assert_eq!(fixture.ok(&read, json!({"path": "a"})).await, "     1\tx\n");
    }

    #[tokio::test]
    async fn a_cancelled_call_ends() {
        let fixture = Fixture::new(&[("a", "x")]);
        fixture.context.cancel.cancel();

        let result = fixture.call(&FileTool::<Read>::new(), json!({"path": "a", "offset": 5})).await;

        assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    }
}
