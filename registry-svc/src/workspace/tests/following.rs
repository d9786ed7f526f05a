use super::*;

/// The changes that a watcher gets when it resumes, as generation and names.
#[track_caller]
fn resumed(start: &Start) -> Vec<(u64, Vec<String>, Vec<String>)> {
    let Start::Resumed { changes, .. } = start else { panic!("{start:?}") };
    let names = |change: &Arc<Change>| {
        let upserted = change.upserted.iter().map(|it| it.agent.name.as_str().to_owned()).collect();
        let removed = change.removed.iter().map(|name| name.as_str().to_owned()).collect();
        (change.generation, upserted, removed)
    };
    changes.iter().map(names).collect()
}

fn resume(handle: &Handle, generation: u64) -> Resume {
    Resume { generation, store_id: handle.snapshot().store_id().to_string() }
}

#[tokio::test]
async fn a_watcher_gets_the_state_and_then_each_change_once_and_in_order() {
    let workspace = Harness::start().await;
    let mut watcher = workspace.handle.subscribe(None);
    let Start::Fresh(snapshot) = &watcher.start else { panic!("{:?}", watcher.start) };
    let start = snapshot.generation();

    for number in 0..5 {
        workspace.replace(&agent("a", &number.to_string())).await.unwrap();
    }
    workspace.handle.remove(removal("a")).await.unwrap();

    for number in 0..5 {
        let change = watcher.next().await.unwrap().unwrap();
        assert_eq!(change.generation, start + 1 + number);
        assert_eq!(change.upserted[0].agent.system_prompt, number.to_string());
    }
    assert_eq!(watcher.next().await.unwrap().unwrap().removed[0].as_str(), "a");
    workspace.stop().await;
}

#[tokio::test]
async fn a_watcher_resumes_where_it_left_off() {
    let workspace = Harness::start().await;
    let start = workspace.handle.snapshot().generation();
    workspace.replace(&agent("a", "one")).await.unwrap();
    workspace.replace(&agent("a", "two")).await.unwrap();
    workspace.handle.remove(removal("a")).await.unwrap();
    let names = |text: &[&str]| text.iter().map(|name| name.to_string()).collect::<Vec<_>>();

    let all = workspace.handle.subscribe(Some(&resume(&workspace.handle, start))).start;
    assert_eq!(
        resumed(&all),
        [
            (start + 1, names(&["a"]), names(&[])),
            (start + 2, names(&["a"]), names(&[])),
            (start + 3, names(&[]), names(&["a"])),
        ]
    );
    let none = workspace.handle.subscribe(Some(&resume(&workspace.handle, start + 3))).start;
    assert_eq!(resumed(&none), []);

    let other = Resume { generation: start, store_id: "another".to_owned() };
    let future = resume(&workspace.handle, start + 9);
    for resume in [other, future] {
        assert!(matches!(workspace.handle.subscribe(Some(&resume)).start, Start::Fresh(_)), "{resume:?}");
    }
    workspace.stop().await;
}

#[tokio::test]
async fn a_watcher_resumes_over_a_restart_as_far_as_the_definitions_are_still_there() {
    let workspace = Harness::start_durable(place()).await;
    let start = workspace.handle.snapshot().generation();
    workspace.replace(&agent("a", "one")).await.unwrap();
    workspace.replace(&agent("a", "two")).await.unwrap();
    workspace.replace(&agent("b", "one")).await.unwrap();
    // The same once more is recorded for its id, but changes nothing.
    let again = Replace { request_id: Some("id".to_owned()), ..request(&agent("b", "one")) };
    assert_eq!(workspace.handle.replace(again).await.unwrap().generation, start + 3);
    let place = workspace.stop().await;
    write(place.path(), "p/.xcsh/agents/c.md", &agent("c", "file"));

    let workspace = Harness::start_durable(place).await;

    let known = workspace.handle.subscribe(Some(&resume(&workspace.handle, start + 1))).start;
    let generations: Vec<_> =
        resumed(&known).into_iter().map(|(generation, names, _)| (generation, names)).collect();
    let expected = [(start + 2, "a"), (start + 3, "b"), (start + 4, "c")];
    assert_eq!(generations, expected.map(|(generation, name)| (generation, vec![name.to_owned()])));
    // The first text of `a` is gone, so the step that brought it cannot be told any more.
    let lost = workspace.handle.subscribe(Some(&resume(&workspace.handle, start))).start;
    assert!(matches!(lost, Start::Fresh(_)));
    workspace.stop().await;
}

#[tokio::test]
async fn a_watcher_that_lags_is_told_so() {
    let workspace = Harness::start().await;
    let mut watcher = workspace.handle.subscribe(None);

    for number in 0..300 {
        workspace.replace(&agent("a", &number.to_string())).await.unwrap();
    }

    assert_eq!(watcher.next().await.unwrap_err(), Lagged);
    workspace.stop().await;
}

#[tokio::test]
async fn watchers_and_callers_end_with_the_workspace() {
    let workspace = Harness::start().await;
    let mut watcher = workspace.handle.subscribe(None);
    let handle = workspace.handle.clone();

    workspace.stop().await;

    assert!(watcher.next().await.unwrap().is_none());
    assert!(matches!(handle.reload().await, Err(Error::Stopping)));
    let mut late = handle.subscribe(None);
    assert!(late.next().await.unwrap().is_none());
}
