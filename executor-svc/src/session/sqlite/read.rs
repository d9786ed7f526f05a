//! The queries: nothing here writes.

use std::fmt;

use rusqlite::{Connection, OptionalExtension as _, Params, ToSql, params, params_from_iter};

use super::{
    proposals,
    row::{self, Kind, Number},
};
use crate::{
    event::Event,
    review::Proposal,
    session::{Position, ProposalFilter, Record, Root, RootFilter, StopWish, Stored, WorkerFilter},
    transcript::Message,
    worker::{SessionId, Time, Worker},
};

pub(super) fn records(
    connection: &Connection,
    session: &SessionId,
    after: Position,
    limit: usize,
) -> rusqlite::Result<Vec<Stored>> {
    let statement = connection.prepare_cached(
        "SELECT position, sequence, time, body FROM records WHERE session = ?1 AND position > ?2
         ORDER BY position LIMIT ?3",
    )?;
    row::all(statement, params![session.as_str(), Number(after), bound(limit)], row::stored)
}

pub(super) fn events(
    connection: &Connection,
    session: &SessionId,
    after: u64,
    limit: usize,
) -> rusqlite::Result<Vec<Event>> {
    let stored = of_kind(connection, session, Kind::Event, after, limit)?;
    let events = stored.into_iter().filter_map(|Stored { sequence, time, record, .. }| match record {
        Record::Event { body } => Some(Event { session: session.clone(), sequence, time, body }),
        Record::Spec(_) | Record::Message { .. } => None,
    });
    Ok(events.collect())
}

pub(super) fn messages(
    connection: &Connection,
    session: &SessionId,
    after: u64,
    limit: usize,
) -> rusqlite::Result<Vec<(u64, Time, Message)>> {
    let stored = of_kind(connection, session, Kind::Message, after, limit)?;
    let messages = stored.into_iter().filter_map(|Stored { sequence, time, record, .. }| match record {
        Record::Message { message } => Some((sequence, time, message)),
        Record::Spec(_) | Record::Event { .. } => None,
    });
    Ok(messages.collect())
}

pub(super) fn recent(
    connection: &Connection,
    session: &SessionId,
    limit: usize,
) -> rusqlite::Result<Vec<(u64, Message)>> {
    let last: Option<Number> = connection
        .prepare_cached(
            "SELECT sequence FROM records WHERE session = ?1 AND kind = ?2 ORDER BY position DESC LIMIT 1",
        )?
        .query_row(params![session.as_str(), Kind::Message as i64], |found| found.get(0))
        .optional()?;
    let after = last.map_or(0, |Number(last)| last.saturating_sub(limit as u64));
    let recent = messages(connection, session, after, limit)?;
    Ok(recent.into_iter().map(|(sequence, _, message)| (sequence, message)).collect())
}

fn of_kind(
    connection: &Connection,
    session: &SessionId,
    kind: Kind,
    after: u64,
    limit: usize,
) -> rusqlite::Result<Vec<Stored>> {
    let statement = connection.prepare_cached(
        // Sequences rise with positions, and none is ahead of its own.
        "SELECT position, sequence, time, body FROM records
         WHERE session = ?1 AND position > ?3 AND kind = ?2 AND sequence > ?3 ORDER BY position LIMIT ?4",
    )?;
    let params = params![session.as_str(), kind as i64, Number(after), bound(limit)];
    row::all(statement, params, row::stored)
}

pub(super) fn workers(connection: &Connection, filter: &WorkerFilter) -> rusqlite::Result<Vec<Worker>> {
    let WorkerFilter {
        workspace,
        operator,
        root,
        parent,
        agent,
        statuses,
        labels,
        created_after,
        after,
        oldest_first,
        turns,
        limit,
    } = filter;
    let (beyond, order) = if *oldest_first { (">", "ASC") } else { ("<", "DESC") };
    let mut conditions = Conditions::default();
    conditions.add("parent <> ?", (!turns).then_some(""));
    conditions.add("workspace = ?", workspace.clone());
    conditions.add("root = ?", root.as_ref().map(SessionId::to_string));
    conditions.add("parent = ?", parent.as_ref().map(SessionId::to_string));
    conditions.add("agent = ?", agent.clone());
    conditions.add("record ->> '$.operator' = ?", operator.clone());
    conditions.add("create_time > ?", created_after.map(|time| time.0));
    conditions.add(
        format!("accepted {beyond} (SELECT accepted FROM workers WHERE id = ?)"),
        after.as_ref().map(SessionId::to_string),
    );
    if !statuses.is_empty() {
        let names: Vec<&str> = statuses.iter().map(|status| row::status_name(*status)).collect();
        let names = row::text(&names)?;
        conditions.add("status IN (SELECT value FROM json_each(?))", Some(names));
    }
    for (label, value) in labels {
        let pair = row::text(&[label, value])?;
        conditions.add(
            "EXISTS (SELECT * FROM json_each(record, '$.labels') AS label
                     WHERE json_array(label.key, label.value) = ?)",
            Some(pair),
        );
    }
    let sql = format!("SELECT record FROM workers {conditions} ORDER BY accepted {order} LIMIT ?");
    conditions.values.push(Box::new(bound(*limit)));
    row::all(connection.prepare_cached(&sql)?, conditions.params(), row::worker)
}

pub(super) fn descendants(
    connection: &Connection,
    session: &SessionId,
    limit: usize,
) -> rusqlite::Result<Vec<Worker>> {
    let statement = connection.prepare_cached(&format!(
        "{BELOW} SELECT record FROM workers JOIN below USING (id) ORDER BY accepted LIMIT ?2"
    ))?;
    row::all(statement, params![session.as_str(), bound(limit)], row::worker)
}

pub(super) fn proposals(connection: &Connection, filter: &ProposalFilter) -> rusqlite::Result<Vec<Proposal>> {
    let ProposalFilter { workspace, operator, root, session, decision, after, limit } = filter;
    let mut conditions = Conditions::default();
    conditions.add("workspace = ?", workspace.clone());
    conditions.add("operator = ?", operator.clone());
    conditions.add("root = ?", root.as_ref().map(SessionId::to_string));
    conditions.add("session = ?", session.as_ref().map(SessionId::to_string));
    conditions.add("decision = ?", decision.map(proposals::decision_name));
    conditions.add("proposed < (SELECT proposed FROM proposals WHERE id = ?)", after.clone());
    let sql = format!("SELECT record FROM proposals {conditions} ORDER BY proposed DESC LIMIT ?");
    conditions.values.push(Box::new(bound(*limit)));
    row::all(connection.prepare_cached(&sql)?, conditions.params(), |found| row::json(found, 0))
}

/// The workers below a session.
pub(super) const BELOW: &str = "WITH RECURSIVE below (id) AS (
    SELECT id FROM workers WHERE parent = ?1
    UNION ALL SELECT workers.id FROM workers JOIN below ON workers.parent = below.id)";

pub(super) fn roots(connection: &Connection, filter: &RootFilter) -> rusqlite::Result<Vec<Root>> {
    let RootFilter { workspace, operator, open_only, after, limit } = filter;
    let mut conditions = Conditions::default();
    conditions.add("workspace = ?", workspace.clone());
    conditions.add("operator = ?", operator.clone());
    conditions
        .add("opened < (SELECT opened FROM roots WHERE id = ?)", after.as_ref().map(SessionId::to_string));
    conditions.add("(close_time IS NULL) = ?", open_only.then_some(true));
    let columns = row::ROOT_COLUMNS;
    let sql = format!("SELECT {columns} FROM roots {conditions} ORDER BY opened DESC LIMIT ?");
    conditions.values.push(Box::new(bound(*limit)));
    row::all(connection.prepare_cached(&sql)?, conditions.params(), row::root)
}

/// The position before the last spec of a session, among the records up to a position.
pub(super) fn turn(
    connection: &Connection,
    session: &SessionId,
    until: Option<Position>,
) -> rusqlite::Result<Position> {
    let until = until.map(Number);
    let last: Option<Number> = connection
        .prepare_cached(
            "SELECT position FROM records
             WHERE session = ?1 AND kind = ?2 AND (?3 IS NULL OR position <= ?3)
             ORDER BY position DESC LIMIT 1",
        )?
        .query_row(params![session.as_str(), Kind::Spec as i64, until], |found| found.get(0))
        .optional()?;
    Ok(last.map_or(0, |Number(position)| position - 1))
}

pub(super) fn stop_wish(connection: &Connection, id: &SessionId) -> rusqlite::Result<Option<StopWish>> {
    connection
        .prepare_cached("SELECT wish FROM stop_wishes WHERE worker = ?1")?
        .query_row([id.as_str()], |found| row::json(found, 0))
        .optional()
}

/// Every open worker, in the order in which they were accepted.
pub(super) fn open_workers(connection: &Connection) -> rusqlite::Result<Vec<SessionId>> {
    let statement =
        connection.prepare_cached("SELECT id FROM workers WHERE is_open = 1 ORDER BY accepted")?;
    row::all(statement, [], |found| row::id(found, 0))
}

/// The conditions of a list that were asked for, each with one value.
#[derive(Default)]
struct Conditions {
    texts: Vec<String>,
    values: Vec<Box<dyn ToSql>>,
}

impl Conditions {
    fn add<T: ToSql + 'static>(&mut self, text: impl Into<String>, value: Option<T>) {
        if let Some(value) = value {
            self.texts.push(text.into());
            self.values.push(Box::new(value));
        }
    }

    fn params(&self) -> impl Params {
        params_from_iter(self.values.iter())
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, text) in self.texts.iter().enumerate() {
            let word = if index == 0 { "WHERE" } else { "AND" };
            write!(formatter, "{word} {text} ")?;
        }
        Ok(())
    }
}

fn bound(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
