//! Opening: what the next process finds, and what is not opened.

use std::fs;

use rusqlite::Connection;

use super::*;
use crate::session::{
    Queue as _,
    sqlite::{DATABASE, Fault, OpenError},
};

fn open(directory: &Path) -> Result<Store, OpenError> {
    Store::open(directory, Arc::new(|| Time(0)))
}

#[tokio::test]
async fn the_next_process_finds_what_is_open_in_the_order_of_its_acceptance() {
    let fixture = Fixture::new();
    let first = fixture.running(Parent::UnnamedRoot).await;
    let ended = fixture.pending().await;
    let second = fixture.pending().await;
    fixture.end(&ended, StopReason::Finished).await;

    let fixture = fixture.reopened().await;

    assert_eq!(fixture.store.depth().await.unwrap(), 2);
    for worker in [first, second] {
        let claim = fixture.store.claim().await.unwrap();
        assert_eq!((claim.worker(), claim.redelivered()), (&worker.id, true));
        assert_eq!(fixture.store.worker(&worker.id).await.unwrap(), Some(worker));
        claim.done().await.unwrap();
    }
}

#[test]
fn a_second_user_of_the_directory_is_refused_until_the_first_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path()).unwrap();

    let refusal = open(directory.path()).err().unwrap();

    assert!(matches!(refusal, OpenError::InUse { .. }), "{refusal:?}");
    assert!(refusal.to_string().starts_with("another process uses the store"), "{refusal}");
    drop(first);
    open(directory.path()).unwrap();
}

#[test]
fn a_store_of_a_newer_version_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()).unwrap());
    let connection = Connection::open(directory.path().join(DATABASE)).unwrap();
    connection.execute("UPDATE schema_version SET version = version + 1", []).unwrap();

    let refusal = open(directory.path()).err().unwrap();

    let OpenError::NewerSchema { found, known } = refusal else { panic!("{refusal:?}") };
    assert_eq!(found, known + 1);
    let kept: i64 = connection.query_row("SELECT version FROM schema_version", [], |row| row.get(0)).unwrap();
    assert_eq!(u64::try_from(kept).unwrap(), found);
}

#[tokio::test]
async fn a_store_of_an_older_version_keeps_its_records_and_counts_what_is_open() {
    let fixture = Fixture::new();
    let open = fixture.running(Parent::UnnamedRoot).await;
    let ended = fixture.pending().await;
    fixture.end(&ended, StopReason::Finished).await;
    let before = fixture.store.records(&open.id, 0, 100).await.unwrap();
    let Fixture { store, time, directory } = fixture;
    store.close().await;
    let connection = Connection::open(directory.path().join(DATABASE)).unwrap();
    let to_the_second_version = "
        CREATE TABLE earlier (session TEXT NOT NULL, position INTEGER NOT NULL, kind INTEGER NOT NULL,
                              sequence INTEGER NOT NULL, time INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
        INSERT INTO earlier SELECT session, position, kind, sequence, time, body FROM records;
        DROP TABLE records;
        ALTER TABLE earlier RENAME TO records;
        CREATE INDEX workers_by_root ON workers (root);
        DROP TABLE totals;
        UPDATE schema_version SET version = 2;";
    connection.execute_batch(to_the_second_version).unwrap();
    drop(connection);

    let fixture = Fixture { store, time, directory }.reopened().await;

    assert_eq!(fixture.store.records(&open.id, 0, 100).await.unwrap(), before);
    assert_eq!(fixture.open_workers().await, 1);
    fixture.end(&open, StopReason::Finished).await;
    assert_eq!(fixture.open_workers().await, 0);
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(DATABASE), "once upon a time ".repeat(1_000)).unwrap();

    let refusal = open(directory.path()).err().unwrap();

    assert!(matches!(refusal, OpenError::File(Fault::Broken(_))), "{refusal:?}");
}

#[tokio::test]
async fn a_page_that_was_damaged_is_an_error_and_never_an_answer() {
    let fixture = Fixture::new();
    let worker = Worker { status: Status::Running, ..fixture.pending().await };
    let text = "x".repeat(64 * 1024);
    fixture.append(3, &worker, (0..16).map(|_| user(&text)).collect()).await.unwrap();
    let Fixture { store, directory, .. } = fixture;
    store.close().await;
    let file = directory.path().join(DATABASE);
    let mut bytes = fs::read(&file).unwrap();
    // All but the first pages, which hold the schema.
    let damaged = bytes.len() / 4..;
    bytes[damaged].fill(0xee);
    fs::write(&file, bytes).unwrap();

    let found = match open(directory.path()) {
        Ok(store) => store.records(&worker.id, 0, 100).await.map_err(|error| error.source.to_string()),
        Err(error) => Err(error.to_string()),
    };

    assert_eq!(found, Err("the database file is broken".to_owned()));
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();

    let refusal = open(&file.join("store")).err().unwrap();

    assert!(refusal.to_string().contains("file/store"), "{refusal}");
}

#[tokio::test]
async fn a_commit_waits_for_the_disk() {
    let fixture = Fixture::new();

    let settings = fixture
        .store
        .write("read the settings", |connection| {
            let journal: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
            let synchronous: i64 = connection.pragma_query_value(None, "synchronous", |row| row.get(0))?;
            let timeout: i64 = connection.pragma_query_value(None, "busy_timeout", |row| row.get(0))?;
            Ok((journal, synchronous, timeout))
        })
        .await;

    // 2 is FULL.
    assert_eq!(settings.unwrap(), ("wal".to_owned(), 2, 5_000));
}
