//! The registry's command line as a person and a script use it: outputs, exit codes, signals.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::{Pid, Signal, kill_process},
};
use tempfile::TempDir;
use tests::{registry::document, repository};

/// A project with one definition that can be used and one that cannot.
struct Project(TempDir);

/// `registry-svc serve`, ended with the test.
struct Service {
    child: Child,
    address: String,
    admin: String,
}

impl Project {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let agents = directory.path().join(".claude/agents");
        fs::create_dir_all(&agents).expect("a directory of definitions");
        fs::create_dir(directory.path().join(".git")).expect("the end of the walk");
        fs::write(agents.join("scout.md"), document("scout", "Look.")).expect("a definition");
        fs::write(agents.join("wrong.md"), "---\nname: wrong\ndescription: D.\ntools: 3\n---\n")
            .expect("a definition");
        Self(directory)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(repository::programs().join("registry-svc"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ROSTER") || name == "RUST_LOG")
        {
            command.env_remove(name);
        }
        command.args(arguments).current_dir(self.0.path()).env_remove("HOME").stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program runs")
    }

    fn serve(&self) -> Service {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let mut child = self
            .command(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let mut line = String::new();
        let output = child.stdout.take().expect("the output is piped");
        BufReader::new(output).read_line(&mut line).expect("the first line");
        let rest = line.trim_end().strip_prefix("listening grpc=").expect("the first line says where");
        let (address, admin) = rest.split_once(" admin=").expect("the first line names both ports");
        Service { child, address: address.to_owned(), admin: admin.to_owned() }
    }
}

impl Service {
    fn terminate(mut self) -> (Option<i32>, String) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).expect("the process is there");
        let mut log = String::new();
        let mut error = self.child.stderr.take().expect("the log is piped");
        error.read_to_string(&mut log).expect("the log is text");
        (self.child.wait().expect("the process ends").code(), log)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Already ended where the test went well.
        let _ = self.child.kill();
    }
}

#[track_caller]
fn output(output: &Output, code: i32) -> String {
    let text = String::from_utf8(output.stdout.clone()).expect("the output is text");
    assert_eq!(output.status.code(), Some(code), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn validate_writes_one_line_a_finding_and_ends_by_what_it_found() {
    let project = Project::new();

    let whole = project.run(&["validate", "."]);
    let good = project.run(&["validate", ".claude/agents/scout.md"]);
    let json = project.run(&["validate", "--format", "json", ".claude/agents"]);
    let missing = project.run(&["validate", "nowhere.md"]);

    let text = output(&whole, 1);
    let line = text.lines().next().expect("a finding");
    assert!(line.starts_with("./.claude/agents/wrong.md:4:8: error INVALID_FIELD "), "{line}");
    assert_eq!(output(&good, 0), "");
    let findings: serde_json::Value = serde_json::from_str(&output(&json, 1)).expect("JSON");
    assert_eq!(findings[0]["code"], "INVALID_FIELD");
    assert_eq!((&findings[0]["line"], &findings[0]["severity"]), (&4.into(), &"error".into()));
    output(&missing, 2);
    assert!(errors(&missing).contains("nowhere.md"));
}

#[test]
fn wrong_usage_and_wrong_configuration_end_with_2_and_say_everything() {
    let project = Project::new();
    fs::write(project.path("registry.yaml"), "listen: here\nworkspaces:\n  default:\n    bundeld: true\n")
        .expect("a configuration");

    let usage = project.run(&["serve", "--port", "1"]);
    let wrong = project
        .command(&["serve", "--config", "registry.yaml"])
        .env("ROSTER__DATE", "./var")
        .output()
        .expect("the program runs");
    let exposed = project.run(&["serve", "--listen", "0.0.0.0:0"]);

    output(&usage, 2);
    assert!(errors(&usage).contains("--port"));
    assert_eq!(output(&wrong, 2), "");
    for line in [
        "registry.yaml:1:1: `listen`: expected address such as `127.0.0.1:7401`, found `here`",
        "registry.yaml:4:5: `workspaces.default.bundeld`: is not a key; did you mean `workspaces.default.bundled`?",
        "ROSTER__DATE: `date`: is not a key; did you mean `data`?",
    ] {
        assert!(errors(&wrong).lines().any(|found| found == line), "{line}\n{}", errors(&wrong));
    }
    output(&exposed, 2);
    assert!(!Path::new(&project.path("var")).exists(), "nothing was begun");
}

#[test]
fn validate_agrees_with_loading_about_what_counts_and_what_is_confusable() {
    let project = Project::new();
    let agents = project.path(".claude/agents");
    fs::remove_file(agents.join("wrong.md")).expect("it was there");
    mknodat(CWD, agents.join("pipe.md"), FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
    symlink("nowhere", agents.join("dangling.md")).expect("a link");
    fs::write(agents.join("README.md"), "Not an agent.").expect("a file");
    fs::write(agents.join("like.md"), document("exp1ore", "Look.")).expect("a definition");

    let validated = project.run(&["validate", "--format", "json", "."]);
    let explained = project.run(&["explain", "exp1ore", "--format", "json"]);

    let findings: serde_json::Value = serde_json::from_str(&output(&validated, 0)).expect("JSON");
    let candidates: serde_json::Value = serde_json::from_str(&output(&explained, 0)).expect("JSON");
    assert_eq!(findings[0]["code"], "CONFUSABLE_NAME");
    assert_eq!(findings[0]["message"], candidates[0]["findings"][0]["message"]);
    assert!(errors(&validated).starts_with("2 documents: 0 errors, 1 warnings"), "{}", errors(&validated));
}

#[test]
fn the_configuration_can_be_printed_with_its_origins() {
    let project = Project::new();
    let printed = project
        .command(&["serve", "--print-config", "--cwd", "/srv"])
        .env("ROSTER_WORKSPACES__DEFAULT__PLUGINS", "false")
        .output()
        .expect("the program runs");

    let text = output(&printed, 0);
    let line = |start: &str| text.lines().find(|line| line.trim_start().starts_with(start)).expect("a line");
    assert!(line("cwd: \"/srv\"").ends_with("# --cwd"), "{text}");
    assert!(line("plugins: false").ends_with("# ROSTER_WORKSPACES__DEFAULT__PLUGINS"), "{text}");
    assert!(line("listen: ").ends_with("# default"), "{text}");
}

#[test]
fn list_and_explain_answer_the_same_offline_and_from_a_running_registry() {
    let project = Project::new();
    let service = project.serve();

    let offline = project.run(&["list", "--format", "json"]);
    let remote = project.run(&["list", "--format", "json", "--addr", &service.address]);
    let explained = project.run(&["explain", "wrong"]);
    let explained_there = project.run(&["explain", "wrong", "--addr", &service.address]);
    let unknown = project.run(&["explain", "nobody"]);

    let rows: serde_json::Value = serde_json::from_str(&output(&offline, 0)).expect("JSON");
    assert_eq!((&rows[0]["name"], &rows[0]["kind"]), (&"scout".into(), &"project".into()));
    assert_eq!(output(&remote, 0), output(&offline, 0));
    let said = errors(&offline);
    assert!(said.contains("wrong.md:4:8: error INVALID_FIELD "), "{said}");
    assert!(output(&explained, 0).starts_with("broken: project "), "{}", output(&explained, 0));
    assert_eq!(output(&explained_there, 0), output(&explained, 0));
    output(&unknown, 1);
    assert!(
        errors(&unknown).contains("Unknown agent \"nobody\". Available: scout, "),
        "{}",
        errors(&unknown)
    );
    service.terminate();
}

#[test]
fn a_definition_is_written_read_and_removed_with_the_token_of_the_data_directory() {
    let project = Project::new();
    let service = project.serve();
    let text = document("scout", "Authored.");
    fs::write(project.path("new.md"), &text).expect("a document");
    let addr = service.address.as_str();

    let written = project.run(&["replace", "new.md", "--addr", addr]);
    let read = project.run(&["get", "scout", "--addr", addr]);
    let refused = project.run(&["replace", "new.md", "--name", "other", "--addr", addr]);
    let without_token = project.run(&["remove", "scout", "--addr", addr, "--data", "elsewhere"]);
    let removed = project.run(&["remove", "scout", "--addr", addr]);

    assert!(output(&written, 0).starts_with("created scout (generation "), "{}", output(&written, 0));
    assert_eq!(output(&read, 0), text);
    output(&refused, 1);
    assert!(errors(&refused).contains("(NAME_MISMATCH)"), "{}", errors(&refused));
    output(&without_token, 1);
    assert!(errors(&without_token).contains("(CREDENTIALS_REQUIRED)"), "{}", errors(&without_token));
    assert!(output(&removed, 0).contains("now in force: "), "{}", output(&removed, 0));
    service.terminate();
}

#[test]
fn a_signal_ends_the_service_well_and_its_log_is_json() {
    let project = Project::new();
    let service = project.serve();
    let mut admin = TcpStream::connect(&service.admin).expect("the admin port");
    admin.write_all(b"GET /readyz HTTP/1.1\r\nHost: roster\r\nConnection: close\r\n\r\n").expect("a request");
    let mut answer = String::new();
    admin.read_to_string(&mut answer).expect("an answer");

    let (code, log) = service.terminate();

    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(code, Some(0), "{log}");
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.iter().any(|line| line["message"] == "draining" && line["signal"] == "SIGTERM"), "{log}");
}
