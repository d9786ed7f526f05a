//! Everything a caller may learn from a failure: one table from error to code, reason and metadata.

use std::time::Duration;

use service_kit::{
    auth, server,
    status::{self, Reason, Verdict, render},
};
use tonic::{Code, Status};

use crate::{
    error::{Error, Violation},
    event::cut,
    worker::SchemaSource,
};

/// The `domain` of every `ErrorInfo` of this service.
pub const DOMAIN: &str = "executor.roster";

/// How soon a store or registry that failed is worth another try.
const RETRY: Duration = Duration::from_secs(1);

/// Longest list of patterns in metadata.
const PATTERNS_BYTES_MAX: usize = 512;

/// Longest digest of a caller in metadata. A real one has 64.
const DIGEST_BYTES_MAX: usize = 128;

/// Every reason there is: this service's own, then those of access and of the server.
pub fn reasons() -> Vec<Reason> {
    OWN.iter().chain(auth::REASONS).chain(server::REASONS).copied().collect()
}

/// The executor's part of `docs/errors.md`.
pub fn reference() -> String {
    status::reference("executor-svc", DOMAIN, &reasons())
}

/// The reasons of this service, in the order of its documentation.
const OWN: &[Reason] = &[
    row(
        "INVALID_REQUEST",
        Code::InvalidArgument,
        &[],
        "An argument, a page size or a page token cannot be used; the violations name the fields.",
    ),
    row(
        "WORKSPACE_NOT_FOUND",
        Code::NotFound,
        &["workspace"],
        "The workspace is not configured, or the caller's credentials do not show it.",
    ),
    row(
        "DRAINING",
        Code::Unavailable,
        &[],
        "The executor is shutting down and starts nothing new. Try another one.",
    ),
    row(
        "REQUEST_ID_REUSED",
        Code::InvalidArgument,
        &["request_id"],
        "The request id was used with other content within 24 h.",
    ),
    row(
        "SESSION_NOT_FOUND",
        Code::NotFound,
        &["session_id"],
        "There is no such worker or root session, or it is not the caller's.",
    ),
    row(
        "SESSION_CLOSED",
        Code::FailedPrecondition,
        &["session_id"],
        "The session is closed, stopping or ended: it takes no children.",
    ),
    row(
        "DEPTH_EXCEEDED",
        Code::FailedPrecondition,
        &["depth", "maximum"],
        "`limits.max_recursion_depth`: a session this deep spawns nobody.",
    ),
    row(
        "SELF_RECURSION",
        Code::FailedPrecondition,
        &["agent"],
        "An agent spawns itself without naming itself in `spawns`, or the agent is blocked.",
    ),
    row(
        "SPAWN_DENIED",
        Code::PermissionDenied,
        &["agent"],
        "The session's policy does not allow the agent; the message lists those it does.",
    ),
    row(
        "RESERVED_AGENT",
        Code::PermissionDenied,
        &["agent"],
        "The reviewer and the workspace's coordinator are never dispatched.",
    ),
    row(
        "UNKNOWN_AGENT",
        Code::NotFound,
        &["agent", "suggestion", "available_count"],
        "The registry has no such agent; the message lists those there are.",
    ),
    row(
        "AGENT_BROKEN",
        Code::FailedPrecondition,
        &["agent"],
        "A document that cannot be used blocks the name in the registry.",
    ),
    row(
        "REGISTRY_UNAVAILABLE",
        Code::Unavailable,
        &["agent"],
        "The registry did not answer within two seconds.",
    ),
    row(
        "AGENT_DISABLED",
        Code::FailedPrecondition,
        &["agent"],
        "The operator switched the agent off (`limits.disabled_agents`).",
    ),
    row(
        "NO_MODEL",
        Code::FailedPrecondition,
        &["agent", "patterns"],
        "No model resolves: configure the provider, an alias, or `models.default`.",
    ),
    row(
        "INVALID_SCHEMA",
        Code::InvalidArgument,
        &["source"],
        "The output schema cannot be used. `FAILED_PRECONDITION` where it is the definition's or the parent's.",
    ),
    row(
        "NO_IDENTITY",
        Code::FailedPrecondition,
        &[],
        "Permission mode `dual-sign` needs an operator with credentials.",
    ),
    row("BUDGET_EXHAUSTED", Code::ResourceExhausted, &["limit", "origin"], "Nothing is left of a budget."),
    row(
        "OVERLOADED",
        Code::ResourceExhausted,
        &[],
        "The queue is full or too many workers are open. Try again after the delay.",
    ),
    row(
        "WORKER_NOT_COMPLETED",
        Code::FailedPrecondition,
        &["session_id"],
        "Only a completed worker takes a further message.",
    ),
    row(
        "NOT_A_COORDINATOR",
        Code::FailedPrecondition,
        &["session_id"],
        "The root session is a caller's own: nobody answers in it.",
    ),
    row(
        "TURN_IN_PROGRESS",
        Code::Aborted,
        &["session_id"],
        "The coordinator's turn runs. Follow it with `WatchSession`, or stop it with `StopWorker`.",
    ),
    row(
        "SESSION_OPEN",
        Code::FailedPrecondition,
        &["session_id"],
        "Only a closed root session can be deleted.",
    ),
    row(
        "PROPOSAL_NOT_FOUND",
        Code::NotFound,
        &["proposal_id"],
        "There is no such proposal, or the caller's credentials do not show its workspace.",
    ),
    row(
        "NOT_AWAITING_PERSON",
        Code::FailedPrecondition,
        &["proposal_id"],
        "The reviewer has not approved yet, the proposal is decided, or no person is needed.",
    ),
    row(
        "OWN_PROPOSAL",
        Code::PermissionDenied,
        &["proposal_id"],
        "The operator who asked never decides. Another approver has to.",
    ),
    row(
        "DIGEST_MISMATCH",
        Code::Aborted,
        &["proposal_id", "expected", "actual"],
        "The digest is not the proposal's: look at it again, then decide.",
    ),
    row("STORE_UNAVAILABLE", Code::Unavailable, &[], "The session store does not answer at the moment."),
    row("INTERNAL", Code::Internal, &[], "A defect of the executor; its log says more."),
];

const fn row(
    reason: &'static str,
    code: Code,
    metadata: &'static [&'static str],
    meaning: &'static str,
) -> Reason {
    Reason { reason, code, metadata, meaning }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        render(DOMAIN, &error, verdict(&error))
    }
}

fn verdict(error: &Error) -> Verdict {
    match error {
        Error::InvalidRequest(violations) => invalid(violations),
        Error::Arguments(message) => invalid(&[Violation::new("arguments", message.clone())]),
        Error::WorkspaceNotFound(workspace) => Verdict::new(Code::NotFound, "WORKSPACE_NOT_FOUND")
            .with("workspace", workspace)
            .resource("workspace", workspace.clone()),
        Error::Draining => Verdict::new(Code::Unavailable, "DRAINING"),
        Error::RequestIdReused(id) => {
            Verdict::new(Code::InvalidArgument, "REQUEST_ID_REUSED").with("request_id", id)
        }
        Error::SessionNotFound(id) => {
            session(Code::NotFound, "SESSION_NOT_FOUND", id).resource("session", id.clone())
        }
        Error::SessionClosed(id) => session(Code::FailedPrecondition, "SESSION_CLOSED", id.as_str()),
        Error::NotACoordinator(id) => session(Code::FailedPrecondition, "NOT_A_COORDINATOR", id.as_str()),
        Error::TurnInProgress(id) => session(Code::Aborted, "TURN_IN_PROGRESS", id.as_str()),
        Error::SessionOpen(id) => session(Code::FailedPrecondition, "SESSION_OPEN", id.as_str()),
        Error::WorkerNotCompleted(id) => {
            session(Code::FailedPrecondition, "WORKER_NOT_COMPLETED", id.as_str())
        }
        Error::DepthExceeded { depth, maximum } => Verdict::new(Code::FailedPrecondition, "DEPTH_EXCEEDED")
            .with("depth", depth)
            .with("maximum", maximum),
        Error::SelfRecursion(agent) => about(Code::FailedPrecondition, "SELF_RECURSION", agent),
        Error::SpawnDenied { agent, allowed: _ } => about(Code::PermissionDenied, "SPAWN_DENIED", agent),
        Error::ReservedAgent(agent) => about(Code::PermissionDenied, "RESERVED_AGENT", agent),
        Error::UnknownAgent { agent, message: _, suggestion, available_count } => {
            about(Code::NotFound, "UNKNOWN_AGENT", agent)
                .with("suggestion", suggestion)
                .with("available_count", available_count)
                .resource("agent", agent.clone())
        }
        Error::AgentBroken { agent, message: _ } => about(Code::FailedPrecondition, "AGENT_BROKEN", agent),
        Error::RegistryUnavailable { agent, source: _ } => {
            about(Code::Unavailable, "REGISTRY_UNAVAILABLE", agent).retry_after(RETRY)
        }
        Error::AgentDisabled { agent, available: _ } => {
            about(Code::FailedPrecondition, "AGENT_DISABLED", agent)
        }
        Error::NoModel { agent, no_model } => about(Code::FailedPrecondition, "NO_MODEL", agent)
            .with("patterns", cut(&no_model.patterns.join(", "), PATTERNS_BYTES_MAX)),
        Error::InvalidSchema { source_of, message } => invalid_schema(*source_of, message),
        Error::NoIdentity => Verdict::new(Code::FailedPrecondition, "NO_IDENTITY"),
        Error::BudgetExhausted { limit, origin } => Verdict::new(Code::ResourceExhausted, "BUDGET_EXHAUSTED")
            .with("limit", limit)
            .with("origin", origin)
            .quota(limit.clone(), format!("the budget of {origin} is used up")),
        Error::Overloaded { retry_after } => {
            Verdict::new(Code::ResourceExhausted, "OVERLOADED").retry_after(*retry_after)
        }
        Error::ProposalNotFound(id) => {
            proposal(Code::NotFound, "PROPOSAL_NOT_FOUND", id).resource("proposal", id.clone())
        }
        Error::NotAwaitingPerson(id) => proposal(Code::FailedPrecondition, "NOT_AWAITING_PERSON", id),
        Error::OwnProposal(id) => proposal(Code::PermissionDenied, "OWN_PROPOSAL", id),
        Error::DigestMismatch { id, expected, actual } => proposal(Code::Aborted, "DIGEST_MISMATCH", id)
            .with("expected", cut(expected, DIGEST_BYTES_MAX))
            .with("actual", actual),
        Error::Store(failure) if failure.transient => {
            Verdict::new(Code::Unavailable, "STORE_UNAVAILABLE").retry_after(RETRY)
        }
        Error::Store(_) | Error::Defect(_) => Verdict::new(Code::Internal, "INTERNAL"),
    }
}

fn about(code: Code, reason: &'static str, agent: &str) -> Verdict {
    Verdict::new(code, reason).with("agent", agent)
}

fn proposal(code: Code, reason: &'static str, id: &str) -> Verdict {
    Verdict::new(code, reason).with("proposal_id", id)
}

fn session(code: Code, reason: &'static str, id: &str) -> Verdict {
    Verdict::new(code, reason).with("session_id", id)
}

fn invalid(violations: &[Violation]) -> Verdict {
    let verdict = Verdict::new(Code::InvalidArgument, "INVALID_REQUEST");
    violations.iter().fold(verdict, |verdict, Violation { field, description }| {
        verdict.violation(*field, description.clone())
    })
}

/// The call's own schema is an argument; the others' are a state that the caller cannot mend.
fn invalid_schema(source: SchemaSource, message: &str) -> Verdict {
    let (code, owner) = match source {
        SchemaSource::Call => (Code::InvalidArgument, "call"),
        SchemaSource::Agent => (Code::FailedPrecondition, "agent"),
        SchemaSource::Parent => (Code::FailedPrecondition, "parent"),
    };
    let verdict = Verdict::new(code, "INVALID_SCHEMA").with("source", owner);
    if source == SchemaSource::Call { verdict.violation("output_schema", message) } else { verdict }
}
