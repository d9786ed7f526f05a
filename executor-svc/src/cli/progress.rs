//! A worker's events as a person or a program reads them.

use proto::executor::v1::{StopReason, Worker, WorkerEvent, WorkerStatus, worker_event::Body};
use service_kit::console::{Colour, escape, escape_line};

use super::{Ending, Outcome, Output, json};

/// Longest arguments and preview in one line.
const SHOWN_CHARACTERS_MAX: usize = 120;

/// Shows events as they come.
pub(super) struct Progress<'o> {
    output: &'o Output,
    json: bool,
    /// What stands before each line.
    label: String,
    /// A conversation: only what is said and done is shown, not how the turn is run.
    is_chat: bool,
    worker_id: String,
    /// The worker's closed record, once it is there.
    end: Option<Worker>,
    /// Text of the model was written and its line is not ended.
    is_in_text: bool,
    /// Text of this turn was shown piece by piece.
    has_shown_text: bool,
}

impl<'o> Progress<'o> {
    pub(super) fn new(output: &'o Output, json: bool) -> Self {
        Self {
            output,
            json,
            label: String::new(),
            is_chat: false,
            worker_id: String::new(),
            end: None,
            is_in_text: false,
            has_shown_text: false,
        }
    }

    /// Of a coordinator.
    pub(super) fn chat(output: &'o Output) -> Self {
        Self { is_chat: true, ..Self::new(output, false) }
    }

    /// Of a worker below a coordinator.
    pub(super) fn below(output: &'o Output, agent: &str) -> Self {
        let label = output.paint(Colour::Dim, &format!("  {} | ", escape_line(agent)));
        Self { label, ..Self::new(output, false) }
    }

    /// The worker that is followed; empty before its first event.
    pub(super) fn worker_id(&self) -> &str {
        &self.worker_id
    }

    /// Shows one event.
    pub(super) fn show(&mut self, event: &WorkerEvent) -> Outcome {
        self.worker_id.clone_from(&event.worker_id);
        if let Some(Body::Finished(finished)) = &event.body {
            self.end = finished.worker.clone();
        }
        if self.json {
            return self.output.line(&json::line("roster.executor.v1.WorkerEvent", event)?);
        }
        match &event.body {
            Some(Body::TextDelta(delta)) => self.text(&delta.text),
            Some(body) => {
                let lines = self.describe(body);
                self.end_of_text()?;
                let lines = lines.iter().flat_map(|text| text.lines());
                lines.into_iter().try_for_each(|line| self.output.line(&format!("{}{line}", self.label)))
            }
            None => Ok(()),
        }
    }

    /// How the command ends: as the worker did.
    pub(super) fn ending(&self) -> Outcome {
        match self.end.as_ref().map(Worker::status) {
            Some(WorkerStatus::Completed) => Ok(()),
            Some(_) => Err(Ending::Failed),
            None => Err(Ending::FailedWith("the executor ended before the worker did".to_owned())),
        }
    }

    /// The model's text as it comes, for a person who looks on; others get it whole at the end of its turn.
    fn text(&mut self, text: &str) -> Outcome {
        if !self.output.is_terminal() {
            return Ok(());
        }
        self.is_in_text = true;
        self.has_shown_text = true;
        self.output.write(&escape(text))
    }

    fn end_of_text(&mut self) -> Outcome {
        match std::mem::take(&mut self.is_in_text) {
            true => self.output.line(""),
            false => Ok(()),
        }
    }

    fn describe(&mut self, body: &Body) -> Vec<String> {
        let dim = |text: &str| self.output.paint(Colour::Dim, text);
        match body {
            Body::Accepted(_) | Body::StateChanged(_) if self.is_chat => Vec::new(),
            Body::Accepted(accepted) => {
                let worker = accepted.worker.clone().unwrap_or_default();
                let mut lines =
                    vec![format!("{} {} on {}", dim(&worker.id), escape_line(&worker.agent), worker.model)];
                if accepted.deduplicated {
                    lines.push(self.output.paint(Colour::Yellow, &accepted.hint));
                }
                lines
            }
            Body::StateChanged(changed) => vec![dim(&word(changed.status().as_str_name(), "WORKER_STATUS_"))],
            Body::TurnStarted(started) => {
                self.has_shown_text = false;
                if self.is_chat {
                    return Vec::new();
                }
                vec![self.output.paint(Colour::Dim, &format!("turn {}", started.turn))]
            }
            Body::TurnFinished(finished) if self.has_shown_text || finished.text.is_empty() => Vec::new(),
            Body::TurnFinished(finished) => vec![escape(&finished.text).into_owned()],
            Body::ToolStarted(started) => vec![format!(
                "{} {}",
                self.output.paint(Colour::Bold, &started.tool),
                shortened(&started.arguments)
            )],
            Body::ToolFinished(finished) => {
                let outcome = word(finished.outcome().as_str_name(), "TOOL_OUTCOME_");
                let first = finished.preview.lines().next().unwrap_or_default();
                vec![format!(
                    "  {} {}",
                    dim(&format!("{outcome}, {} ms", finished.duration_ms)),
                    shortened(first)
                )]
            }
            Body::ChildSpawned(child) => {
                vec![format!("  {} {}", dim(&child.worker_id), escape_line(&child.agent))]
            }
            Body::OutputRejected(rejected) => vec![
                self.output
                    .paint(Colour::Yellow, &format!("attempt {}: {}", rejected.attempt, rejected.violations)),
            ],
            Body::Review(review) => {
                let proposal = review.proposal.clone().unwrap_or_default();
                let decision = match (proposal.awaits_person, proposal.decision()) {
                    (true, _) => "awaits a person".to_owned(),
                    (false, decision) => word(decision.as_str_name(), "DECISION_"),
                };
                let reason = shortened(&proposal.decision_reason);
                vec![format!("  {} review {decision} {reason}", dim(&proposal.id))]
            }
            Body::TextDelta(_) => Vec::new(),
            Body::Finished(finished) => {
                let worker = finished.worker.clone().unwrap_or_default();
                // The answer has been said.
                if self.is_chat
                    && worker.status() == WorkerStatus::Completed
                    && worker.structured_output.is_none()
                {
                    return Vec::new();
                }
                self.closing(&worker, &finished.hint)
            }
        }
    }

    /// The end: what came of it, and why.
    fn closing(&self, worker: &Worker, hint: &str) -> Vec<String> {
        let status = word(worker.status().as_str_name(), "WORKER_STATUS_");
        let (colour, reason) = match worker.status() {
            WorkerStatus::Completed => (Colour::Green, String::new()),
            _ => (Colour::Red, format!(" ({})", word(worker.stop_reason().as_str_name(), "STOP_REASON_"))),
        };
        let usage = worker.usage.unwrap_or_default();
        let mut lines = vec![format!(
            "{} {} turns, {} tool calls, {} tokens in, {} out, {} ms",
            self.output.paint(colour, &format!("{status}{reason}")),
            usage.turns,
            usage.tool_calls,
            usage.input_tokens,
            usage.output_tokens,
            usage.duration_ms
        )];
        let is_shown = worker.stop_reason() == StopReason::Finished && worker.structured_output.is_none();
        if let Some(output) = &worker.structured_output {
            lines.push(escape(output).into_owned());
        } else if is_shown || worker.partial {
            lines.push(escape(&worker.result).into_owned());
        }
        if !worker.error.is_empty() {
            lines.push(self.output.paint(Colour::Red, &worker.error));
        }
        if !hint.is_empty() {
            lines.push(self.output.paint(Colour::Dim, hint));
        }
        lines
    }
}

/// `WORKER_STATUS_RUNNING` as a person reads it.
pub(super) fn word(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_lowercase().replace('_', " ")
}

fn shortened(text: &str) -> String {
    let line = escape_line(text);
    match line.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
