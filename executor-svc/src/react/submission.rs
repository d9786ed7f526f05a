//! What `submit_result` was called with, and what follows.

use serde_json::Value;

use super::{CHANCES, End, Rules, State};
use crate::{
    tool::builtin::submit_result::{self, Submitted},
    worker::StopReason,
};

/// What a submission leads to.
#[derive(Clone, Debug, PartialEq)]
pub enum Submission {
    /// It ends the worker.
    End(End),
    /// It does not match; the violations go back to the model.
    Rejected { attempt: u32, violations: String },
    /// It was the last chance: the rejection and the end.
    RejectedFinally { attempt: u32, violations: String, end: End },
    /// The arguments are no submission; the text goes back to the model.
    Unreadable(String),
}

/// Judges the arguments of `submit_result`.
pub fn submit(state: &State, rules: &Rules<'_>, arguments: &Value) -> Submission {
    let (data, violations) = match submit_result::read(rules.check, arguments) {
        Ok(Submitted::Data(data)) => {
            return Submission::End(finished(state, &data, rules.check.map(|_| true)));
        }
        Ok(Submitted::Error(error)) => return Submission::End(state.early(StopReason::Aborted, error)),
        Ok(Submitted::Unfit { data, violations }) => (data, violations),
        Err(error) => return Submission::Unreadable(error.to_string()),
    };
    let attempt = state.rejections + 1;
    if attempt <= CHANCES {
        return Submission::Rejected { attempt, violations };
    }
    let end = match rules.permissive {
        true => finished(state, &data, Some(false)),
        false => End {
            structured_output: Some(data.to_string()),
            schema_valid: Some(false),
            ..state.early(
                StopReason::Schema,
                format!("the output did not match its schema in {attempt} attempts: {violations}"),
            )
        },
    };
    Submission::RejectedFinally { attempt, violations, end }
}

/// Text that is read as a value and valid counts as a submission.
pub(super) fn from_text(text: &str, rules: &Rules<'_>) -> Option<String> {
    let check = rules.check?;
    let value = (rules.read_text)(text)?;
    check(&value).is_ok().then(|| value.to_string())
}

/// Reads text that is JSON; a code fence around it is taken off.
pub fn json(text: &str) -> Option<Value> {
    serde_json::from_str(without_fence(text.trim())).ok()
}

fn without_fence(text: &str) -> &str {
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    inner.and_then(|inner| inner.split_once('\n')).map_or(text, |(_, body)| body.trim())
}

fn finished(state: &State, data: &Value, schema_valid: Option<bool>) -> End {
    let text = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
    let said = state.last_text();
    End {
        reason: StopReason::Finished,
        // Without a schema the submission is the result; with one the words around it are, if there were any.
        result: if schema_valid.is_none() || said.is_empty() { text } else { said.to_owned() },
        structured_output: schema_valid.map(|_| data.to_string()),
        schema_valid,
        error: String::new(),
    }
}
