//! What the registry's program says in its log.

use std::fs;

use proto::registry::v1::{ReloadRequest, ReplaceRequest};
use tests::registry_program::{self, Program};

/// Unquoted `: ` in a description: the commonest fault of definition files.
fn rescued(name: &str, body: &str) -> String {
    format!("---\nname: {name}\ndescription: Use when: it breaks\n---\n{body}\n")
}

#[tokio::test]
async fn a_rescued_document_is_warned_of_once_for_each_change_and_its_contents_are_not_logged() {
    let directory = registry_program::directory();
    let agents = directory.path().join("project/.claude/agents");
    fs::create_dir_all(&agents).unwrap();
    fs::write(agents.join("scout.md"), rescued("scout", "First.")).unwrap();
    let warnings = |place: &str| {
        let log = registry_program::log(directory.path());
        assert!(!log.contains("it breaks"), "{log}");
        log.lines().filter(|line| line.contains("FRONT_MATTER_RESCUED") && line.contains(place)).count()
    };

    let mut program = Program::start(directory.path()).await;
    for _ in 0..3 {
        program.client.reload(ReloadRequest::default()).await.unwrap();
    }
    assert_eq!(warnings("scout.md"), 1);

    fs::write(agents.join("scout.md"), rescued("scout", "Second.")).unwrap();
    for _ in 0..3 {
        program.client.reload(ReloadRequest::default()).await.unwrap();
    }
    assert_eq!(warnings("scout.md"), 2);

    let document = rescued("written", "Third.").into_bytes();
    program.client.replace(ReplaceRequest { document, ..ReplaceRequest::default() }).await.unwrap();
    program.client.reload(ReloadRequest::default()).await.unwrap();
    assert_eq!((warnings("\"written\""), warnings("scout.md")), (1, 2));
    program.kill().await;
}
