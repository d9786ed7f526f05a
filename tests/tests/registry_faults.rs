//! The registry when something gives way: a full server, a slow reader, a disk that fails.

use std::fs;

use futures::{StreamExt as _, future::try_join_all};
use proto::registry::v1::{
    ByNameRequest, ReplaceRequest, View, WatchRequest, WatchResponse,
    registry_service_client::RegistryServiceClient,
};
use tests::{
    refusal::reason,
    registry::{Registry, document},
};
use tonic::{Code, Streaming, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::StatusExt as _;

/// Calls that the server takes at a time, and streams that one connection carries.
const CALLS_MAX: usize = 8_192;
const STREAMS_MAX: usize = 200;

/// More changes than are kept for a watcher that does not read.
const CHANGES: usize = 400;

fn by_name(name: &str) -> ByNameRequest {
    ByNameRequest { workspace: String::new(), name: name.to_owned() }
}

fn replace(name: &str, body: &str) -> ReplaceRequest {
    ReplaceRequest { document: document(name, body).into_bytes(), ..ReplaceRequest::default() }
}

async fn watch(channel: Channel, view: View) -> Streaming<WatchResponse> {
    let request = WatchRequest { view: view.into(), ..WatchRequest::default() };
    RegistryServiceClient::new(channel).watch(request).await.expect("the registry is there").into_inner()
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_sent_away() {
    let registry = Registry::start().await;
    let mut watcher = watch(registry.channel().await, View::Full).await;
    let mut administrator = registry.administrator().await;

    // Large enough that what waits on the way cannot hide that nobody reads.
    let body = "All work and no play. ".repeat(1_000);
    for round in 0..CHANGES {
        administrator.replace(replace("scout", &format!("{round} {body}"))).await.unwrap();
    }
    let mut received = 0;
    let ended = loop {
        match watcher.next().await {
            Some(Ok(_)) => received += 1,
            Some(Err(status)) => break status,
            None => panic!("the watch ended without saying why"),
        }
    };

    reason(&ended, Code::Aborted, "WATCH_LAGGED");
    assert!(received < CHANGES, "nothing was left out");
    registry.stop().await;
}

#[tokio::test]
async fn a_disk_that_fails_is_an_error_and_changes_nothing() {
    let mut registry = Registry::start().await;
    let mut administrator = registry.administrator().await;
    administrator.replace(replace("scout", "First.")).await.unwrap();
    let before = registry.by_name("scout").await.unwrap();
    let workspaces = registry.directory.path().join("var/registry/workspaces");
    let workspace = fs::read_dir(workspaces).unwrap().next().expect("there is one workspace").unwrap();
    let log = workspace.path().join("changes.log");
    let aside = log.with_extension("aside");
    fs::rename(&log, &aside).unwrap();
    fs::create_dir(&log).unwrap();

    let failed = administrator.replace(replace("scout", "Second.")).await.unwrap_err();

    reason(&failed, Code::Internal, "STORE_FAILED");
    assert_eq!(registry.by_name("scout").await.unwrap(), before);
    fs::remove_dir(&log).unwrap();
    fs::rename(&aside, &log).unwrap();
    let directory = registry.stop().await;
    let mut again = Registry::start_in(directory, |_| {}).await;
    assert_eq!(again.by_name("scout").await.unwrap().agent, before.agent);
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_sheds_calls_and_still_answers_for_its_health() {
    let mut registry = Registry::start().await;
    let mut channels = Vec::new();
    for _ in 0..CALLS_MAX.div_ceil(STREAMS_MAX) {
        channels.push(registry.channel().await);
    }
    // Each holds its place until it is dropped.
    let watches = (0..CALLS_MAX).map(|number| {
        let channel = channels[number / STREAMS_MAX].clone();
        async move {
            let request = WatchRequest::default();
            RegistryServiceClient::new(channel).watch(request).await.map(tonic::Response::into_inner)
        }
    });
    let watches = try_join_all(watches).await.unwrap();

    let refused = registry.client.by_name(by_name("explore")).await.unwrap_err();

    reason(&refused, Code::ResourceExhausted, "OVERLOADED");
    assert!(refused.get_details_retry_info().is_some_and(|retry| retry.retry_delay.is_some()));
    let mut health = HealthClient::new(registry.channel().await);
    health.check(HealthCheckRequest::default()).await.unwrap();
    drop(watches);
    drop(channels);
    registry.stop().await;
}
