//! Servers that misbehave, over real pipes.

mod http;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::json;
use service_kit::config::{Secret, Span};
use tempfile::TempDir;

use super::*;
use crate::{
    tool::{Workspace, limits::RESULT_MAX},
    worker::SessionId,
};

/// Longer than anything takes that a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// One server `s` in one of its modes.
struct Fixture {
    servers: Servers,
    directory: TempDir,
}

impl Fixture {
    fn new(mode: &str) -> Self {
        Self::with(mode, |_| {})
    }

    fn with(mode: &str, change: impl FnOnce(&mut config::Server)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/servers/mcp.py");
        let record = directory.path().join("record");
        let mut server = config::Server {
            command: ["python3", script.to_str().unwrap(), mode].map(str::to_owned).into(),
            env: BTreeMap::from([("RECORD".to_owned(), Secret::new(record.to_str().unwrap()))]),
            trust_annotations: true,
            start_timeout: Span(PATIENCE),
            ..config::Server::default()
        };
        change(&mut server);
        let configured = BTreeMap::from([("s".to_owned(), server)]);
        Self { servers: Servers::start(&configured, directory.path()), directory }
    }

    async fn known(&self) -> Vec<Known> {
        self.servers.tools().await.into_iter().map(|(known, _)| known).collect()
    }

    async fn tool(&self, name: &str) -> Arc<dyn Tool> {
        let tools = self.servers.tools().await;
        let found = tools.into_iter().find(|(known, _)| known.own_name == name);
        found.and_then(|(_, tool)| tool).unwrap_or_else(|| panic!("there is no tool `{name}`"))
    }

    async fn call(&self, name: &str) -> Result<String, String> {
        call(&*self.tool(name).await, &context()).await
    }

    /// Waits until the server's status fits.
    async fn until(&self, fits: impl FnMut(&Status) -> bool) {
        let mut status = self.servers.servers[0].subscribe();
        tokio::time::timeout(PATIENCE, status.wait_for(fits)).await.expect("it happens in time").unwrap();
    }

    /// Waits until the server has written such a line.
    async fn recorded(&self, text: &str) -> Vec<String> {
        let began = Instant::now();
        loop {
            let record = fs::read_to_string(self.record()).unwrap_or_default();
            if record.contains(text) {
                return record.lines().map(str::to_owned).collect();
            }
            assert!(began.elapsed() < PATIENCE, "no `{text}` in {record}");
            tokio::task::yield_now().await;
        }
    }

    fn record(&self) -> PathBuf {
        self.directory.path().join("record")
    }
}

fn context() -> Context {
    Context {
        session: SessionId::new_worker(),
        workspace: Arc::new(Workspace {
            name: "default".to_owned(),
            cwd: PathBuf::from("/nowhere"),
            hidden: Vec::new(),
            frozen: Vec::new(),
            read_deny: Vec::new(),
            gitignore: true,
        }),
        cancel: CancellationToken::new(),
        approved: None,
    }
}

async fn call(tool: &dyn Tool, context: &Context) -> Result<String, String> {
    tool.call(context, &json!({"text": "hello"})).await.map_err(|error| error.to_string())
}

/// True when a process is there and no mere entry for its parent to read.
fn lives(process: &str) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.trim_start().starts_with('Z'))
}

#[tokio::test]
async fn tools_are_listed_called_and_believed_as_far_as_the_server_is_trusted() {
    for (trust, echo) in [(true, Class::Read), (false, Class::Destructive)] {
        let fixture = Fixture::with("banner", |server| server.trust_annotations = trust);

        let known = fixture.known().await;

        let class = |name: &str| known.iter().find(|tool| tool.own_name == name).unwrap().class;
        assert_eq!(known.len(), 12, "all pages are read: {known:?}");
        assert_eq!((class("echo"), class("add"), class("wipe")), (echo, Class::Write, Class::Destructive));
        assert!(
            known.iter().all(|tool| tool.server == "s" && tool.name == format!("mcp__s__{}", tool.own_name))
        );
        assert_eq!(fixture.call("echo").await.unwrap(), "hello");
        assert!(fixture.tool("echo").await.call(&context(), &json!([1])).await.is_err());
        fixture.servers.close().await;
    }
}

#[tokio::test]
async fn the_environment_is_clean() {
    let fixture = Fixture::new("");

    let environment = fixture.call("environment").await.unwrap();

    let names: Vec<&str> = environment.split(' ').filter(|name| *name != "LC_CTYPE").collect();
    assert_eq!(names, ["LANG", "PATH", "RECORD", "ROSTER_MCP_SERVER"]);
    fixture.servers.close().await;
}

#[tokio::test]
async fn a_server_that_cannot_be_started_is_named_with_the_reason() {
    let fixture = Fixture::with("", |server| server.command = vec!["no-such-program".to_owned()]);

    let known = fixture.known().await;

    assert_eq!(known.len(), 1);
    assert_eq!((known[0].name.as_str(), known[0].class), ("mcp__s", Class::Destructive));
    let off = known[0].off.as_deref().unwrap();
    assert!(off.contains("`s` is not connected: failed to start `no-such-program`"), "{off}");
    fixture.servers.close().await;
}

#[tokio::test]
async fn a_silent_server_is_given_up_and_nothing_of_it_is_left() {
    let fixture = Fixture::with("silent", |server| server.start_timeout = Span(Duration::from_millis(800)));

    let known = fixture.known().await;

    assert!(known[0].off.as_deref().unwrap().contains("it was silent for 800ms"), "{known:?}");
    fixture.servers.close().await;
    let record = fixture.recorded("pid").await;
    assert!(record.iter().all(|line| !lives(line.strip_prefix("pid ").unwrap())), "{record:?}");
}

#[tokio::test]
async fn a_call_that_is_given_up_is_cancelled_at_the_server() {
    let fixture = Fixture::new("");
    let tool = fixture.tool("hang").await;

    // Dropped in the middle, as the caller's timeout does it.
    let context = context();
    tokio::select! {
        answer = call(&*tool, &context) => panic!("{answer:?}"),
        _ = fixture.recorded("hang") => {}
    }
    fixture.recorded("notifications/cancelled").await;
    fs::remove_file(fixture.record()).unwrap();

    // Told to by its token.
    let cancelled = async {
        fixture.recorded("hang").await;
        context.cancel.cancel();
    };
    let (answer, ()) = tokio::join!(call(&*tool, &context), cancelled);
    assert_eq!(answer.unwrap_err(), "the call was cancelled");
    fixture.recorded("notifications/cancelled").await;

    assert_eq!(fixture.call("echo").await.unwrap(), "hello", "the server goes on");
    fixture.servers.close().await;
}

#[tokio::test]
async fn a_frozen_server_is_started_again() {
    let fixture = Fixture::with("", |server| server.start_timeout = Span(Duration::from_secs(3)));
    let tool = fixture.tool("freeze").await;

    let context = context();
    tokio::select! {
        answer = call(&*tool, &context) => panic!("{answer:?}"),
        _ = fixture.recorded("freeze") => {}
    }

    fixture.until(|status| matches!(status, Status::Down { .. })).await;
    let off = fixture.known().await[0].off.clone().unwrap();
    assert!(off.contains("silent for 3s"), "{off}");
    fixture.until(|status| matches!(status, Status::Up { .. })).await;
    assert_eq!(fixture.call("echo").await.unwrap(), "hello");
    fixture.servers.close().await;
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_fails_the_call_and_is_started_again() {
    let fixture = Fixture::new("");
    let echo = fixture.tool("echo").await;

    let error = fixture.tool("die").await.call(&context(), &json!({})).await.unwrap_err();

    assert!(matches!(error, Error::Lost(_)), "{error:?}");
    assert!(error.to_string().contains("what the call has done is not known"), "{error}");
    fixture.until(|status| matches!(status, Status::Down { .. })).await;
    let known = fixture.known().await;
    assert_eq!(known.len(), 12, "its tools are named");
    assert!(known.iter().all(|tool| tool.off.as_deref().unwrap().ends_with("it ended")), "{known:?}");
    assert!(call(&*echo, &context()).await.unwrap_err().contains("is not connected at the moment"));
    fixture.until(|status| matches!(status, Status::Up { .. })).await;
    assert_eq!(call(&*echo, &context()).await.unwrap(), "hello", "tools of before work again");
    fixture.servers.close().await;
}

#[tokio::test]
async fn a_vast_answer_is_cut_and_a_flood_of_errors_holds_nothing_up() {
    let fixture = Fixture::new("");

    let huge = fixture.call("huge").await.unwrap();

    assert!(huge.starts_with("begin xxx") && huge.len() <= RESULT_MAX, "{huge}");
    assert!(huge.ends_with(" bytes more)"), "{huge}");
    assert_eq!(fixture.call("flood").await.unwrap(), "flooded");
    assert_eq!(fixture.call("echo").await.unwrap(), "hello");
    fixture.servers.close().await;
}

#[tokio::test]
async fn changed_tools_are_noticed_and_none_becomes_milder_for_who_has_it_already() {
    let fixture = Fixture::new("");
    let (echo, wipe) = (fixture.tool("echo").await, fixture.tool("wipe").await);

    assert_eq!(fixture.call("grow").await.unwrap(), "grown");
    fixture
        .until(|status| matches!(status, Status::Up { offers, .. } if offers.contains_key("mcp__s__grown")))
        .await;
    assert_eq!(fixture.call("grown").await.unwrap(), "hello");

    assert_eq!(fixture.call("turn").await.unwrap(), "turned");
    let is_read = |offers: &server::Offers| offers["mcp__s__wipe"].class == Class::Read;
    fixture.until(|status| matches!(status, Status::Up { offers, .. } if is_read(offers))).await;
    assert_eq!(wipe.class(), Class::Destructive);
    assert_eq!(fixture.tool("echo").await.class(), Class::Destructive);
    let error = call(&*echo, &context()).await.unwrap_err();
    assert!(error.contains("more dangerous than it was"), "{error}");

    let add = fixture.tool("add").await;
    assert_eq!(fixture.call("widen").await.unwrap(), "widened");
    let is_wide =
        |offers: &server::Offers| offers["mcp__s__add"].spec.input_schema.get("properties").is_some();
    fixture.until(|status| matches!(status, Status::Up { offers, .. } if is_wide(offers))).await;
    let error = call(&*add, &context()).await.unwrap_err();
    assert!(error.contains("has changed what this tool takes"), "{error}");
    assert_eq!(fixture.call("add").await.unwrap(), "hello", "a run that begins now has it as it is now");
    fixture.servers.close().await;
}

#[tokio::test]
async fn a_stubborn_server_and_its_child_are_gone_within_five_seconds() {
    let fixture = Fixture::new("stubborn");
    assert_eq!(fixture.call("echo").await.unwrap(), "hello");
    let record = fixture.recorded("pid").await;
    let processes: Vec<&str> = record.iter().filter_map(|line| line.strip_prefix("pid ")).collect();
    assert_eq!(processes.len(), 2, "{record:?}");
    assert!(processes.iter().all(|process| lives(process)), "both run and ignore what they are told");

    let began = Instant::now();
    fixture.servers.close().await;

    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(!processes.iter().any(|process| lives(process)), "{record:?}");
}

#[tokio::test]
async fn servers_that_are_dropped_leave_nothing_running() {
    let fixture = Fixture::new("");
    assert_eq!(fixture.call("echo").await.unwrap(), "hello");
    let record = fixture.recorded("pid").await;
    let Fixture { servers, directory: _directory } = fixture;
    let tasks = servers.tasks.clone();

    drop(servers);

    tasks.close();
    tokio::time::timeout(PATIENCE, tasks.wait()).await.unwrap();
    assert!(!lives(record[0].strip_prefix("pid ").unwrap()));
}
