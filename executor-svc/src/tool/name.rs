//! Names of the built-in tools: on the wire, in definitions, and in the products whose files are read.

/// The spawn tool.
pub const SPAWN: &str = "AgentTool";
/// The spawn tool in definitions.
pub const SPAWN_IN_DEFINITIONS: &str = "task";
/// Sends a finished worker a further message; coordinators only.
pub const SEND_MESSAGE: &str = "SendMessage";
/// Stops a worker; coordinators only.
pub const STOP: &str = "TaskStop";
/// Hands in the result.
pub const SUBMIT_RESULT: &str = "submit_result";
pub const READ: &str = "read";
pub const GREP: &str = "grep";
pub const FIND: &str = "find";
pub const LS: &str = "ls";
pub const WRITE: &str = "write";
pub const EDIT: &str = "edit";
pub const BASH: &str = "bash";

/// Tools that act on the session itself: always of class read, never reviewed, never answered from memory.
pub fn is_kernel(name: &str) -> bool {
    matches!(name, SPAWN | SEND_MESSAGE | STOP | SUBMIT_RESULT)
}

/// Other names of a built-in tool. The registry maps them in selections; in deny patterns such as `Bash*` they stand as
/// written.
pub fn product_names(name: &str) -> &'static [&'static str] {
    match name {
        READ => &["Read", "read_file", "ReadFile", "ReadManyFiles"],
        GREP => &["Grep", "grep_search", "search_file_content"],
        FIND => &["Glob", "glob"],
        LS => &["LS", "list", "list_directory"],
        WRITE => &["Write", "write_file", "WriteFile"],
        EDIT => &["Edit", "MultiEdit", "edit_file", "replace", "patch"],
        BASH => &["Bash", "run_shell_command", "Shell", "shell"],
        SPAWN => &[SPAWN_IN_DEFINITIONS, "Agent", "Task"],
        _ => &[],
    }
}
