//! The transaction of one step: compare the position, append, and keep the accounts of a worker that ends.

use rusqlite::{Connection, OptionalExtension as _, named_params, params};

use super::{
    answers,
    fault::{Fault, Halt},
    proposals,
    row::{self, Head, Number},
};
use crate::{
    session::{Append, AppendError, Appended},
    worker::{SessionId, Status, Time, Usage, Worker},
};

pub(super) fn append(
    connection: &Connection,
    append: &Append,
    now: Time,
) -> Result<Appended, Halt<AppendError>> {
    let Append { session, expected, records, worker } = append;
    if worker.id != *session {
        return Err(Fault::ForeignRow { session: session.clone(), row: worker.id.clone() }.into());
    }
    let moved =
        |actual| Halt::Refused(AppendError::Moved { session: session.clone(), expected: *expected, actual });
    let before = find(connection, session)?.ok_or_else(|| moved(0))?;
    let mut head = before.head;
    if head.position != *expected || before.status.is_final() {
        return Err(moved(head.position));
    }
    let (from, to) = (before.status, worker.status);
    if from != to && !from.may_become(to) {
        return Err(Fault::IllegalChange { session: session.clone(), from, to }.into());
    }
    let events = row::insert_records(connection, session, &mut head, records, now)?;
    let mut worker = worker.clone();
    // Fixed when it was accepted, whatever the caller remembers.
    (worker.root, worker.create_time) = (before.root, before.create_time);
    worker.parent = before.parent.unwrap_or(worker.parent);
    if to.is_final() {
        worker.close_time = worker.close_time.or(Some(now));
    }
    update_worker(connection, before.accepted, &worker, head)?;
    if to.is_final() {
        close_accounts(connection, &worker, now)?;
    }
    Ok(Appended { position: head.position, events })
}

/// What a worker's row says without being read whole.
pub(super) struct Before {
    pub(super) accepted: i64,
    pub(super) head: Head,
    pub(super) status: Status,
    root: SessionId,
    /// Absent where it is a coordinator's turn, which is below nothing.
    parent: Option<SessionId>,
    create_time: Time,
}

pub(super) fn find(connection: &Connection, id: &SessionId) -> rusqlite::Result<Option<Before>> {
    connection
        .prepare_cached(
            "SELECT accepted, position, events, messages, status, root, parent, create_time
             FROM workers WHERE id = ?1",
        )?
        .query_row([id.as_str()], |found| {
            let (Number(position), Number(events), Number(messages)) =
                (found.get(1)?, found.get(2)?, found.get(3)?);
            Ok(Before {
                accepted: found.get(0)?,
                head: Head { position, events, messages },
                status: row::status(found, 4)?,
                root: row::id(found, 5)?,
                parent: match found.get_ref(6)?.as_str()? {
                    "" => None,
                    _ => Some(row::id(found, 6)?),
                },
                create_time: Time(found.get(7)?),
            })
        })
        .optional()
}

pub(super) fn update_worker(
    connection: &Connection,
    accepted: i64,
    worker: &Worker,
    head: Head,
) -> rusqlite::Result<()> {
    // The index of open workers is touched by the last step only.
    let sql = match worker.status.is_final() {
        true => {
            "UPDATE workers SET status = :status, position = :position, events = :events, messages = :messages,
                                record = :record, is_open = 0
             WHERE accepted = :accepted"
        }
        false => {
            "UPDATE workers SET status = :status, position = :position, events = :events, messages = :messages,
                                record = :record
             WHERE accepted = :accepted"
        }
    };
    connection.prepare_cached(sql)?.execute(named_params! {
        ":accepted": accepted,
        ":status": row::status_name(worker.status),
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
            "UPDATE roots SET usage = ?2, active_time = ?3, open_workers = open_workers - 1,
                 close_time = CASE WHEN is_unnamed AND open_workers = 1 THEN coalesce(close_time, ?3)
                                   ELSE close_time END
             WHERE id = ?1",
        )?
        .execute(params![worker.root.as_str(), row::text(&usage)?, now.0])?;
    connection.prepare_cached("UPDATE totals SET open_workers = open_workers - 1")?.execute([])?;
    proposals::reject_open(connection, &worker.id, now)?;
    answers::settle_dedupe(connection, worker, now)
}
