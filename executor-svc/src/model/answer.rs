//! What the wire formats have in common: pieces of a stream go in, one [`Reply`] comes out.

use serde_json::Value;

use super::{Reply, sse::Event};

/// The text of one answer. The longest outputs of today's models are below a tenth of it.
pub(super) const TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The arguments of one call: a whole file may be written by one.
pub(super) const ARGUMENTS_BYTES_MAX: usize = 1024 * 1024;
/// Calls in one answer. Models in use make a dozen at most.
pub(super) const CALLS_MAX: usize = 128;
/// Tokens of one answer that are believed. No model takes a thousandth of it, and sums of it fit wherever they are kept.
const TOKENS_MAX: u64 = 1_000_000_000;
/// A provider's words in an error, in characters: enough for a sentence or two.
const MESSAGE_CHARS_MAX: usize = 300;

/// Collects one answer. Pure: the wire formats differ here and in the request only.
pub(super) trait Assembly: Send {
    /// Takes one event of the stream.
    fn event(&mut self, event: &Event) -> Result<Step, Fault>;

    /// Takes an answer that came in one piece though a stream was asked for.
    fn whole(&mut self, body: &Value) -> Result<Step, Fault>;

    /// The answer, after the end of the stream.
    fn finish(self) -> Result<Reply, Fault>;
}

/// What a piece of a stream meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    /// Text to show at once.
    pub(super) text: String,
    /// The model said something, visible or not: the time limits begin anew, and there is no retry from here on.
    pub(super) is_token: bool,
    pub(super) progress: Progress,
}

/// How much more is to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Progress {
    #[default]
    More,
    /// The model has finished; usage may follow.
    Trailer,
    Done,
}

/// What is wrong with an answer, before it is known whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// An error object, in the status' body or in the stream.
    Status {
        status: u16,
        message: String,
    },
    ContextTooLong,
    Malformed(String),
    /// The stream ended before the model had finished.
    Cut,
}

impl Fault {
    /// The fault that an error body tells of. `status` is the HTTP status; below 400 the body's own words decide.
    pub(super) fn from_body(status: u16, body: &[u8]) -> Self {
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => Self::from_error_object(&value)
                .unwrap_or_else(|| Self::status(status, "JSON without an error")),
            Err(_) if starts_like_html(body) => Self::status(status, "an HTML page"),
            Err(_) if body.trim_ascii().is_empty() => Self::status(status, "no message"),
            Err(_) => Self::status(status, &String::from_utf8_lossy(body)),
        }
        .with_status(status)
    }

    /// The fault of an error object in any of the forms in use: `{"error": {…}}`, `{"error": "…"}`,
    /// `{"object": "error", "message": …}`, `{"type": "error", "error": {…}}`. `None` where it is not one.
    pub(super) fn from_error_object(value: &Value) -> Option<Self> {
        let error = match value.get("error") {
            Some(error @ (Value::Object(_) | Value::String(_))) => error,
            Some(Value::Null) | None if value.get("object").is_some_and(|object| object == "error") => value,
            // FastAPI's own refusals.
            None if value.get("choices").is_none() && value.get("detail").is_some() => &value["detail"],
            _ => return None,
        };
        let word = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or_default();
        let message = match error {
            Value::String(message) => message.clone(),
            _ if word("message").is_empty() => "no message".to_owned(),
            _ => word("message").to_owned(),
        };
        let number = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        let kind = format!("{} {}", word("type"), word("code"));
        if says_context_too_long(&kind, &message) {
            return Some(Self::ContextTooLong);
        }
        let status = number.filter(|code| (400..600).contains(code)).unwrap_or_else(|| status_of_kind(&kind));
        Some(Self::status(status, &message))
    }

    fn status(status: u16, message: &str) -> Self {
        // A refusal of credentials tends to repeat them, in part and in other clothes.
        if matches!(status, 401 | 403) {
            return Self::Status { status, message: "the credentials were refused".to_owned() };
        }
        Self::Status { status, message: one_line(message) }
    }

    /// The HTTP status goes before what the body says.
    fn with_status(self, http: u16) -> Self {
        match self {
            Self::Status { message, .. } if http >= 400 => Self::status(http, &message),
            Self::Status { .. } | Self::ContextTooLong | Self::Malformed(_) | Self::Cut => self,
        }
    }
}

/// True where a body is a page for people: a proxy's, or that of a wrong address.
pub(super) fn starts_like_html(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"<")
}

/// A number of tokens, whatever number type the server writes.
pub(super) fn count(value: Option<&Value>) -> Option<u64> {
    let value = value?;
    // A negative or fractional count does not occur; if it does, it is no count.
    let number = value.as_u64().or_else(|| value.as_f64().filter(|it| *it >= 0.0).map(|it| it as u64))?;
    Some(number.min(TOKENS_MAX))
}

/// The arguments as the JSON object that a request needs. What the model wrote malformed is shown to it as text.
pub(super) fn arguments_object(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(object @ Value::Object(_)) => object,
        Err(_) if arguments.trim().is_empty() => serde_json::json!({}),
        Ok(_) | Err(_) => serde_json::json!({ "malformed_arguments": arguments }),
    }
}

/// The reminder as a model sees it.
pub(super) fn reminder_block(reminder: &str) -> String {
    format!("<system-reminder>\n{reminder}\n</system-reminder>")
}

fn one_line(text: &str) -> String {
    let line: Vec<&str> = text.split(|character: char| character.is_control() || character == ' ').collect();
    let line = line.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Providers have no common code for it; these are the words of the ones in use.
fn says_context_too_long(kind: &str, message: &str) -> bool {
    let message = message.to_lowercase();
    kind.contains("context_length") || kind.contains("exceed_context_size") || {
        let phrases = ["maximum context length", "prompt is too long", "context size", "context window"];
        let verbs = ["exceed", "too long", "maximum context length", "too large"];
        phrases.iter().any(|phrase| message.contains(phrase))
            && verbs.iter().any(|verb| message.contains(verb))
    }
}

/// The status that an error object stands for where it comes without one. Unknown kinds are the server's fault.
fn status_of_kind(kind: &str) -> u16 {
    const KINDS: [(&str, u16); 9] = [
        ("overloaded", 529),
        ("rate_limit", 429),
        ("insufficient_quota", 429),
        ("authentication", 401),
        ("invalid_api_key", 401),
        ("permission", 403),
        ("not_found", 404),
        ("too_large", 413),
        ("invalid_request", 400),
    ];
    KINDS.iter().find(|(word, _)| kind.contains(word)).map_or(500, |(_, status)| *status)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(status: u16, body: &str, expected: (u16, &str)) {
        let expected = Fault::Status { status: expected.0, message: expected.1.to_owned() };
        assert_eq!(Fault::from_body(status, body.as_bytes()), expected, "{status} {body}");
    }

    #[test]
    fn error_bodies_of_every_form_become_one_line() {
        check(400, r#"{"error":{"message":"bad\n  model","type":"x"}}"#, (400, "bad model"));
        check(404, r#"{"error":"model 'x' not found"}"#, (404, "model 'x' not found"));
        check(400, r#"{"object":"error","message":"no","code":400}"#, (400, "no"));
        check(
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            (529, "Overloaded"),
        );
        check(422, r#"{"detail":"Unprocessable"}"#, (422, "Unprocessable"));
        check(502, "<html><title>Bad Gateway</title></html>", (502, "an HTML page"));
        check(503, "upstream connect error", (503, "upstream connect error"));
        check(500, "", (500, "no message"));
        check(418, "{}", (418, "JSON without an error"));
    }

    #[test]
    fn an_error_object_in_an_accepted_answer_keeps_its_own_status() {
        check(200, r#"{"error":{"message":"slow down","code":429}}"#, (429, "slow down"));
        check(200, r#"{"error":{"message":"slow down","type":"rate_limit_error"}}"#, (429, "slow down"));
        check(200, r#"{"error":{"message":"?","type":"server_error"}}"#, (500, "?"));
        check(200, r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#, (529, "Overloaded"));
    }

    #[test]
    fn refused_credentials_are_never_quoted() {
        check(
            401,
            r#"{"error":{"message":"Incorrect API key: sk-half-of-it"}}"#,
            (401, "the credentials were refused"),
        );
        check(403, "sk-half-of-it", (403, "the credentials were refused"));
        check(
            200,
            r#"{"error":{"message":"sk-half","type":"authentication_error"}}"#,
            (401, "the credentials were refused"),
        );
    }

    #[test]
    fn a_context_that_is_too_long_is_told_apart() {
        for body in [
            json!({"error": {"code": "context_length_exceeded", "message": "?"}}),
            json!({"error": {"message": "This model's maximum context length is 4096 tokens"}}),
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens"}}),
            json!({"error": {"type": "exceed_context_size_error", "message": "?"}}),
            json!({"error": {"message": "Requested tokens (9) exceed context window of 8"}}),
        ] {
            assert_eq!(Fault::from_body(400, body.to_string().as_bytes()), Fault::ContextTooLong, "{body}");
        }
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let Fault::Status { message, .. } = Fault::from_body(500, "é".repeat(1_000).as_bytes()) else {
            panic!("a status was expected");
        };
        assert_eq!(message.chars().count(), MESSAGE_CHARS_MAX + 1);
    }

    #[test]
    fn counts_of_every_kind_are_read_and_none_is_absurd() {
        for (value, expected) in [
            (json!(7), Some(7)),
            (json!(7.0), Some(7)),
            (json!(-1), None),
            (json!("7"), None),
            (json!(u64::MAX), Some(TOKENS_MAX)),
            (json!(1e300), Some(TOKENS_MAX)),
        ] {
            assert_eq!(count(Some(&value)), expected, "{value}");
        }
        assert_eq!(count(None), None);
    }

    #[test]
    fn malformed_arguments_are_sent_back_as_text() {
        assert_eq!(arguments_object(r#"{"a":1}"#), json!({"a": 1}));
        assert_eq!(arguments_object(""), json!({}));
        assert_eq!(arguments_object("{\"a\":"), json!({"malformed_arguments": "{\"a\":"}));
        assert_eq!(arguments_object("[1]"), json!({"malformed_arguments": "[1]"}));
    }
}
