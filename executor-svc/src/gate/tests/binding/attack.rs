//! What can happen to a call between its review and its run.

use std::{fs, os::unix::fs::symlink, path::Path};

use super::Place;

/// What happens to a call between its review and its run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Attack {
    None,
    /// Other bytes that mean the same to a reader of JSON, or something else.
    Arguments(&'static str),
    /// Another tool, another session, another schema of the same tool.
    Tool(&'static str),
    Session,
    Schema,
    /// The file has other content, is gone, is a link, a directory, was exchanged by a rename.
    Content,
    Removed,
    LinkInside,
    LinkOutside,
    Directory,
    Renamed,
    /// The approval was used by another run, was taken back, or came after the call was given up.
    Used,
    Withdrawn,
    TooLate,
    /// What is recorded is not what was reviewed.
    Tampered,
}

pub(super) const ATTACKS: [Attack; 26] = [
    Attack::None,
    Attack::Arguments(r#"{"path":"a","content":"evil"}"#),
    Attack::Arguments(r#"{"path":"b","content":"new"}"#),
    Attack::Arguments(r#"{"path":"a","content":"new" }"#),
    Attack::Arguments(r#"{"content":"new","path":"a"}"#),
    Attack::Arguments(r#"{"path":"a","content":"new","content":"evil"}"#),
    Attack::Arguments(r#"{"path":"a","content":true}"#),
    Attack::Arguments(r#"{"path":"a","content":1}"#),
    Attack::Arguments(r#"{"path":"a","content":"new","content_":1}"#),
    Attack::Arguments(r#"{"path":"a","content":"n\u0065w"}"#),
    Attack::Tool("write_"),
    Attack::Tool("Write"),
    // With a Cyrillic letter.
    Attack::Tool("wr\u{456}te"),
    Attack::Tool("mcp__files__write"),
    Attack::Session,
    Attack::Schema,
    Attack::Content,
    Attack::Removed,
    Attack::LinkInside,
    Attack::LinkOutside,
    Attack::Directory,
    Attack::Renamed,
    Attack::Used,
    Attack::Withdrawn,
    Attack::TooLate,
    Attack::Tampered,
];

impl Attack {
    /// What the worker is told.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Attack::None => "",
            Attack::Arguments(_)
            | Attack::Tool(_)
            | Attack::Session
            | Attack::Schema
            | Attack::Content
            | Attack::Removed
            | Attack::LinkInside
            | Attack::Renamed => "has changed since",
            Attack::LinkOutside => "leads out of the workspace",
            Attack::Directory => "is a directory",
            Attack::Used | Attack::Withdrawn | Attack::Tampered => "used up or withdrawn",
            Attack::TooLate => "no approval",
        }
    }

    /// Attacks what lies in the workspace.
    pub(super) fn swap(self, place: &Place) {
        let a = place.path("a");
        let moved = |new: &Path| fs::rename(new, &a).unwrap();
        match self {
            Attack::Content => fs::write(&a, "swapped").unwrap(),
            Attack::Removed => fs::remove_file(&a).unwrap(),
            Attack::LinkInside => {
                fs::write(place.path("b"), "old").unwrap();
                symlink("b", place.path("link")).unwrap();
                moved(&place.path("link"));
            }
            Attack::LinkOutside => {
                symlink(place.directory.path().join("outside"), place.path("link")).unwrap();
                moved(&place.path("link"));
            }
            Attack::Directory => {
                fs::remove_file(&a).unwrap();
                fs::create_dir(&a).unwrap();
            }
            Attack::Renamed => {
                fs::write(place.path("b"), "other").unwrap();
                moved(&place.path("b"));
            }
            Attack::None
            | Attack::Arguments(_)
            | Attack::Tool(_)
            | Attack::Session
            | Attack::Schema
            | Attack::Used
            | Attack::Withdrawn
            | Attack::TooLate
            | Attack::Tampered => {}
        }
    }
}
