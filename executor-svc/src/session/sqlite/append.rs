//! The transaction of one step: compare the position, append, and keep the accounts of a worker that ends.

use rusqlite::{Connection, named_params, params};

use super::{
    answers,
    fault::{Fault, Halt},
    proposals,
    row::{self, Head, Number},
};
use crate::{
    session::{Append, AppendError, Appended},
    worker::{Time, Usage, Worker},
};

pub(super) fn append(
    connection: &Connection,
    append: Append,
    now: Time,
) -> Result<Appended, Halt<AppendError>> {
    let Append { session, expected, records, mut worker } = append;
    if worker.id != session {
        return Err(Fault::ForeignRow { session, row: worker.id }.into());
    }
    let (mut head, before) = row::find_head(connection, &session)?
        .ok_or_else(|| Halt::Refused(AppendError::Moved { session: session.clone(), expected, actual: 0 }))?;
    if head.position != expected || before.status.is_final() {
        return Err(Halt::Refused(AppendError::Moved { session, expected, actual: head.position }));
    }
    let (from, to) = (before.status, worker.status);
    if from != to && !from.may_become(to) {
        return Err(Fault::IllegalChange { session, from, to }.into());
    }
    // Fixed when it was accepted, whatever the caller remembers.
    (worker.root, worker.parent, worker.create_time) = (before.root, before.parent, before.create_time);
    if to.is_final() {
        worker.close_time = worker.close_time.or(Some(now));
    }
    let events = row::insert_records(connection, &session, &mut head, records, now)?;
    update_worker(connection, &worker, head)?;
    if to.is_final() {
        close_accounts(connection, &worker, now)?;
    }
    Ok(Appended { position: head.position, events })
}

pub(super) fn update_worker(connection: &Connection, worker: &Worker, head: Head) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE workers SET status = :status, is_open = :is_open, position = :position, events = :events,
                                messages = :messages, record = :record
             WHERE id = :id",
        )?
        .execute(named_params! {
            ":id": worker.id.as_str(),
            ":status": row::status_name(worker.status),
            ":is_open": !worker.status.is_final(),
            ":position": Number(head.position),
            ":events": Number(head.events),
            ":messages": Number(head.messages),
            ":record": row::text(worker)?,
        })?;
    Ok(())
}

/// What the end of a worker means for its root and for calls like its own.
fn close_accounts(connection: &Connection, worker: &Worker, now: Time) -> rusqlite::Result<()> {
    let mut usage: Usage = connection
        .prepare_cached("SELECT usage FROM roots WHERE id = ?1")?
        .query_row([worker.root.as_str()], |found| row::json(found, 0))?;
    usage += worker.usage;
    connection
        .prepare_cached(
            "UPDATE roots SET usage = ?2, active_time = ?3, open_workers = open_workers - 1 WHERE id = ?1",
        )?
        .execute(params![worker.root.as_str(), row::text(&usage)?, now.0])?;
    connection
        .prepare_cached(
            "UPDATE roots SET close_time = ?2
             WHERE id = ?1 AND is_unnamed AND open_workers = 0 AND close_time IS NULL",
        )?
        .execute(params![worker.root.as_str(), now.0])?;
    proposals::reject_open(connection, &worker.id, now)?;
    answers::settle_dedupe(connection, worker, now)
}
