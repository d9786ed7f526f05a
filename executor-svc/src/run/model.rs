//! One turn of the model.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::{Interrupted, Owner, Run, Seat, Tools};
use crate::{
    kernel::Kernel,
    meter,
    model::{Error, Listener, ToolChoice, Turn, provider::Wishes},
    react::{self, Choice, End, Rules},
    session::Record,
    tool::name::SUBMIT_RESULT,
    worker::{SessionId, StopReason},
};

/// Bytes that make a token, about: fewer than in English prose, so that an estimate is rather too high.
const TOKEN_BYTES: usize = 3;

/// The part of what a model refused that is tried next.
const SMALLER: (usize, usize) = (3, 4);

/// What came of asking.
pub(super) enum Asked {
    Records(Vec<Record>),
    /// The conversation is too long for the model: the end, unless it can be cut down.
    Outgrown(End),
    End(End),
}

/// What a run has learned of how much its model takes, beside what is configured.
#[derive(Debug, Default)]
pub(super) struct Room {
    bytes_max: Option<usize>,
}

impl Room {
    /// The model refused messages of that many bytes.
    pub(super) fn was_too_small(&mut self, bytes: usize) {
        self.bytes_max = Some(bytes / SMALLER.1 * SMALLER.0);
    }
}

/// Passes text on as it arrives, and gives the worker's slot back while the provider asks to wait.
struct Audience<'r> {
    kernel: &'r Kernel,
    id: &'r SessionId,
    turn: u32,
    seat: &'r Seat<'r>,
}

#[async_trait]
impl Listener for Audience<'_> {
    fn text(&self, text: &str) {
        self.kernel.hub.text(self.id, self.turn, text);
    }

    async fn pause(&self, wait: Duration) {
        self.seat.vacate(tokio::time::sleep(wait)).await;
    }
}

impl Run<'_> {
    /// What is to be cut down before a model is asked that takes less than there is.
    pub(super) fn make_room(&self, owner: &Owner<'_>, tools: &Tools, room: &Room) -> Option<Record> {
        let wishes = Wishes { request: &owner.worker().model, patterns: &[], parent: "" };
        let known = self.kernel.models.resolve(wishes).ok().and_then(|resolved| resolved.input_tokens_max);
        let known = known.map(|tokens| {
            let around = owner.spec().system.len() + tools.bytes();
            (tokens as usize).saturating_mul(TOKEN_BYTES).saturating_sub(around)
        });
        let bytes_max = known.into_iter().chain(room.bytes_max).min()?;
        owner.state().make_room(bytes_max)
    }

    pub(super) async fn ask(
        &self,
        owner: &Owner<'_>,
        rules: &Rules<'_>,
        tools: &Tools,
        turn: u32,
        choice: Choice,
    ) -> Asked {
        let (worker, spec) = (owner.worker(), owner.spec());
        let wishes = Wishes { request: &worker.model, patterns: &[], parent: "" };
        let model = match self.kernel.models.resolve(wishes) {
            Ok(resolved) => resolved.model,
            // The configuration was changed between two starts.
            Err(failure) => {
                return Asked::End(owner.state().early(StopReason::ModelError, failure.to_string()));
            }
        };
        let question = Turn {
            agent: &worker.agent,
            number: turn,
            prompt: &spec.prompt,
            system: &spec.system,
            messages: owner.state().messages(),
            reminder: &spec.definition.critical_reminder,
            tools: if choice == Choice::None { &[] } else { tools.specs() },
            tool_choice: match choice {
                Choice::Any => ToolChoice::Auto,
                Choice::None => ToolChoice::None,
                Choice::Submit => ToolChoice::Forced(SUBMIT_RESULT),
            },
            thinking: spec.thinking,
        };
        let audience = Audience { kernel: self.kernel, id: &worker.id, turn, seat: self.seat };
        let cancel = self.open.stop_token();
        let began = Instant::now();
        let answer = self.unless_interrupted(model.complete(&question, &audience, &cancel)).await;
        meter::asked(matches!(answer, Ok(Ok(_))), began.elapsed());
        match answer {
            Ok(Ok(reply)) => {
                meter::tokens(reply.usage.input_tokens, reply.usage.output_tokens);
                Asked::Records(react::answer(owner.state(), rules, reply))
            }
            Ok(Err(Error::Malformed { .. })) => Asked::Records(react::malformed(owner.state())),
            Ok(Err(Error::Cancelled)) => {
                let cause = self.open.stopped().await;
                Asked::End(owner.state().early(cause.reason, cause.error))
            }
            Ok(Err(failure @ Error::ContextTooLong { .. })) => {
                Asked::Outgrown(owner.state().early(StopReason::ModelError, failure.to_string()))
            }
            // The last turn only sums up: the worker ends for its turns, whatever becomes of the summary.
            Ok(Err(_)) if choice == Choice::None => {
                Asked::End(owner.state().early(StopReason::MaxTurns, "the turn limit was reached"))
            }
            Ok(Err(failure)) => {
                let error = service_kit::status::chain(&failure);
                Asked::End(owner.state().early(StopReason::ModelError, error))
            }
            Err(Interrupted(cause)) => Asked::End(owner.state().early(cause.reason, cause.error)),
        }
    }
}
