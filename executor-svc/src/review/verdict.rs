//! What counts as a decision of the reviewer. Everything else is undecided, and the call does not run.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::worker::{StopReason, Worker};

/// What a reviewer submits where its definition has no schema of its own.
pub const SCHEMA: &str = r#"{"type":"object","additionalProperties":false,"required":["decision","reason"],"properties":{"decision":{"type":"string","enum":["approve","reject"]},"reason":{"type":"string","minLength":1}}}"#;

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

/// A reviewer's plain text as a submission: JSON that is one, or else text of which exactly one line is a decision.
pub fn read_text(text: &str) -> Option<Value> {
    if let Ok(submitted) = serde_json::from_str::<Submitted>(text.trim()) {
        return serde_json::to_value(submitted).ok();
    }
    let mut decisions = text.lines().filter_map(decision);
    let decision = decisions.next()?;
    decisions.next().is_none().then(|| json!({ "decision": decision, "reason": text.trim() }))
}

/// The decision of a line, emphasis and list marks aside. A line that begins like one and offers something else counts as a
/// decision that nobody understands, so that it can only spoil another one.
fn decision(line: &str) -> Option<String> {
    let plain: String = line.chars().filter(|character| !matches!(character, '*' | '_' | '`')).collect();
    let plain = plain.trim().trim_start_matches(['-', '+', '•', '#', '>']).trim_start();
    let plain = plain.to_lowercase();
    let word = plain.strip_prefix("decision")?.trim_start().strip_prefix(':')?;
    Some(word.trim().trim_end_matches('.').to_owned())
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
            ("* Decision: Reject.", Some("reject")),
            ("> `Decision: approve`", Some("approve")),
            ("I approve.", None),
            ("The decision: approve it", None),
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
    fn a_line_that_offers_both_is_no_decision() {
        for text in ["Decision: approve or reject", "Decision: approve/reject", "Decision: maybe"] {
            let read = read_text(text).unwrap();
            assert!(serde_json::from_value::<Submitted>(read).is_err(), "{text}");
        }
        assert_eq!(read_text("Decision: approve or reject\nDecision: approve"), None);
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
