//! What a server knows of the parts of the protocol that not all have. Nobody can ask for it; a refusal tells.

/// The optional parts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    pub(super) has_reasoning_effort: bool,
    pub(super) has_stream_options: bool,
    /// The name of the limit of an answer. OpenAI's reasoning models have a newer one.
    pub(super) limit_key: &'static str,
}

impl Dialect {
    /// Everything, by the names that most servers know.
    pub(super) const FULL: Self =
        Self { has_reasoning_effort: true, has_stream_options: true, limit_key: "max_tokens" };

    /// The dialect after a refusal with this message; `None` where it is about something else.
    pub(super) fn learn(self, message: &str) -> Option<Self> {
        if self.has_reasoning_effort && message.contains("reasoning_effort") {
            return Some(Self { has_reasoning_effort: false, ..self });
        }
        if self.has_stream_options && message.contains("stream_options") {
            return Some(Self { has_stream_options: false, ..self });
        }
        let newer = "max_completion_tokens";
        (self.limit_key != newer && message.contains(newer)).then_some(Self { limit_key: newer, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_teaches_what_is_not_there_once() {
        let without_effort = Dialect { has_reasoning_effort: false, ..Dialect::FULL };
        let refusal = "Unrecognized request argument supplied: reasoning_effort";
        assert_eq!(Dialect::FULL.learn(refusal), Some(without_effort));
        assert_eq!(without_effort.learn(refusal), None);

        let refusal = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.";
        let renamed = Dialect { limit_key: "max_completion_tokens", ..Dialect::FULL };
        assert_eq!(Dialect::FULL.learn(refusal), Some(renamed));
        assert_eq!(renamed.learn(refusal), None);

        let without_usage = Dialect { has_stream_options: false, ..Dialect::FULL };
        assert_eq!(Dialect::FULL.learn("stream_options: extra fields not permitted"), Some(without_usage));
        assert_eq!(Dialect::FULL.learn("unknown model"), None);
    }
}
