//! Who may call the registry: nobody's rights, everybody's roles, foreign workspaces.

use proto::registry::v1::{
    ByNameRequest, ReloadRequest, RemoveRequest, ReplaceRequest,
    registry_service_client::RegistryServiceClient,
};
use service_kit::auth::{Credentials, Role, StaticToken};
use tests::{
    refusal::reason,
    registry::{Registry, document},
};
use tonic::{Code, Request};

/// SHA-256 of `ann-token` and `bob-token`.
const ANN: &str = "dfa603dfa2ef13eb23a30434d7feef5de20829cb6c5181623c8028a74eaf4971";
const BOB: &str = "97dd3707015dcf069cf73022ed7173b1165db6eff24b441cb57fd069a8c4e525";

fn with_token<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    request
        .metadata_mut()
        .insert("authorization", format!("Bearer {token}").parse().expect("a token is a header"));
    request
}

fn replace(name: &str) -> ReplaceRequest {
    ReplaceRequest { document: document(name, "Body.").into_bytes(), ..ReplaceRequest::default() }
}

fn by_name(workspace: &str) -> ByNameRequest {
    ByNameRequest { workspace: workspace.into(), name: "explore".into() }
}

#[tokio::test]
async fn on_loopback_an_anonymous_caller_reads_and_reloads_but_does_not_write() {
    let mut registry = Registry::start().await;

    registry.by_name("explore").await.unwrap();
    registry.client.reload(ReloadRequest::default()).await.unwrap();
    let replaced = registry.client.replace(replace("scout")).await.unwrap_err();
    let removed = RemoveRequest { name: "scout".into(), ..RemoveRequest::default() };
    let removed = registry.client.remove(removed).await.unwrap_err();
    let wrong = registry.client.by_name(with_token(by_name(""), "guessed")).await.unwrap_err();

    reason(&replaced, Code::Unauthenticated, "CREDENTIALS_REQUIRED");
    reason(&removed, Code::Unauthenticated, "CREDENTIALS_REQUIRED");
    reason(&wrong, Code::Unauthenticated, "CREDENTIALS_INVALID");
    registry.administrator().await.replace(replace("scout")).await.unwrap();
    registry.stop().await;
}

#[tokio::test]
async fn with_configured_credentials_roles_and_workspaces_count() {
    let registry = Registry::start_with(|config| {
        let token = |identity: &str, sha256: &str, role, workspace: &str| StaticToken {
            identity: identity.to_owned(),
            sha256: sha256.to_owned(),
            roles: vec![role],
            workspaces: vec![workspace.to_owned()],
            spawns: None,
        };
        config.credentials = Credentials {
            tokens: vec![
                token("ann", ANN, Role::Reader, "default"),
                token("bob", BOB, Role::Author, "elsewhere"),
            ],
        };
    })
    .await;
    let mut client: RegistryServiceClient<_> = registry.client.clone();

    let nobody = client.by_name(by_name("")).await.unwrap_err();
    let ann = client.by_name(with_token(by_name(""), "ann-token")).await.unwrap().into_inner();
    let ann_writes = client.replace(with_token(replace("scout"), "ann-token")).await.unwrap_err();
    let bob = client.by_name(with_token(by_name(""), "bob-token")).await.unwrap_err();

    reason(&nobody, Code::Unauthenticated, "CREDENTIALS_REQUIRED");
    assert_eq!(ann.agent.unwrap().source.unwrap().path, "embedded:explore.md");
    reason(&ann_writes, Code::PermissionDenied, "ROLE_REQUIRED");
    reason(&bob, Code::NotFound, "WORKSPACE_NOT_FOUND");
    drop(client);
    registry.stop().await;
}

#[tokio::test]
async fn with_configured_credentials_paths_end_at_their_source() {
    let registry = Registry::start_with(|config| {
        let token = StaticToken {
            identity: "ann".to_owned(),
            sha256: ANN.to_owned(),
            roles: vec![Role::Reader, Role::Author],
            workspaces: Vec::new(),
            spawns: None,
        };
        config.credentials = Credentials { tokens: vec![token] };
    })
    .await;
    registry.write(".claude/agents/deep/scout.md", &document("scout", "Look."));
    let mut client = registry.client.clone();
    client.reload(with_token(ReloadRequest::default(), "ann-token")).await.unwrap();

    let request = ByNameRequest { workspace: String::new(), name: "scout".into() };
    let shown = client.by_name(with_token(request, "ann-token")).await.unwrap().into_inner();

    assert_eq!(shown.agent.unwrap().source.unwrap().path, "deep/scout.md");
    drop(client);
    registry.stop().await;
}

#[tokio::test]
async fn what_the_operator_put_in_place_is_an_administrators_to_change() {
    let registry = Registry::start_with(|config| {
        let token = StaticToken {
            identity: "ann".to_owned(),
            sha256: ANN.to_owned(),
            roles: vec![Role::Author],
            workspaces: Vec::new(),
            spawns: None,
        };
        config.credentials = Credentials { tokens: vec![token] };
    })
    .await;
    let mut client = registry.client.clone();

    let bundled = client.replace(with_token(replace("explore"), "ann-token")).await.unwrap_err();
    let protected = client.replace(with_token(replace("reviewer"), "ann-token")).await.unwrap_err();

    reason(&bundled, Code::PermissionDenied, "ROLE_REQUIRED");
    reason(&protected, Code::PermissionDenied, "ROLE_REQUIRED");
    client.replace(with_token(replace("scout"), "ann-token")).await.unwrap();
    drop(client);
    registry.administrator().await.replace(replace("explore")).await.unwrap();
    registry.stop().await;
}
