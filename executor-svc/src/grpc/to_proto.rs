//! From records to messages.

use ::proto::{agent::v1 as agent, executor::v1 as proto};

use crate::{
    definition::{PermissionMode, SpawnPolicy},
    event::{Body, Event, cut},
    review::{Decision, Proposal},
    session::Root,
    tool::{Class, Outcome},
    transcript::{Message, ToolCall},
    worker::{SchemaSource, SessionId, Status, StopReason, Time, Usage, Worker},
};

/// Longest content of a message that is sent.
const CONTENT_BYTES_MAX: usize = 1024 * 1024;

/// How much of a record a caller gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Basic,
    Full,
}

/// What comes with a record at the beginning and at the end of a spawn.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) worker: Worker,
    pub(super) deduplicated: bool,
    pub(super) hint: String,
}

impl View {
    /// As the caller asked.
    pub(super) fn asked(view: proto::View) -> Self {
        match view {
            proto::View::Unspecified | proto::View::Basic => Self::Basic,
            proto::View::Full => Self::Full,
        }
    }
}

pub(super) fn worker(record: &Worker, view: View) -> proto::Worker {
    let Worker {
        id,
        parent,
        root,
        workspace,
        agent,
        agent_digest,
        depth,
        description,
        status,
        stop_reason,
        result,
        partial,
        structured_output,
        schema_valid,
        schema_source,
        error,
        usage: used,
        background,
        spawns,
        model,
        replica,
        operator,
        create_time,
        start_time,
        close_time,
        labels,
        continues,
        plan_mode,
        permission_mode,
        takeovers,
    } = record;
    let is_full = view == View::Full;
    proto::Worker {
        id: id.to_string(),
        // A coordinator is below nothing.
        parent_id: if record.is_turn() { String::new() } else { parent.to_string() },
        root_id: root.to_string(),
        workspace: workspace.clone(),
        agent: agent.clone(),
        agent_digest: agent_digest.clone(),
        depth: *depth,
        description: description.clone(),
        status: self::status(*status).into(),
        stop_reason: stop_reason.map_or(proto::StopReason::Unspecified, self::stop_reason).into(),
        result: if is_full { result.clone() } else { String::new() },
        partial: *partial,
        structured_output: structured_output.clone().filter(|_| is_full),
        schema_valid: *schema_valid,
        schema_source: self::schema_source(*schema_source).into(),
        error: error.clone(),
        usage: Some(usage(used)),
        background: *background,
        spawns: Some(policy(spawns)),
        model: model.clone(),
        replica: replica.clone(),
        operator: operator.clone(),
        create_time: Some(timestamp(*create_time)),
        start_time: start_time.map(timestamp),
        close_time: close_time.map(timestamp),
        labels: labels.clone().into_iter().collect(),
        continues: continues.as_ref().map(SessionId::to_string).unwrap_or_default(),
        plan_mode: *plan_mode,
        permission_mode: mode(*permission_mode).into(),
        takeovers: *takeovers,
    }
}

pub(super) fn root(record: &Root) -> proto::RootSession {
    let Root {
        id,
        workspace,
        agent,
        operator,
        caller_root_id,
        create_time,
        close_time,
        usage: used,
        open_workers,
        turn_running,
    } = record;
    proto::RootSession {
        id: id.to_string(),
        workspace: workspace.clone(),
        agent: agent.clone(),
        create_time: Some(timestamp(*create_time)),
        close_time: close_time.map(timestamp),
        usage: Some(usage(used)),
        operator: operator.clone(),
        turn_running: *turn_running,
        open_workers: *open_workers,
        caller_root_id: caller_root_id.clone(),
    }
}

/// An event as it is sent. `answer` goes with the first and the last one.
pub(super) fn event(event: Event, answer: Option<&Answer>, view: View) -> proto::WorkerEvent {
    use proto::worker_event::{self as sent, Body as Sent};

    let Event { session, sequence, time, body } = event;
    let record = answer.map(|answer| worker(&answer.worker, view));
    let deduplicated = answer.is_some_and(|answer| answer.deduplicated);
    let hint = answer.map(|answer| answer.hint.clone()).unwrap_or_default();
    let body = match body {
        Body::Accepted => Sent::Accepted(sent::Accepted { worker: record, deduplicated, hint }),
        Body::StateChanged { status } => {
            Sent::StateChanged(sent::StateChanged { status: self::status(status).into() })
        }
        Body::TurnStarted { turn } => Sent::TurnStarted(sent::TurnStarted { turn }),
        Body::TurnFinished { turn, text, usage: used } => Sent::TurnFinished(sent::TurnFinished {
            turn,
            // What the model said is content: callers without a right to it see that it spoke.
            text: if view == View::Full { text } else { String::new() },
            usage: Some(usage(&used)),
        }),
        Body::ToolStarted { call_id, tool, class, arguments } => Sent::ToolStarted(sent::ToolStarted {
            call_id,
            tool,
            tool_class: self::class(class).into(),
            arguments: if view == View::Full { arguments } else { String::new() },
        }),
        Body::ToolFinished { call_id, outcome, preview, duration_ms } => {
            Sent::ToolFinished(sent::ToolFinished {
                call_id,
                outcome: self::outcome(outcome).into(),
                preview: if view == View::Full { preview } else { String::new() },
                duration_ms,
            })
        }
        Body::Review { proposal } => {
            Sent::Review(sent::Review { proposal: Some(self::proposal(&proposal, view)) })
        }
        Body::ChildSpawned { worker, agent } => {
            Sent::ChildSpawned(sent::ChildSpawned { worker_id: worker.to_string(), agent })
        }
        Body::OutputRejected { attempt, violations } => {
            Sent::OutputRejected(sent::OutputRejected { attempt, violations })
        }
        // The record of a turn stands in the event: `answer` has it.
        Body::Finished | Body::Answered { .. } => {
            Sent::Finished(sent::Finished { worker: record, deduplicated, hint })
        }
    };
    proto::WorkerEvent {
        worker_id: session.to_string(),
        sequence,
        time: Some(timestamp(time)),
        body: Some(body),
    }
}

/// A proposal of the review gate. What would run and what was said of it is content.
pub(super) fn proposal(record: &Proposal, view: View) -> proto::Proposal {
    let Proposal {
        id,
        session,
        root: _,
        workspace: _,
        operator,
        tool,
        class,
        arguments,
        digest,
        said,
        blast_radius,
        decision,
        decision_reason,
        reviewer,
        create_time,
        decide_time,
        execute_time,
        awaits_person,
    } = record;
    let content = |text: &String| if view == View::Full { text.clone() } else { String::new() };
    proto::Proposal {
        id: id.clone(),
        session_id: session.to_string(),
        action: tool.clone(),
        tool_class: self::class(*class).into(),
        target: content(arguments),
        digest: digest.clone(),
        reason: content(said),
        blast_radius: blast_radius.clone(),
        operator: operator.clone(),
        decision: self::decision(*decision).into(),
        decision_reason: content(decision_reason),
        reviewer: reviewer.clone(),
        create_time: Some(timestamp(*create_time)),
        decide_time: decide_time.map(timestamp),
        execute_time: execute_time.map(timestamp),
        awaits_person: *awaits_person,
    }
}

fn decision(decision: Decision) -> proto::proposal::Decision {
    match decision {
        Decision::Pending => proto::proposal::Decision::Pending,
        Decision::Approved => proto::proposal::Decision::Approved,
        Decision::Rejected => proto::proposal::Decision::Rejected,
    }
}

/// A piece of text: neither kept nor counted.
pub(super) fn text_delta(worker: &SessionId, text: &str, now: Time) -> proto::WorkerEvent {
    use proto::worker_event::{Body, TextDelta};

    proto::WorkerEvent {
        worker_id: worker.to_string(),
        sequence: 0,
        time: Some(timestamp(now)),
        body: Some(Body::TextDelta(TextDelta { text: text.to_owned() })),
    }
}

/// The composed system prompt, which stands before the transcript.
pub(super) fn system_message(text: &str, time: Time) -> proto::Message {
    proto::Message {
        sequence: 1,
        role: proto::Role::System.into(),
        content: cut(text, CONTENT_BYTES_MAX),
        tool_calls: Vec::new(),
        tool_call_id: String::new(),
        time: Some(timestamp(time)),
    }
}

/// A message of a transcript.
pub(super) fn message(sequence: u64, time: Time, message: Message) -> proto::Message {
    let (role, text, tool_calls, tool_call_id) = match message {
        Message::User { text } => (proto::Role::User, text, Vec::new(), String::new()),
        Message::Assistant { text, tool_calls } => (proto::Role::Assistant, text, tool_calls, String::new()),
        Message::Tool { call_id, tool: _, text, is_error: _ } => {
            (proto::Role::Tool, text, Vec::new(), call_id)
        }
    };
    let call = |ToolCall { id, tool, arguments }: ToolCall| proto::ToolCall { id, tool, arguments };
    proto::Message {
        sequence,
        role: role.into(),
        content: cut(&text, CONTENT_BYTES_MAX),
        tool_calls: tool_calls.into_iter().map(call).collect(),
        tool_call_id,
        time: Some(timestamp(time)),
    }
}

pub(super) fn status(status: Status) -> proto::WorkerStatus {
    match status {
        Status::Pending => proto::WorkerStatus::Pending,
        Status::Running => proto::WorkerStatus::Running,
        Status::Completed => proto::WorkerStatus::Completed,
        Status::Failed => proto::WorkerStatus::Failed,
        Status::Killed => proto::WorkerStatus::Killed,
    }
}

pub(super) fn class(class: Class) -> proto::ToolClass {
    match class {
        Class::Read => proto::ToolClass::Read,
        Class::Write => proto::ToolClass::Write,
        Class::Destructive => proto::ToolClass::Destructive,
    }
}

fn stop_reason(reason: StopReason) -> proto::StopReason {
    match reason {
        StopReason::Finished => proto::StopReason::Finished,
        StopReason::MaxTurns => proto::StopReason::MaxTurns,
        StopReason::Timeout => proto::StopReason::Timeout,
        StopReason::Budget => proto::StopReason::Budget,
        StopReason::Stopped => proto::StopReason::Stopped,
        StopReason::CallerGone => proto::StopReason::CallerGone,
        StopReason::ModelError => proto::StopReason::ModelError,
        StopReason::Schema => proto::StopReason::Schema,
        StopReason::NoOutput => proto::StopReason::NoOutput,
        StopReason::Aborted => proto::StopReason::Aborted,
        StopReason::Panic => proto::StopReason::Panic,
        StopReason::Lost => proto::StopReason::Lost,
        StopReason::Drained => proto::StopReason::Drained,
        StopReason::Overloaded => proto::StopReason::Overloaded,
    }
}

fn schema_source(source: Option<SchemaSource>) -> proto::SchemaSource {
    match source {
        None => proto::SchemaSource::Unspecified,
        Some(SchemaSource::Agent) => proto::SchemaSource::Agent,
        Some(SchemaSource::Call) => proto::SchemaSource::Call,
        Some(SchemaSource::Parent) => proto::SchemaSource::Parent,
    }
}

fn outcome(outcome: Outcome) -> proto::ToolOutcome {
    match outcome {
        Outcome::Ok => proto::ToolOutcome::Ok,
        Outcome::Error => proto::ToolOutcome::Error,
        Outcome::Denied => proto::ToolOutcome::Denied,
        Outcome::Rejected => proto::ToolOutcome::Rejected,
        Outcome::Timeout => proto::ToolOutcome::Timeout,
        Outcome::OverLimit => proto::ToolOutcome::OverLimit,
        Outcome::Unknown => proto::ToolOutcome::Unknown,
    }
}

fn mode(mode: PermissionMode) -> agent::PermissionMode {
    match mode {
        PermissionMode::ReadOnly => agent::PermissionMode::ReadOnly,
        PermissionMode::DualSign => agent::PermissionMode::DualSign,
        PermissionMode::MutatingWithReview => agent::PermissionMode::MutatingWithReview,
    }
}

fn policy(policy: &SpawnPolicy) -> agent::SpawnPolicy {
    use agent::spawn_policy::Mode;

    let (mode, names) = match policy {
        SpawnPolicy::None => (Mode::None, Vec::new()),
        SpawnPolicy::All => (Mode::All, Vec::new()),
        SpawnPolicy::Listed(names) => (Mode::Listed, names.clone()),
    };
    agent::SpawnPolicy { mode: mode.into(), names }
}

fn usage(usage: &Usage) -> proto::Usage {
    let Usage { input_tokens, output_tokens, cached_input_tokens, turns, tool_calls, duration_ms } = *usage;
    proto::Usage { input_tokens, output_tokens, cached_input_tokens, turns, tool_calls, duration_ms }
}

fn timestamp(Time(milliseconds): Time) -> prost_types::Timestamp {
    let nanos = milliseconds.rem_euclid(1000) * 1_000_000;
    prost_types::Timestamp {
        seconds: milliseconds.div_euclid(1000),
        nanos: i32::try_from(nanos).expect("below a second"),
    }
}
