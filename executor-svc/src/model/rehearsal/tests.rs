use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::model::{Model as _, pace::Pace, retry::Retrying, sample};

fn model(script: &str) -> Retrying<Rehearsal> {
    let script = Script::parse(script).expect("the script is right");
    Retrying::new(Rehearsal::new("offline", script), Arc::new(Pace::new(4)))
}

async fn ask(script: &str, turn: Turn<'_>) -> Result<Reply, Error> {
    model(script).complete(&turn, &|_: &str| (), &CancellationToken::new()).await
}

fn user(text: &str) -> Message {
    Message::User { text: text.to_owned() }
}

fn result(tool: &str, text: &str) -> Message {
    Message::Tool { call_id: "c1".to_owned(), tool: tool.to_owned(), text: text.to_owned(), is_error: false }
}

#[tokio::test(start_paused = true)]
async fn the_first_rule_of_which_everything_is_so_answers() {
    let script = r#"
rules:
  - when: {agent: plan}
    do: [{text: agent}]
  - when: {turn: 3}
    do: [{text: turn}]
  - when: {tool: ls, last: "^a"}
    do: [{text: tool and last}]
  - when: {tool: ls}
    do: [{text: tool}]
  - when: {last: "b$"}
    do: [{text: last}]
  - do: [{text: otherwise}]
"#;
    for (agent, number, message, expected) in [
        ("plan", 1, Some(user("b")), "agent"),
        ("explore", 3, Some(user("b")), "turn"),
        ("explore", 1, Some(result("ls", "a.txt")), "tool and last"),
        ("explore", 1, Some(result("ls", "b")), "tool"),
        ("explore", 1, Some(result("grep", "a")), "otherwise"),
        ("explore", 1, Some(user("ab")), "last"),
        ("explore", 1, Some(user("ls")), "otherwise"),
        ("explore", 1, None, "otherwise"),
    ] {
        let messages: Vec<Message> = message.into_iter().collect();
        let turn = Turn { agent, number, messages: &messages, ..sample::turn() };
        assert_eq!(ask(script, turn).await.unwrap().text, expected, "{turn:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_rule_the_error_names_agent_turn_and_last_message() {
    let messages = [user("hello")];
    let turn = Turn { number: 2, messages: &messages, ..sample::turn() };

    let error = ask("rules: []", turn).await.unwrap_err();

    assert_eq!(
        error.to_string(),
        r#"no rehearsal rule matches agent `explore`, turn 2, last message "hello""#
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_has_its_text_calls_and_usage() {
    let script = r#"
rules:
  - do:
      - text: "Asked: {{prompt}}. "
      - text: "{{agent}} in turn {{turn}}."
      - call: {tool: grep, arguments: {pattern: "{{last}}", n: 1}}
      - call: {tool: ls}
      - call: {tool: ls, arguments: "{oops"}
      - submit: {data: {summary: "{{last}}"}}
      - submit: {error: "not {{last}}"}
      - usage: {input_tokens: 10, output_tokens: 5}
"#;
    let messages = [result("ls", "a \"b\"")];
    let turn = Turn { prompt: "look", number: 4, messages: &messages, ..sample::turn() };
    let pieces = Mutex::new(Vec::new());

    let reply = model(script)
        .complete(&turn, &|text: &str| pieces.lock().push(text.to_owned()), &CancellationToken::new())
        .await
        .unwrap();

    assert_eq!(reply.text, "Asked: look. explore in turn 4.");
    assert_eq!(pieces.into_inner(), ["Asked: look. ", "explore in turn 4."]);
    let calls: Vec<_> =
        reply.tool_calls.iter().map(|call| (call.tool.as_str(), call.arguments.as_str())).collect();
    assert_eq!(
        calls,
        [
            ("grep", r#"{"pattern":"a \"b\"","n":1}"#),
            ("ls", "{}"),
            ("ls", "{oops"),
            ("submit_result", r#"{"data":{"summary":"a \"b\""}}"#),
            ("submit_result", r#"{"error":"not a \"b\""}"#),
        ]
    );
    assert_eq!(reply.usage, sample::usage(10, 5));
    assert_eq!(reply.finish, Finish::ToolCalls);
    let ids: std::collections::HashSet<_> = reply.tool_calls.iter().map(|call| &call.id).collect();
    assert_eq!(ids.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_nothing_is_empty() {
    let reply = ask("rules: [{do: []}]", sample::turn()).await.unwrap();

    assert_eq!((reply.text.as_str(), reply.finish), ("", Finish::Stop));
}

#[tokio::test(start_paused = true)]
async fn a_retry_goes_on_behind_the_error_that_it_follows() {
    let script = r#"
rules:
  - do:
      - error: {status: 429, retry_after: 7s}
      - error: {status: 503, retry_after: 5s}
      - text: at last
"#;
    let start = Instant::now();

    let reply = ask(script, sample::turn()).await.unwrap();

    assert_eq!(reply.text, "at last");
    assert_eq!(start.elapsed().as_secs(), 12);
}

#[tokio::test(start_paused = true)]
async fn an_error_with_nothing_behind_it_stays_through_all_retries() {
    let script = "rules: [{do: [{error: {status: 500, retry_after: 2s}}, {usage: {input_tokens: 1}}]}]";
    let start = Instant::now();

    let error = ask(script, sample::turn()).await.unwrap_err();

    assert!(matches!(error, Error::Status { status: 500, .. }));
    assert_eq!(start.elapsed().as_secs(), 6);
}

#[tokio::test(start_paused = true)]
async fn an_error_behind_text_is_final() {
    let script = "rules: [{do: [{text: I}, {error: {status: 500}}, {text: never}]}]";
    let start = Instant::now();

    let error = ask(script, sample::turn()).await.unwrap_err();

    assert!(matches!(error, Error::Status { status: 500, .. }));
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_delay_takes_its_time_and_ends_when_cancelled() {
    let script = "rules: [{do: [{delay: 200ms}, {text: late}]}]";
    let start = Instant::now();
    assert_eq!(ask(script, sample::turn()).await.unwrap().text, "late");
    assert!(start.elapsed() >= Duration::from_millis(200));

    let model = model("rules: [{do: [{delay: 1h}, {text: late}]}]");
    let cancel = CancellationToken::new();
    let turn = sample::turn();
    let start = Instant::now();
    let (outcome, ()) =
        tokio::join!(model.complete(&turn, &|_: &str| (), &cancel), async { cancel.cancel() });
    assert!(matches!(outcome, Err(Error::Cancelled)));
    assert_eq!(start.elapsed(), Duration::ZERO);
}
