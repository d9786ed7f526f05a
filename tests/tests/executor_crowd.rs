//! Many workers at once on a model that takes its time: none fails, and memory stays as it is.

use std::{process, time::Duration};

use executor_svc::{
    limits::Bound,
    model::config::{Kind, Provider},
};
use futures::future::{join_all, try_join_all};
use proto::executor::v1::{
    SpawnStreamRequest, StopReason, Worker, executor_service_client::ExecutorServiceClient,
    worker_event::Body,
};
use serde_json::{Value, json};
use tests::{
    bench::resident_bytes,
    executor::{Executor, call},
    openai::{Answer, OpenAi},
    registry::Registry,
    scale::scaled,
};
use tokio::sync::Semaphore;
use tonic::transport::Channel;

/// What a fast model takes for an answer.
const LATENCY: Duration = Duration::from_millis(50);

/// Calls of one connection at a time, below what the server takes.
const CALLS_PER_CONNECTION: usize = 100;

/// Spawns on their way to acceptance at a time: the registry answers each within 2 s, on the slowest machine too.
const ENTERING_MAX: usize = 16;

/// Waves until pools, caches and the allocator have what they keep.
const WARM_UP: usize = 3;

/// Waves after which memory is looked at again.
const WAVES: usize = 4;

/// What the allocator may lose to fragments meanwhile. At full scale a worker that left 4 KiB behind would be seen.
const GROWTH_MAX: u64 = 16 << 20;

/// The first turn looks around, the second ends.
fn answer(request: &Value) -> Answer {
    let last = request["messages"].as_array().and_then(|messages| messages.last());
    match last.is_some_and(|message| message["role"] == "tool") {
        true => Answer::Text(vec!["That ", "is ", "all."]),
        false => Answer::Calls(vec![("ls", json!({ "path": "." }))]),
    }
}

/// Spawns a worker and follows it to its end.
async fn run(mut client: ExecutorServiceClient<Channel>, prompt: String, door: &Semaphore) -> Worker {
    let entering = door.acquire().await.expect("the door stays open");
    let request = SpawnStreamRequest { spawn: Some(call("task", &prompt)) };
    let mut events = client.spawn_stream(request).await.expect("the spawn is accepted").into_inner();
    let mut last = events.message().await.expect("the stream does not fail");
    drop(entering);
    while let Some(next) = events.message().await.expect("the stream does not fail") {
        last = Some(next);
    }
    match last.and_then(|last| last.event).and_then(|event| event.body) {
        Some(Body::Finished(finished)) => finished.worker.expect("an end has its worker"),
        other => panic!("the last event is no end: {other:?}"),
    }
}

/// A worker each for every call that the connections take, and all end well.
async fn wave(channels: &[Channel], number: usize) {
    let door = Semaphore::new(ENTERING_MAX);
    let workers = channels.iter().enumerate().flat_map(|(connection, channel)| {
        let door = &door;
        (0..CALLS_PER_CONNECTION).map(move |place| {
            let prompt = format!("Look around: {number}, {connection}, {place}.");
            run(ExecutorServiceClient::new(channel.clone()), prompt, door)
        })
    });
    for worker in join_all(workers).await {
        assert_eq!(worker.stop_reason(), StopReason::Finished, "{worker:?}");
        assert_eq!(worker.result, "That is all.");
        let usage = worker.usage.expect("a worker has a usage");
        assert_eq!((usage.turns, usage.tool_calls), (2, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_workers_at_once_end_well_in_memory_that_stays_flat() {
    let size = scaled(100, 1_000);
    let registry = Registry::start().await;
    registry.write("notes.txt", "hello");
    let model = OpenAi::answering_crowds(size, LATENCY, answer).await;
    let executor = Executor::start_with(&registry, "rules:\n  - do:\n      - text: \"unused\"\n", |config| {
        let mut provider = Provider::new(Kind::Openai);
        provider.base_url = Some(model.base_url.clone());
        provider.max_concurrent = u32::try_from(size).expect("a small number");
        config.models.providers.insert("local".to_owned(), provider);
        config.models.default = Some("local/small".to_owned());
        config.limits.max_running = Bound::Of(size as u64);
        config.limits.queue_length = Bound::Of(size as u64);
    })
    .await;
    let endpoint = Channel::from_shared(format!("http://{}", executor.address)).expect("an address is a URL");
    let channels = try_join_all((0..size / CALLS_PER_CONNECTION).map(|_| endpoint.connect())).await;
    let channels = channels.expect("the executor listens");

    for number in 0..WARM_UP {
        wave(&channels, number).await;
    }
    let before = resident_bytes(process::id());
    for number in WARM_UP..WARM_UP + WAVES {
        wave(&channels, number).await;
    }
    let after = resident_bytes(process::id());

    let grown = after.saturating_sub(before);
    println!(
        "{size} workers at once: {before} bytes before, {after} bytes after {} workers more",
        WAVES * size
    );
    assert!(grown <= GROWTH_MAX, "{grown} bytes more");
    drop(channels);
    executor.stop().await;
}
