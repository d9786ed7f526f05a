//! The script of a rehearsal: YAML, read strictly, every mistake with its line.

use std::{fmt, time::Duration};

use regex::Regex;
use serde_json::{Map, Value};
use service_kit::config::{
    Span,
    yaml::{self, Place},
};

use super::template;

/// A script that somebody writes by hand is far below it.
pub(in crate::model) const SCRIPT_BYTES_MAX: u64 = 1024 * 1024;

/// The rules in order: the first that matches answers.
#[derive(Clone, Debug)]
pub(in crate::model) struct Script {
    pub(super) rules: Vec<Rule>,
}

/// One mistake in a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::model) struct Problem {
    pub(super) place: Place,
    pub(super) message: String,
}

#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) when: When,
    pub(super) steps: Vec<Step>,
}

/// Everything given has to be so.
#[derive(Clone, Debug, Default)]
pub(super) struct When {
    pub(super) agent: Option<String>,
    pub(super) turn: Option<u32>,
    /// Searched for in the last message's text.
    pub(super) last: Option<Regex>,
    /// The last message is the result of this tool.
    pub(super) tool: Option<String>,
}

/// One thing that the model does in an answer.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Text(String),
    Call { tool: String, arguments: Arguments },
    Submit(Submission),
    Delay(Duration),
    Error { status: u16, retry_after: Option<Duration> },
    Usage { input_tokens: u64, output_tokens: u64, cached_input_tokens: u64 },
}

/// The arguments of a call.
#[derive(Clone, Debug)]
pub(super) enum Arguments {
    Object(Map<String, Value>),
    /// Sent as they are, so that malformed ones can be rehearsed.
    Raw(String),
}

/// What a worker hands in.
#[derive(Clone, Debug)]
pub(super) enum Submission {
    Data(Value),
    Error(String),
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    ///
    /// All mistakes, in the order of their places; of a text that is no YAML only the first.
    pub(in crate::model) fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        let document =
            yaml::parse(text).map_err(|yaml::Broken { place, message }| vec![Problem { place, message }])?;
        let mut reader = Reader { document: &document, problems: Vec::new() };
        let rules = reader.script();
        let mut problems = reader.problems;
        if problems.is_empty() {
            return Ok(Self { rules });
        }
        problems.sort_by_key(|problem| (problem.place.line, problem.place.column));
        Err(problems)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { line, column } = self.place;
        write!(formatter, "{line}:{column}: {}", self.message)
    }
}

/// Walks the document and collects mistakes. What is broken has no value; the walk goes on beside it.
struct Reader<'a> {
    document: &'a yaml::Document,
    problems: Vec<Problem>,
}

/// A value and the JSON pointer to it.
#[derive(Clone)]
struct Node<'a> {
    value: &'a Value,
    pointer: String,
}

impl<'a> Reader<'a> {
    fn script(&mut self) -> Vec<Rule> {
        let root = Node { value: &self.document.value, pointer: String::new() };
        let Some([rules]) = self.fields(&root, "a script", ["rules"]) else { return Vec::new() };
        let Some(rules) = rules else {
            self.problem("", "`rules` is missing");
            return Vec::new();
        };
        self.items(&rules, "`rules`").iter().filter_map(|rule| self.rule(rule)).collect()
    }

    fn rule(&mut self, node: &Node<'a>) -> Option<Rule> {
        let [when, steps] = self.fields(node, "a rule", ["when", "do"])?;
        let when = when.map_or_else(|| Some(When::default()), |when| self.when(&when));
        let Some(steps) = steps else {
            self.problem(&node.pointer, "`do` is missing");
            return None;
        };
        let steps: Vec<Option<Step>> =
            self.items(&steps, "`do`").iter().map(|step| self.step(step)).collect();
        Some(Rule { when: when?, steps: steps.into_iter().collect::<Option<_>>()? })
    }

    fn when(&mut self, node: &Node<'a>) -> Option<When> {
        let [agent, turn, last, tool] = self.fields(node, "`when`", ["agent", "turn", "last", "tool"])?;
        Some(When {
            agent: agent.and_then(|agent| self.text(&agent, "`agent`")),
            turn: turn
                .and_then(|turn| self.number(&turn, "`turn`", 1, u64::from(u32::MAX)))
                .and_then(|turn| u32::try_from(turn).ok()),
            last: last.and_then(|last| self.pattern(&last)),
            tool: tool.and_then(|tool| self.text(&tool, "`tool`")),
        })
    }

    fn step(&mut self, node: &Node<'a>) -> Option<Step> {
        const KINDS: [&str; 6] = ["text", "call", "submit", "delay", "error", "usage"];
        let map = match node.value {
            Value::Object(map) if map.len() == 1 => map,
            _ => {
                self.problem(
                    &node.pointer,
                    "a step is one of `text`, `call`, `submit`, `delay`, `error`, `usage`",
                );
                return None;
            }
        };
        let (kind, value) = map.iter().next()?;
        let inner = Node { value, pointer: join(&node.pointer, kind) };
        match kind.as_str() {
            "text" => self.template(&inner, "`text`").map(Step::Text),
            "call" => self.call(&inner),
            "submit" => self.submit(&inner).map(Step::Submit),
            "delay" => self.duration(&inner, "`delay`").map(Step::Delay),
            "error" => self.error(&inner),
            "usage" => self.usage(&inner),
            _ => {
                self.problem(&inner.pointer, &unknown_key(kind, "a step", &KINDS));
                None
            }
        }
    }

    fn call(&mut self, node: &Node<'a>) -> Option<Step> {
        let [tool, arguments] = self.fields(node, "`call`", ["tool", "arguments"])?;
        let Some(tool) = tool else {
            self.problem(&node.pointer, "`tool` is missing");
            return None;
        };
        let arguments = match arguments {
            None => Some(Arguments::Object(Map::new())),
            Some(arguments) => {
                self.check_templates(&arguments);
                match arguments.value {
                    Value::Object(object) => Some(Arguments::Object(object.clone())),
                    Value::String(text) => Some(Arguments::Raw(text.clone())),
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                        self.problem(
                            &arguments.pointer,
                            "`arguments` must be a mapping, or text to send as it is",
                        );
                        None
                    }
                }
            }
        };
        Some(Step::Call { tool: self.text(&tool, "`tool`")?, arguments: arguments? })
    }

    fn submit(&mut self, node: &Node<'a>) -> Option<Submission> {
        match self.fields(node, "`submit`", ["data", "error"])? {
            [Some(data), None] => {
                self.check_templates(&data);
                Some(Submission::Data(data.value.clone()))
            }
            [None, Some(error)] => self.template(&error, "`error`").map(Submission::Error),
            [Some(_), Some(_)] | [None, None] => {
                self.problem(&node.pointer, "`submit` has either `data` or `error`");
                None
            }
        }
    }

    fn error(&mut self, node: &Node<'a>) -> Option<Step> {
        let [status, retry_after] = self.fields(node, "`error`", ["status", "retry_after"])?;
        let Some(status) = status else {
            self.problem(&node.pointer, "`status` is missing");
            return None;
        };
        let retry_after = match retry_after {
            Some(wait) => Some(self.duration(&wait, "`retry_after`")?),
            None => None,
        };
        let status = self.number(&status, "`status`", 400, 599)?;
        Some(Step::Error { status: u16::try_from(status).ok()?, retry_after })
    }

    fn usage(&mut self, node: &Node<'a>) -> Option<Step> {
        let keys = ["input_tokens", "output_tokens", "cached_input_tokens"];
        let [input_tokens, output_tokens, cached_input_tokens] =
            self.fields(node, "`usage`", keys)?.map(|count| match count {
                Some(count) => self.number(&count, "a number of tokens", 0, u64::from(u32::MAX)),
                None => Some(0),
            });
        Some(Step::Usage {
            input_tokens: input_tokens?,
            output_tokens: output_tokens?,
            cached_input_tokens: cached_input_tokens?,
        })
    }

    /// The values of a mapping's known keys, in the order asked for. Unknown keys are mistakes.
    fn fields<const N: usize>(
        &mut self,
        node: &Node<'a>,
        what: &str,
        keys: [&str; N],
    ) -> Option<[Option<Node<'a>>; N]> {
        let Value::Object(map) = node.value else {
            self.problem(&node.pointer, &format!("{what} must be a mapping"));
            return None;
        };
        for key in map.keys().filter(|key| !keys.contains(&key.as_str())) {
            self.problem(&join(&node.pointer, key), &unknown_key(key, what, &keys));
        }
        Some(keys.map(|key| map.get(key).map(|value| Node { value, pointer: join(&node.pointer, key) })))
    }

    fn items(&mut self, node: &Node<'a>, what: &str) -> Vec<Node<'a>> {
        let Value::Array(items) = node.value else {
            self.problem(&node.pointer, &format!("{what} must be a list"));
            return Vec::new();
        };
        let item = |(index, value)| Node { value, pointer: format!("{}/{index}", node.pointer) };
        items.iter().enumerate().map(item).collect()
    }

    fn text(&mut self, node: &Node<'a>, what: &str) -> Option<String> {
        match node.value {
            Value::String(text) => Some(text.clone()),
            _ => {
                self.problem(&node.pointer, &format!("{what} must be text"));
                None
            }
        }
    }

    fn template(&mut self, node: &Node<'a>, what: &str) -> Option<String> {
        self.check_templates(node);
        self.text(node, what)
    }

    fn check_templates(&mut self, node: &Node<'a>) {
        match node.value {
            Value::String(text) => {
                for name in template::unknown_names(text) {
                    let message = format!("`{{{{{name}}}}}` is not one of `prompt`, `last`, `agent`, `turn`");
                    self.problem(&node.pointer, &message);
                }
            }
            Value::Array(_) => {
                for item in self.items(node, "a list") {
                    self.check_templates(&item);
                }
            }
            Value::Object(map) => {
                for (key, value) in map {
                    self.check_templates(&Node { value, pointer: join(&node.pointer, key) });
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn number(&mut self, node: &Node<'a>, what: &str, min: u64, max: u64) -> Option<u64> {
        let number = node.value.as_u64().filter(|number| (min..=max).contains(number));
        if number.is_none() {
            self.problem(&node.pointer, &format!("{what} must be a whole number from {min} to {max}"));
        }
        number
    }

    fn duration(&mut self, node: &Node<'a>, what: &str) -> Option<Duration> {
        let duration = node.value.as_str().and_then(Span::parse);
        if duration.is_none() {
            self.problem(&node.pointer, &format!("{what} must be a duration such as `200ms`"));
        }
        duration.map(|Span(duration)| duration)
    }

    fn pattern(&mut self, node: &Node<'a>) -> Option<Regex> {
        let text = self.text(node, "`last`")?;
        match Regex::new(&text) {
            Ok(pattern) => Some(pattern),
            Err(error) => {
                // The last line says what is wrong, those above it draw where.
                let reason = error.to_string();
                let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ");
                self.problem(&node.pointer, &format!("`last` is no regular expression: {reason}"));
                None
            }
        }
    }

    fn problem(&mut self, pointer: &str, message: &str) {
        let start = Place { line: 1, column: 1 };
        let place = self.document.places.get(pointer).copied().unwrap_or(start);
        self.problems.push(Problem { place, message: message.to_owned() });
    }
}

fn unknown_key(key: &str, what: &str, known: &[&str]) -> String {
    let known: Vec<String> = known.iter().map(|key| format!("`{key}`")).collect();
    format!("`{key}` is no key of {what}, which has {}", known.join(", "))
}

fn join(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests;
