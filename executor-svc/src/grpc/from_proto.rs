//! From messages to calls: every argument is checked here, and every mistake is told at once.

use std::{collections::BTreeMap, time::Duration};

use ::proto::executor::v1 as proto;
use prost::Message as _;
use service_kit::page;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::{
    admission::Budget,
    argument::{NAME_BYTES_MAX, Violations},
    config::DEFAULT_WORKSPACE,
    dispatch::{Call, Further, Place, Talk},
    error::{Error, Violation},
    event::cut,
    session::Request,
    worker::{SessionId, Status, Time},
};

/// Longest description: one line for people.
const DESCRIPTION_BYTES_MAX: usize = 1024;

const LABELS_MAX: usize = 16;
const LABEL_BYTES_MAX: usize = 128;

/// Longest duration that is understood: a year.
const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// True for text that can be a name. What can not is an argument that cannot be used.
pub(super) fn is_name(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control)
}

/// The workspace that a request names.
pub(super) fn workspace(name: &str) -> String {
    if name.is_empty() { DEFAULT_WORKSPACE.to_owned() } else { name.to_owned() }
}

/// A session's id. Text that is none is the id of no session.
pub(super) fn session_id(field: &'static str, text: &str) -> Result<SessionId, Error> {
    if text.is_empty() {
        return Err(Error::InvalidRequest(vec![Violation::new(field, "it is required")]));
    }
    SessionId::parse(text).ok_or_else(|| Error::SessionNotFound(cut(text, NAME_BYTES_MAX)))
}

/// A session's id in a filter, where empty means any.
pub(super) fn filter_id(field: &'static str, text: &str) -> Result<Option<SessionId>, Error> {
    if text.is_empty() { Ok(None) } else { session_id(field, text).map(Some) }
}

/// A spawn.
pub(super) fn spawn(request: proto::SpawnRequest, deadline: Option<Instant>) -> Result<Call, Error> {
    let content = content_of_spawn(&request);
    let proto::SpawnRequest {
        workspace: workspace_name,
        subagent_type,
        description,
        prompt,
        parent_id,
        output_schema,
        schema_mode,
        background,
        plan_mode,
        bypass_dedupe,
        budget,
        model,
        request_id,
        labels,
        locale,
        root_id,
    } = request;
    let mut violations = Violations::default();
    violations.name("workspace", &workspace_name);
    violations.agent("subagent_type", &subagent_type);
    violations.prompt("prompt", &prompt);
    if description.len() > DESCRIPTION_BYTES_MAX {
        violations.add("description", format!("it has more than {DESCRIPTION_BYTES_MAX} bytes"));
    }
    let schema_mode = proto::SchemaMode::try_from(schema_mode).unwrap_or_else(|_| {
        violations.add("schema_mode", format!("{schema_mode} is no mode"));
        proto::SchemaMode::Unspecified
    });
    violations.name("model", &model);
    violations.locale(&locale);
    let call = Call {
        workspace: workspace(&workspace_name),
        agent: subagent_type,
        description,
        prompt,
        place: place(&mut violations, parent_id, root_id),
        output_schema,
        schema_is_permissive: schema_mode == proto::SchemaMode::Permissive,
        background,
        plan_mode,
        bypass_dedupe,
        budget: budget_of(&mut violations, budget),
        model: (!model.is_empty()).then_some(model),
        request: request_of(&mut violations, request_id, content),
        labels: checked_labels(&mut violations, labels),
        locale,
        deadline,
    };
    violations.check(call)
}

/// A further message.
pub(super) fn further(request: proto::SendMessageRequest) -> Result<Further, Error> {
    let mut content = request.clone();
    content.request_id.clear();
    let content = Sha256::digest(content.encode_to_vec()).into();
    let proto::SendMessageRequest { worker_id, message, request_id, background, budget } = request;
    let worker = session_id("worker_id", &worker_id)?;
    let mut violations = Violations::default();
    if !worker.is_worker() {
        violations.add("worker_id", "it is a root session's id, not a worker's");
    }
    violations.prompt("message", &message);
    let further = Further {
        worker,
        message,
        background,
        budget: budget_of(&mut violations, budget),
        request: request_of(&mut violations, request_id, content),
    };
    violations.check(further)
}

/// A message to a coordinator.
pub(super) fn converse(request: proto::ConverseRequest, deadline: Option<Instant>) -> Result<Talk, Error> {
    let mut content = request.clone();
    content.request_id.clear();
    let content = Sha256::digest(content.encode_to_vec()).into();
    let proto::ConverseRequest {
        workspace,
        session_id: session,
        agent,
        message,
        locale,
        request_id,
        plan_mode,
        output_schema,
        budget,
    } = request;
    let mut violations = Violations::default();
    violations.name("workspace", &workspace);
    violations.name("agent", &agent);
    violations.prompt("message", &message);
    violations.locale(&locale);
    let budget = budget_of(&mut violations, budget);
    let request = request_of(&mut violations, request_id, content);
    let session = match violations.check(session.as_str())? {
        "" => None,
        id => Some(session_id("session_id", id)?),
    };
    if session.as_ref().is_some_and(SessionId::is_worker) {
        let violation = Violation::new("session_id", "it is a worker's id, not a root session's");
        return Err(Error::InvalidRequest(vec![violation]));
    }
    Ok(Talk {
        workspace: (!workspace.is_empty()).then_some(workspace),
        session,
        agent: (!agent.is_empty()).then_some(agent),
        message,
        locale,
        request,
        plan_mode,
        output_schema,
        budget,
        deadline,
    })
}

/// Where a page begins: behind this session.
pub(super) fn page_after(query: &[&str], token: &str) -> Result<Option<SessionId>, Error> {
    let position = page::decode(query, token).map_err(|invalid| page_error("page_token", invalid))?;
    let Some(position) = position else { return Ok(None) };
    match SessionId::parse(&position.after) {
        Some(id) => Ok(Some(id)),
        None => Err(page_error("page_token", page::Invalid::Token)),
    }
}

/// Where a page begins: behind what has this id.
pub(super) fn page_after_text(query: &[&str], token: &str) -> Result<Option<String>, Error> {
    let position = page::decode(query, token).map_err(|invalid| page_error("page_token", invalid))?;
    Ok(position.map(|position| position.after))
}

/// Where a page begins: behind this sequence number.
pub(super) fn page_after_sequence(query: &[&str], token: &str) -> Result<u64, Error> {
    let position = page::decode(query, token).map_err(|invalid| page_error("page_token", invalid))?;
    Ok(position.map_or(0, |position| position.generation))
}

pub(super) fn page_size(requested: i32, default: usize, maximum: usize) -> Result<usize, Error> {
    page::size(requested, default, maximum).map_err(|invalid| page_error("page_size", invalid))
}

/// A duration that is not negative, and at most a year.
pub(super) fn duration_of(
    violations: &mut Violations,
    field: &'static str,
    duration: prost_types::Duration,
) -> Option<Duration> {
    match Duration::try_from(duration) {
        Ok(duration) => Some(duration.min(DURATION_MAX)),
        Err(_) => {
            violations.add(field, "it is negative or no duration");
            None
        }
    }
}

/// The states of a filter.
pub(super) fn statuses(values: &[i32]) -> Result<Vec<Status>, Error> {
    let mut violations = Violations::default();
    let mut statuses = Vec::new();
    for value in values {
        match proto::WorkerStatus::try_from(*value) {
            Ok(proto::WorkerStatus::Pending) => statuses.push(Status::Pending),
            Ok(proto::WorkerStatus::Running) => statuses.push(Status::Running),
            Ok(proto::WorkerStatus::Completed) => statuses.push(Status::Completed),
            Ok(proto::WorkerStatus::Failed) => statuses.push(Status::Failed),
            Ok(proto::WorkerStatus::Killed) => statuses.push(Status::Killed),
            Ok(proto::WorkerStatus::Unspecified) | Err(_) => {
                violations.add("statuses", format!("{value} is no state"));
            }
        }
    }
    violations.check(statuses)
}

/// A time of a filter.
pub(super) fn time(timestamp: &prost_types::Timestamp) -> Time {
    let milliseconds = timestamp.seconds.saturating_mul(1000);
    Time(milliseconds.saturating_add(i64::from(timestamp.nanos / 1_000_000)))
}

fn page_error(field: &'static str, invalid: page::Invalid) -> Error {
    Error::InvalidRequest(vec![Violation::new(field, invalid.to_string())])
}

/// What a request id stands for: everything of the request but the id itself.
fn content_of_spawn(request: &proto::SpawnRequest) -> [u8; 32] {
    let mut request = request.clone();
    request.request_id.clear();
    // A map is encoded in any order: its pairs are hashed by themselves, sorted.
    let labels: BTreeMap<String, String> = std::mem::take(&mut request.labels).into_iter().collect();
    let mut hash = Sha256::new();
    hash.update(request.encode_to_vec());
    for text in labels.iter().flat_map(|(key, value)| [key, value]) {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text.as_bytes());
    }
    hash.finalize().into()
}

fn request_of(violations: &mut Violations, id: String, content: [u8; 32]) -> Option<Request> {
    if id.is_empty() {
        return None;
    }
    // Ids with blanks are the executor's own.
    if id.len() > NAME_BYTES_MAX || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
        violations.add("request_id", format!("it is not 1 to {NAME_BYTES_MAX} visible ASCII characters"));
    }
    Some(Request { id, content })
}

fn checked_labels(
    violations: &mut Violations,
    labels: impl IntoIterator<Item = (String, String)>,
) -> BTreeMap<String, String> {
    let labels: BTreeMap<String, String> = labels.into_iter().collect();
    if labels.len() > LABELS_MAX {
        violations.add("labels", format!("there are more than {LABELS_MAX}"));
    }
    if labels.keys().any(String::is_empty) {
        violations.add("labels", "a key is empty");
    }
    if labels.iter().any(|(key, value)| key.len() > LABEL_BYTES_MAX || value.len() > LABEL_BYTES_MAX) {
        violations.add("labels", format!("a key or value has more than {LABEL_BYTES_MAX} bytes"));
    }
    labels
}

fn place(violations: &mut Violations, parent_id: String, root_id: String) -> Place {
    if !parent_id.is_empty() && !root_id.is_empty() {
        violations.add("root_id", "it does not go together with `parent_id`");
    }
    if !parent_id.is_empty() {
        violations.name("parent_id", &parent_id);
        return Place::Below(parent_id);
    }
    if root_id.is_empty() {
        return Place::UnnamedRoot;
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if root_id.len() > NAME_BYTES_MAX || !root_id.bytes().all(is_plain) {
        violations.add("root_id", "it does not match `[A-Za-z0-9._-]{1,128}`");
    }
    if root_id.starts_with("worker-") || root_id.starts_with("root-") {
        violations.add("root_id", "it begins as the executor's own ids do");
    }
    Place::NamedRoot(root_id)
}

fn budget_of(violations: &mut Violations, budget: Option<proto::Budget>) -> Budget {
    let Some(proto::Budget { turns, tokens, wall_time, spawns }) = budget else { return Budget::default() };
    let wall_time = wall_time.and_then(|duration| duration_of(violations, "budget.wall_time", duration));
    Budget { turns, tokens, wall_time, spawns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::argument::PROMPT_BYTES_MAX;

    fn request() -> proto::SpawnRequest {
        proto::SpawnRequest {
            subagent_type: "explore".to_owned(),
            prompt: "Look.".to_owned(),
            ..proto::SpawnRequest::default()
        }
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut proto::SpawnRequest), fields: &[&str]) {
        let mut request = request();
        change(&mut request);
        let found: Vec<&str> = match spawn(request, None) {
            Ok(_) => Vec::new(),
            Err(Error::InvalidRequest(violations)) => {
                violations.iter().map(|violation| violation.field).collect()
            }
            Err(other) => panic!("{other}"),
        };
        assert_eq!(found, fields);
    }

    #[test]
    fn every_argument_that_cannot_be_used_is_named() {
        check(|_| {}, &[]);
        check(|request| request.prompt = " \n".to_owned(), &["prompt"]);
        check(|request| request.prompt = "x".repeat(PROMPT_BYTES_MAX), &[]);
        check(|request| request.prompt = "x".repeat(PROMPT_BYTES_MAX + 1), &["prompt"]);
        check(|request| request.subagent_type.clear(), &["subagent_type"]);
        check(|request| request.request_id = "a b".to_owned(), &["request_id"]);
        check(|request| request.locale = "de_DE".to_owned(), &["locale"]);
        check(|request| request.schema_mode = 9, &["schema_mode"]);
        for root_id in ["worker-1", "root-1", "a/b"] {
            check(|request| request.root_id = root_id.to_owned(), &["root_id"]);
        }
        check(
            |request| {
                request.root_id = "chat".to_owned();
                request.parent_id = "root-1".to_owned();
            },
            &["root_id"],
        );
        check(
            |request| {
                request.labels = (0..17).map(|index| (format!("l{index}"), String::new())).collect();
            },
            &["labels"],
        );
        check(
            |request| {
                let wall_time = Some(prost_types::Duration { seconds: -1, nanos: 0 });
                request.budget = Some(proto::Budget { wall_time, ..proto::Budget::default() });
            },
            &["budget.wall_time"],
        );
    }

    #[test]
    fn a_request_id_stands_for_everything_but_itself() {
        let content = |change: fn(&mut proto::SpawnRequest)| {
            let mut request = request();
            request.request_id = "1".to_owned();
            change(&mut request);
            spawn(request, None).unwrap().request.map(|request| request.content)
        };

        let same = content(|_| {});
        assert_eq!(content(|request| request.request_id = "2".to_owned()), same);
        assert_ne!(content(|request| request.prompt.push('!')), same);
        assert_ne!(content(|request| request.labels = [("a".to_owned(), "b".to_owned())].into()), same);
    }
}
