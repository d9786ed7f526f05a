use std::os::unix::fs::symlink;

use tokio::time::{Instant, advance};

use super::*;

#[tokio::test]
async fn a_reload_says_what_changed_and_shares_what_did_not() {
    let workspace = Harness::start().await;
    workspace.write("p/.xcsh/agents/a.md", &agent("a", "one"));
    workspace.write("p/.xcsh/agents/b.md", &agent("b", "one"));
    workspace.handle.reload().await.unwrap();
    let before = workspace.handle.snapshot();

    workspace.write("p/.xcsh/agents/a.md", &agent("a", "other"));
    workspace.write("p/.xcsh/agents/c.md", &agent("c", "one"));
    let reloaded = workspace.handle.reload().await.unwrap();

    assert_eq!((&reloaded.added[..], &reloaded.changed[..]), (&["c".to_owned()][..], &["a".to_owned()][..]));
    assert_eq!((reloaded.removed.len(), reloaded.unchanged), (0, 1));
    assert_eq!(reloaded.snapshot.generation(), before.generation() + 1);
    let of_b = |snapshot: &Snapshot| Arc::clone(snapshot.by_name("b").unwrap());
    assert!(Arc::ptr_eq(&of_b(&before), &of_b(&reloaded.snapshot)), "an unchanged file was parsed again");
    assert_eq!(before.by_name("a").unwrap().agent.system_prompt, "one", "a published snapshot changed");
    workspace.stop().await;
}

#[tokio::test]
async fn the_generation_rises_only_with_what_is_in_force_or_found() {
    let workspace = Harness::start().await;
    workspace.write("p/.xcsh/agents/a.md", &agent("a", "one"));
    workspace.write("h/.xcsh/agent/agents/a.md", &agent("a", "below"));
    let generation = workspace.handle.reload().await.unwrap().snapshot.generation();
    assert_eq!(generation, 2);

    assert_eq!(workspace.handle.reload().await.unwrap().snapshot.generation(), generation);

    // Below the winner nothing in force changes, but `Explain` shows it.
    workspace.write("h/.xcsh/agent/agents/a.md", &agent("a", "changed below"));
    let snapshot = Arc::clone(&workspace.handle.reload().await.unwrap().snapshot);
    assert_eq!(snapshot.generation(), generation);
    let below = snapshot.candidates("a").unwrap()[1].document.definition().unwrap();
    assert_eq!(below.agent.system_prompt, "changed below");

    // A finding alone is a change.
    workspace
        .write("h/.xcsh/agent/agents/a.md", &agent("a", "x").replace("---\nname", "---\noddity: 1\nname"));
    assert_eq!(workspace.handle.reload().await.unwrap().snapshot.generation(), generation + 1);
    workspace.stop().await;
}

#[tokio::test]
async fn the_generation_survives_a_restart_and_never_falls() {
    let workspace = Harness::start_durable(place()).await;
    workspace.write("p/.xcsh/agents/a.md", &agent("a", "one"));
    let generation = workspace.handle.reload().await.unwrap().snapshot.generation();
    let store_id = Arc::clone(workspace.handle.snapshot().store_id());
    let place = workspace.stop().await;

    let workspace = Harness::start_durable(place).await;
    assert_eq!(workspace.handle.snapshot().generation(), generation, "nothing changed");
    assert_eq!(*workspace.handle.snapshot().store_id(), store_id);
    let place = workspace.stop().await;

    write(place.path(), "p/.xcsh/agents/a.md", &agent("a", "other"));
    let workspace = Harness::start_durable(place).await;
    assert_eq!(workspace.handle.snapshot().generation(), generation + 1);
    workspace.stop().await;
}

#[tokio::test]
async fn reloads_that_arrive_together_are_one() {
    let workspace = Harness::start().await;
    workspace.write("p/.xcsh/agents/a.md", &agent("a", "one"));

    let (first, second) = tokio::join!(workspace.handle.reload(), workspace.handle.reload());

    assert!(Arc::ptr_eq(&first.unwrap(), &second.unwrap()));
    workspace.stop().await;
}

#[tokio::test]
async fn a_touched_file_is_read_without_being_asked() {
    let workspace = Harness::start().await;
    let mut watcher = workspace.handle.subscribe(None);

    // The directory does not exist yet, so it is only seen by watching the one above.
    workspace.write("p/.claude/agents/deep/a.md", &agent("a", "one"));
    let change = timeout(PATIENCE, watcher.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(change.upserted[0].agent.name.as_str(), "a");

    workspace.write("p/.claude/agents/deep/a.md", &agent("a", "two"));
    let change = timeout(PATIENCE, watcher.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(change.upserted[0].agent.system_prompt, "two");
    workspace.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_that_no_event_tells_of_is_found_by_comparing() {
    let place = place();
    write(place.path(), "p/elsewhere/a.md", &agent("a", "one"));
    fs::create_dir_all(place.path().join("p/.claude/agents")).unwrap();
    symlink("../../elsewhere/a.md", place.path().join("p/.claude/agents/a.md")).unwrap();
    let workspace = Harness::start_in(place, Arc::new(MemoryStore::new())).await;
    // The first watches call for one more reading, which this one answers.
    advance(Duration::from_secs(1)).await;
    workspace.handle.reload().await.unwrap();
    let mut watcher = workspace.handle.subscribe(None);
    let start = Instant::now();

    // Only the directory of the link is watched, not the one it leads to.
    workspace.write("p/elsewhere/a.md", &agent("a", "two"));

    let change = timeout(Duration::from_secs(31), watcher.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(change.upserted[0].agent.system_prompt, "two");
    assert!(start.elapsed() > Duration::from_secs(20), "an event told of it: {:?}", start.elapsed());
    workspace.stop().await;
}

#[tokio::test]
async fn a_mount_is_read_from_one_generation_and_its_swap_is_seen() {
    let workspace = Harness::start().await;
    let generation = |number: u32| {
        for name in ["a", "b"] {
            workspace.write(&format!("r/..{number}/{name}.md"), &agent(name, &number.to_string()));
        }
    };
    generation(1);
    symlink("..1", workspace.path("r/..data")).unwrap();
    for name in ["a.md", "b.md"] {
        symlink(format!("..data/{name}"), workspace.path("r").join(name)).unwrap();
    }
    workspace.handle.reload().await.unwrap();
    assert_eq!((workspace.body("a"), workspace.body("b")), (Some("1".into()), Some("1".into())));
    assert_eq!(
        workspace.handle.snapshot().by_name("a").unwrap().source.path,
        workspace.path("r/a.md").display().to_string()
    );
    let mut watcher = workspace.handle.subscribe(None);

    generation(2);
    symlink("..2", workspace.path("r/..data_tmp")).unwrap();
    fs::rename(workspace.path("r/..data_tmp"), workspace.path("r/..data")).unwrap();
    fs::remove_dir_all(workspace.path("r/..1")).unwrap();

    let change = timeout(PATIENCE, watcher.next()).await.unwrap().unwrap().unwrap();
    let bodies: Vec<_> = change.upserted.iter().map(|it| it.agent.system_prompt.as_str()).collect();
    assert_eq!(bodies, ["2", "2"], "one change holds the whole generation");
    workspace.stop().await;
}

#[tokio::test]
async fn a_source_that_fails_keeps_its_last_good_state() {
    let workspace = Harness::start().await;
    workspace.write("r/a.md", &agent("a", "one"));
    workspace.handle.reload().await.unwrap();

    // A root that is no directory any more cannot be listed; one that is gone is merely empty.
    fs::rename(workspace.path("r"), workspace.path("aside")).unwrap();
    fs::write(workspace.path("r"), "").unwrap();
    workspace.handle.reload().await.unwrap();
    assert_eq!(workspace.body("a").as_deref(), Some("one"));
    assert!(workspace.codes().contains(&"UNREADABLE"));

    fs::remove_file(workspace.path("r")).unwrap();
    workspace.handle.reload().await.unwrap();
    assert_eq!(workspace.body("a"), None);
    assert_eq!(workspace.codes(), [""; 0]);
    workspace.stop().await;
}

#[tokio::test]
async fn bytes_of_any_candidate_can_be_had_as_long_as_they_are_there() {
    let workspace = Harness::start().await;
    let (above, below) = (agent("a", "above"), agent("a", "below"));
    workspace.write("p/.xcsh/agents/a.md", &above);
    workspace.write("r/a.md", &below);
    workspace.handle.reload().await.unwrap();
    let digest = Digest::of(below.as_bytes());

    assert_eq!(workspace.handle.document("a", None).await.unwrap().document, above.as_bytes());
    assert_eq!(workspace.handle.document("a", Some(digest)).await.unwrap().document, below.as_bytes());
    let other = workspace.handle.document("a", Some(Digest::of(b"other"))).await;
    assert!(matches!(other, Err(Error::UnknownDigest { .. })));
    assert!(matches!(workspace.handle.document("b", None).await, Err(Error::Miss(_))));

    // The snapshot is behind the file: it is read again first.
    workspace.write("p/.xcsh/agents/a.md", &agent("a", "changed"));
    let fetched = workspace.handle.document("a", None).await.unwrap();
    assert_eq!(fetched.document, agent("a", "changed").as_bytes());
    workspace.replace(&agent("a", "authored")).await.unwrap_err();
    workspace.stop().await;
}

#[tokio::test]
async fn commands_and_skills_lie_beside_agents() {
    let workspace = Harness::start().await;
    workspace.write("p/.xcsh/commands/fix.md", "---\ndescription: project\n---\nFix $@.\n");
    workspace.write("r/commands/fix.md", "Root.\n");
    workspace.write("r/commands/ship.md", "Ship.\n");
    workspace.write("r/commands/README.md", "Not a command.\n");
    workspace.write("h/.xcsh/agent/skills/disk/SKILL.md", "---\nname: disk\ndescription: d\n---\nBody.\n");
    workspace.write("h/.xcsh/agent/skills/disk/notes.md", "not a skill");
    workspace.handle.reload().await.unwrap();

    let snapshot = workspace.handle.snapshot();
    let commands: Vec<_> =
        snapshot.commands().iter().map(|it| (it.name.as_str(), it.content.as_str())).collect();
    assert_eq!(commands, [("fix", "Fix $@."), ("ship", "Ship.")]);
    let skills: Vec<_> = snapshot.skills().iter().map(|it| it.name.as_str()).collect();
    assert_eq!(skills, ["disk"]);
    assert_eq!(workspace.codes(), [""; 0], "no command was taken for an agent");
    workspace.stop().await;
}
