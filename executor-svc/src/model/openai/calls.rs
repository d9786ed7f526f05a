//! Puts tool calls together from the fragments of a chat completion stream, as servers really send them: without `index`,
//! with one index for all, byte by byte, repeated as a whole, or growing.

use std::collections::HashSet;

use serde_json::Value;

use crate::{
    model::answer::{ARGUMENTS_BYTES_MAX, CALLS_MAX, Fault},
    transcript::ToolCall,
};

/// The calls of one answer.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
}

#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: Arguments,
}

/// Argument fragments. Most servers send what is new; some send all there is so far; some repeat the whole at the end.
#[derive(Debug, Default)]
struct Arguments {
    joined: String,
    last: String,
    fragments: usize,
    /// No fragment was other than a continuation of the one before.
    is_growing: bool,
}

impl Calls {
    /// Takes the `tool_calls` of one chunk.
    pub(super) fn take(&mut self, fragments: &[Value]) -> Result<(), Fault> {
        let mut touched = HashSet::new();
        for fragment in fragments {
            let text = |key: &str| fragment.get(key).and_then(Value::as_str).unwrap_or_default();
            let function = fragment.get("function");
            let name = function.and_then(|it| it.get("name")).and_then(Value::as_str).unwrap_or_default();
            let index = fragment.get("index").and_then(Value::as_u64);
            let place = self.place(index, text("id"), name, &touched)?;
            touched.insert(place);

            let call = &mut self.calls[place];
            if call.id.is_empty() {
                call.id = text("id").to_owned();
            }
            if call.name.is_empty() {
                call.name = name.to_owned();
            }
            match function.and_then(|it| it.get("arguments")) {
                None | Some(Value::Null) => {}
                Some(Value::String(piece)) => call.arguments.push(piece)?,
                // Not what the protocol says, but clear.
                Some(object) => call.arguments.push(&object.to_string())?,
            }
        }
        Ok(())
    }

    /// The finished calls, each with an id of its own.
    pub(super) fn finish(self) -> Result<Vec<ToolCall>, Fault> {
        let mut ids = HashSet::new();
        let mut finished = Vec::with_capacity(self.calls.len());
        for (position, Call { index: _, id, name, arguments }) in self.calls.into_iter().enumerate() {
            if name.is_empty() {
                return Err(Fault::Malformed("a tool call has no name".to_owned()));
            }
            let mut unique = if id.is_empty() { format!("call_{}", position + 1) } else { id };
            while !ids.insert(unique.clone()) {
                unique = format!("{unique}_{}", position + 1);
            }
            finished.push(ToolCall { id: unique, tool: name, arguments: arguments.finish() });
        }
        Ok(finished)
    }

    /// Which call a fragment belongs to. `touched` are those that the same chunk named before: a chunk without indexes
    /// lists different calls.
    fn place(
        &mut self,
        index: Option<u64>,
        id: &str,
        name: &str,
        touched: &HashSet<usize>,
    ) -> Result<usize, Fault> {
        let same_id = || {
            self.calls.iter().rposition(|call| !id.is_empty() && call.id == id && !name_differs(call, name))
        };
        let found = match index {
            // The newest of an index: some servers give all calls the same.
            Some(_) => self
                .calls
                .iter()
                .rposition(|call| call.index == index)
                .filter(|place| !self.calls[*place].ends_before(id, name, true)),
            None => same_id().or_else(|| {
                let last = self.calls.len().checked_sub(1)?;
                let is_other = touched.contains(&last) || self.calls[last].ends_before(id, name, false);
                (!is_other).then_some(last)
            }),
        };
        if let Some(place) = found {
            return Ok(place);
        }
        if self.calls.len() == CALLS_MAX {
            return Err(Fault::Malformed(format!("more than {CALLS_MAX} tool calls")));
        }
        self.calls.push(Call { index, ..Call::default() });
        Ok(self.calls.len() - 1)
    }
}

impl Call {
    /// True where a fragment with this id and name begins another call: a new name does; the same one does with a new id,
    /// or with neither id nor index, unless the arguments of its call are still coming.
    fn ends_before(&self, id: &str, name: &str, has_index: bool) -> bool {
        if name.is_empty() || self.name.is_empty() {
            return false;
        }
        let other_id = !id.is_empty() && id != self.id;
        let has_arguments = self.arguments.fragments > 0;
        let is_anonymous = id.is_empty() && !has_index && has_arguments;
        // Reading the arguments comes last: some servers repeat the name with each of thousands of fragments.
        let is_midway = || has_arguments && !self.arguments.is_complete();
        name != self.name || ((other_id || is_anonymous) && !is_midway())
    }
}

impl Arguments {
    fn push(&mut self, piece: &str) -> Result<(), Fault> {
        if piece.is_empty() {
            return Ok(());
        }
        if self.joined.len() + piece.len() > ARGUMENTS_BYTES_MAX {
            return Err(Fault::Malformed(format!(
                "the arguments of a call are over {ARGUMENTS_BYTES_MAX} bytes"
            )));
        }
        self.is_growing = self.fragments == 0 || (self.is_growing && piece.starts_with(&self.last));
        self.fragments += 1;
        self.joined.push_str(piece);
        piece.clone_into(&mut self.last);
        Ok(())
    }

    fn is_complete(&self) -> bool {
        is_json(&self.joined) || (self.is_repeated() && is_json(&self.last))
    }

    /// Joined they are right almost always. Where that is no JSON and the last fragment says everything, it was meant alone.
    fn finish(self) -> String {
        if !is_json(&self.joined) && self.is_repeated() && is_json(&self.last) {
            return self.last;
        }
        self.joined
    }

    fn is_repeated(&self) -> bool {
        let before = &self.joined[..self.joined.len() - self.last.len()];
        self.fragments > 1 && (self.is_growing || before == self.last)
    }
}

fn name_differs(call: &Call, name: &str) -> bool {
    !name.is_empty() && !call.name.is_empty() && call.name != name
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Chunks of fragments against `(id, tool, arguments)`.
    #[track_caller]
    fn check(chunks: Value, expected: &[(&str, &str, &str)]) {
        let mut calls = Calls::default();
        for chunk in chunks.as_array().expect("chunks are a list") {
            calls.take(chunk.as_array().expect("a chunk is a list")).expect("the fragments fit");
        }
        let calls = calls.finish().expect("every call has a name");
        let found: Vec<_> = calls
            .iter()
            .map(|call| (call.id.as_str(), call.tool.as_str(), call.arguments.as_str()))
            .collect();
        assert_eq!(found, expected, "{chunks}");
    }

    #[test]
    fn fragments_with_an_index_are_joined_even_when_they_alternate() {
        check(
            json!([
                [{"index": 0, "id": "a", "function": {"name": "ls", "arguments": ""}}],
                [{"index": 1, "id": "b", "function": {"name": "grep", "arguments": "{\"x\""}}],
                [{"index": 0, "function": {"arguments": "{}"}}],
                [{"index": 1, "function": {"arguments": ":1}"}}],
            ]),
            &[("a", "ls", "{}"), ("b", "grep", "{\"x\":1}")],
        );
    }

    #[test]
    fn without_an_index_the_id_or_the_order_decides() {
        check(
            json!([
                [{"id": "a", "function": {"name": "ls", "arguments": "{\"p\":"}}],
                [{"function": {"arguments": "1}"}}],
                [{"id": "b", "function": {"name": "ls", "arguments": "{}"}}],
                [{"function": {"name": "grep", "arguments": "{}"}}],
                [{"function": {"name": "grep", "arguments": "{\"y\":2}"}}],
            ]),
            &[
                ("a", "ls", "{\"p\":1}"),
                ("b", "ls", "{}"),
                ("call_3", "grep", "{}"),
                ("call_4", "grep", "{\"y\":2}"),
            ],
        );
        check(
            json!([[{"function": {"name": "ls"}}, {"function": {"name": "ls"}}]]),
            &[("call_1", "ls", ""), ("call_2", "ls", "")],
        );
    }

    #[test]
    fn one_index_for_all_calls_is_seen_through() {
        check(
            json!([
                [{"index": 0, "id": "a", "function": {"name": "ls", "arguments": "{}"}}],
                [{"index": 0, "id": "b", "function": {"name": "ls", "arguments": "{\"p\":1}"}}],
            ]),
            &[("a", "ls", "{}"), ("b", "ls", "{\"p\":1}")],
        );
    }

    #[test]
    fn an_id_and_a_name_in_every_fragment_still_make_one_call() {
        check(
            json!([
                [{"index": 0, "id": "a", "function": {"name": "ls", "arguments": "{\"p\""}}],
                [{"index": 0, "id": "a", "function": {"name": "ls", "arguments": ":"}}],
                [{"index": 0, "id": "other", "function": {"name": "ls", "arguments": "1}"}}],
            ]),
            &[("a", "ls", "{\"p\":1}")],
        );
    }

    #[test]
    fn single_bytes_are_joined() {
        let arguments = r#"{"a":{"a":1},"b":"{\"\""}"#;
        let mut chunks = vec![json!([{"index": 0, "id": "a", "function": {"name": "ls"}}])];
        chunks.extend(
            arguments.chars().map(|byte| json!([{"index": 0, "function": {"arguments": byte.to_string()}}])),
        );
        check(Value::Array(chunks), &[("a", "ls", arguments)]);
    }

    #[test]
    fn repeated_and_growing_arguments_count_once() {
        let fragment =
            |arguments: &str| json!([{"index": 0, "function": {"name": "ls", "arguments": arguments}}]);
        for fragments in [
            vec!["{\"a\":1}", "{\"a\":1}"],
            vec!["{\"a\"", ":1}", "{\"a\":1}"],
            vec!["{", "{\"a\"", "{\"a\":1}"],
            vec!["{\"a\":1}", "{\"a\":1}", "{\"a\":1}"],
        ] {
            let chunks = fragments.iter().map(|text| fragment(text)).collect();
            check(Value::Array(chunks), &[("call_1", "ls", "{\"a\":1}")]);
        }
        // Looks as if it grew, but is one value.
        check(json!([fragment("{\"a\":"), fragment("{\"a\":1}}")]), &[("call_1", "ls", "{\"a\":{\"a\":1}}")]);
    }

    #[test]
    fn malformed_arguments_are_kept_as_they_are() {
        check(
            json!([[{"index": 0, "id": "a", "function": {"name": "ls", "arguments": "{\"a\": oops"}}]]),
            &[("a", "ls", "{\"a\": oops")],
        );
    }

    #[test]
    fn arguments_that_are_an_object_become_text() {
        check(
            json!([[{"id": "a", "function": {"name": "ls", "arguments": {"p": 1}}}]]),
            &[("a", "ls", "{\"p\":1}")],
        );
    }

    #[test]
    fn an_id_used_twice_is_made_unique() {
        check(
            json!([[
                {"index": 0, "id": "a", "function": {"name": "ls", "arguments": "{}"}},
                {"index": 1, "id": "a", "function": {"name": "ls", "arguments": "{}"}},
            ]]),
            &[("a", "ls", "{}"), ("a_2", "ls", "{}")],
        );
    }

    #[test]
    fn a_call_without_a_name_and_too_many_calls_are_malformed() {
        let mut nameless = Calls::default();
        nameless.take(&[json!({"index": 0, "id": "a", "function": {"arguments": "{}"}})]).unwrap();
        assert!(matches!(nameless.finish(), Err(Fault::Malformed(_))));

        let mut many = Calls::default();
        let fragments: Vec<Value> =
            (0..=CALLS_MAX).map(|index| json!({"index": index, "function": {"name": "ls"}})).collect();
        assert!(matches!(many.take(&fragments), Err(Fault::Malformed(_))));

        let mut large = Calls::default();
        let arguments = "x".repeat(ARGUMENTS_BYTES_MAX + 1);
        let outcome = large.take(&[json!({"index": 0, "function": {"name": "ls", "arguments": arguments}})]);
        assert!(matches!(outcome, Err(Fault::Malformed(_))));
    }

    proptest! {
        #[test]
        fn arguments_are_whole_however_they_are_split(
            keys in prop::collection::vec(("[a-z{}\":é]{0,4}", "[a-z{}\":é]{0,4}"), 0..4),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        ) {
            let object: serde_json::Map<String, Value> =
                keys.into_iter().map(|(key, value)| (key, Value::from(value))).collect();
            let arguments = Value::Object(object).to_string();
            let characters: Vec<char> = arguments.chars().collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(characters.len() + 1)).collect();
            cuts.extend([0, characters.len()]);
            cuts.sort_unstable();

            let mut calls = Calls::default();
            for cut in cuts.windows(2) {
                let piece: String = characters[cut[0]..cut[1]].iter().collect();
                calls.take(&[json!({"index": 0, "function": {"name": "ls", "arguments": piece}})]).unwrap();
            }
            let calls = calls.finish().unwrap();
            prop_assert_eq!(calls.len(), 1);
            prop_assert_eq!(&calls[0].arguments, &arguments);
        }
    }
}
