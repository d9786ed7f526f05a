//! What a reviewer needs and what it gets: no slot of the workers, no tool that changes something, no agent, and a verdict for
//! each call.

use super::*;
use crate::slots::Priority;

/// How each call of a session ended, as it was told.
fn outcomes(fixture: &Fixture, id: &SessionId) -> Vec<(Outcome, String)> {
    let bodies = fixture.log.bodies(id).into_iter();
    bodies
        .filter_map(|body| match body {
            Body::ToolFinished { outcome, preview, .. } => Some((outcome, preview)),
            _ => None,
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_review_ends_while_others_have_every_slot() {
    let tool = Counting::new(false);
    let mut config = Config::default();
    config.limits.max_running = Bound::Of(1);
    let late = calls("I write now.", &[("w", "write", ARGUMENTS)]);
    let steps = [Step::After(Duration::from_secs(10), late), approves(), Step::Reply(text("gone on"))];
    let fixture = fixture(config, &tool, steps);
    let dispatched = spawn(&fixture).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(fixture.kernel.slots.taken(), 1, "the worker is in its first turn");

    // Granted in the moment in which the worker has nothing to do but wait.
    let other = SessionId::new_root();
    let only = fixture.kernel.slots.acquire(&other, Bound::Unlimited, Priority::Newcomer).await;
    tokio::time::sleep(Duration::from_secs(1)).await;

    let decided = proposal(&fixture).await;
    assert_eq!((decided.decision, decided.execute_time), (Decision::Approved, None));
    let reviewer = SessionId::parse(&decided.reviewer).unwrap();
    let reviewer = fixture.kernel.log.worker(&reviewer).await.unwrap().unwrap();
    assert_eq!(reviewer.stop_reason, Some(StopReason::Finished));
    assert!(tool.runs.lock().is_empty(), "what is approved waits for a slot");
    drop(only);
    let worker = dispatched.waiter.unwrap().closed().await;
    assert_eq!((worker.result.as_str(), tool.runs.lock().len()), ("gone on", 1));
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn two_equal_calls_get_two_verdicts() {
    let tool = Counting::new(false);
    let both = calls("Twice.", &[("a", "write", ARGUMENTS), ("b", "write", ARGUMENTS)]);
    let steps = [Step::Reply(both), approves(), rejects(), Step::Reply(text("gone on"))];
    let fixture = fixture(Config::default(), &tool, steps);

    let worker = spawn(&fixture).await.waiter.unwrap().closed().await;

    let mut outcomes = outcomes(&fixture, &worker.id);
    outcomes.sort_by_key(|(outcome, _)| *outcome == Outcome::Rejected);
    assert_eq!(
        outcomes,
        [
            (Outcome::Ok, "written".to_owned()),
            (Outcome::Rejected, "review rejected: The wrong file.".to_owned())
        ]
    );
    assert_eq!(tool.runs.lock().len(), 1);
    let filter = ProposalFilter { limit: 9, ..ProposalFilter::default() };
    let proposals = fixture.kernel.proposals.proposals(filter).await.unwrap();
    let [one, two] = proposals.as_slice() else { panic!("{proposals:?}") };
    assert_eq!(one.digest, two.digest);
    assert!(one.reviewer != two.reviewer && one.decision != two.decision, "{proposals:?}");
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_reviewer_only_reads_whatever_its_definition_asks_for() {
    let tool = Counting::new(false);
    let child = r#"{"description": "d", "subagent_type": "task", "prompt": "Write it."}"#;
    let greedy = calls("", &[("w", "write", ARGUMENTS), ("c", "AgentTool", child)]);
    let steps = [wants_to_write(ARGUMENTS), Step::Reply(greedy), rejects(), Step::Reply(text("gone on"))];
    let fixture = fixture(Config::default(), &tool, steps);

    let worker = spawn(&fixture).await.waiter.unwrap().closed().await;

    let reviewer = SessionId::parse(&proposal(&fixture).await.reviewer).unwrap();
    let told = outcomes(&fixture, &reviewer);
    let denied = told.iter().filter(|(outcome, _)| *outcome == Outcome::Denied).count();
    assert_eq!((denied, told.len()), (2, 3), "{told:?}");
    assert!(told[0].1.contains("no tool `write` here"), "{told:?}");
    assert_eq!(worker.result, "gone on");
    assert!(tool.runs.lock().is_empty());
    fixture.end().await;
}
