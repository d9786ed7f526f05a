//! What counts as a decision of the reviewer. Everything else is undecided, and the call does not run.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::worker::{StopReason, Worker};

/// What a reviewer submits where its definition has no schema of its own.
pub const SCHEMA: &str = r#"{"type":"object","additionalProperties":false,"required":["decision","reason"],"properties":{"decision":{"type":"string","enum":["approve","reject"]},"reason":{"type":"string","minLength":1}}}"#;

/// Begins and ends a block of quoted text.
const FENCE: &str = "```";

/// Longest reason that is kept, bytes.
const REASON_BYTES_MAX: usize = 4 * 1024;

/// What a reviewer decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Approve(String),
    /// Rejected, undecided or failed, with the reason that the worker is told.
    Reject(String),
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Submitted {
    decision: Choice,
    reason: String,
}

#[derive(Clone, Copy, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Choice {
    Approve,
    Reject,
}

/// The decision in a reviewer's closed record.
pub fn verdict(reviewer: &Worker) -> Verdict {
    match reviewer.stop_reason {
        Some(StopReason::Finished) => {}
        Some(StopReason::NoOutput | StopReason::MaxTurns | StopReason::Schema) => {
            return Verdict::Reject("the reviewer did not decide".to_owned());
        }
        Some(StopReason::Timeout) => return Verdict::Reject("the reviewer was late".to_owned()),
        Some(StopReason::Overloaded) => return Verdict::Reject("no reviewer was free in time".to_owned()),
        Some(
            StopReason::Budget
            | StopReason::Stopped
            | StopReason::CallerGone
            | StopReason::ModelError
            | StopReason::Aborted
            | StopReason::Panic
            | StopReason::Lost
            | StopReason::Drained,
        )
        | None => return Verdict::Reject(format!("the reviewer failed: {}", reviewer.error)),
    }
    let output = reviewer.structured_output.as_deref().filter(|_| reviewer.schema_valid == Some(true));
    match output.map(serde_json::from_str::<Submitted>) {
        Some(Ok(Submitted { decision, reason })) => {
            let reason = crate::event::cut(reason.trim(), REASON_BYTES_MAX);
            match decision {
                Choice::Approve => Verdict::Approve(reason),
                Choice::Reject => Verdict::Reject(reason),
            }
        }
        Some(Err(_)) | None => Verdict::Reject("the reviewer did not decide".to_owned()),
    }
}

/// A reviewer's plain text as a submission: JSON that is one, or else text of which exactly one line is a decision and no other
/// speaks of one.
pub fn read_text(text: &str) -> Option<Value> {
    if let Ok(submitted) = serde_json::from_str::<Submitted>(text.trim()) {
        return serde_json::to_value(submitted).ok();
    }
    let mut is_quoted = false;
    let mut decision = None;
    for line in text.lines() {
        let line = plain(line);
        if line.starts_with(FENCE) || line.starts_with("~~~") {
            is_quoted = !is_quoted;
        }
        if !speaks_of_decision(&line) {
            continue;
        }
        // What stands between fences is quoted: it may well be the worker's.
        if is_quoted || decision.is_some() {
            return None;
        }
        decision = Some(choice(&line)?);
    }
    decision.map(|decision| json!({ "decision": decision, "reason": text.trim() }))
}

/// True where one answer of a reviewer holds more than one decision: several submissions, or words that decide otherwise than
/// the submission with them.
pub fn is_torn(said: &str, submissions: &[&str]) -> bool {
    let [submission] = submissions else { return submissions.len() > 1 };
    let submitted: Option<Value> = serde_json::from_str(submission).ok();
    let submitted = submitted.as_ref().and_then(|value| value.pointer("/data/decision"));
    let spoken = read_text(said);
    match (&spoken, submitted) {
        (Some(spoken), Some(submitted)) => spoken["decision"] != *submitted,
        (Some(_) | None, _) => false,
    }
}

/// A line in lower case without emphasis and list mark.
fn plain(line: &str) -> String {
    let line = line.trim().to_lowercase();
    if line.starts_with(FENCE) {
        return line;
    }
    let plain: String = line.chars().filter(|character| !matches!(character, '*' | '_' | '`')).collect();
    let plain = plain.trim();
    let unmarked = plain.strip_prefix(['-', '+', '•']).or_else(|| {
        // `1.` and `1)`
        let rest = plain.trim_start_matches(|character: char| character.is_ascii_digit());
        rest.strip_prefix(['.', ')']).filter(|_| rest.len() < plain.len())
    });
    unmarked.unwrap_or(plain).trim().to_owned()
}

/// True for a decision and for whatever looks like one: all but exactly one of these in a text leave it undecided.
fn speaks_of_decision(line: &str) -> bool {
    let names_choice = line.contains("approve") || line.contains("reject");
    line.contains("decision") && (names_choice || line.contains(':'))
}

/// The choice of a line that is a decision and nothing else.
fn choice(line: &str) -> Option<&'static str> {
    let word = line.strip_prefix("decision")?.trim_start().strip_prefix(':')?;
    match word.trim() {
        "approve" => Some("approve"),
        "reject" => Some("reject"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_line_of_text_decides() {
        for (text, expected) in [
            ("Decision: approve", Some("approve")),
            ("I looked.\n\n**Decision:** reject\nIt is the wrong file.", Some("reject")),
            ("- **Decision: approve**", Some("approve")),
            ("* Decision: Reject", Some("reject")),
            ("1. `Decision: approve`", Some("approve")),
            ("2) _Decision_ : reject", Some("reject")),
            ("I had to think over this decision.\n\nDecision: reject", Some("reject")),
            ("I approve.", None),
            ("The decision: approve it", None),
            ("Decision: approve.", None),
            ("Decision: approve, then", None),
            ("# Decision: approve", None),
            ("Decision: approve\nDecision: reject", None),
            ("Decision: approve\nDecision: approve", None),
            ("", None),
        ] {
            let read = read_text(text);
            let decision = read.as_ref().and_then(|value| value["decision"].as_str());
            assert_eq!(decision, expected, "{text:?}");
        }
    }

    #[test]
    fn whatever_looks_like_a_second_decision_spoils_the_first() {
        for text in [
            "Decision: approve or reject",
            "Decision: approve/reject",
            "Decision: maybe",
            "Decision: approve or reject\nDecision: approve",
            "1. Decision: reject\n2. Decision: approve",
            "Final decision: reject\nDecision: approve",
            "Decision: approve\n\nOtherwise my decision: reject.",
            "Decision: approve\rDecision: reject",
            "Decision: approve, if the decision of the worker was to reject",
            // Quoted words are not the reviewer's own.
            "> Decision: approve",
            "It says:\n```\nDecision: approve\n```\nI do not follow it.",
            "It says:\n~~~text\nDecision: approve\n~~~\nDecision: reject",
            "The worker wrote \"Decision: approve\".",
        ] {
            assert_eq!(read_text(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_answer_that_decides_twice_is_torn() {
        let (approve, reject) =
            (r#"{"data": {"decision": "approve"}}"#, r#"{"data": {"decision": "reject"}}"#);
        for (said, submissions, torn) in [
            ("", vec![], false),
            ("", vec![approve], false),
            ("Decision: approve", vec![approve], false),
            ("I looked.", vec![reject], false),
            ("", vec![approve, reject], true),
            ("", vec![approve, approve], true),
            ("Decision: reject", vec![approve], true),
            ("**Decision: approve**", vec![reject], true),
        ] {
            assert_eq!(is_torn(said, &submissions), torn, "{said:?} {submissions:?}");
        }
    }

    #[test]
    fn only_the_two_words_and_the_two_keys_are_a_submission() {
        for text in [
            r#"{"decision": "Approve", "reason": "r"}"#,
            r#"{"decision": "approve"}"#,
            r#"{"decision": true, "reason": "r"}"#,
            r#"{"decision": ["approve"], "reason": "r"}"#,
            r#"{"decision": "approve", "reason": "r", "also": "reject"}"#,
            r#"{"decision": "reject", "decision": "approve", "reason": "r"}"#,
        ] {
            assert!(serde_json::from_str::<Submitted>(text).is_err(), "{text}");
        }
        let fit: Submitted = serde_json::from_str(r#"{"decision": "approve", "reason": "r"}"#).unwrap();
        assert!(fit.decision == Choice::Approve);
    }

    #[test]
    fn the_schema_is_usable() {
        assert!(crate::schema::Schema::compile(SCHEMA).is_ok());
    }
}
