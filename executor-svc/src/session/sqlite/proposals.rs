//! Proposals of the review gate: written once, and from then on only exchanged for what follows from a known state.

use rusqlite::{Connection, OptionalExtension as _, named_params, params};

use super::row;
use crate::{
    review::{Decision, ENDED, Proposal},
    worker::{SessionId, Time},
};

pub(super) fn insert(connection: &Connection, proposal: &Proposal) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO proposals (id, session, root, workspace, operator, decision, record)
             VALUES (:id, :session, :root, :workspace, :operator, :decision, :record)",
        )?
        .execute(named_params! {
            ":id": proposal.id,
            ":session": proposal.session.as_str(),
            ":root": proposal.root.as_str(),
            ":workspace": proposal.workspace,
            ":operator": proposal.operator,
            ":decision": decision_name(proposal.decision),
            ":record": row::text(proposal)?,
        })?;
    Ok(())
}

pub(super) fn find(connection: &Connection, id: &str) -> rusqlite::Result<Option<Proposal>> {
    connection
        .prepare_cached("SELECT record FROM proposals WHERE id = ?1")?
        .query_row([id], |found| row::json(found, 0))
        .optional()
}

/// Compare-and-set over the whole record.
pub(super) fn exchange(
    connection: &Connection,
    before: &Proposal,
    after: &Proposal,
) -> rusqlite::Result<bool> {
    let changed = connection
        .prepare_cached("UPDATE proposals SET decision = ?3, record = ?4 WHERE id = ?1 AND record = ?2")?
        .execute(params![before.id, row::text(before)?, decision_name(after.decision), row::text(after)?])?;
    Ok(changed == 1)
}

/// Rejects what a session that has ended left open.
pub(super) fn reject_open(connection: &Connection, session: &SessionId, now: Time) -> rusqlite::Result<()> {
    let open =
        connection.prepare_cached("SELECT record FROM proposals WHERE session = ?1 AND decision = ?2")?;
    let pending = decision_name(Decision::Pending);
    let open: Vec<Proposal> =
        row::all(open, params![session.as_str(), pending], |found| row::json(found, 0))?;
    for proposal in open {
        exchange(connection, &proposal, &proposal.decided(Decision::Rejected, "", ENDED, now))?;
    }
    Ok(())
}

pub(super) fn decision_name(decision: Decision) -> &'static str {
    match decision {
        Decision::Pending => "pending",
        Decision::Approved => "approved",
        Decision::Rejected => "rejected",
    }
}
