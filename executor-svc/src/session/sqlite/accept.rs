//! The transaction that lets a worker in, or finds the one that answers in its place.

use rusqlite::{Connection, named_params, params};

use super::{
    answers, append,
    fault::Halt,
    row::{self, Head, Number},
};
use crate::{
    admission::REVIEWER,
    session::{AcceptError, Acceptance, Accepted, Parent, Position, Record, Request},
    worker::{SessionId, Status, Time, Usage, Worker},
};

/// The name of a root's limit, and where the store knows it from: the executor's configuration.
const TREE_LIMIT: (&str, &str) = ("max_spawns_per_tree", "config");

/// The name of a root's limit for tokens.
const TREE_TOKENS: (&str, &str) = ("tree_tokens", "config");

/// The name of a worker's own limit for what is spawned below it, and where it was set.
const WORKER_LIMIT: (&str, &str) = ("spawns", "session");

/// Where a worker comes: its root, if that is there already, and its parent.
enum Place {
    NewRoot {
        caller_root_id: String,
    },
    /// A coordinator's turn: the first one opens the root.
    Turn {
        is_first: bool,
    },
    Root(SessionId),
    Below {
        root: SessionId,
        parent: SessionId,
    },
}

pub(super) fn accept(
    connection: &Connection,
    acceptance: &Acceptance,
    now: Time,
) -> Result<Accepted, Halt<AcceptError>> {
    let request = acceptance.request.as_ref();
    let caller =
        answers::Caller { workspace: &acceptance.worker.workspace, operator: &acceptance.worker.operator };
    if let Some(request) = request
        && let Some(earlier) = answers::repeated(connection, caller, request, now)?
    {
        return Ok(Accepted::Repeated(earlier));
    }
    let place = find_place(connection, acceptance)?;
    if let Some(dedupe) = &acceptance.dedupe
        && let Some(earlier) = answers::deduplicated(connection, dedupe, now)?
    {
        if let Some(request) = request {
            answers::keep_request(connection, caller, request, &earlier.id, now)?;
        }
        return Ok(Accepted::Deduplicated(earlier));
    }
    if !acceptance.is_review {
        check_budget(connection, acceptance, &place, now)?;
    }
    insert(connection, acceptance, place, now)
}

/// The session to spawn below, which has to be there and open.
fn find_place(connection: &Connection, acceptance: &Acceptance) -> Result<Place, Halt<AcceptError>> {
    let Worker { workspace, operator, continues, .. } = &acceptance.worker;
    match &acceptance.parent {
        Parent::UnnamedRoot => Ok(Place::NewRoot { caller_root_id: String::new() }),
        Parent::NamedRoot { caller_root_id } => {
            let name = [workspace.clone(), operator.clone(), caller_root_id.clone()];
            let named = row::find_named_root(connection, &name)?;
            match named {
                None => Ok(Place::NewRoot { caller_root_id: caller_root_id.clone() }),
                Some(root) => open_root(connection, root.id).map(Place::Root),
            }
        }
        Parent::Root(root) => open_root(connection, root.clone()).map(Place::Root),
        Parent::Turn(expected) => find_turn(connection, &acceptance.worker.id, *expected),
        Parent::Worker(id) => {
            let parent = row::find_worker(connection, id)?.ok_or_else(|| not_found(id))?;
            let root = open_root(connection, parent.root)?;
            if !id.is_worker() && parent.status != Status::Running && continues.is_none() {
                // No turn of its coordinator runs, and the root is as good as a caller's own.
                return Ok(Place::Root(root));
            }
            let takes_children =
                continues.is_some() || (parent.status == Status::Running && !is_stopping(connection, id)?);
            match takes_children {
                true => Ok(Place::Below { root, parent: parent.id }),
                false => Err(Halt::Refused(AcceptError::SessionClosed(parent.id))),
            }
        }
    }
}

/// A turn begins where nobody else began one since the caller looked.
fn find_turn(
    connection: &Connection,
    root: &SessionId,
    expected: Option<Position>,
) -> Result<Place, Halt<AcceptError>> {
    let Some(expected) = expected else { return Ok(Place::Turn { is_first: true }) };
    open_root(connection, root.clone())?;
    let before = append::find(connection, root)?.ok_or_else(|| not_found(root))?;
    match before.status.is_final() && before.head.position == expected {
        true => Ok(Place::Turn { is_first: false }),
        false => Err(Halt::Refused(AcceptError::TurnInProgress(root.clone()))),
    }
}

fn open_root(connection: &Connection, id: SessionId) -> Result<SessionId, Halt<AcceptError>> {
    let root = row::find_root(connection, &id)?.ok_or_else(|| not_found(&id))?;
    match root.close_time {
        None => Ok(id),
        Some(_) => Err(Halt::Refused(AcceptError::SessionClosed(id))),
    }
}

fn not_found(id: &SessionId) -> Halt<AcceptError> {
    Halt::Refused(AcceptError::SessionNotFound(id.to_string()))
}

fn is_stopping(connection: &Connection, id: &SessionId) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM stop_wishes WHERE worker = ?1")?.exists([id.as_str()])
}

/// What the tree, the workers above and the replica have left.
fn check_budget(
    connection: &Connection,
    acceptance: &Acceptance,
    place: &Place,
    now: Time,
) -> Result<(), Halt<AcceptError>> {
    if let Some(spawns_max) = acceptance.spawns_per_tree_max {
        let spawned = match place {
            Place::NewRoot { .. } | Place::Turn { .. } => 0,
            Place::Root(root) | Place::Below { root, .. } => {
                let since = before(now, acceptance.tree_window);
                connection
                    .prepare_cached(
                        "SELECT count(*) FROM workers
                         WHERE root = ?1 AND create_time > ?2 AND agent <> ?3 AND parent <> ''",
                    )?
                    .query_row(params![root.as_str(), since, REVIEWER], |count| count.get(0))?
            }
        };
        if spawned >= spawns_max {
            return Err(exhausted(TREE_LIMIT));
        }
    }
    if let Some(tokens_max) = acceptance.tokens_per_tree_max {
        let used = match place {
            Place::NewRoot { .. } | Place::Turn { .. } => 0,
            Place::Root(root) | Place::Below { root, .. } => {
                tokens_below(connection, root, before(now, acceptance.tree_window))?
            }
        };
        if used >= tokens_max {
            return Err(exhausted(TREE_TOKENS));
        }
    }
    if let Place::Below { parent, .. } = place {
        let is_used_up = connection
            .prepare_cached(&format!(
                "{ABOVE} SELECT 1 FROM workers JOIN above USING (id) WHERE spawned >= spawns_max"
            ))?
            .exists([parent.as_str()])?;
        if is_used_up {
            return Err(exhausted(WORKER_LIMIT));
        }
    }
    let open: u32 =
        connection.prepare_cached("SELECT open_workers FROM totals")?.query_row([], |count| count.get(0))?;
    match open < acceptance.open_max {
        true => Ok(()),
        false => Err(Halt::Refused(AcceptError::Overloaded)),
    }
}

/// What the workers below a root have used that were accepted after a time.
fn tokens_below(connection: &Connection, root: &SessionId, since: i64) -> rusqlite::Result<u64> {
    let used: i64 = connection
        .prepare_cached(
            "SELECT coalesce(sum((record ->> '$.usage.input_tokens') + (record ->> '$.usage.output_tokens')), 0)
             FROM workers WHERE root = ?1 AND create_time > ?2",
        )?
        .query_row(params![root.as_str(), since], |sum| sum.get(0))?;
    Ok(u64::try_from(used).unwrap_or(0))
}

/// A worker and the workers above it.
const ABOVE: &str = "WITH RECURSIVE above (id) AS (
    SELECT ?1 UNION ALL SELECT parent FROM workers JOIN above USING (id))";

fn exhausted((limit, origin): (&'static str, &'static str)) -> Halt<AcceptError> {
    Halt::Refused(AcceptError::BudgetExhausted { limit, origin: origin.to_owned() })
}

fn insert(
    connection: &Connection,
    acceptance: &Acceptance,
    place: Place,
    now: Time,
) -> Result<Accepted, Halt<AcceptError>> {
    let Acceptance { records, request, dedupe, is_review, .. } = acceptance;
    let mut worker = acceptance.worker.clone();
    let (root, parent) = match place {
        Place::NewRoot { caller_root_id } => {
            let root = SessionId::new_root();
            insert_root(
                connection,
                &root,
                &worker,
                Naming { agent: "", caller_root_id: &caller_root_id },
                now,
            )?;
            (root.clone(), root)
        }
        Place::Turn { is_first } => {
            let root = worker.id.clone();
            if is_first {
                let naming = Naming { agent: &worker.agent, caller_root_id: "" };
                insert_root(connection, &root, &worker, naming, now)?;
            }
            return insert_turn(connection, Turn { worker, records, request: request.as_ref() }, now);
        }
        Place::Root(root) => (root.clone(), root),
        Place::Below { root, parent } if *is_review => (root, parent),
        Place::Below { root, parent } => {
            connection
                .prepare_cached(&format!(
                    "{ABOVE} UPDATE workers SET spawned = spawned + 1 WHERE id IN (SELECT id FROM above)"
                ))?
                .execute([parent.as_str()])?;
            (root, parent)
        }
    };
    count_open(connection, &root, now)?;
    (worker.root, worker.parent, worker.create_time) = (root, parent, now);

    let spawns_max = spawns_max(records);
    let mut head = Head::default();
    let events = row::insert_records(connection, &worker.id, &mut head, records, now)?;
    insert_worker(connection, &worker, head, spawns_max)?;
    if let Some(request) = request {
        let caller = answers::Caller { workspace: &worker.workspace, operator: &worker.operator };
        answers::keep_request(connection, caller, request, &worker.id, now)?;
    }
    if let Some(dedupe) = dedupe {
        answers::keep_dedupe(connection, dedupe, &worker.id)?;
    }
    Ok(Accepted::New { worker, position: head.position, events })
}

/// What the agent and the caller call a root.
struct Naming<'a> {
    agent: &'a str,
    caller_root_id: &'a str,
}

/// A new root. One without a name closes with its last worker; a coordinator's is kept.
fn insert_root(
    connection: &Connection,
    id: &SessionId,
    worker: &Worker,
    Naming { agent, caller_root_id }: Naming<'_>,
    now: Time,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO roots (id, workspace, agent, operator, caller_root_id, is_unnamed, create_time,
                                active_time, open_workers, usage)
             VALUES (:id, :workspace, :agent, :operator, :caller_root_id, :is_unnamed, :now, :now, 0, :usage)",
        )?
        .execute(named_params! {
            ":id": id.as_str(),
            ":workspace": worker.workspace,
            ":agent": agent,
            ":operator": worker.operator,
            ":caller_root_id": caller_root_id,
            ":is_unnamed": caller_root_id.is_empty() && agent.is_empty(),
            ":now": now.0,
            ":usage": row::text(&Usage::default())?,
        })?;
    Ok(())
}

/// One more open worker or turn, below its root and in all.
fn count_open(connection: &Connection, root: &SessionId, now: Time) -> rusqlite::Result<usize> {
    connection.prepare_cached("UPDATE totals SET open_workers = open_workers + 1")?.execute([])?;
    connection
        .prepare_cached("UPDATE roots SET open_workers = open_workers + 1, active_time = ?2 WHERE id = ?1")?
        .execute(params![root.as_str(), now.0])
}

/// What may be spawned below a worker.
fn spawns_max(records: &[Record]) -> Option<u32> {
    records.iter().find_map(|record| match record {
        Record::Spec(spec) => spec.spawns_max,
        Record::Event { .. } | Record::Message { .. } => None,
    })
}

/// A turn to record.
struct Turn<'a> {
    worker: Worker,
    records: &'a [Record],
    request: Option<&'a Request>,
}

/// Records a coordinator's turn: in a row of its own the first time, in the row of the turn before later. Its parent is
/// empty, so that it is below nothing, not even itself.
fn insert_turn(connection: &Connection, turn: Turn<'_>, now: Time) -> Result<Accepted, Halt<AcceptError>> {
    let Turn { mut worker, records, request } = turn;
    count_open(connection, &worker.id, now)?;
    worker.create_time = now;
    let before = append::find(connection, &worker.id)?;
    let mut head = before.as_ref().map_or_else(Head::default, |before| before.head);
    let spawns_max = spawns_max(records);
    let events = row::insert_records(connection, &worker.id, &mut head, records, now)?;
    if let Some(before) = before {
        append::update_worker(connection, before.accepted, &worker, head)?;
        connection
            .prepare_cached(
                "UPDATE workers SET create_time = ?2, agent = ?3, spawned = 0, spawns_max = ?4, is_open = 1
                 WHERE id = ?1",
            )?
            .execute(params![worker.id.as_str(), now.0, worker.agent, spawns_max])?;
        // A wish was for the turn before.
        connection
            .prepare_cached("DELETE FROM stop_wishes WHERE worker = ?1")?
            .execute([worker.id.as_str()])?;
    } else {
        insert_worker(connection, &worker, head, spawns_max)?;
    }
    if let Some(request) = request {
        let caller = answers::Caller { workspace: &worker.workspace, operator: &worker.operator };
        answers::keep_request(connection, caller, request, &worker.id, now)?;
    }
    Ok(Accepted::New { worker, position: head.position, events })
}

fn insert_worker(
    connection: &Connection,
    worker: &Worker,
    head: Head,
    spawns_max: Option<u32>,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO workers (id, root, parent, workspace, agent, status, is_open, create_time, position,
                                  events, messages, spawned, spawns_max, record)
             VALUES (:id, :root, :parent, :workspace, :agent, :status, :is_open, :create_time, :position,
                     :events, :messages, 0, :spawns_max, :record)",
        )?
        .execute(named_params! {
            ":id": worker.id.as_str(),
            ":root": worker.root.as_str(),
            ":parent": if worker.is_turn() { "" } else { worker.parent.as_str() },
            ":workspace": worker.workspace,
            ":agent": worker.agent,
            ":status": row::status_name(worker.status),
            ":is_open": !worker.status.is_final(),
            ":create_time": worker.create_time.0,
            ":position": Number(head.position),
            ":events": Number(head.events),
            ":messages": Number(head.messages),
            ":spawns_max": spawns_max,
            ":record": row::text(worker)?,
        })?;
    Ok(())
}

/// The time that lies `duration` before `now`.
pub(super) fn before(now: Time, duration: std::time::Duration) -> i64 {
    now.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}
