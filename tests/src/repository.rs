//! Where the repository, its programs and the tools that checks call are to be found.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies below the root")
}

/// Reads a file of the repository.
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("failed to read `{path}`: {error}"))
}

/// All files that belong to the repository, as paths below its root, in order. What git ignores is left out.
pub fn files() -> Vec<String> {
    let output = run(Command::new("git").args(["ls-files", "--cached", "--others", "--exclude-standard"]));
    let mut files: Vec<String> = output.lines().map(str::to_owned).collect();
    // A file that is deleted and not yet committed is still listed.
    files.retain(|file| root().join(file).is_file());
    files.sort();
    files.dedup();
    files
}

/// A program that `deploy/tools` installs, or that the machine has.
pub fn tool(name: &str) -> PathBuf {
    let installed = tools().join("bin").join(name);
    if installed.exists() {
        return installed;
    }
    let search = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&search)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
        .unwrap_or_else(|| {
            panic!("`{name}` is missing: run `deploy/tools target/tools`, or all tests by `deploy/test`")
        })
}

/// The directory that holds both services' programs, built beside the tests.
pub fn programs() -> PathBuf {
    let test = env::current_exe().expect("a running program has a path");
    let directory = test.ancestors().nth(2).expect("tests lie in `<profile>/deps`").to_owned();
    for program in ["registry-svc", "executor-svc"] {
        assert!(
            directory.join(program).is_file(),
            "`{program}` is not built: run `cargo build --workspace --all-targets`, or all tests by `deploy/test`",
        );
    }
    directory
}

/// `PATH` with the installed tools first.
pub fn search_path() -> String {
    format!("{}:{}", tools().join("bin").display(), env::var("PATH").unwrap_or_default())
}

/// Runs a command at the repository's root and returns what it printed. Panics with all of it when the command fails.
pub fn run(command: &mut Command) -> String {
    let output = outcome(command);
    let text = printed(&output);
    assert!(output.status.success(), "{command:?} ended with {}:\n{text}", output.status);
    text
}

/// Runs a command at the repository's root, whatever its end.
pub fn outcome(command: &mut Command) -> Output {
    command.current_dir(root()).output().unwrap_or_else(|error| panic!("failed to run {command:?}: {error}"))
}

/// Both outputs of a command, standard output first.
pub fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn tools() -> PathBuf {
    env::var_os("ROSTER_TEST_TOOLS").map_or_else(|| root().join("target/tools"), PathBuf::from)
}
