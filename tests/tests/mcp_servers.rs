//! Workers with tools of MCP servers that others wrote, by pipe and by HTTP.

use std::{
    net::TcpListener,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use executor_svc::tool::{Class, mcp::config::Server};
use proto::executor::v1::{
    ListMessagesRequest, ListToolsRequest, Role, ToolClass, list_tools_response::Tool,
};
use service_kit::config::{Secret, Span};
use tests::{
    executor::{Executor, call},
    program::Running,
    registry::Registry,
    repository,
};

/// Longer than anything takes that a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A trusted server that `deploy/tools` installed.
fn installed(name: &str, arguments: &[&Path]) -> Server {
    let program = repository::tool(name);
    let words = std::iter::once(program.as_path()).chain(arguments.iter().copied());
    Server {
        command: words.map(|word| word.to_str().expect("paths of tests are text").to_owned()).collect(),
        env: [("PATH".to_owned(), Secret::new(repository::search_path()))].into(),
        trust_annotations: true,
        start_timeout: Span(PATIENCE),
        ..Server::default()
    }
}

async fn tools(executor: &mut Executor, agent: &str) -> Vec<Tool> {
    let request = ListToolsRequest { agent: agent.to_owned(), ..ListToolsRequest::default() };
    executor.client.list_tools(request).await.expect("the tools are listed").into_inner().tools
}

fn find<'a>(tools: &'a [Tool], name: &str) -> &'a Tool {
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    tools.iter().find(|tool| tool.name == name).unwrap_or_else(|| panic!("no `{name}` among {names:?}"))
}

/// What the model was told of its calls by a worker of this agent.
async fn results(executor: &mut Executor, agent: &str) -> Vec<String> {
    let worker = executor.spawn(call(agent, "Go.")).await.expect("the spawn is accepted").worker;
    let request = ListMessagesRequest {
        session_id: worker.expect("an answer has a worker").id,
        ..ListMessagesRequest::default()
    };
    let messages = executor.client.list_messages(request).await.expect("the messages are listed");
    messages
        .into_inner()
        .messages
        .into_iter()
        .filter(|message| message.role() == Role::Tool)
        .map(|message| message.content)
        .collect()
}

const EVERYTHING: &str = r#"
rules:
  - when: {turn: 1}
    do:
      - call: {tool: mcp__everything__echo, arguments: {message: "hello there"}}
  - when: {turn: 2}
    do:
      - call: {tool: mcp__everything__get-sum, arguments: {a: 19, b: 23}}
  - when: {turn: 3}
    do:
      - call: {tool: mcp__everything__get-structured-content, arguments: {location: Chicago}}
  - when: {turn: 4}
    do:
      - call: {tool: mcp__everything__get-tiny-image, arguments: {}}
  - when: {turn: 5}
    do:
      - call: {tool: mcp__everything__get-sum, arguments: {a: "nineteen"}}
  - when: {turn: 6}
    do:
      - call: {tool: mcp__everything__get-resource-reference, arguments: {resourceType: Text, resourceId: 7}}
  - when: {turn: 7}
    do:
      - call: {tool: mcp__everything__get-resource-reference, arguments: {resourceType: Blob, resourceId: 8}}
  - when: {turn: 8}
    do:
      - call: {tool: mcp__everything__get-resource-links, arguments: {count: 2}}
  - when: {turn: 9}
    do:
      - call: {tool: mcp__everything__trigger-long-running-operation, arguments: {duration: 1, steps: 10}}
  - do:
      - text: "done"
"#;

/// What [`EVERYTHING`] is answered, by whatever transport.
fn check_everything(results: &[String]) {
    let [echo, sum, structured, image, wrong, text, blob, links, long] = results else {
        panic!("{results:?}")
    };
    assert!(echo.contains("hello there"), "{echo}");
    assert!(sum.contains("42"), "{sum}");
    assert_eq!(structured.matches("Light rain").count(), 1, "told once: {structured}");
    assert!(image.contains("[an image of type image/png, which cannot be shown]"), "{image}");
    assert!(wrong.contains("nineteen") || wrong.to_lowercase().contains("invalid"), "{wrong}");
    assert!(text.contains("[resource ") && text.contains("/7]\n"), "{text}");
    assert!(blob.contains("/8 of type") && blob.contains("which is not text and cannot be shown"), "{blob}");
    assert_eq!(links.matches("[a link to the resource ").count(), 2, "{links}");
    assert!(long.contains("operation completed"), "progress is no answer: {long}");
}

#[tokio::test]
async fn a_worker_calls_the_tools_of_a_server_by_pipe() {
    let registry = Registry::start().await;
    let mut executor = Executor::start_with(&registry, EVERYTHING, |config| {
        config.mcp_servers.insert("everything".to_owned(), installed("mcp-server-everything", &[]));
    })
    .await;

    check_everything(&results(&mut executor, "task").await);
    executor.stop().await;
}

#[tokio::test]
async fn a_worker_calls_the_tools_of_a_server_by_http_until_it_is_gone() {
    let registry = Registry::start().await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new(repository::tool("mcp-server-everything"));
    command.arg("streamableHttp").env("PORT", port.to_string());
    let mut server = Running::start(&mut command);
    server.line("listening on port");
    let mut executor = Executor::start_with(&registry, EVERYTHING, |config| {
        let server = Server {
            url: Some(format!("http://127.0.0.1:{port}/mcp")),
            trust_annotations: true,
            start_timeout: Span::seconds(5),
            ..Server::default()
        };
        config.mcp_servers.insert("everything".to_owned(), server);
    })
    .await;

    check_everything(&results(&mut executor, "task").await);

    server.signal("KILL");
    server.end();
    let lost = results(&mut executor, "task").await;
    assert!(!lost[0].contains("hello there") && lost[0].contains("everything"), "{lost:?}");
    let began = Instant::now();
    loop {
        let tools = tools(&mut executor, "task").await;
        let echo = find(&tools, "mcp__everything__echo");
        if echo.rule.contains("the MCP server `everything` is not connected") {
            assert!(!echo.granted);
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{echo:?}");
    }
    executor.stop().await;
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_given_up_and_the_server_goes_on() {
    const SCRIPT: &str = r#"
rules:
  - when: {turn: 1}
    do:
      - call: {tool: mcp__everything__trigger-long-running-operation, arguments: {duration: 600, steps: 6000}}
  - when: {turn: 2}
    do:
      - call: {tool: mcp__everything__echo, arguments: {message: "hello there"}}
  - do:
      - text: "done"
"#;
    let registry = Registry::start().await;
    let mut executor = Executor::start_with(&registry, SCRIPT, |config| {
        config.mcp_servers.insert("everything".to_owned(), installed("mcp-server-everything", &[]));
        config.tools.timeouts.insert("mcp__everything__trigger-*".to_owned(), Span::seconds(1));
    })
    .await;

    let results = results(&mut executor, "task").await;

    assert!(results[0].contains("took longer than 1s"), "{results:?}");
    assert!(results[1].contains("hello there"), "{results:?}");
    executor.stop().await;
}

#[tokio::test]
async fn classes_and_selections_of_tools_of_several_servers() {
    let registry = Registry::start().await;
    let files = registry.project("files");
    std::fs::create_dir_all(&files).unwrap();
    std::fs::write(files.join("note.txt"), "remember the milk").unwrap();
    let front = |rest: &str| format!("---\nname: NAME\ndescription: Does it.\n{rest}\n---\nDo it.\n");
    for (name, rest) in [
        ("reader", "tools: [mcp__files__read_text_file, read_graph]"),
        ("keeper", "tools: [read]\nmcpServers: [memory]"),
    ] {
        registry.write(&format!(".claude/agents/{name}.md"), &front(rest).replace("NAME", name));
    }
    let script = format!(
        "rules:\n  - when: {{turn: 1}}\n    do:\n      - call: {{tool: mcp__files__read_text_file, arguments: {{path: \"{}\"}}}}\n  \
         - when: {{turn: 2}}\n    do:\n      - call: {{tool: mcp__memory__read_graph, arguments: {{}}}}\n  - do:\n      - text: \"done\"\n",
        files.join("note.txt").display(),
    );
    let mut executor = Executor::start_with(&registry, &script, |config| {
        let mut memory = installed("mcp-server-memory", &[]);
        let graph = files.join("graph.json");
        memory.env.insert("MEMORY_FILE_PATH".to_owned(), Secret::new(graph.to_str().unwrap()));
        let mut doubted = installed("mcp-server-filesystem", &[&files]);
        doubted.trust_annotations = false;
        let absent = Server { command: vec!["no-such-server".to_owned()], ..Server::default() };
        config.mcp_servers = [
            ("files".to_owned(), installed("mcp-server-filesystem", &[&files])),
            ("memory".to_owned(), memory),
            ("doubted".to_owned(), doubted),
            ("absent".to_owned(), absent),
        ]
        .into();
        config.tools.classes.insert("mcp__files__write_*".to_owned(), Class::Write);
    })
    .await;

    let listed = tools(&mut executor, "task").await;
    for (name, server, class) in [
        ("mcp__files__read_text_file", "files", ToolClass::Read),
        ("mcp__files__write_file", "files", ToolClass::Write),
        ("mcp__files__edit_file", "files", ToolClass::Destructive),
        ("mcp__files__create_directory", "files", ToolClass::Write),
        ("mcp__doubted__read_text_file", "doubted", ToolClass::Destructive),
        ("mcp__memory__read_graph", "memory", ToolClass::Read),
    ] {
        let tool = find(&listed, name);
        assert_eq!((tool.mcp_server.as_str(), tool.tool_class()), (server, class), "{name}");
        assert!(tool.granted && tool.input_schema.contains("object"), "{tool:?}");
    }
    let absent = find(&listed, "mcp__absent");
    assert!(!absent.granted && absent.rule.contains("failed to start `no-such-server`"), "{absent:?}");

    let granted = |tools: &[Tool]| -> Vec<String> {
        let granted = tools.iter().filter(|tool| tool.granted && !tool.mcp_server.is_empty());
        granted.map(|tool| tool.name.clone()).collect()
    };
    let reader = tools(&mut executor, "reader").await;
    assert_eq!(granted(&reader), ["mcp__files__read_text_file", "mcp__memory__read_graph"]);
    let keeper = tools(&mut executor, "keeper").await;
    assert!(granted(&keeper).len() > 5, "{keeper:?}");
    assert!(granted(&keeper).iter().all(|name| name.starts_with("mcp__memory__")), "{keeper:?}");
    assert!(find(&keeper, "read").granted && !find(&keeper, "write").granted);

    let results = results(&mut executor, "reader").await;
    assert!(results[0].contains("remember the milk"), "{results:?}");
    assert!(results[1].contains("entities"), "{results:?}");
    executor.stop().await;
}
