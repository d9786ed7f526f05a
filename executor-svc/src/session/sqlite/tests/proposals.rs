//! Proposals of the review gate: changed only from a known state, closed with their session, gone with their tree.

use super::*;
use crate::{
    review::{Decision, ENDED, Proposal},
    session::{Deletion, ProposalFilter, Proposals as _},
    tool::Class,
};

fn proposal(of: &Worker, id: &str) -> Proposal {
    Proposal {
        id: id.to_owned(),
        session: of.id.clone(),
        root: of.root.clone(),
        workspace: of.workspace.clone(),
        operator: of.operator.clone(),
        tool: "write".to_owned(),
        class: Class::Write,
        arguments: "{}".to_owned(),
        digest: "0".repeat(64),
        said: String::new(),
        blast_radius: String::new(),
        decision: Decision::Pending,
        decision_reason: String::new(),
        reviewer: String::new(),
        create_time: Time(1),
        decide_time: None,
        execute_time: None,
        awaits_person: false,
    }
}

async fn ids(fixture: &Fixture, filter: ProposalFilter) -> Vec<String> {
    let found = fixture.store.proposals(ProposalFilter { limit: 9, ..filter }).await.unwrap();
    found.into_iter().map(|proposal| proposal.id).collect()
}

#[tokio::test]
async fn a_proposal_is_exchanged_only_from_the_state_that_was_seen() {
    let fixture = Fixture::new();
    let worker = fixture.running(Parent::UnnamedRoot).await;
    let pending = proposal(&worker, "a");
    fixture.store.propose(pending.clone()).await.unwrap();
    let approved = pending.decided(Decision::Approved, "bob", "", Time(2));
    let rejected = pending.decided(Decision::Rejected, "eve", "", Time(2));

    assert!(fixture.store.exchange(pending.clone(), approved.clone()).await.unwrap());
    assert!(!fixture.store.exchange(pending, rejected).await.unwrap());

    let fixture = fixture.reopened().await;
    assert_eq!(fixture.store.proposal("a").await.unwrap(), Some(approved));
    assert_eq!(fixture.store.proposal("b").await.unwrap(), None);
}

#[tokio::test]
async fn what_is_pending_is_rejected_in_the_step_that_ends_its_session() {
    let fixture = Fixture::new();
    let (worker, other) =
        (fixture.running(Parent::UnnamedRoot).await, fixture.running(Parent::UnnamedRoot).await);
    let approved = proposal(&worker, "b").decided(Decision::Approved, "bob", "", Time(2));
    for proposal in [proposal(&worker, "a"), approved.clone(), proposal(&other, "c")] {
        fixture.store.propose(proposal).await.unwrap();
    }

    fixture.end(&worker, StopReason::Lost).await;

    let ended = fixture.store.proposal("a").await.unwrap().unwrap();
    assert_eq!((ended.decision, ended.decision_reason.as_str()), (Decision::Rejected, ENDED));
    assert_eq!(ended.decide_time, Some(fixture.now()));
    assert_eq!(fixture.store.proposal("b").await.unwrap(), Some(approved));
    assert_eq!(
        ids(&fixture, ProposalFilter { decision: Some(Decision::Pending), ..Default::default() }).await,
        ["c"]
    );
}

#[tokio::test]
async fn proposals_are_listed_by_what_they_belong_to_and_go_with_their_tree() {
    let fixture = Fixture::new();
    let (worker, other) =
        (fixture.running(Parent::UnnamedRoot).await, fixture.running(Parent::UnnamedRoot).await);
    for proposal in [proposal(&worker, "a"), proposal(&other, "b"), proposal(&worker, "c")] {
        fixture.store.propose(proposal).await.unwrap();
    }

    assert_eq!(ids(&fixture, ProposalFilter::default()).await, ["c", "b", "a"]);
    let of_tree = ProposalFilter { root: Some(worker.root.clone()), ..Default::default() };
    assert_eq!(ids(&fixture, of_tree).await, ["c", "a"]);
    let of_session = ProposalFilter { session: Some(other.id.clone()), ..Default::default() };
    assert_eq!(ids(&fixture, of_session).await, ["b"]);
    let behind = ProposalFilter { after: Some("c".to_owned()), ..Default::default() };
    assert_eq!(ids(&fixture, behind).await, ["b", "a"]);
    let nobody = ProposalFilter { operator: Some("nobody".to_owned()), ..Default::default() };
    assert!(ids(&fixture, nobody).await.is_empty());

    fixture.end(&worker, StopReason::Finished).await;
    assert_eq!(fixture.store.delete_tree(&worker.root).await.unwrap(), Deletion::Deleted);
    assert_eq!(ids(&fixture, ProposalFilter::default()).await, ["b"]);
}

#[tokio::test]
async fn a_review_is_let_in_beside_the_budgets_and_the_queue() {
    let fixture = Fixture::new();
    let worker = fixture.running(Parent::UnnamedRoot).await;
    let depth = crate::session::Queue::depth(fixture.store.as_ref()).await.unwrap();
    let acceptance = Acceptance {
        parent: Parent::Worker(worker.id.clone()),
        open_max: 0,
        spawns_per_tree_max: Some(0),
        tokens_per_tree_max: Some(0),
        ..acceptance()
    };
    let refused = fixture.accept(acceptance.clone()).await;
    assert!(matches!(refused, Err(AcceptError::BudgetExhausted { .. })), "{refused:?}");

    let review = new(fixture.accept(Acceptance { is_review: true, ..acceptance }).await);

    assert_eq!((&review.parent, &review.root), (&worker.id, &worker.root));
    assert_eq!(crate::session::Queue::depth(fixture.store.as_ref()).await.unwrap(), depth);
}
