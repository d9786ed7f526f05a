use async_trait::async_trait;

use super::*;
use crate::{
    error::StoreError,
    snapshot::Miss,
    store::{Commit, Stored},
};

#[tokio::test]
async fn what_was_written_is_in_force_and_survives_reload_and_restart() {
    let workspace = Harness::start_durable(place()).await;
    workspace.write("p/.xcsh/agents/a.md", &agent("a", "file"));
    workspace.handle.reload().await.unwrap();
    let before = workspace.handle.snapshot().generation();

    let replaced = workspace.replace(&agent("a", "authored")).await.unwrap();

    assert!(replaced.created);
    assert_eq!(replaced.generation, before + 1);
    assert_eq!(replaced.shadowed.len(), 1);
    assert_eq!(workspace.body("a").as_deref(), Some("authored"));
    workspace.handle.reload().await.unwrap();
    assert_eq!(workspace.body("a").as_deref(), Some("authored"));
    assert!(!workspace.replace(&agent("a", "again")).await.unwrap().created);

    let workspace = Harness::start_durable(workspace.stop().await).await;
    assert_eq!(workspace.body("a").as_deref(), Some("again"));
    assert_eq!(workspace.handle.snapshot().generation(), before + 2);
    let fetched = workspace.handle.document("a", None).await.unwrap();
    assert_eq!(fetched.document, agent("a", "again").as_bytes());
    workspace.stop().await;
}

#[tokio::test]
async fn removing_brings_the_file_back_into_force() {
    let workspace = Harness::start_durable(place()).await;
    workspace.write("p/.xcsh/agents/a.md", &agent("a", "file"));
    workspace.handle.reload().await.unwrap();
    workspace.replace(&agent("a", "authored")).await.unwrap();
    workspace.replace(&agent("b", "authored")).await.unwrap();

    let removed = workspace.handle.remove(removal("a")).await.unwrap();
    assert_eq!(removed.now_in_force.unwrap().agent.system_prompt, "file");
    let removed = workspace.handle.remove(removal("b")).await.unwrap();
    assert!(removed.now_in_force.is_none());
    assert_eq!(removed.generation, workspace.handle.snapshot().generation());

    assert!(matches!(workspace.handle.remove(removal("a")).await, Err(Error::NotAuthored { .. })));
    let unknown = workspace.handle.remove(removal("b")).await;
    assert!(matches!(unknown, Err(Error::Miss(Miss::Unknown { .. }))));
    let workspace = Harness::start_durable(workspace.stop().await).await;
    assert_eq!((workspace.body("a").as_deref(), workspace.body("b")), (Some("file"), None));
    workspace.stop().await;
}

#[tokio::test]
async fn an_unusable_document_is_refused_with_its_faults_and_nothing_is_written() {
    let workspace = Harness::start().await;
    let generation = workspace.handle.snapshot().generation();

    let refused = workspace.replace("---\nname: a\ndissallowed_tools: bash\n---\n").await;

    let Err(Error::InvalidDocument { diagnostics }) = refused else { panic!("{refused:?}") };
    let codes: Vec<_> = diagnostics.iter().map(|diagnostic| diagnostic.code.as_str()).collect();
    assert!(codes.contains(&"MISSING_FIELD") && codes.contains(&"MISSPELT_RESTRICTION"), "{codes:?}");
    assert_eq!(workspace.handle.snapshot().generation(), generation);
    workspace.stop().await;
}

#[tokio::test]
async fn a_digest_or_a_name_that_was_not_expected_changes_nothing() {
    let workspace = Harness::start().await;
    let first = agent("a", "one");
    let expecting = |document: &str, digest: &str| Replace {
        expected_digest: Some(digest.to_owned()),
        ..request(document)
    };
    let digest = Digest::of(first.as_bytes()).to_string();

    let missing = workspace.handle.replace(expecting(&first, &digest)).await;
    assert!(matches!(missing, Err(Error::DigestMismatch { ref actual, .. }) if actual.is_empty()));
    workspace.handle.replace(expecting(&first, "")).await.unwrap();
    let there = workspace.handle.replace(expecting(&agent("a", "two"), "")).await;
    assert!(matches!(there, Err(Error::DigestMismatch { ref actual, .. }) if *actual == digest));
    workspace.handle.replace(expecting(&agent("a", "two"), &digest)).await.unwrap();
    let removal = Remove { expected_digest: Some(digest), ..removal("a") };
    assert!(matches!(workspace.handle.remove(removal).await, Err(Error::DigestMismatch { .. })));

    let named = Replace { expected_name: Some("b".to_owned()), ..request(&first) };
    assert!(matches!(workspace.handle.replace(named).await, Err(Error::NameMismatch { .. })));
    assert_eq!(workspace.body("a").as_deref(), Some("two"));
    workspace.stop().await;
}

#[tokio::test]
async fn a_request_id_answers_the_same_once_more_and_refuses_other_content() {
    let workspace = Harness::start_durable(place()).await;
    let with_id = |document: &str, caller: &str| Replace {
        author: Author { caller: caller.to_owned(), is_administrator: false },
        request_id: Some("id".to_owned()),
        expected_digest: Some(String::new()),
        ..request(document)
    };
    let first = workspace.handle.replace(with_id(&agent("a", "one"), "me")).await.unwrap();
    workspace.replace(&agent("b", "one")).await.unwrap();

    let workspace = Harness::start_durable(workspace.stop().await).await;
    let again = workspace.handle.replace(with_id(&agent("a", "one"), "me")).await.unwrap();
    assert_eq!((again.generation, again.created), (first.generation, first.created));
    assert_eq!(again.definition.agent.digest, first.definition.agent.digest);
    let other = workspace.handle.replace(with_id(&agent("a", "two"), "me")).await;
    assert!(matches!(other, Err(Error::RequestIdReused { .. })));
    // Another caller's ids are his own.
    workspace.handle.replace(with_id(&agent("c", "one"), "you")).await.unwrap();
    workspace.stop().await;
}

#[tokio::test]
async fn protected_names_and_the_operators_definitions_need_an_administrator() {
    let workspace = Harness::start().await;
    workspace.write("r/a.md", &agent("a", "root"));
    workspace.write("p/.xcsh/agents/b.md", &agent("b", "project"));
    workspace.handle.reload().await.unwrap();
    let administrator = Author { caller: "root".to_owned(), is_administrator: true };

    for name in ["a", "reviewer", "default"] {
        let refused = workspace.replace(&agent(name, "mine")).await;
        assert!(matches!(refused, Err(Error::AdministratorRequired { .. })), "{name}");
        let request = Replace { author: administrator.clone(), ..request(&agent(name, "mine")) };
        workspace.handle.replace(request).await.unwrap();
        assert_eq!(workspace.body(name).as_deref(), Some("mine"), "{name}");
    }
    workspace.replace(&agent("b", "mine")).await.unwrap();
    let refused = workspace.handle.remove(removal("reviewer")).await;
    assert!(matches!(refused, Err(Error::AdministratorRequired { .. })));
    workspace.stop().await;
}

#[tokio::test]
async fn a_later_change_below_an_authored_definition_is_said() {
    let workspace = Harness::start_durable(place()).await;
    workspace.write("p/.xcsh/agents/a.md", &agent("a", "file"));
    workspace.handle.reload().await.unwrap();
    workspace.replace(&agent("a", "authored")).await.unwrap();
    assert_eq!(workspace.codes(), [""; 0]);

    workspace.write("p/.xcsh/agents/a.md", &agent("a", "changed"));
    workspace.handle.reload().await.unwrap();
    assert_eq!(workspace.codes(), ["SHADOWED_BY_AUTHORED"]);

    let workspace = Harness::start_durable(workspace.stop().await).await;
    assert_eq!(workspace.codes(), ["SHADOWED_BY_AUTHORED"], "it is known after a restart too");
    workspace.stop().await;
}

#[tokio::test]
async fn validation_says_what_a_document_would_do() {
    let workspace = Harness::start().await;
    workspace.write("p/.xcsh/agents/a.md", &agent("a", "file"));
    workspace.handle.reload().await.unwrap();
    let document = "---\nname: a\ndescription: d\nspawns: [a, nobody]\nskills: nothing\n---\nB\n";

    let validated = workspace.handle.validate(document.as_bytes());

    assert!(validated.definition.is_some());
    assert_eq!(validated.would_shadow.len(), 1);
    let codes: Vec<_> = validated.diagnostics.iter().map(|diagnostic| diagnostic.code.as_str()).collect();
    assert_eq!(codes, ["UNKNOWN_SPAWN", "UNKNOWN_SKILL"]);
    assert_eq!(workspace.body("a").as_deref(), Some("file"));
    workspace.stop().await;
}

/// A store that fails while it is told to.
struct FailingStore {
    inner: MemoryStore,
    failures: std::sync::atomic::AtomicUsize,
}

#[async_trait]
impl Store for FailingStore {
    fn id(&self) -> &str {
        self.inner.id()
    }

    async fn load(&self, workspace: &str) -> Result<Stored, StoreError> {
        self.inner.load(workspace).await
    }

    async fn commit(&self, workspace: &str, commit: Commit) -> Result<(), StoreError> {
        use std::sync::atomic::Ordering::SeqCst;
        if self.failures.try_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(StoreError::Refusing);
        }
        self.inner.commit(workspace, commit).await
    }
}

#[tokio::test]
async fn nothing_is_in_force_that_the_store_did_not_take() {
    let store = Arc::new(FailingStore { inner: MemoryStore::new(), failures: 0.into() });
    let workspace = Harness::start_in(place(), Arc::clone(&store) as Arc<dyn Store>).await;
    workspace.write("p/.xcsh/agents/a.md", &agent("a", "file"));
    store.failures.store(2, std::sync::atomic::Ordering::SeqCst);

    assert!(matches!(workspace.replace(&agent("b", "authored")).await, Err(Error::Store(_))));
    assert!(matches!(workspace.handle.reload().await, Err(Error::Store(_))));
    assert_eq!((workspace.body("a"), workspace.body("b")), (None, None));
    assert_eq!(store.failures.load(std::sync::atomic::Ordering::SeqCst), 0, "both failures happened");

    workspace.handle.reload().await.unwrap();
    assert_eq!((workspace.body("a").as_deref(), workspace.body("b")), (Some("file"), None));
    workspace.stop().await;
}
