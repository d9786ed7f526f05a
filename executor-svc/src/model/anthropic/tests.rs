use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    definition::ThinkingLevel,
    model::{
        Error, Finish, Model as _,
        pace::Pace,
        retry::Retrying,
        sample::{self, Ear},
        stub::{Answer, Stub},
    },
    transcript::ToolCall,
    worker::Usage,
};

fn model_at(url: &str) -> Retrying<Messages> {
    let config = config::Provider {
        base_url: Some(url.to_owned()),
        api_key: Some(Secret::new("sk-ant-0123456789")),
        ..config::Provider::new(config::Kind::Anthropic)
    };
    let endpoint = endpoint("claude", &config).unwrap_or_else(|(key, message)| panic!("{key}: {message}"));
    Retrying::new(Messages::new(endpoint, "claude-sonnet", &config), Arc::new(Pace::new(4)))
}

async fn ask(stub: &Stub) -> (Result<Reply, Error>, String, Vec<Duration>) {
    let ear = Ear::default();
    let outcome = model_at(&stub.url).complete(&sample::turn(), &ear, &CancellationToken::new()).await;
    (outcome, ear.text.into_inner(), ear.waits.into_inner())
}

fn events(events: &[Value]) -> String {
    events
        .iter()
        .map(|event| {
            format!("event: {}\ndata: {event}\n\n", event["type"].as_str().expect("an event has a type"))
        })
        .collect()
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": {
        "input_tokens": 10, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 300, "output_tokens": 1}}})
}

fn block(index: u64, content: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": content})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn text_delta(index: u64, text: &str) -> Value {
    delta(index, json!({"type": "text_delta", "text": text}))
}

fn input_delta(index: u64, json: &str) -> Value {
    delta(index, json!({"type": "input_json_delta", "partial_json": json}))
}

fn end(reason: &str) -> [Value; 2] {
    [
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 25}}),
        json!({"type": "message_stop"}),
    ]
}

fn stream(middle: &[Value], reason: &str) -> String {
    let mut all = vec![start(), json!({"type": "ping"})];
    all.extend_from_slice(middle);
    all.extend(end(reason));
    events(&all)
}

fn hello() -> Vec<Value> {
    vec![
        block(0, json!({"type": "text", "text": ""})),
        text_delta(0, "Hel"),
        text_delta(0, "lo."),
        json!({"type": "content_block_stop", "index": 0}),
    ]
}

fn reply(text: &str, calls: &[(&str, &str, &str)]) -> Reply {
    let call = |(id, tool, arguments): &(&str, &str, &str)| ToolCall {
        id: (*id).to_owned(),
        tool: (*tool).to_owned(),
        arguments: (*arguments).to_owned(),
    };
    Reply {
        text: text.to_owned(),
        tool_calls: calls.iter().map(call).collect(),
        usage: Usage { cached_input_tokens: 300, ..sample::usage(330, 25) },
        finish: if calls.is_empty() { Finish::Stop } else { Finish::ToolCalls },
    }
}

async fn check(name: &str, body: &str, expected: Reply) {
    let answer = Answer::stream(body);
    let stub = Stub::start([answer.clone(), answer.torn()]).await;
    for _ in 0..2 {
        let (outcome, text, _) = ask(&stub).await;
        assert_eq!(outcome.unwrap_or_else(|error| panic!("{name}: {error:?}")), expected, "{name}");
        assert_eq!(text, expected.text, "{name}");
    }
    stub.finish();
}

#[tokio::test]
async fn text_and_calls_come_out_of_the_stream() {
    check("text", &stream(&hello(), "end_turn"), reply("Hello.", &[])).await;

    let thinking = [
        block(0, json!({"type": "thinking", "thinking": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "Hm."})),
        delta(0, json!({"type": "signature_delta", "signature": "s"})),
        block(1, json!({"type": "text", "text": ""})),
        text_delta(1, "Hello."),
    ];
    check("thinking", &stream(&thinking, "end_turn"), reply("Hello.", &[])).await;

    let tool = |index, id: &str, input: Value| {
        block(index, json!({"type": "tool_use", "id": id, "name": "ls", "input": input}))
    };
    let two = [
        tool(1, "a", json!({})),
        input_delta(1, ""),
        input_delta(1, "{\"path\""),
        tool(2, "b", json!({})),
        input_delta(1, ":\".\"}"),
        input_delta(2, "{\"path\": oops"),
    ];
    let expected = reply("Hello.", &[("a", "ls", "{\"path\":\".\"}"), ("b", "ls", "{\"path\": oops")]);
    check("two calls, one malformed", &stream(&[&hello(), &two[..]].concat(), "tool_use"), expected).await;

    let given = [tool(0, "a", json!({"path": "."})), tool(1, "b", json!({}))];
    let expected = reply("", &[("a", "ls", "{\"path\":\".\"}"), ("b", "ls", "{}")]);
    check("input at the beginning", &stream(&given, "end_turn"), expected).await;

    let no_stop = stream(&hello(), "end_turn")
        .replace("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", "");
    check("no end mark", &no_stop, reply("Hello.", &[])).await;
}

#[tokio::test]
async fn the_reason_to_stop_is_told() {
    for (reason, finish) in [
        ("end_turn", Finish::Stop),
        ("stop_sequence", Finish::Stop),
        ("max_tokens", Finish::Length),
        ("refusal", Finish::Refused),
    ] {
        check(reason, &stream(&hello(), reason), Reply { finish, ..reply("Hello.", &[]) }).await;
    }
}

#[tokio::test]
async fn a_whole_document_is_an_answer_too() {
    let document = json!({
        "type": "message",
        "content": [{"type": "text", "text": "Hello."}, {"type": "tool_use", "id": "a", "name": "ls", "input": {"n": 1}}],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 30, "cache_read_input_tokens": 300, "output_tokens": 25},
    });
    check("JSON", &document.to_string(), reply("Hello.", &[("a", "ls", "{\"n\":1}")])).await;
}

#[tokio::test]
async fn an_overloaded_server_is_asked_again_before_the_first_token_only() {
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let early = Answer::stream(&events(&[start(), overloaded.clone()]));
    let refused =
        Answer::new(529, "application/json", overloaded.to_string()).with_header("retry-after", "3");
    let stub = Stub::start([early, refused, Answer::stream(&stream(&hello(), "end_turn"))]).await;

    let (outcome, text, waits) = ask(&stub).await;

    assert_eq!(outcome.unwrap(), reply("Hello.", &[]));
    assert_eq!(text, "Hello.");
    assert_eq!((waits.len(), waits[1]), (2, Duration::from_secs(3)));
    stub.finish();

    let late = Answer::stream(&events(&[&[start()][..], &hello(), &[overloaded]].concat()));
    let stub = Stub::start([late]).await;
    let (outcome, _, waits) = ask(&stub).await;
    assert!(matches!(outcome, Err(Error::Status { status: 529, .. })), "{outcome:?}");
    assert_eq!(waits, []);
    stub.finish();
}

#[tokio::test]
async fn what_is_no_message_is_malformed_or_cut() {
    for (name, body, is_cut) in [
        ("no JSON", "event: ping\ndata: oops\n\n".to_owned(), false),
        ("arguments of nothing", events(&[start(), input_delta(0, "{}")]), false),
        (
            "a call without a name",
            events(&[start(), block(0, json!({"type": "tool_use", "id": "a"}))]),
            false,
        ),
        ("another document", json!({"models": []}).to_string(), false),
        ("half an answer", events(&[&[start()][..], &hello()].concat()), true),
    ] {
        let stub = Stub::start([Answer::stream(&body)]).await;
        let (outcome, ..) = ask(&stub).await;
        match outcome {
            Err(Error::Unreachable { .. }) if is_cut => {}
            Err(Error::Malformed { .. }) if !is_cut => {}
            other => panic!("{name}: {other:?}"),
        }
        stub.finish();
    }
}

#[tokio::test]
async fn a_connection_cut_after_the_first_token_is_final() {
    let body = events(&[start(), block(0, json!({"type": "thinking", "thinking": ""}))]);
    let stub = Stub::start([Answer::stream(&body).cut()]).await;

    let (outcome, _, waits) = ask(&stub).await;

    assert!(matches!(outcome, Err(Error::Unreachable { .. })), "{outcome:?}");
    assert_eq!((stub.cuts(), waits.len()), (1, 0));
    stub.finish();
}

#[tokio::test]
async fn what_is_asked_is_a_message_with_key_and_version() {
    for path in ["", "/", "/v1"] {
        let stub = Stub::start([Answer::stream(&stream(&hello(), "end_turn"))]).await;
        let messages = sample::conversation();
        let turn = Turn { messages: &messages, ..sample::turn() };

        let url = format!("{}{path}", stub.url);
        model_at(&url).complete(&turn, &Ear::default(), &CancellationToken::new()).await.unwrap();

        let asked = stub.finish();
        assert_eq!(asked[0].path, "/v1/messages");
        assert_eq!(asked[0].headers["x-api-key"], "sk-ant-0123456789");
        assert_eq!(asked[0].headers["anthropic-version"], "2023-06-01");
        assert_eq!(asked[0].body, request::body("claude-sonnet", &turn, OUTPUT_TOKENS_MAX));
    }
}

#[tokio::test]
async fn a_model_that_does_not_think_is_asked_again_without() {
    let refusal = json!({"type": "error", "error": {
        "type": "invalid_request_error", "message": "thinking is not supported by this model"}});
    let refusal = Answer::new(400, "application/json", refusal.to_string());
    let answer = || Answer::stream(&stream(&hello(), "end_turn"));
    let stub = Stub::start([refusal, answer(), answer()]).await;
    let model = model_at(&stub.url);
    let turn = Turn { thinking: Some(ThinkingLevel::High), ..sample::turn() };

    for _ in 0..2 {
        let reply = model.complete(&turn, &Ear::default(), &CancellationToken::new()).await.unwrap();
        assert_eq!(reply.text, "Hello.");
    }

    let thought: Vec<bool> = stub.asked().iter().map(|asked| asked.get("thinking").is_some()).collect();
    assert_eq!(thought, [true, false, false]);
    stub.finish();
}

#[test]
fn a_stream_that_is_broken_at_random_is_an_answer_or_a_fault() {
    let tool = |index, input: Value| {
        block(index, json!({"type": "tool_use", "id": "a", "name": "ls", "input": input}))
    };
    let calls =
        [tool(1, json!({})), input_delta(1, "{\"path\""), tool(2, json!({})), input_delta(1, ":\".\"}")];
    let thinking = [
        block(0, json!({"type": "thinking", "thinking": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "Hm."})),
    ];
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    crate::model::mutation::check::<stream::Answer>(&[
        stream(&hello(), "end_turn"),
        stream(&calls, "tool_use"),
        stream(&[&thinking[..], &hello()].concat(), "max_tokens"),
        events(&[start(), overloaded]),
        json!({"type": "message", "content": [{"type": "text", "text": "Hello."}], "stop_reason": "end_turn"}).to_string(),
    ]);
}
