//! Who is let in, below what, and who is refused.

use super::*;
use crate::session::{Queue as _, Request};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn named(name: &str) -> Acceptance {
    Acceptance { parent: Parent::NamedRoot { caller_root_id: name.to_owned() }, ..acceptance() }
}

fn request(id: &str, content: u8) -> Option<Request> {
    Some(Request { id: id.to_owned(), content: [content; 32] })
}

#[tokio::test]
async fn an_accepted_worker_is_recorded_with_its_root_and_its_first_records() {
    let fixture = Fixture::new();

    let accepted = fixture.accept(acceptance()).await.unwrap();

    let Accepted::New { worker, position, events } = accepted else { panic!("{accepted:?}") };
    assert_eq!((position, events.len(), events[0].sequence), (3, 1, 1));
    assert_eq!(fixture.store.worker(&worker.id).await.unwrap().as_ref(), Some(&worker));
    assert_eq!((&worker.parent, worker.create_time), (&worker.root, fixture.now()));
    let root = fixture.store.root(&worker.root).await.unwrap().unwrap();
    assert_eq!((root.open_workers, root.operator.as_str(), root.close_time), (1, "ada", None));
    assert_eq!(fixture.store.events(&worker.id, 0, 10).await.unwrap(), events);
    let records = fixture.store.records(&worker.id, 0, 10).await.unwrap();
    assert_eq!(records[0].record, Record::Spec(Box::new(spec())));
    assert_eq!(fixture.store.messages(&worker.id, 0, 10).await.unwrap().len(), 1);
    assert_eq!(fixture.store.claim().await.unwrap().worker(), &worker.id);
}

#[tokio::test]
async fn a_named_root_is_made_once_and_kept_apart_for_each_workspace_and_operator() {
    let fixture = Fixture::new();
    let elsewhere = |workspace: &str, operator: &str| Acceptance {
        worker: Worker { workspace: workspace.to_owned(), operator: operator.to_owned(), ..worker() },
        ..named("chat-7")
    };

    let first = new(fixture.accept(named("chat-7")).await);
    fixture.end(&first, StopReason::Finished).await;
    let again = new(fixture.accept(named("chat-7")).await);
    let others = [
        new(fixture.accept(named("chat-8")).await).root,
        new(fixture.accept(elsewhere("other", "ada")).await).root,
        new(fixture.accept(elsewhere("default", "bob")).await).root,
    ];

    assert_eq!(again.root, first.root);
    let root = fixture.store.root(&first.root).await.unwrap().unwrap();
    assert_eq!((root.caller_root_id.as_str(), root.close_time), ("chat-7", None));
    for (index, other) in others.iter().enumerate() {
        assert!(*other != first.root && !others[..index].contains(other));
    }
}

#[tokio::test]
async fn a_repeated_request_answers_the_same_worker_for_a_day() {
    let fixture = Fixture::new();
    let call = |content| Acceptance { request: request("r-1", content), ..acceptance() };
    let first = new(fixture.accept(call(1)).await);
    fixture.advance(DAY - Duration::from_secs(1));

    let repeated = fixture.accept(call(1)).await.unwrap();
    let found = fixture.store.repeated("default", "ada", &request("r-1", 1).unwrap()).await.unwrap();
    let reused = fixture.accept(call(2)).await.unwrap_err();
    let elsewhere = fixture.store.repeated("default", "bob", &request("r-1", 2).unwrap()).await.unwrap();

    assert!(matches!(repeated, Accepted::Repeated(worker) if worker.id == first.id));
    assert_eq!(found.map(|worker| worker.id), Some(first.id));
    assert!(matches!(reused, AcceptError::RequestIdReused(id) if id == "r-1"));
    assert_eq!(elsewhere, None);
    fixture.advance(Duration::from_secs(1));
    new(fixture.accept(call(2)).await);
}

#[tokio::test]
async fn only_a_running_worker_and_an_open_root_take_children() {
    let fixture = Fixture::new();
    let below = |parent| fixture.accept(Acceptance { parent, ..acceptance() });
    let pending = fixture.pending().await;
    let running = fixture.running(Parent::UnnamedRoot).await;
    let ended =
        fixture.end(&fixture.running(Parent::Root(running.root.clone())).await, StopReason::Stopped).await;
    let unknown = SessionId::new_worker();

    let child = new(below(Parent::Worker(running.id.clone())).await);

    assert_eq!((child.parent, child.root), (running.id, running.root));
    for closed in [&pending.id, &ended.id] {
        let refusal = below(Parent::Worker(closed.clone())).await.unwrap_err();
        assert!(matches!(&refusal, AcceptError::SessionClosed(id) if id == closed), "{refusal:?}");
    }
    for missing in [Parent::Worker(unknown.clone()), Parent::Root(unknown.clone())] {
        let refusal = below(missing).await.unwrap_err();
        assert!(
            matches!(&refusal, AcceptError::SessionNotFound(id) if id == unknown.as_str()),
            "{refusal:?}"
        );
    }
}

#[tokio::test]
async fn a_closed_root_takes_no_children() {
    let fixture = Fixture::new();
    let running = new(fixture.accept(named("chat-7")).await);
    let running = fixture.become_now(&running, Status::Running).await;
    fixture.store.close_root(&running.root).await.unwrap();

    for parent in [
        Parent::NamedRoot { caller_root_id: "chat-7".to_owned() },
        Parent::Root(running.root.clone()),
        Parent::Worker(running.id.clone()),
    ] {
        let refusal = fixture.accept(Acceptance { parent, ..acceptance() }).await.unwrap_err();
        assert!(matches!(&refusal, AcceptError::SessionClosed(id) if *id == running.root), "{refusal:?}");
    }
}

#[tokio::test]
async fn a_worker_that_continues_another_comes_below_an_ended_parent() {
    let fixture = Fixture::new();
    let holds_the_root_open = fixture.running(Parent::UnnamedRoot).await;
    let parent = fixture.running(Parent::Root(holds_the_root_open.root.clone())).await;
    let earlier = fixture.running(Parent::Worker(parent.id.clone())).await;
    fixture.end(&earlier, StopReason::Finished).await;
    fixture.end(&parent, StopReason::Finished).await;

    let worker = Worker { continues: Some(earlier.id), ..worker() };
    let parent_id = parent.id.clone();
    let later =
        fixture.accept(Acceptance { worker, parent: Parent::Worker(parent_id), ..acceptance() }).await;

    assert_eq!(new(later).parent, parent.id);
}

#[tokio::test]
async fn a_tree_has_a_budget_of_spawns_in_its_window() {
    let fixture = Fixture::new();
    let call = || Acceptance { spawns_per_tree_max: Some(2), ..named("chat-7") };
    for _ in 0..2 {
        let worker = new(fixture.accept(call()).await);
        fixture.end(&worker, StopReason::Finished).await;
        fixture.advance(Duration::from_secs(60));
    }

    let refusal = fixture.accept(call()).await.unwrap_err();
    new(fixture.accept(Acceptance { spawns_per_tree_max: Some(2), ..named("chat-8") }).await);
    fixture.advance(DAY - Duration::from_secs(90));

    assert!(
        matches!(refusal, AcceptError::BudgetExhausted { limit: "max_spawns_per_tree", .. }),
        "{refusal:?}"
    );
    new(fixture.accept(call()).await);
    let none = fixture.accept(Acceptance { spawns_per_tree_max: Some(0), ..acceptance() }).await.unwrap_err();
    assert!(matches!(none, AcceptError::BudgetExhausted { .. }), "{none:?}");
}

#[tokio::test]
async fn a_workers_own_budget_of_spawns_counts_everything_below_it() {
    let fixture = Fixture::new();
    let spec = Spec { spawns_max: Some(2), ..spec() };
    let records = vec![Record::Spec(Box::new(spec))];
    let top = new(fixture.accept(Acceptance { records, ..acceptance() }).await);
    let top = fixture.become_now(&top, Status::Running).await;
    let child = fixture.running(Parent::Worker(top.id.clone())).await;
    fixture.running(Parent::Worker(child.id.clone())).await;

    for parent in [top.id, child.id] {
        let refusal =
            fixture.accept(Acceptance { parent: Parent::Worker(parent), ..acceptance() }).await.unwrap_err();
        assert!(
            matches!(&refusal, AcceptError::BudgetExhausted { limit: "spawns", origin } if origin == "session"),
            "{refusal:?}"
        );
    }
}

#[tokio::test]
async fn a_full_replica_refuses_until_a_worker_ends_and_writes_nothing() {
    let fixture = Fixture::new();
    let call = || Acceptance { open_max: 2, request: request("r-1", 1), ..acceptance() };
    let first = fixture.pending().await;
    fixture.pending().await;

    let refusal = fixture.accept(call()).await.unwrap_err();

    assert!(matches!(refusal, AcceptError::Overloaded), "{refusal:?}");
    assert_eq!(fixture.store.repeated("default", "ada", &request("r-1", 1).unwrap()).await.unwrap(), None);
    assert_eq!(fixture.store.depth().await.unwrap(), 2);
    assert_eq!(fixture.store.roots(Default::default()).await.unwrap().len(), 0, "a limit of 0 lists nothing");
    fixture.end(&first, StopReason::Finished).await;
    new(fixture.accept(call()).await);
}
