//! The writer: what shares a transaction, and what happens when one fails.

use std::sync::mpsc;

use futures::{FutureExt as _, future::join_all};

use super::*;
use crate::session::{Queue as _, StoreError, sqlite::Fault};

/// Holds the writer in the middle of a transaction, so that what is asked meanwhile waits for the next one.
struct Held {
    go_on: mpsc::Sender<()>,
    work: tokio::task::JoinHandle<Result<(), StoreError>>,
}

impl Held {
    async fn hold(store: &Arc<Store>) -> Self {
        let (go_on, wait) = mpsc::channel();
        let (began, mut begun) = tokio::sync::mpsc::channel(1);
        let store = Arc::clone(store);
        let work = tokio::spawn(async move {
            store
                .write("wait", move |_| {
                    began.blocking_send(()).unwrap();
                    wait.recv().unwrap();
                    Ok(())
                })
                .await
        });
        begun.recv().await.unwrap();
        Self { go_on, work }
    }

    async fn release(self) {
        self.go_on.send(()).unwrap();
        self.work.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn what_waits_together_is_committed_together() {
    let fixture = Fixture::new();
    let before = fixture.store.transactions();
    let held = Held::hold(&fixture.store).await;
    let accepting = tokio::spawn({
        let store = Arc::clone(&fixture.store);
        let mut calls = Box::pin(async move { join_all((0..100).map(|_| store.accept(acceptance()))).await });
        // Asked once, all of them are with the writer.
        assert!(calls.as_mut().now_or_never().is_none());
        calls
    });

    held.release().await;
    let accepted = accepting.await.unwrap();

    assert_eq!(accepted.into_iter().map(new).count(), 100);
    assert_eq!(fixture.store.transactions() - before, 2, "one that was held, one for all that waited");
}

#[tokio::test]
async fn a_refusal_takes_back_only_itself() {
    let fixture = Fixture::new();
    let worker = Worker { status: Status::Running, ..fixture.pending().await };
    let held = Held::hold(&fixture.store).await;
    let first = fixture.append(3, &worker, vec![user("first")]);
    let refused = fixture.append(3, &worker, vec![user("refused")]);
    let second = fixture.append(4, &worker, vec![user("second")]);

    let (first, refused, second, ()) = tokio::join!(first, refused, second, held.release());

    assert_eq!((first.unwrap().position, second.unwrap().position), (4, 5));
    assert!(matches!(refused, Err(AppendError::Moved { actual: 4, .. })), "{refused:?}");
    let messages = fixture.store.messages(&worker.id, 1, 10).await.unwrap();
    assert_eq!(messages.len(), 2);
}

#[tokio::test]
async fn work_that_fails_behind_a_change_is_taken_back_alone() {
    let fixture = Fixture::new();
    let worker = fixture.pending().await;
    let held = Held::hold(&fixture.store).await;
    let id = worker.id.clone();
    let rename = |status: &'static str, fails: bool| {
        let id = id.clone();
        fixture.store.write("rename", move |connection| {
            connection
                .execute("UPDATE workers SET agent = agent || ?2 WHERE id = ?1", [id.as_str(), status])?;
            if fails { Err(rusqlite::Error::InvalidQuery) } else { Ok(()) }
        })
    };

    let (first, failed, last, ()) = tokio::join!(
        rename("-first", false),
        rename("-failed", true),
        rename("-last", false),
        held.release()
    );

    assert!(first.is_ok() && last.is_ok());
    assert!(failed.is_err());
    let agent = fixture.store.read("look", move |connection| {
        connection.query_row("SELECT agent FROM workers WHERE id = ?1", [id.as_str()], |row| row.get(0))
    });
    let agent: String = agent.await.unwrap();
    assert_eq!(agent, format!("{}-first-last", worker.agent));
}

#[tokio::test]
async fn work_whose_caller_went_away_is_done_whole() {
    let fixture = Fixture::new();
    let held = Held::hold(&fixture.store).await;
    let worker = worker();
    let call = fixture.accept(Acceptance { worker: worker.clone(), ..acceptance() });
    assert!(call.now_or_never().is_none());

    held.release().await;
    let claim = fixture.store.claim().await.unwrap();

    assert_eq!(claim.worker(), &worker.id);
    assert_eq!(fixture.store.records(&worker.id, 0, 10).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_full_disk_is_an_error_that_leaves_nothing_half() {
    let fixture = Fixture::new();
    let worker = Worker { status: Status::Running, ..fixture.pending().await };
    let limit_pages = |pages: i64| {
        fixture.store.write("limit the file", move |connection| {
            let limit = |pages: i64| {
                connection.pragma_update_and_check(None, "max_page_count", pages, |row| row.get::<_, i64>(0))
            };
            limit(pages)
        })
    };
    // No smaller than the file is, so it cannot grow any more.
    let unlimited = 1 << 30;
    limit_pages(1).await.unwrap();
    let large = user(&"x".repeat(1024 * 1024));

    let full = fixture.append(3, &worker, vec![user("small"), large.clone()]).await.unwrap_err();
    let kept = fixture.store.records(&worker.id, 0, 10).await.unwrap();
    limit_pages(unlimited).await.unwrap();
    let later = fixture.append(3, &worker, vec![user("small"), large]).await.unwrap();

    let AppendError::Store(error) = full else { panic!("{full:?}") };
    assert!(matches!(error.source.downcast_ref(), Some(Fault::DiskFull)), "{error:?}");
    assert!(error.transient);
    assert_eq!((kept.len(), later.position), (3, 5));
    let check = fixture
        .store
        .read("check the file", |connection| {
            connection.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0))
        })
        .await;
    assert_eq!(check.unwrap(), "ok");
}

#[tokio::test]
async fn a_transaction_that_fails_fails_for_everybody_in_it() {
    let fixture = Fixture::new();
    let held = Held::hold(&fixture.store).await;
    // Ends the transaction under the feet of the others, as an error of the disk does.
    let breaking = fixture.store.write("break", |connection| connection.execute_batch("ROLLBACK"));
    let first = fixture.accept(acceptance());
    let last = fixture.accept(acceptance());

    let (first, broken, last, ()) = tokio::join!(first, breaking, last, held.release());

    for failed in [first.map(|_| ()), last.map(|_| ())] {
        assert!(matches!(failed, Err(AcceptError::Store(_))), "{failed:?}");
    }
    assert!(broken.is_err());
    assert_eq!(fixture.store.depth().await.unwrap(), 0);
    fixture.pending().await;
}

#[tokio::test]
async fn a_closed_store_has_done_what_it_was_given_and_refuses_the_rest() {
    let fixture = Fixture::new();
    let held = Held::hold(&fixture.store).await;
    let worker = worker();
    let given = fixture.accept(Acceptance { worker: worker.clone(), ..acceptance() });

    let (given, (), ()) = tokio::join!(given, held.release(), fixture.store.close());
    let refused = fixture.accept(acceptance()).await.unwrap_err();

    assert_eq!(new(given).id, worker.id);
    let AcceptError::Store(error) = refused else { panic!("{refused:?}") };
    assert!(matches!(error.source.downcast_ref(), Some(Fault::Closed)), "{error:?}");
    assert!(fixture.store.worker(&worker.id).await.is_err());
    assert!(fixture.store.claim().await.is_err());
    let fixture = fixture.reopened().await;
    assert!(fixture.store.worker(&worker.id).await.unwrap().is_some());
}

#[tokio::test]
async fn a_panic_in_a_piece_of_work_ends_only_that_work() {
    let fixture = Fixture::new();
    let held = Held::hold(&fixture.store).await;
    let first = fixture.accept(acceptance());
    let panicking = fixture.store.write("panic", |connection| {
        connection.execute("DELETE FROM workers", [])?;
        if connection.is_autocommit() { Ok(()) } else { panic!("a defect, as the test says") }
    });
    let last = fixture.accept(acceptance());

    let (first, panicked, last, ()) = tokio::join!(first, panicking, last, held.release());

    let panicked = panicked.unwrap_err();
    assert!(matches!(panicked.source.downcast_ref(), Some(Fault::Panicked)), "{panicked:?}");
    for kept in [new(first), new(last), fixture.pending().await] {
        assert!(fixture.store.worker(&kept.id).await.unwrap().is_some(), "what it deleted was taken back");
    }
}

#[tokio::test]
async fn reads_that_panic_leave_every_connection_behind() {
    let fixture = Fixture::new();
    for _ in 0..10 {
        let panicked = fixture.store.read("panic", |connection| {
            if connection.is_autocommit() { Ok(()) } else { panic!("a defect, as the test says") }
        });
        let panicked = panicked.await.unwrap_err();
        assert!(matches!(panicked.source.downcast_ref(), Some(Fault::Panicked)), "{panicked:?}");
    }

    let worker = fixture.pending().await;

    assert!(fixture.store.worker(&worker.id).await.unwrap().is_some());
}
