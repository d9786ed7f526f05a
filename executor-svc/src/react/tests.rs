use serde_json::{Value, json};

use super::*;
use crate::model::{Finish, Reply};

fn is_object(value: &Value) -> Result<(), String> {
    if value.is_object() { Ok(()) } else { Err(format!("`{value}` is not an object")) }
}

const FREE: Rules<'static> = Rules { turns_max: 10, check: None, read_text: json, permissive: false };
const STRICT: Rules<'static> = Rules { check: Some(&is_object), ..FREE };

fn text(text: &str) -> Reply {
    calls(text, &[])
}

fn calls(text: &str, tool_calls: &[(&str, &str)]) -> Reply {
    Reply {
        text: text.to_owned(),
        tool_calls: tool_calls
            .iter()
            .map(|(id, tool)| ToolCall {
                id: (*id).to_owned(),
                tool: (*tool).to_owned(),
                arguments: "{}".to_owned(),
            })
            .collect(),
        usage: Usage { input_tokens: 10, output_tokens: 5, turns: 1, ..Usage::default() },
        finish: Finish::Stop,
    }
}

/// A run without a store: keeps its records so that every state can be compared with the one folded from them.
struct Run {
    rules: Rules<'static>,
    records: Vec<Record>,
    state: State,
}

impl Run {
    fn new(rules: Rules<'static>) -> Self {
        let mut run = Self { rules, records: Vec::new(), state: State::default() };
        run.take(vec![Record::Message { message: Message::User { text: "do it".to_owned() } }]);
        run
    }

    fn take(&mut self, records: Vec<Record>) {
        for record in records {
            self.state.apply(&record);
            self.records.push(record);
        }
        let folded = State::fold(&self.records);
        assert_eq!(folded.next(&self.rules), self.state.next(&self.rules), "a folded state differs");
    }

    /// Asks and answers once. Returns what was offered.
    fn turn(&mut self, reply: Reply) -> Choice {
        let Step::Ask { turn, choice } = self.state.next(&self.rules) else {
            panic!("expected to be asked, not {:?}", self.state.next(&self.rules));
        };
        self.take(self.state.ask(turn, choice));
        self.take(answer(&self.state, &self.rules, reply));
        choice
    }

    fn tool(&mut self, call_id: &str, tool: &str, class: Class) {
        self.take(vec![Record::Event {
            body: Body::ToolStarted {
                call_id: call_id.to_owned(),
                tool: tool.to_owned(),
                class,
                arguments: "{}".to_owned(),
            },
        }]);
    }

    fn result(&mut self, call_id: &str, tool: &str) {
        let message = Message::Tool {
            call_id: call_id.to_owned(),
            tool: tool.to_owned(),
            text: "fine".to_owned(),
            is_error: false,
        };
        self.take(vec![Record::Message { message }]);
    }

    #[track_caller]
    fn end(&self) -> End {
        match self.state.next(&self.rules) {
            Step::End(end) => end,
            step => panic!("expected an end, not {step:?}"),
        }
    }
}

#[test]
fn text_without_calls_is_the_result() {
    let mut run = Run::new(FREE);

    assert_eq!(run.turn(text("done")), Choice::Any);

    let end = run.end();
    assert_eq!((end.reason, end.result.as_str()), (StopReason::Finished, "done"));
    assert_eq!(run.state.usage().input_tokens, 10);
}

#[test]
fn calls_run_before_the_model_is_asked_again_and_a_submission_comes_last() {
    let mut run = Run::new(FREE);

    run.turn(calls("", &[("a", "submit_result"), ("b", "read"), ("b", "ls")]));
    let Step::Call(open) = run.state.next(&FREE) else { panic!("calls are due") };
    let order: Vec<&str> = open.iter().map(|call| call.call.tool.as_str()).collect();
    assert_eq!(order, ["read", "ls", "submit_result"]);
    assert_ne!(open[0].call.id, open[1].call.id, "ids are made unique");

    for call in open {
        run.result(&call.call.id, &call.call.tool);
    }
    assert!(matches!(run.state.next(&FREE), Step::Ask { turn: 2, choice: Choice::Any }));
}

#[test]
fn an_open_call_says_whether_it_may_run_again() {
    let mut run = Run::new(FREE);
    run.turn(calls("", &[("a", "read"), ("b", "write"), ("c", "write")]));
    run.tool("a", "read", Class::Read);
    run.tool("b", "write", Class::Write);

    let unknown = run.state.calls_of_unknown_outcome();

    assert_eq!(unknown.iter().map(|call| call.call.id.as_str()).collect::<Vec<_>>(), ["b"]);
    run.result("b", "write");
    assert!(run.state.calls_of_unknown_outcome().is_empty());
}

#[test]
fn three_bad_answers_in_a_row_end_a_worker_and_a_good_one_starts_the_count_anew() {
    let mut run = Run::new(FREE);
    run.turn(text("  "));
    run.turn(text(""));
    run.turn(calls("looking", &[("a", "read")]));
    run.result("a", "read");
    run.turn(text(""));
    run.turn(text(""));
    assert!(matches!(run.state.next(&FREE), Step::Ask { .. }));

    run.turn(text("\n"));

    let end = run.end();
    assert_eq!((end.reason, end.result.as_str()), (StopReason::NoOutput, "looking"));
}

#[test]
fn malformed_answers_end_as_a_model_error() {
    let mut run = Run::new(FREE);

    for turn in 1..=3 {
        let Step::Ask { choice, .. } = run.state.next(&FREE) else { panic!("turn {turn} is due") };
        run.take(run.state.ask(turn, choice));
        run.take(malformed(&run.state));
    }

    assert_eq!(run.end().reason, StopReason::ModelError);
}

fn stopped(said: &str, finish: Finish) -> Reply {
    Reply { finish, ..text(said) }
}

#[test]
fn an_answer_that_was_cut_off_is_no_result_and_three_in_a_row_end_a_worker() {
    for (finish, words) in [(Finish::Length, "output limit"), (Finish::Refused, "filter")] {
        let mut run = Run::new(FREE);
        run.turn(stopped("the first half", finish));
        run.turn(stopped("", finish));
        run.turn(calls("looking", &[("a", "read")]));
        run.result("a", "read");
        run.turn(stopped("the first half", finish));
        run.turn(text("whole"));
        assert_eq!((run.end().reason, run.end().result.as_str()), (StopReason::Finished, "whole"));

        let mut run = Run::new(FREE);
        for _ in 0..3 {
            run.turn(stopped("the first half", finish));
        }
        let end = run.end();
        assert_eq!((end.reason, end.result.as_str()), (StopReason::ModelError, "the first half"));
        assert!(end.error.contains(words), "{}", end.error);
    }
}

#[test]
fn an_answer_that_was_cut_off_behind_a_valid_submission_counts() {
    let mut run = Run::new(STRICT);
    run.turn(stopped("{\"a\": ", Finish::Length));

    assert_eq!(run.turn(stopped("{\"a\": 1}", Finish::Length)), Choice::Any, "that was no reminder");

    assert_eq!(run.end().structured_output.as_deref(), Some("{\"a\":1}"));
}

#[test]
fn after_the_last_turn_the_model_sums_up_without_tools() {
    let rules = Rules { turns_max: 2, ..FREE };
    let mut run = Run::new(rules);
    for id in ["a", "b"] {
        assert_eq!(run.turn(calls("", &[(id, "read")])), Choice::Any);
        run.result(id, "read");
    }

    assert_eq!(run.turn(calls("as far as I got", &[("c", "read")])), Choice::None);

    let end = run.end();
    assert_eq!((end.reason, end.result.as_str()), (StopReason::MaxTurns, "as far as I got"));
    assert_eq!(end.reason.status(), crate::worker::Status::Failed);
}

#[test]
fn a_result_on_the_last_turn_is_a_result() {
    let mut run = Run::new(Rules { turns_max: 1, ..FREE });

    run.turn(text("in time"));

    assert_eq!(run.end().reason, StopReason::Finished);
}

#[test]
fn a_worker_with_a_schema_is_reminded_three_times_the_last_time_with_the_tool_forced() {
    let mut run = Run::new(STRICT);

    let offered: Vec<Choice> = (0..4).map(|_| run.turn(text("I am done"))).collect();

    assert_eq!(offered, [Choice::Any, Choice::Any, Choice::Any, Choice::Submit]);
    let end = run.end();
    assert_eq!((end.reason, end.result.as_str()), (StopReason::NoOutput, "I am done"));
}

#[test]
fn text_that_is_valid_json_counts_as_a_submission() {
    for said in ["{\"a\": 1}", "```json\n{\"a\": 1}\n```"] {
        let mut run = Run::new(STRICT);

        run.turn(text(said));

        let end = run.end();
        assert_eq!(end.reason, StopReason::Finished);
        assert_eq!(end.structured_output.as_deref(), Some("{\"a\":1}"));
        assert_eq!(end.schema_valid, Some(true));
    }
}

fn reject(run: &mut Run, data: &Value) -> Submission {
    let submission = submit(&run.state, &run.rules, &json!({ "data": data }));
    if let Submission::Rejected { attempt, violations } = &submission {
        let body = Body::OutputRejected { attempt: *attempt, violations: violations.clone() };
        run.take(vec![Record::Event { body }]);
    }
    submission
}

#[test]
fn a_mismatch_goes_back_three_times_and_then_decides_by_the_mode() {
    for permissive in [false, true] {
        let mut run = Run::new(Rules { permissive, ..STRICT });
        for attempt in 1..=3 {
            let violations = "`7` is not an object".to_owned();
            assert_eq!(reject(&mut run, &json!(7)), Submission::Rejected { attempt, violations });
        }

        let Submission::RejectedFinally { attempt: 4, end, .. } = reject(&mut run, &json!(7)) else {
            panic!("the fourth mismatch is the last")
        };

        let expected = if permissive { StopReason::Finished } else { StopReason::Schema };
        assert_eq!((end.reason, end.schema_valid), (expected, Some(false)));
        assert_eq!(end.structured_output.as_deref(), Some("7"));
    }
}

#[test]
fn a_submission_ends_a_worker_with_data_or_with_an_error() {
    let run = Run::new(STRICT);
    let free = Run::new(FREE);

    let end = |run: &Run, arguments: Value| match submit(&run.state, &run.rules, &arguments) {
        Submission::End(end) => end,
        other => panic!("expected an end, not {other:?}"),
    };

    assert_eq!(end(&run, json!({ "data": { "a": 1 } })).structured_output.as_deref(), Some("{\"a\":1}"));
    assert_eq!(end(&run, json!({ "data": "{\"a\":1}" })).structured_output.as_deref(), Some("{\"a\":1}"));
    assert_eq!(end(&free, json!({ "data": "words" })).result, "words");
    assert_eq!(end(&free, json!({ "data": "words" })).structured_output, None);
    let aborted = end(&run, json!({ "error": "no such file" }));
    assert_eq!((aborted.reason, aborted.error.as_str()), (StopReason::Aborted, "no such file"));
    for unreadable in [json!([]), json!({}), json!("text")] {
        assert!(matches!(submit(&run.state, &run.rules, &unreadable), Submission::Unreadable(_)));
    }
}
