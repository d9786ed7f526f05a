//! Rows and what they stand for. A worker, a usage and a record are kept as JSON, beside the columns that are asked for.

use rusqlite::{
    CachedStatement, Connection, OptionalExtension as _, Params, Row, ToSql, named_params,
    types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, Type, ValueRef},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    event::Event,
    session::{Position, Record, Root, Stored},
    worker::{SessionId, Status, Time, Worker},
};

/// An unsigned number in a signed column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(pub(super) u64);

/// How far a session's log goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Head {
    pub(super) position: Position,
    pub(super) events: u64,
    pub(super) messages: u64,
}

/// What a record is, in the column `kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Spec = 0,
    Event = 1,
    Message = 2,
}

/// The columns of [`root`], in its order.
pub(super) const ROOT_COLUMNS: &str =
    "id, workspace, agent, operator, caller_root_id, create_time, close_time, usage, open_workers,
    agent <> '' AND EXISTS (SELECT * FROM workers WHERE workers.id = roots.id AND is_open = 1)";

pub(super) fn worker(row: &Row<'_>) -> rusqlite::Result<Worker> {
    json(row, 0)
}

pub(super) fn root(row: &Row<'_>) -> rusqlite::Result<Root> {
    let turn_running: bool = row.get(9)?;
    Ok(Root {
        id: id(row, 0)?,
        workspace: row.get(1)?,
        agent: row.get(2)?,
        operator: row.get(3)?,
        caller_root_id: row.get(4)?,
        create_time: Time(row.get(5)?),
        close_time: row.get::<_, Option<i64>>(6)?.map(Time),
        usage: json(row, 7)?,
        // The turn counts among what keeps the root from being closed or deleted.
        open_workers: row.get::<_, u32>(8)? - u32::from(turn_running),
        turn_running,
    })
}

pub(super) fn find_worker(connection: &Connection, id: &SessionId) -> rusqlite::Result<Option<Worker>> {
    connection
        .prepare_cached("SELECT record FROM workers WHERE id = ?1")?
        .query_row([id.as_str()], worker)
        .optional()
}

pub(super) fn find_root(connection: &Connection, id: &SessionId) -> rusqlite::Result<Option<Root>> {
    connection
        .prepare_cached(&format!("SELECT {ROOT_COLUMNS} FROM roots WHERE id = ?1"))?
        .query_row([id.as_str()], root)
        .optional()
}

/// By workspace, operator and the caller's name for it.
pub(super) fn find_named_root(
    connection: &Connection,
    [workspace, operator, caller_root_id]: &[String; 3],
) -> rusqlite::Result<Option<Root>> {
    connection
        .prepare_cached(&format!(
            "SELECT {ROOT_COLUMNS} FROM roots WHERE workspace = ?1 AND operator = ?2 AND caller_root_id = ?3
             AND caller_root_id <> ''"
        ))?
        .query_row([workspace, operator, caller_root_id], root)
        .optional()
}

/// All rows of a query, read by `read`.
pub(super) fn all<T>(
    mut statement: CachedStatement<'_>,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    statement.query_map(params, read)?.collect()
}

/// Adds records at the end of a log, counting their sequences, and answers the events among them.
pub(super) fn insert_records(
    connection: &Connection,
    session: &SessionId,
    head: &mut Head,
    records: &[Record],
    now: Time,
) -> rusqlite::Result<Vec<Event>> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO records (session, position, kind, sequence, time, body)
         VALUES (:session, :position, :kind, :sequence, :time, :body)",
    )?;
    let mut events = Vec::new();
    for record in records {
        head.position += 1;
        let (kind, sequence) = match record {
            // A coordinator's session has one a turn: its position tells them apart.
            Record::Spec(_) if !session.is_worker() => (Kind::Spec, head.position),
            Record::Spec(_) => (Kind::Spec, 0),
            Record::Event { .. } => {
                head.events += 1;
                (Kind::Event, head.events)
            }
            Record::Message { .. } => {
                head.messages += 1;
                (Kind::Message, head.messages)
            }
        };
        insert.execute(named_params! {
            ":session": session.as_str(),
            ":position": Number(head.position),
            ":kind": kind as i64,
            ":sequence": Number(sequence),
            ":time": now.0,
            ":body": text(record)?,
        })?;
        if let Record::Event { body } = record {
            events.push(Event { session: session.clone(), sequence, time: now, body: body.clone() });
        }
    }
    Ok(events)
}

/// Reads `position, sequence, time, body`.
pub(super) fn stored(row: &Row<'_>) -> rusqlite::Result<Stored> {
    let (Number(position), Number(sequence)) = (row.get(0)?, row.get(1)?);
    Ok(Stored { position, sequence, time: Time(row.get(2)?), record: json(row, 3)? })
}

pub(super) fn id(row: &Row<'_>, column: usize) -> rusqlite::Result<SessionId> {
    let text = row.get_ref(column)?.as_str()?;
    SessionId::parse(text).ok_or_else(|| unreadable(column, format!("`{text}` is no session id").into()))
}

pub(super) fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    serde_json::from_str(text).map_err(|error| unreadable(column, error.into()))
}

/// A value as JSON text.
pub(super) fn text(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

pub(super) fn status_name(status: Status) -> &'static str {
    match status {
        Status::Pending => "pending",
        Status::Running => "running",
        Status::Completed => "completed",
        Status::Failed => "failed",
        Status::Killed => "killed",
    }
}

pub(super) fn status(row: &Row<'_>, column: usize) -> rusqlite::Result<Status> {
    let name = row.get_ref(column)?.as_str()?;
    [Status::Pending, Status::Running, Status::Completed, Status::Failed, Status::Killed]
        .into_iter()
        .find(|status| status_name(*status) == name)
        .ok_or_else(|| unreadable(column, format!("`{name}` is no status").into()))
}

fn unreadable(column: usize, error: Box<dyn std::error::Error + Send + Sync>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error)
}

impl ToSql for Number {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match i64::try_from(self.0) {
            Ok(number) => Ok(number.into()),
            Err(error) => Err(rusqlite::Error::ToSqlConversionFailure(error.into())),
        }
    }
}

impl FromSql for Number {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let number = value.as_i64()?;
        u64::try_from(number).map(Self).map_err(|_| FromSqlError::OutOfRange(number))
    }
}
