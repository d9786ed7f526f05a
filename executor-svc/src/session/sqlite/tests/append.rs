//! Steps: one line of history, whoever writes it.

use proptest::prelude::*;

use super::*;
use crate::session::StoreError;

#[tokio::test]
async fn a_step_is_appended_only_at_the_position_its_owner_knows() {
    let fixture = Fixture::new();
    let worker = Worker { status: Status::Running, ..fixture.pending().await };

    let first = fixture.append(3, &worker, vec![changed(Status::Running), user("one")]).await.unwrap();
    let late = fixture.append(3, &worker, vec![user("two")]).await.unwrap_err();
    let early = fixture.append(6, &worker, vec![user("two")]).await.unwrap_err();

    assert_eq!((first.position, first.events[0].sequence), (5, 2));
    assert!(matches!(late, AppendError::Moved { expected: 3, actual: 5, .. }), "{late:?}");
    assert!(matches!(early, AppendError::Moved { expected: 6, actual: 5, .. }), "{early:?}");
    let messages = fixture.store.messages(&worker.id, 1, 10).await.unwrap();
    assert_eq!(messages, [(2, fixture.now(), Message::User { text: "one".to_owned() })]);
}

#[tokio::test]
async fn the_log_is_read_in_pages() {
    let fixture = Fixture::new();
    let worker = Worker { status: Status::Running, ..fixture.pending().await };
    let steps = vec![changed(Status::Running), user("one"), user("two")];
    fixture.append(3, &worker, steps).await.unwrap();

    let records = fixture.store.records(&worker.id, 2, 2).await.unwrap();
    let events = fixture.store.events(&worker.id, 1, 10).await.unwrap();
    let messages = fixture.store.messages(&worker.id, 0, 2).await.unwrap();

    let places: Vec<(u64, u64)> = records.iter().map(|stored| (stored.position, stored.sequence)).collect();
    assert_eq!(places, [(3, 1), (4, 2)]);
    assert_eq!(events.len(), 1);
    assert_eq!(messages.iter().map(|(sequence, ..)| *sequence).collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test]
async fn a_final_state_is_written_once() {
    let fixture = Fixture::new();
    let worker = fixture.running(Parent::UnnamedRoot).await;
    let ended = Worker {
        status: Status::Completed,
        stop_reason: Some(StopReason::Finished),
        result: "done".to_owned(),
        usage: Usage { input_tokens: 10, output_tokens: 5, turns: 1, ..Usage::default() },
        ..worker.clone()
    };
    fixture.append(4, &ended, vec![Record::Event { body: Body::Finished }]).await.unwrap();

    let other = Worker { status: Status::Killed, stop_reason: Some(StopReason::Stopped), ..worker.clone() };
    let refusal = fixture.append(5, &other, vec![Record::Event { body: Body::Finished }]).await.unwrap_err();

    assert!(matches!(refusal, AppendError::Moved { actual: 5, .. }), "{refusal:?}");
    let kept = fixture.store.worker(&worker.id).await.unwrap().unwrap();
    assert_eq!((kept.status, kept.result.as_str()), (Status::Completed, "done"));
    assert_eq!(kept.close_time, Some(fixture.now()));
}

#[tokio::test]
async fn an_unnamed_root_closes_with_its_last_worker_and_has_the_sum_of_what_was_used() {
    let fixture = Fixture::new();
    let first = fixture.running(Parent::UnnamedRoot).await;
    let second = fixture.running(Parent::Root(first.root.clone())).await;
    let usage = Usage { input_tokens: 10, output_tokens: 5, turns: 1, ..Usage::default() };

    fixture.end(&Worker { usage, ..second }, StopReason::Finished).await;
    let before = fixture.store.root(&first.root).await.unwrap().unwrap();
    fixture.end(&Worker { usage, ..first }, StopReason::ModelError).await;
    let after = fixture.store.root(&before.id).await.unwrap().unwrap();

    assert_eq!((before.open_workers, before.close_time), (1, None));
    assert_eq!((after.open_workers, after.close_time), (0, Some(fixture.now())));
    assert_eq!((after.usage.input_tokens, after.usage.turns), (20, 2));
}

#[tokio::test]
async fn an_illegal_change_of_state_is_refused_and_changes_nothing() {
    let fixture = Fixture::new();
    let pending = fixture.pending().await;
    let completed = Worker { status: Status::Completed, ..pending.clone() };

    let refusal = fixture.append(3, &completed, vec![changed(Status::Completed)]).await.unwrap_err();

    assert!(matches!(refusal, AppendError::Store(StoreError { transient: false, .. })), "{refusal:?}");
    assert_eq!(fixture.store.worker(&pending.id).await.unwrap(), Some(pending.clone()));
    assert_eq!(fixture.store.records(&pending.id, 0, 10).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_worker_that_is_not_there_has_no_position() {
    let fixture = Fixture::new();

    let refusal = fixture.append(0, &worker(), vec![user("one")]).await.unwrap_err();

    assert!(matches!(refusal, AppendError::Moved { expected: 0, actual: 0, .. }), "{refusal:?}");
}

/// What one of several owners does: appends where it believes the log to be, or reads where it is.
#[derive(Clone, Copy, Debug)]
enum Act {
    Append { owner: usize, records: usize },
    Read { owner: usize },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..3_usize, 1..4_usize).prop_map(|(owner, records)| Act::Append { owner, records }),
        1 => (0..3_usize).prop_map(|owner| Act::Read { owner }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whoever_appends_there_is_one_line_of_history(acts in prop::collection::vec(act(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(one_line_of_history(acts));
    }
}

async fn one_line_of_history(acts: Vec<Act>) {
    let fixture = Fixture::new();
    let worker = fixture.running(Parent::UnnamedRoot).await;
    let (mut known, mut expected, mut texts) = ([4; 3], 4, vec!["Look.".to_owned()]);

    for (step, act) in acts.into_iter().enumerate() {
        match act {
            Act::Append { owner, records } => {
                let said: Vec<String> = (0..records).map(|index| format!("{owner} {step} {index}")).collect();
                let records = said.iter().map(|text| user(text)).collect();
                match fixture.append(known[owner], &worker, records).await {
                    Ok(appended) => {
                        assert_eq!(known[owner], expected, "only who knows the end appends");
                        expected = appended.position;
                        known[owner] = expected;
                        texts.extend(said);
                    }
                    Err(AppendError::Moved { actual, .. }) => {
                        assert_ne!(known[owner], expected);
                        assert_eq!(actual, expected);
                    }
                    Err(AppendError::Store(error)) => panic!("{error:?}"),
                }
            }
            Act::Read { owner } => {
                known[owner] = fixture.store.records(&worker.id, 0, usize::MAX).await.unwrap().len() as u64;
            }
        }
    }

    let records = fixture.store.records(&worker.id, 0, usize::MAX).await.unwrap();
    assert!(records.iter().map(|stored| stored.position).eq(1..=expected));
    let messages = fixture.store.messages(&worker.id, 0, usize::MAX).await.unwrap();
    assert!(messages.iter().map(|(sequence, ..)| *sequence).eq(1..=texts.len() as u64));
    let kept: Vec<_> = messages.into_iter().map(|(.., message)| message).collect();
    assert_eq!(kept, texts.into_iter().map(|text| Message::User { text }).collect::<Vec<_>>());
}
