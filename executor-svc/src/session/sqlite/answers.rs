//! Earlier workers that answer in the place of a new one: the same request once more, and an identical call.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, params};

use super::{accept::before, fault::Halt, row};
use crate::{
    session::{AcceptError, Dedupe, Request},
    worker::{SessionId, Status, Time, Worker},
};

/// How long a request id is remembered: the contract's 24 h.
pub(super) const REQUEST_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Whom a request id belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller<'a> {
    pub(super) workspace: &'a str,
    pub(super) operator: &'a str,
}

/// The worker that the same request made.
pub(super) fn repeated(
    connection: &Connection,
    caller: Caller<'_>,
    request: &Request,
    now: Time,
) -> Result<Option<Worker>, Halt<AcceptError>> {
    let kept: Option<([u8; 32], Worker)> = connection
        .prepare_cached(
            "SELECT record, content FROM requests JOIN workers ON workers.id = requests.worker
             WHERE requests.workspace = ?1 AND requests.operator = ?2 AND requests.id = ?3 AND time > ?4",
        )?
        .query_row(
            params![caller.workspace, caller.operator, request.id, before(now, REQUEST_KEPT)],
            |found| Ok((found.get(1)?, row::worker(found)?)),
        )
        .optional()?;
    match kept {
        None => Ok(None),
        Some((content, worker)) if content == request.content => Ok(Some(worker)),
        Some(_) => Err(Halt::Refused(AcceptError::RequestIdReused(request.id.clone()))),
    }
}

pub(super) fn keep_request(
    connection: &Connection,
    caller: Caller<'_>,
    request: &Request,
    worker: &SessionId,
    now: Time,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO requests (workspace, operator, id, content, worker, time)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            caller.workspace,
            caller.operator,
            request.id,
            request.content,
            worker.as_str(),
            now.0
        ])?;
    Ok(())
}

/// The worker of an identical call: one that runs, and is not about to be stopped, or one that completed within the
/// window. Finding it makes it the last used.
pub(super) fn deduplicated(
    connection: &Connection,
    dedupe: &Dedupe,
    now: Time,
) -> rusqlite::Result<Option<Worker>> {
    if dedupe.bypass {
        return Ok(None);
    }
    let found = connection
        .prepare_cached(
            "SELECT record FROM dedupe JOIN workers ON workers.id = dedupe.worker
             WHERE key = ?1 AND (complete_time > ?2 OR (complete_time IS NULL
                   AND NOT EXISTS (SELECT * FROM stop_wishes WHERE stop_wishes.worker = dedupe.worker)))",
        )?
        .query_row(params![dedupe.key, before(now, dedupe.ttl)], row::worker)
        .optional()?;
    if found.is_some() {
        // Without a change there is no wait for the disk.
        let recent = i64::try_from(dedupe.capacity / RECENT_SHARE).unwrap_or(i64::MAX);
        connection
            .prepare_cached(&format!(
                "UPDATE dedupe SET used = {NEXT_USE}
                 WHERE key = ?1 AND used < (SELECT max(used) FROM dedupe) - ?2"
            ))?
            .execute(params![dedupe.key, recent])?;
    }
    Ok(found)
}

/// Uses are told apart up to this share of the capacity: whoever was used that recently is not the next to be forgotten.
const RECENT_SHARE: usize = 8;

/// A number behind every other in the column `used`.
const NEXT_USE: &str = "(SELECT coalesce(max(used), 0) + 1 FROM dedupe)";

/// Lets a new worker answer identical calls from now on, in the place of an earlier one and of the least used.
pub(super) fn keep_dedupe(
    connection: &Connection,
    dedupe: &Dedupe,
    worker: &SessionId,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(&format!(
            "INSERT OR REPLACE INTO dedupe (key, worker, complete_time, used) VALUES (?1, ?2, NULL, {NEXT_USE})"
        ))?
        .execute(params![dedupe.key, worker.as_str()])?;
    let capacity = i64::try_from(dedupe.capacity).unwrap_or(i64::MAX);
    connection
        .prepare_cached(
            "DELETE FROM dedupe WHERE key IN (SELECT key FROM dedupe ORDER BY used DESC LIMIT -1 OFFSET ?1)",
        )?
        .execute([capacity])?;
    Ok(())
}

/// A finished answer is kept from now on for the window; any other end makes room for another try.
pub(super) fn settle_dedupe(connection: &Connection, worker: &Worker, now: Time) -> rusqlite::Result<()> {
    if worker.status == Status::Completed && !worker.partial {
        connection
            .prepare_cached("UPDATE dedupe SET complete_time = ?2 WHERE worker = ?1")?
            .execute(params![worker.id.as_str(), now.0])?;
    } else {
        connection.prepare_cached("DELETE FROM dedupe WHERE worker = ?1")?.execute([worker.id.as_str()])?;
    }
    Ok(())
}
