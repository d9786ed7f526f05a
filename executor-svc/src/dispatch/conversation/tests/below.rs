//! What a coordinator does with the workers below it.

use super::*;

#[tokio::test]
async fn a_coordinator_sends_further_messages_and_stops_workers_only_below_its_own_root() {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&told);
    let foreign: Arc<Mutex<String>> = Arc::default();
    let other = Arc::clone(&foreign);
    let stage = Stage::new(move |turn| match (turn.agent, turn.number) {
        ("explore" | "task", _) => Step::Reply(text(&format!("{} messages", turn.messages.len()))),
        ("default", 1) => dispatching("a", "explore", "Look."),
        ("default", 2) => {
            let arguments = json!({ "to": report(turn)["task_id"], "message": "And then?" }).to_string();
            Step::Reply(calls("", &[("b", "SendMessage", &arguments)]))
        }
        ("default", 3) => {
            let further = report(turn);
            noted.lock().push(further["result"].as_str().unwrap().to_owned());
            let stop = json!({ "task_id": further["task_id"] }).to_string();
            let foreign = json!({ "task_id": *other.lock() }).to_string();
            let send = json!({ "to": *other.lock(), "message": "Hello." }).to_string();
            Step::Reply(calls(
                "",
                &[("c", "TaskStop", &stop), ("d", "TaskStop", &foreign), ("e", "SendMessage", &send)],
            ))
        }
        _ => {
            let answers = turn.messages.iter().rev().take(3).map(|message| match message {
                Message::Tool { call_id, text, .. } => format!("{call_id} {text}"),
                other => panic!("{other:?}"),
            });
            noted.lock().extend(answers);
            Step::Reply(text("done"))
        }
    });
    let stranger = stage.kernel().dispatch(&anybody(), crate::double::call("Go."), None).await;
    let stranger = stranger.unwrap().waiter.unwrap().closed().await;
    *foreign.lock() = stranger.id.to_string();

    let turn = stage.say(None, "hello").await;

    assert_eq!((turn.status, turn.result.as_str()), (Status::Completed, "done"), "{}", turn.error);
    let mut told = std::mem::take(&mut *told.lock());
    told.sort();
    assert_eq!(told[0], "3 messages", "the further run sees what was said before");
    assert!(told[1].starts_with(r#"c {"stopped":[{"task_id":"worker-"#), "{told:?}");
    for (told, id) in [(&told[2], 'd'), (&told[3], 'e')] {
        assert_eq!(*told, format!("{id} session `{}` is not there", stranger.id));
    }
    let below = stage.kernel().log.descendants(&turn.id, 10).await.unwrap();
    assert_eq!(below.iter().map(|worker| worker.depth).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(below[1].continues.as_ref(), Some(&below[0].id));
    stage.end().await;
}

#[tokio::test]
async fn a_tool_that_an_agent_has_is_redirected_and_workers_have_no_such_tools() {
    let mut config = Config::default();
    config.tools.redirects = [("host_bash", "task"), ("gone_tool", "reviewer")]
        .map(|(tool, agent)| (tool.to_owned(), agent.to_owned()))
        .into();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let stage = Stage::with(config, move |turn| {
        noted.lock().extend(turn.tools.iter().map(|tool| format!("{} {}", turn.agent, tool.name)));
        match (turn.agent, turn.number) {
            ("default", 1) => Step::Reply(calls("", &[("a", "host_bash", "{}")])),
            ("default", 2) => {
                assert!(last(turn).contains("Use `AgentTool` with `subagent_type` `task`"), "{}", last(turn));
                dispatching("b", "task", "Do it.")
            }
            _ => Step::Reply(text("done")),
        }
    });

    stage.say(None, "hello").await;

    let seen = std::mem::take(&mut *seen.lock());
    for (tool, coordinator, worker) in [
        ("AgentTool", true, true),
        ("SendMessage", true, false),
        ("TaskStop", true, false),
        ("host_bash", true, false),
        // Its agent may not be spawned.
        ("gone_tool", false, false),
    ] {
        let has = |agent: &str| seen.contains(&format!("{agent} {tool}"));
        assert_eq!((has("default"), has("task")), (coordinator, worker), "{tool}");
    }
    stage.end().await;
}

#[tokio::test]
async fn budgets_and_limits_of_a_tree_count_in_one_turn() {
    let mut config = Config::default();
    config.limits.max_spawns_per_tree = Bound::Of(2);
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&told);
    let stage = Stage::with(config, move |turn| match (turn.agent, turn.number) {
        ("default", number @ 1..=3) => {
            noted.lock().push(last(turn));
            dispatching(&format!("call-{number}"), "explore", &format!("Look {number} {}.", turn.prompt))
        }
        ("default", _) => {
            noted.lock().push(last(turn));
            Step::Reply(text("done"))
        }
        _ => Step::Reply(text("looked")),
    });

    let root = stage.say(None, "first").await.id;
    let turn = stage.say(Some(&root), "second").await;

    assert_eq!(turn.result, "done");
    let told = std::mem::take(&mut *told.lock());
    assert_eq!(told.len(), 8);
    for (index, answer) in told.iter().enumerate() {
        let is_refused = answer.contains("`max_spawns_per_tree` is used up");
        assert_eq!(is_refused, index % 4 == 3, "{index}: {answer}");
    }
    let budget = Budget { spawns: Some(0), ..Budget::default() };
    let frugal = Talk { budget, ..talk(Some(&root), "third") };
    let turn = stage.kernel().converse(&anybody(), frugal).await.unwrap();
    turn.waiter.unwrap().closed().await;
    let below = stage.kernel().log.descendants(&root, 10).await.unwrap();
    assert_eq!(below.len(), 4, "the third turn spawned nobody");
    stage.end().await;
}
