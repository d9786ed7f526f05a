//! What a run remembers of its tool calls: how many there were, and what read calls answered.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{Class, name};

/// Most bytes of answers kept; the oldest go first.
const REMEMBERED_MAX: usize = 4 * 1024 * 1024;

/// Most calls of one tool in one run. `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// Of a tool of class read (`limits.read_calls_per_tool`).
    pub read: Option<u32>,
    /// Of any other tool (`limits.calls_per_tool`).
    pub other: Option<u32>,
}

/// The calls of one run.
#[derive(Debug)]
pub struct Calls {
    limits: CallLimits,
    counts: HashMap<String, u32>,
    answers: HashMap<Call, String>,
    /// Read calls that run, and were begun after the last change: what others answer may be stale already.
    fresh: HashSet<Call>,
    /// Oldest first.
    order: VecDeque<Call>,
    bytes: usize,
}

/// What is to be done with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Run it; it has been counted.
    Run,
    /// The same read call, byte for byte, was answered before.
    Remembered(String),
    /// The tool's limit is reached. The text goes to the model.
    OverLimit(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Call {
    tool: String,
    arguments: String,
}

impl Calls {
    pub fn new(limits: CallLimits) -> Self {
        Self {
            limits,
            counts: HashMap::new(),
            answers: HashMap::new(),
            fresh: HashSet::new(),
            order: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Asks for a call and counts it if it is to run. A call that may change something makes all answers stale, and so does
    /// one that lets another session do so.
    pub fn admit(&mut self, tool: &str, class: Class, arguments: &str) -> Admission {
        let limit = match class {
            Class::Read => self.limits.read,
            Class::Write | Class::Destructive => self.limits.other,
        };
        if let Some(answer) = self.answers.get(&Call::new(tool, arguments)) {
            return Admission::Remembered(answer.clone());
        }
        let count = self.counts.entry(tool.to_owned()).or_default();
        if let Some(limit) = limit.filter(|limit| *count >= *limit) {
            return Admission::OverLimit(format!(
                "`{tool}` may be called {limit} times in a run, and was: go on without it"
            ));
        }
        *count += 1;
        match changes(tool, class) {
            true => self.forget(),
            false => {
                self.fresh.insert(Call::new(tool, arguments));
            }
        }
        Admission::Run
    }

    /// Takes note that a call has ended, with its answer where that is a good one. That of a read call is kept unless
    /// something changed while it ran; a change may have come about until the end of the call that makes it.
    pub fn ended(&mut self, tool: &str, class: Class, arguments: &str, answer: Option<&str>) {
        if changes(tool, class) {
            self.forget();
            return;
        }
        let call = Call::new(tool, arguments);
        let is_fresh = self.fresh.remove(&call);
        let Some(answer) = answer.filter(|_| is_fresh) else { return };
        let bytes = call.bytes() + answer.len();
        if bytes > REMEMBERED_MAX {
            return;
        }
        self.bytes += bytes;
        self.answers.insert(call.clone(), answer.to_owned());
        self.order.push_back(call);
        while self.bytes > REMEMBERED_MAX {
            let oldest = self.order.pop_front().expect("bytes are counted for calls in order only");
            let answer = self.answers.remove(&oldest).expect("each call in order has an answer");
            self.bytes -= oldest.bytes() + answer.len();
        }
    }

    fn forget(&mut self) {
        self.answers.clear();
        self.fresh.clear();
        self.order.clear();
        self.bytes = 0;
    }
}

/// True for a call after which nothing that was read needs to be so any more.
fn changes(tool: &str, class: Class) -> bool {
    match class {
        Class::Read => name::is_kernel(tool),
        Class::Write | Class::Destructive => true,
    }
}

impl Call {
    fn new(tool: &str, arguments: &str) -> Self {
        Self { tool: tool.to_owned(), arguments: arguments.to_owned() }
    }

    fn bytes(&self) -> usize {
        self.tool.len() + self.arguments.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Admission, CallLimits, Calls, Class, REMEMBERED_MAX};

    fn calls(read: u32, other: u32) -> Calls {
        Calls::new(CallLimits { read: Some(read), other: Some(other) })
    }

    /// A call that is admitted and ends well.
    fn run(calls: &mut Calls, tool: &str, class: Class, arguments: &str, answer: &str) {
        assert_eq!(calls.admit(tool, class, arguments), Admission::Run, "{tool} {arguments}");
        calls.ended(tool, class, arguments, Some(answer));
    }

    #[test]
    fn the_same_read_call_is_answered_from_memory_and_does_not_count() {
        let mut calls = calls(1, 1);
        run(&mut calls, "read", Class::Read, r#"{"path":"a"}"#, "text");

        for _ in 0..3 {
            let admission = calls.admit("read", Class::Read, r#"{"path":"a"}"#);
            assert_eq!(admission, Admission::Remembered("text".to_owned()));
        }

        // One blank more is another call.
        assert!(matches!(calls.admit("read", Class::Read, r#"{"path": "a"}"#), Admission::OverLimit(_)));
    }

    #[test]
    fn each_tool_has_its_own_count_by_its_class() {
        let mut calls = calls(2, 1);
        assert_eq!(calls.admit("read", Class::Read, "1"), Admission::Run);
        assert_eq!(calls.admit("write", Class::Write, "1"), Admission::Run);
        assert_eq!(calls.admit("bash", Class::Destructive, "1"), Admission::Run);
        assert_eq!(calls.admit("read", Class::Read, "2"), Admission::Run);

        for (tool, class) in [("read", Class::Read), ("write", Class::Write), ("bash", Class::Destructive)] {
            assert!(matches!(calls.admit(tool, class, "3"), Admission::OverLimit(_)), "{tool}");
        }
    }

    #[test]
    fn a_change_makes_what_was_read_stale() {
        for (tool, class) in
            [("write", Class::Write), ("bash", Class::Destructive), ("AgentTool", Class::Read)]
        {
            let mut calls = calls(9, 9);
            run(&mut calls, "read", Class::Read, "a", "old");

            assert_eq!(calls.admit(tool, class, "a"), Admission::Run, "{tool}");
            assert_eq!(calls.admit("read", Class::Read, "a"), Admission::Run, "{tool}");
            // Read before the change was there.
            calls.ended("read", Class::Read, "a", Some("old"));
            calls.ended(tool, class, "a", None);

            assert_eq!(calls.admit("read", Class::Read, "a"), Admission::Run, "{tool}");
        }
    }

    #[test]
    fn what_was_read_beside_a_change_is_not_kept() {
        let mut calls = calls(9, 9);
        assert_eq!(calls.admit("read", Class::Read, "a"), Admission::Run);
        run(&mut calls, "write", Class::Write, "a", "written");

        calls.ended("read", Class::Read, "a", Some("perhaps old"));

        assert_eq!(calls.admit("read", Class::Read, "a"), Admission::Run);
    }

    #[test]
    fn changes_spawns_and_failures_are_never_answered_from_memory() {
        let mut calls = calls(9, 9);
        for (tool, class) in
            [("write", Class::Write), ("AgentTool", Class::Read), ("submit_result", Class::Read)]
        {
            run(&mut calls, tool, class, "a", "old");
            assert_eq!(calls.admit(tool, class, "a"), Admission::Run, "{tool}");
        }
        assert_eq!(calls.admit("read", Class::Read, "a"), Admission::Run);
        calls.ended("read", Class::Read, "a", None);
        assert_eq!(calls.admit("read", Class::Read, "a"), Admission::Run);
    }

    #[test]
    fn memory_is_bounded_and_loses_the_oldest_first() {
        let mut calls = Calls::new(CallLimits { read: None, other: None });
        let answer = "x".repeat(REMEMBERED_MAX / 4);
        for arguments in ["1", "2", "3", "4", "5"] {
            run(&mut calls, "read", Class::Read, arguments, &answer);
        }

        assert!(calls.bytes <= REMEMBERED_MAX);
        assert_eq!(calls.admit("read", Class::Read, "5"), Admission::Remembered(answer));
        assert_eq!(calls.admit("read", Class::Read, "1"), Admission::Run);
    }
}
