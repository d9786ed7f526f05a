//! Streams as servers really send them, each of which has to become the same clean answer.

use super::*;

/// Serves a body whole and torn, and compares what comes of it.
async fn check(name: &str, body: &str, expected: Reply) {
    check_answer(name, Answer::stream(body), expected).await;
}

async fn check_answer(name: &str, answer: Answer, expected: Reply) {
    let stub = Stub::start([answer.clone(), answer.torn()]).await;
    for _ in 0..2 {
        let (outcome, text, waits) = ask(&stub).await;
        assert_eq!(outcome.unwrap_or_else(|error| panic!("{name}: {error:?}")), expected, "{name}");
        assert_eq!(text, expected.text, "{name}: text is shown as it arrives");
        assert_eq!(waits, [], "{name}: nothing is asked twice");
    }
    stub.finish();
}

fn text(text: &str) -> Reply {
    Reply { text: text.to_owned(), tool_calls: Vec::new(), usage: sample::usage(0, 0), finish: Finish::Stop }
}

fn calls(calls: &[(&str, &str, &str)]) -> Reply {
    let call = |(id, tool, arguments): &(&str, &str, &str)| ToolCall {
        id: (*id).to_owned(),
        tool: (*tool).to_owned(),
        arguments: (*arguments).to_owned(),
    };
    Reply { tool_calls: calls.iter().map(call).collect(), finish: Finish::ToolCalls, ..text("") }
}

fn call_delta(calls: Value) -> Value {
    delta(json!({ "tool_calls": calls }))
}

#[tokio::test]
async fn text_comes_out_of_every_kind_of_stream() {
    let hello = [
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"content": "Grüß "})),
        delta(json!({"content": "Gott."})),
    ];
    let usual = stream(&hello, "stop");
    let expected = || text("Grüß Gott.");

    check("usual", &usual, expected()).await;
    check("CRLF", &usual.replace('\n', "\r\n"), expected()).await;
    check("CR", &usual.replace('\n', "\r"), expected()).await;
    check("byte order mark", &format!("\u{feff}{usual}"), expected()).await;
    check("keep-alive comments", &usual.replace("data:", ": PROCESSING\n\ndata:"), expected()).await;
    check("named events and ids", &usual.replace("data:", "event: message\nid: 7\ndata:"), expected()).await;
    check("no blank after the colon", &usual.replace("data: ", "data:"), expected()).await;
    check("no blank line at the end", usual.trim_end(), expected()).await;
    check("no end mark", &usual.replace("data: [DONE]\n\n", ""), expected()).await;
    check("no finish reason", &format!("{}data: [DONE]\n\n", events(&hello)), expected()).await;
    check("more behind the end mark", &format!("{usual}data: {{oops\n\n"), expected()).await;
    check("empty events", &usual.replace("data: {", "data:\n\ndata: {"), expected()).await;
    check("`message` for `delta`", &usual.replace("\"delta\"", "\"message\""), expected()).await;
    let plain = Answer::new(200, "text/plain; charset=utf-8", usual.clone());
    check_answer("another content type", plain, expected()).await;

    let nulls =
        delta(json!({"content": null, "tool_calls": null, "refusal": null, "reasoning_content": null}));
    check("nulls", &stream(&[&[nulls][..], &hello].concat(), "stop"), expected()).await;
    let filter = json!({"choices": [], "prompt_filter_results": []});
    check("empty choices", &stream(&[&[filter][..], &hello].concat(), "stop"), expected()).await;
    let second = json!({"choices": [{"index": 0, "delta": {"content": "Gott."}}, {"index": 1, "delta": {"content": "other"}}]});
    check("a second choice", &stream(&[hello[1].clone(), second], "stop"), expected()).await;
    let parts =
        delta(json!({"content": [{"type": "text", "text": "Grüß "}, {"type": "text", "text": "Gott."}]}));
    check("content in parts", &stream(&[parts], "stop"), expected()).await;
    let thinking = [delta(json!({"reasoning_content": "Hm."})), delta(json!({"reasoning": "Hm."}))];
    check("reasoning", &stream(&[&thinking[..], &hello].concat(), "stop"), expected()).await;
}

#[tokio::test]
async fn a_whole_document_is_an_answer_too() {
    let document = json!({
        "id": "x",
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "ls", "arguments": "{}"}}],
        }}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    });
    let expected =
        Reply { text: "I look.".to_owned(), usage: sample::usage(7, 3), ..calls(&[("a", "ls", "{}")]) };

    let answer = |content_type, body: String| Answer::new(200, content_type, body);
    check_answer("JSON", answer("application/json", document.to_string()), expected.clone()).await;
    let pretty = format!("\n  {document:#}\n");
    check_answer("JSON as an event stream", answer("text/event-stream", pretty), expected).await;
}

#[tokio::test]
async fn tool_calls_are_put_together() {
    let first = |id: &str, index: u64, name: &str, arguments: &str| json!([{"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}]);
    let more = |index: u64, arguments: &str| json!([{"index": index, "function": {"arguments": arguments}}]);
    let both = || calls(&[("a", "ls", r#"{"path":"."}"#), ("b", "grep", r#"{"pattern":"x"}"#)]);

    let one_by_one = [
        first("a", 0, "ls", ""),
        more(0, r#"{"path""#),
        more(0, r#":"."}"#),
        first("b", 1, "grep", ""),
        more(1, r#"{"pattern":"x"}"#),
    ];
    let usual = stream(&one_by_one.map(call_delta), "tool_calls");
    check("one by one", &usual, both()).await;
    check(
        "wrong finish reason",
        &usual.replace("\"finish_reason\":\"tool_calls\"", "\"finish_reason\":\"stop\""),
        both(),
    )
    .await;

    let interleaved = [
        first("a", 0, "ls", r#"{"path""#),
        first("b", 1, "grep", r#"{"pattern""#),
        more(0, r#":"."}"#),
        more(1, r#":"x"}"#),
    ];
    check("interleaved", &stream(&interleaved.map(call_delta), "tool_calls"), both()).await;

    let whole = json!([
        {"id": "a", "function": {"name": "ls", "arguments": r#"{"path":"."}"#}},
        {"id": "b", "function": {"name": "grep", "arguments": {"pattern": "x"}}},
    ]);
    check("no index, one an object", &stream(&[call_delta(whole)], "tool_calls"), both()).await;

    let bytes = r#"{"path":"."}"#.chars().map(|byte| call_delta(more(0, &byte.to_string())));
    let bytes: Vec<Value> = [call_delta(first("a", 0, "ls", ""))].into_iter().chain(bytes).collect();
    let one = || calls(&[("a", "ls", r#"{"path":"."}"#)]);
    check("single bytes", &stream(&bytes, "tool_calls"), one()).await;

    let repeated = [first("a", 0, "ls", r#"{"path""#), more(0, r#":"."}"#), more(0, r#"{"path":"."}"#)];
    check("repeated at the end", &stream(&repeated.map(call_delta), "tool_calls"), one()).await;
    let growing = [first("a", 0, "ls", r#"{"p"#), more(0, r#"{"path":"#), more(0, r#"{"path":"."}"#)];
    check("growing", &stream(&growing.map(call_delta), "tool_calls"), one()).await;

    let malformed = [first("a", 0, "ls", r#"{"path": oops"#)];
    let kept = calls(&[("a", "ls", r#"{"path": oops"#)]);
    check("malformed arguments", &stream(&malformed.map(call_delta), "tool_calls"), kept).await;
    let nameless_ids = json!([{"index": 0, "function": {"name": "ls", "arguments": "{}"}}, {"index": 1, "function": {"name": "ls", "arguments": "{}"}}]);
    let made_up = calls(&[("call_1", "ls", "{}"), ("call_2", "ls", "{}")]);
    check("no ids", &stream(&[call_delta(nameless_ids)], "tool_calls"), made_up).await;
}

#[tokio::test]
async fn usage_is_found_wherever_it_comes() {
    let hello = delta(json!({"content": "Hello."}));
    let usage = |input: u64, output: u64| json!({"prompt_tokens": input, "completion_tokens": output, "prompt_tokens_details": {"cached_tokens": 4}});
    let expected =
        || Reply { usage: Usage { cached_input_tokens: 4, ..sample::usage(9, 5) }, ..text("Hello.") };

    let late = json!({"choices": [], "usage": usage(9, 5)});
    let chunks = [hello.clone(), finish("stop"), late.clone()];
    check("behind the finish reason", &format!("{}data: [DONE]\n\n", events(&chunks)), expected()).await;
    check("behind it without an end mark", &events(&chunks), expected()).await;

    let with = |mut chunk: Value, usage: Value| {
        chunk["usage"] = usage;
        chunk
    };
    let growing = [
        with(hello.clone(), usage(9, 1)),
        with(finish("stop"), usage(9, 5)),
        with(finish("stop"), Value::Null),
    ];
    check("in every chunk", &events(&growing), expected()).await;
    check("nowhere", &stream(&[hello], "stop"), text("Hello.")).await;
}

#[tokio::test]
async fn the_reason_to_stop_is_told() {
    for (reason, finish) in [
        ("stop", Finish::Stop),
        ("tool_calls", Finish::Stop),
        ("eos", Finish::Stop),
        ("length", Finish::Length),
        ("content_filter", Finish::Refused),
    ] {
        let body = stream(&[delta(json!({"content": "Well."}))], reason);
        check(reason, &body, Reply { finish, ..text("Well.") }).await;
    }
    let refusal = stream(&[delta(json!({"refusal": "No."}))], "stop");
    check("refusal", &refusal, Reply { finish: Finish::Refused, ..text("No.") }).await;
}

#[tokio::test]
async fn a_compressed_stream_is_read() {
    let body = gzip(stream(&[delta(json!({"content": "Hello."}))], "stop").as_bytes());
    let answer = Answer::new(200, "text/event-stream", body).with_header("content-encoding", "gzip");
    check_answer("gzip", answer, text("Hello.")).await;
}

/// The format's frame around one stored block.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg());
        }
    }
    let size = u16::try_from(bytes.len()).expect("a test's stream is short");
    let mut frame = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 1];
    frame.extend(size.to_le_bytes());
    frame.extend((!size).to_le_bytes());
    frame.extend(bytes);
    frame.extend((!crc).to_le_bytes());
    frame.extend(u32::from(size).to_le_bytes());
    frame
}

#[test]
fn a_stream_that_is_broken_at_random_is_an_answer_or_a_fault() {
    let call = |index: u64, id: &str, arguments: &str| {
        call_delta(json!([{"index": index, "id": id, "function": {"name": "ls", "arguments": arguments}}]))
    };
    let more = |arguments: &str| call_delta(json!([{"index": 0, "function": {"arguments": arguments}}]));
    let hello = [delta(json!({"role": "assistant", "content": ""})), delta(json!({"content": "Grüß Gott."}))];
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5}});
    let document = json!({"choices": [{"finish_reason": "stop", "message": {"content": "Hello."}}]});
    crate::model::mutation::check::<stream::Answer>(&[
        stream(&hello, "stop"),
        stream(&[call(0, "a", ""), more("{\"path\""), call(1, "b", "{}"), more(":\".\"}")], "tool_calls"),
        stream(&[call_delta(json!([{"function": {"name": "ls", "arguments": "{}"}}])), usage], "stop"),
        events(&[json!({"error": {"message": "slow down", "code": 429}})]),
        document.to_string(),
        "<html>Bad Gateway</html>".to_owned(),
    ]);
}
