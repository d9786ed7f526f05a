//! The database file: its tables, the settings it is opened with, and the refusal of what this program does not know.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, TransactionBehavior, config::DbConfig};

use super::{
    fault::{Fault, OpenError},
    row::Number,
};

/// Below it, SQLite could corrupt a write-ahead log that several connections use.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// How long a connection waits for another one. There is one writer, so only a checkpoint is ever waited for.
const BUSY_TIMEOUT_MS: u32 = 5_000;

/// What remains of the write-ahead log's file after a checkpoint, bytes.
const JOURNAL_SIZE_MAX: u32 = 64 * 1024 * 1024;

/// Prepared statements kept by a connection: more than there are in this directory.
const STATEMENTS_MAX: usize = 64;

/// Every step from an empty file to today's tables. A released step is never changed; a new one is added at the end.
const STEPS: &[&str] = &["
    CREATE TABLE roots (
        opened          INTEGER PRIMARY KEY AUTOINCREMENT,
        id              TEXT NOT NULL UNIQUE,
        workspace       TEXT NOT NULL,
        agent           TEXT NOT NULL,
        operator        TEXT NOT NULL,
        caller_root_id  TEXT NOT NULL,
        is_unnamed      INTEGER NOT NULL,
        create_time     INTEGER NOT NULL,
        active_time     INTEGER NOT NULL,
        close_time      INTEGER,
        open_workers    INTEGER NOT NULL,
        usage           TEXT NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX roots_by_name ON roots (workspace, operator, caller_root_id) WHERE caller_root_id <> '';
    CREATE INDEX roots_by_workspace ON roots (workspace);
    CREATE INDEX roots_idle ON roots (active_time) WHERE close_time IS NULL AND open_workers = 0;
    CREATE INDEX roots_closed ON roots (close_time) WHERE close_time IS NOT NULL;

    CREATE TABLE workers (
        accepted        INTEGER PRIMARY KEY AUTOINCREMENT,
        id              TEXT NOT NULL UNIQUE,
        root            TEXT NOT NULL,
        parent          TEXT NOT NULL,
        workspace       TEXT NOT NULL,
        agent           TEXT NOT NULL,
        status          TEXT NOT NULL,
        is_open         INTEGER NOT NULL,
        create_time     INTEGER NOT NULL,
        position        INTEGER NOT NULL,
        events          INTEGER NOT NULL,
        messages        INTEGER NOT NULL,
        spawned         INTEGER NOT NULL,
        spawns_max      INTEGER,
        record          TEXT NOT NULL
    ) STRICT;
    CREATE INDEX workers_by_root ON workers (root);
    CREATE INDEX workers_by_root_and_time ON workers (root, create_time);
    CREATE INDEX workers_by_parent ON workers (parent);
    CREATE INDEX workers_by_workspace ON workers (workspace);
    CREATE INDEX workers_open ON workers (is_open) WHERE is_open = 1;

    CREATE TABLE records (
        session         TEXT NOT NULL,
        position        INTEGER NOT NULL,
        kind            INTEGER NOT NULL,
        sequence        INTEGER NOT NULL,
        time            INTEGER NOT NULL,
        body            TEXT NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX records_by_position ON records (session, position);
    CREATE UNIQUE INDEX records_by_sequence ON records (session, kind, sequence);

    CREATE TABLE stop_wishes (
        worker          TEXT PRIMARY KEY,
        wish            TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE requests (
        workspace       TEXT NOT NULL,
        operator        TEXT NOT NULL,
        id              TEXT NOT NULL,
        content         BLOB NOT NULL,
        worker          TEXT NOT NULL,
        time            INTEGER NOT NULL,
        PRIMARY KEY (workspace, operator, id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX requests_by_worker ON requests (worker);
    CREATE INDEX requests_by_time ON requests (time);

    CREATE TABLE dedupe (
        key             BLOB PRIMARY KEY,
        worker          TEXT NOT NULL,
        complete_time   INTEGER,
        used            INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX dedupe_by_worker ON dedupe (worker);
    CREATE INDEX dedupe_by_use ON dedupe (used);
", "
    CREATE TABLE proposals (
        proposed        INTEGER PRIMARY KEY AUTOINCREMENT,
        id              TEXT NOT NULL UNIQUE,
        session         TEXT NOT NULL,
        root            TEXT NOT NULL,
        workspace       TEXT NOT NULL,
        operator        TEXT NOT NULL,
        decision        TEXT NOT NULL,
        record          TEXT NOT NULL
    ) STRICT;
    CREATE INDEX proposals_by_session ON proposals (session);
    CREATE INDEX proposals_by_root ON proposals (root);
    CREATE INDEX proposals_by_workspace ON proposals (workspace, decision);
", "
    -- Each record is written once, in the order of its session's log: the log is the one index that it needs.
    CREATE TABLE log (
        session         TEXT NOT NULL,
        position        INTEGER NOT NULL,
        kind            INTEGER NOT NULL,
        sequence        INTEGER NOT NULL,
        time            INTEGER NOT NULL,
        body            TEXT NOT NULL,
        PRIMARY KEY (session, position)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO log SELECT session, position, kind, sequence, time, body FROM records;
    DROP TABLE records;
    ALTER TABLE log RENAME TO records;

    -- The beginning of `workers_by_root_and_time`.
    DROP INDEX workers_by_root;

    -- One row. Counting the open workers would take longer the more there are.
    CREATE TABLE totals (open_workers INTEGER NOT NULL) STRICT;
    INSERT INTO totals SELECT count(*) FROM workers WHERE is_open = 1;
"];

/// Opens the one connection that writes, and brings the tables up to date.
pub(super) fn open_writer(path: &Path) -> Result<Connection, OpenError> {
    let version = rusqlite::version_number();
    if version < SQLITE_VERSION_MIN {
        return Err(OpenError::OldSqlite { version: rusqlite::version() });
    }
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(Fault::from)?;
    let journal = settle(&connection).map_err(Fault::from)?;
    if journal != "wal" {
        return Err(OpenError::NoWriteAheadLog { path: path.to_owned(), journal });
    }
    migrate(&mut connection)?;
    Ok(connection)
}

/// Opens one of the connections that only read. The writer has been opened before.
pub(super) fn open_reader(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(Fault::from)?;
    connection.pragma_update(None, "busy_timeout", BUSY_TIMEOUT_MS).map_err(Fault::from)?;
    keep_statements(&connection).map_err(Fault::from)?;
    Ok(connection)
}

/// Answers the journal's mode, which SQLite does not change on a file system without shared memory.
fn settle(connection: &Connection) -> rusqlite::Result<String> {
    // The timeout goes first: the change of the journal's mode is the first thing that may have to wait.
    connection.pragma_update(None, "busy_timeout", BUSY_TIMEOUT_MS)?;
    let journal = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    // NORMAL would lose the last commits with the power.
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "journal_size_limit", JOURNAL_SIZE_MAX)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    keep_statements(connection)?;
    Ok(journal)
}

/// Statements are prepared once, and not again for each value that is bound to them.
fn keep_statements(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(())
}

fn migrate(connection: &mut Connection) -> Result<(), OpenError> {
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(Fault::from)?;
    let Number(version) = version(&transaction).map_err(Fault::from)?;
    let known = STEPS.len() as u64;
    if version > known {
        return Err(OpenError::NewerSchema { found: version, known });
    }
    for step in STEPS.iter().skip(version as usize) {
        transaction.execute_batch(step).map_err(Fault::from)?;
    }
    transaction.execute("UPDATE schema_version SET version = ?1", [Number(known)]).map_err(Fault::from)?;
    transaction.commit().map_err(Fault::from)?;
    Ok(())
}

/// How many steps were taken. 0 for an empty file.
fn version(connection: &Connection) -> rusqlite::Result<Number> {
    connection
        .execute_batch("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL) STRICT")?;
    connection
        .execute("INSERT INTO schema_version SELECT 0 WHERE NOT EXISTS (SELECT * FROM schema_version)", [])?;
    connection.query_row("SELECT version FROM schema_version", [], |row| row.get(0))
}
