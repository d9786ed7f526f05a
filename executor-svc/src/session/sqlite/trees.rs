//! What concerns a whole tree: the wish to stop it, its closing, and its deletion.

use rusqlite::{Connection, params};

use super::{accept::before, answers::REQUEST_KEPT, read::BELOW, row};
use crate::{
    session::{Deletion, Root, StopWish, Sweep, Swept},
    worker::{SessionId, Time},
};

/// Reaches the session itself, where it is a worker, and every worker below it that is open now. Later ones need not be
/// reached: a worker with a wish takes no children.
pub(super) fn wish_stop(connection: &Connection, id: &SessionId, wish: &StopWish) -> rusqlite::Result<()> {
    connection
        .prepare_cached(&format!(
            "{BELOW} INSERT OR IGNORE INTO stop_wishes (worker, wish)
             SELECT id, ?2 FROM workers WHERE is_open = 1 AND (id = ?1 OR id IN (SELECT id FROM below))"
        ))?
        .execute(params![id.as_str(), row::text(wish)?])?;
    Ok(())
}

pub(super) fn close_root(
    connection: &Connection,
    id: &SessionId,
    now: Time,
) -> rusqlite::Result<Option<Root>> {
    connection
        .prepare_cached("UPDATE roots SET close_time = ?2 WHERE id = ?1 AND close_time IS NULL")?
        .execute(params![id.as_str(), now.0])?;
    row::find_root(connection, id)
}

pub(super) fn delete_tree(connection: &Connection, id: &SessionId) -> rusqlite::Result<Deletion> {
    match row::find_root(connection, id)? {
        None => Ok(Deletion::NotFound),
        Some(root) if root.close_time.is_none() || root.open_workers > 0 || root.turn_running => {
            Ok(Deletion::Open)
        }
        Some(_) => {
            delete(connection, id)?;
            Ok(Deletion::Deleted)
        }
    }
}

pub(super) fn sweep(connection: &Connection, sweep: Sweep, now: Time) -> rusqlite::Result<Swept> {
    let Sweep { idle, retention, limit } = sweep;
    let closed = connection
        .prepare_cached(
            "UPDATE roots SET close_time = ?1
             WHERE close_time IS NULL AND open_workers = 0 AND active_time <= ?2",
        )?
        .execute(params![now.0, before(now, idle)])?;
    let due = connection.prepare_cached(
        "SELECT id FROM roots WHERE close_time <= ?1 AND open_workers = 0 ORDER BY close_time LIMIT ?2",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let due = row::all(due, params![before(now, retention), limit], |found| row::id(found, 0))?;
    for root in &due {
        delete(connection, root)?;
    }
    connection
        .prepare_cached("DELETE FROM requests WHERE time <= ?1")?
        .execute([before(now, REQUEST_KEPT)])?;
    Ok(Swept { closed, deleted: due.len() })
}

fn delete(connection: &Connection, root: &SessionId) -> rusqlite::Result<()> {
    for (table, column) in
        [("records", "session"), ("stop_wishes", "worker"), ("requests", "worker"), ("dedupe", "worker")]
    {
        connection
            .prepare_cached(&format!(
                "DELETE FROM {table} WHERE {column} IN (SELECT id FROM workers WHERE root = ?1)"
            ))?
            .execute([root.as_str()])?;
    }
    connection.prepare_cached("DELETE FROM proposals WHERE root = ?1")?.execute([root.as_str()])?;
    connection.prepare_cached("DELETE FROM workers WHERE root = ?1")?.execute([root.as_str()])?;
    connection.prepare_cached("DELETE FROM roots WHERE id = ?1")?.execute([root.as_str()])?;
    Ok(())
}
