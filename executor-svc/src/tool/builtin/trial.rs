//! What holds of all arguments, however strange: each tool answers, and nothing outside of the workspace is read or changed.

use serde_json::Value;
use tokio::runtime::Runtime;

use super::{all, fixture::Fixture};
use crate::tool::settings::Settings;

/// What stands in every file that must not be read.
const SECRET: &str = "not-for-models";

/// Files that no tool may open.
const CLOSED: [&str; 4] = ["../outside/secret", "var/token", "executor.yaml", ".env"];

/// Calls every tool with each of them, in a workspace of its own. Panics where it does not hold.
pub(in crate::tool) fn check(runtime: &Runtime, calls: &[Value]) {
    let fixture = Fixture::new(&[("a.txt", "not this one\n"), ("sub/b.txt", "b\n"), ("agents/x.md", "x\n")]);
    CLOSED.iter().for_each(|path| fixture.file(path, SECRET));
    fixture.link("link", "../outside");

    for tool in all(&Settings::default()) {
        for arguments in calls {
            let answer = runtime.block_on(tool.call(&fixture.context, arguments));
            let text = answer.unwrap_or_else(|error| error.to_string());
            let said = arguments.to_string().contains(SECRET);
            assert!(said || !text.contains(SECRET), "{} {arguments}: {text}", tool.spec().name);
            // The gate asks before it runs, with the same arguments.
            let _ = runtime.block_on(tool.target(&fixture.context, arguments));
        }
    }

    assert!(CLOSED.iter().all(|path| fixture.content(path) == SECRET), "{calls:?}");
    assert_eq!(fixture.content("agents/x.md"), "x\n");
}
