//! Room for a conversation that outgrows its model: the oldest calls of tools are cut down, results first of all.

use super::{State, nudge, said};
use crate::{
    session::Record,
    transcript::{Message, ToolCall},
};

/// What is longer than this is cut down: most of a conversation's bytes are in results and arguments of some KiB.
const WHOLE_MAX: usize = 512;

/// How much of a result stays: enough to see what it was.
const BEGINNING: usize = 256;

/// Stands at the end of what was cut down.
const MARK: &str = "left out to make room: call the tool again for them]";

/// What the protocols add to a message: role, ids, names of fields.
const FRAME: usize = 64;

/// Of the room that there is, the part that is used after a cut, so that the next turn does not need another one.
const FILL: (usize, usize) = (3, 4);

impl State {
    /// How much the messages are, in bytes of a request.
    pub fn bytes(&self) -> usize {
        self.messages.iter().map(bytes_of).sum()
    }

    /// What has to be in the log so that the messages fit into `bytes_max`, or come as near to it as they can. The results of
    /// the last turn, which the model has not seen, are spared as long as they can be. `None` where all fits, or nothing is
    /// left that can be cut down.
    pub fn make_room(&self, bytes_max: usize) -> Option<Record> {
        let mut bytes = self.bytes();
        if bytes <= bytes_max {
            return None;
        }
        let target = bytes_max / FILL.1 * FILL.0;
        let mut shorter = Self { messages: self.messages.clone(), ..Self::default() };
        let is_result = |message: &&Message| matches!(message, Message::Tool { .. });
        let results = self.messages.iter().filter(is_result).count();
        let last_turn =
            self.messages.iter().rposition(|message| matches!(message, Message::Assistant { .. }));
        let seen = self.messages.iter().take(last_turn.unwrap_or_default()).filter(is_result).count();
        let mut last = None;
        for count in 1..=results {
            if count > seen && bytes <= bytes_max {
                break;
            }
            let before = bytes;
            shorter.cut_down(count);
            bytes = shorter.bytes();
            if bytes < before {
                last = Some(count);
            }
            if bytes <= target {
                break;
            }
        }
        last.map(|count| said(&nudge::cut_down(count)))
    }

    /// Cuts the first `results` results down to their beginnings, with the arguments of their calls.
    pub(super) fn cut_down(&mut self, results: usize) {
        let mut seen = 0;
        for message in &mut self.messages {
            match message {
                Message::User { .. } => {}
                Message::Assistant { tool_calls, .. } => {
                    // A call is cut down with the last result of its turn.
                    if seen + tool_calls.len() <= results {
                        tool_calls.iter_mut().for_each(cut_arguments);
                    }
                }
                Message::Tool { text, .. } => {
                    if seen < results {
                        cut_result(text);
                    }
                    seen += 1;
                }
            }
        }
    }
}

/// True for a result that was cut down: it does not say what the tool said.
pub fn is_cut_down(result: &str) -> bool {
    result.ends_with(MARK)
}

fn bytes_of(message: &Message) -> usize {
    let content = match message {
        Message::User { text } | Message::Tool { text, .. } => text.len(),
        Message::Assistant { text, tool_calls } => {
            let call = |call: &ToolCall| FRAME + call.tool.len() + call.arguments.len();
            text.len() + tool_calls.iter().map(call).sum::<usize>()
        }
    };
    FRAME + content
}

fn cut_result(text: &mut String) {
    if text.len() > WHOLE_MAX {
        let end = text.floor_char_boundary(BEGINNING);
        let left_out = text.len() - end;
        text.truncate(end);
        text.push_str(&format!("… [{left_out} bytes {MARK}"));
    }
}

/// They stay an object, which is all that the protocols want.
fn cut_arguments(call: &mut ToolCall) {
    if call.arguments.len() > WHOLE_MAX {
        call.arguments =
            serde_json::json!({ "left_out": format!("{} bytes", call.arguments.len()) }).to_string();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A prompt, and turns of one call each with arguments and a result of these lengths.
    fn state(turns: &[(usize, usize)]) -> State {
        let mut messages = vec![Message::User { text: "Go.".to_owned() }];
        for (arguments, result) in turns {
            let call = ToolCall {
                id: "a".to_owned(),
                tool: "read".to_owned(),
                arguments: serde_json::json!({ "text": "é".repeat(arguments / 2) }).to_string(),
            };
            messages.push(Message::Assistant { text: "I look.".to_owned(), tool_calls: vec![call] });
            messages.push(Message::Tool {
                call_id: "a".to_owned(),
                tool: "read".to_owned(),
                text: "é".repeat(result / 2),
                is_error: false,
            });
        }
        let records: Vec<Record> = messages.into_iter().map(|message| Record::Message { message }).collect();
        State::fold(&records)
    }

    fn results(state: &State) -> Vec<bool> {
        let results = state.messages().iter().filter_map(|message| match message {
            Message::Tool { text, .. } => Some(is_cut_down(text)),
            Message::User { .. } | Message::Assistant { .. } => None,
        });
        results.collect()
    }

    #[test]
    fn what_fits_stays_as_it_is() {
        let state = state(&[(10, 4_000), (10, 4_000)]);
        assert_eq!(state.make_room(state.bytes()), None);
    }

    #[test]
    fn the_oldest_results_are_cut_first_and_as_many_as_it_takes() {
        let state = state(&[(10, 4_000), (10, 300), (10, 4_000), (10, 4_000)]);
        for (bytes_max, expected) in [
            (13_000, [true, false, false, false]),
            (9_000, [true, false, true, false]),
            (5_000, [true, false, true, true]),
            (0, [true, false, true, true]),
        ] {
            let record = state.make_room(bytes_max).unwrap();
            let after = state.after(&[record]);
            assert_eq!(results(&after), expected, "{bytes_max}");
            assert!(after.bytes() < state.bytes());
            let Some(Message::User { text }) = after.messages().last() else { panic!("it is said") };
            assert!(text.contains("outgrown"), "{text}");
        }
    }

    #[test]
    fn arguments_go_with_their_results() {
        let state = state(&[(4_000, 10), (10, 4_000)]);

        let after = state.after(&[state.make_room(7_000).unwrap()]);

        let Message::Assistant { tool_calls, .. } = &after.messages()[1] else { panic!("a turn") };
        let arguments: serde_json::Value = serde_json::from_str(&tool_calls[0].arguments).unwrap();
        assert!(arguments["left_out"].as_str().unwrap().ends_with(" bytes"), "{arguments}");
        assert_eq!(results(&after), [false, false]);
    }

    #[test]
    fn nothing_is_cut_twice_and_where_nothing_is_left_nothing_is_said() {
        let state = state(&[(10, 4_000), (10, 4_000)]);
        let once = state.after(&[state.make_room(0).unwrap()]);

        assert_eq!(once.make_room(0), None);

        let again = once.after(&[said(&nudge::cut_down(1))]);
        assert_eq!(again.messages()[..5], once.messages()[..5]);
    }

    #[test]
    fn a_cut_leaves_the_state_of_the_run_alone() {
        let state = state(&[(10, 4_000)]);
        let after = state.after(&[state.make_room(0).unwrap()]);
        assert_eq!(after.own_messages().len(), after.messages().len());
        assert_eq!((after.reminders, after.bad_answers), (0, 0));
    }
}
