//! Trees: lists, wishes to stop, closing and deletion.

use super::*;
use crate::session::{Dedupe, Deletion, Request, RootFilter, StopWish, Sweep, Swept, WorkerFilter};

const HOUR: Duration = Duration::from_secs(60 * 60);

fn wish(reason: &str) -> StopWish {
    StopWish { by: "ada".to_owned(), reason: reason.to_owned() }
}

fn all() -> WorkerFilter {
    WorkerFilter { limit: 100, ..WorkerFilter::default() }
}

fn ids(workers: &[Worker]) -> Vec<&SessionId> {
    workers.iter().map(|worker| &worker.id).collect()
}

/// A worker, its child and its grandchild, all running.
async fn family(fixture: &Fixture) -> [Worker; 3] {
    let top = fixture.running(Parent::UnnamedRoot).await;
    let child = fixture.running(Parent::Worker(top.id.clone())).await;
    let grandchild = fixture.running(Parent::Worker(child.id.clone())).await;
    [top, child, grandchild]
}

#[tokio::test]
async fn descendants_are_everything_below_with_parents_before_children() {
    let fixture = Fixture::new();
    let [top, child, grandchild] = family(&fixture).await;
    fixture.pending().await;

    let below_root = fixture.store.descendants(&top.root, 10).await.unwrap();
    let below_child = fixture.store.descendants(&child.id, 10).await.unwrap();
    let first = fixture.store.descendants(&top.root, 2).await.unwrap();

    assert_eq!(ids(&below_root), [&top.id, &child.id, &grandchild.id]);
    assert_eq!(ids(&below_child), [&grandchild.id]);
    assert_eq!(ids(&first), [&top.id, &child.id]);
}

#[tokio::test]
async fn a_wish_to_stop_reaches_what_is_open_below_and_the_first_one_counts() {
    let fixture = Fixture::new();
    let [top, child, grandchild] = family(&fixture).await;
    let ended = fixture.running(Parent::Worker(child.id.clone())).await;
    fixture.end(&ended, StopReason::Finished).await;

    fixture.store.wish_stop(&child.id, wish("first")).await.unwrap();
    fixture.store.wish_stop(&top.root, wish("second")).await.unwrap();

    for (worker, expected) in
        [(&top, Some("second")), (&child, Some("first")), (&grandchild, Some("first")), (&ended, None)]
    {
        let found = fixture.store.stop_wish(&worker.id).await.unwrap();
        assert_eq!(found.as_ref().map(|wish| wish.reason.as_str()), expected);
    }
    let refusal = fixture
        .accept(Acceptance { parent: Parent::Worker(grandchild.id.clone()), ..acceptance() })
        .await
        .unwrap_err();
    assert!(matches!(&refusal, AcceptError::SessionClosed(id) if *id == grandchild.id), "{refusal:?}");
    fixture.running(Parent::Root(top.root)).await;
}

#[tokio::test]
async fn workers_are_listed_by_every_filter() {
    let fixture = Fixture::new();
    let first = fixture.running(Parent::UnnamedRoot).await;
    fixture.advance(HOUR);
    let labels =
        BTreeMap::from([("it's".to_owned(), "a \"label\"".to_owned()), ("team".to_owned(), "x".to_owned())]);
    let labelled = Worker { labels: labels.clone(), ..worker() };
    let child = new(fixture
        .accept(Acceptance { worker: labelled, parent: Parent::Worker(first.id.clone()), ..acceptance() })
        .await);
    let other = Worker { agent: "reviewer".to_owned(), workspace: "other".to_owned(), ..worker() };
    let other = new(fixture.accept(Acceptance { worker: other, ..acceptance() }).await);

    let cases = [
        (all(), vec![&other, &child, &first]),
        (WorkerFilter { oldest_first: true, ..all() }, vec![&first, &child, &other]),
        (WorkerFilter { limit: 2, ..all() }, vec![&other, &child]),
        (WorkerFilter { after: Some(child.id.clone()), ..all() }, vec![&first]),
        (WorkerFilter { after: Some(child.id.clone()), oldest_first: true, ..all() }, vec![&other]),
        (WorkerFilter { workspace: Some("default".to_owned()), ..all() }, vec![&child, &first]),
        (WorkerFilter { agent: Some("reviewer".to_owned()), ..all() }, vec![&other]),
        (WorkerFilter { root: Some(first.root.clone()), ..all() }, vec![&child, &first]),
        (WorkerFilter { parent: Some(first.id.clone()), ..all() }, vec![&child]),
        (WorkerFilter { statuses: vec![Status::Running], ..all() }, vec![&first]),
        (
            WorkerFilter { statuses: vec![Status::Running, Status::Pending], ..all() },
            vec![&other, &child, &first],
        ),
        (WorkerFilter { created_after: Some(first.create_time), ..all() }, vec![&other, &child]),
        (WorkerFilter { labels: labels.clone(), ..all() }, vec![&child]),
        (WorkerFilter { labels: BTreeMap::from([("team".to_owned(), "y".to_owned())]), ..all() }, vec![]),
    ];

    for (filter, expected) in cases {
        let found = fixture.store.workers(filter.clone()).await.unwrap();
        let expected: Vec<_> = expected.into_iter().map(|worker| &worker.id).collect();
        assert_eq!(ids(&found), expected, "{filter:?}");
    }
}

#[tokio::test]
async fn roots_are_listed_newest_first() {
    let fixture = Fixture::new();
    let first = fixture.pending().await;
    let second = fixture.pending().await;
    let theirs = Worker { operator: "bob".to_owned(), ..worker() };
    let third = new(fixture.accept(Acceptance { worker: theirs, ..acceptance() }).await);
    fixture.end(&second, StopReason::Finished).await;
    let all = || RootFilter { limit: 10, ..RootFilter::default() };

    for (filter, expected) in [
        (all(), vec![&third, &second, &first]),
        (RootFilter { limit: 1, ..all() }, vec![&third]),
        (RootFilter { after: Some(third.root.clone()), ..all() }, vec![&second, &first]),
        (RootFilter { open_only: true, ..all() }, vec![&third, &first]),
        (RootFilter { operator: Some("bob".to_owned()), ..all() }, vec![&third]),
        (RootFilter { workspace: Some("other".to_owned()), ..all() }, vec![]),
    ] {
        let found: Vec<_> =
            fixture.store.roots(filter.clone()).await.unwrap().into_iter().map(|root| root.id).collect();
        let expected: Vec<_> = expected.into_iter().map(|worker| worker.root.clone()).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
}

#[tokio::test]
async fn closing_a_root_again_changes_nothing() {
    let fixture = Fixture::new();
    let worker = fixture.pending().await;

    let first = fixture.store.close_root(&worker.root).await.unwrap().unwrap();
    fixture.advance(HOUR);
    let second = fixture.store.close_root(&worker.root).await.unwrap().unwrap();
    let unknown = fixture.store.close_root(&SessionId::new_root()).await.unwrap();

    assert!(first.close_time.is_some());
    assert_eq!((first, unknown), (second, None));
}

#[tokio::test]
async fn a_deleted_tree_leaves_nothing_behind() {
    let fixture = Fixture::new();
    let request = Request { id: "r-1".to_owned(), content: [1; 32] };
    let dedupe = Dedupe { key: [1; 32], ttl: HOUR, capacity: 10, bypass: false };
    let call = || Acceptance { request: Some(request.clone()), dedupe: Some(dedupe.clone()), ..acceptance() };
    let worker = new(fixture.accept(call()).await);
    let other = fixture.pending().await;

    let open = fixture.store.delete_tree(&worker.root).await.unwrap();
    fixture.end(&worker, StopReason::Finished).await;
    let deleted = fixture.store.delete_tree(&worker.root).await.unwrap();
    let again = fixture.store.delete_tree(&worker.root).await.unwrap();

    assert_eq!((open, deleted, again), (Deletion::Open, Deletion::Deleted, Deletion::NotFound));
    assert_eq!(fixture.store.worker(&worker.id).await.unwrap(), None);
    assert_eq!(fixture.store.root(&worker.root).await.unwrap(), None);
    assert_eq!(fixture.store.records(&worker.id, 0, 10).await.unwrap(), []);
    assert_eq!(fixture.store.records(&other.id, 0, 10).await.unwrap().len(), 3);
    new(fixture.accept(call()).await);
}

#[tokio::test]
async fn a_sweep_closes_idle_roots_and_deletes_what_has_been_closed_for_long() {
    let fixture = Fixture::new();
    let named = |name: &str| Acceptance {
        parent: Parent::NamedRoot { caller_root_id: name.to_owned() },
        ..acceptance()
    };
    let sweep = || fixture.store.sweep(Sweep { idle: HOUR, retention: 2 * HOUR, limit: 10 });
    let busy = new(fixture.accept(named("busy")).await);
    let idle = new(fixture.accept(named("idle")).await);
    fixture.end(&idle, StopReason::Finished).await;

    fixture.advance(HOUR - Duration::from_secs(1));
    let early = sweep().await.unwrap();
    fixture.advance(Duration::from_secs(1));
    let closing = sweep().await.unwrap();
    fixture.advance(2 * HOUR);
    let deleting = sweep().await.unwrap();

    assert_eq!(early, Swept { closed: 0, deleted: 0 });
    assert_eq!(closing, Swept { closed: 1, deleted: 0 });
    assert_eq!(deleting, Swept { closed: 0, deleted: 1 });
    assert_eq!(fixture.store.root(&idle.root).await.unwrap(), None);
    assert_eq!(fixture.store.root(&busy.root).await.unwrap().unwrap().close_time, None);
}
