//! What the executor costs, as ratios to a floor or a peer in the same run. `cargo bench -p tests --bench executor` measures
//! all of it; names of measurements behind `--` choose some.

#[path = "executor/floor.rs"]
mod floor;
#[path = "executor/measure.rs"]
mod measure;
#[path = "executor/mock.rs"]
mod mock;
#[path = "executor/peer.rs"]
mod peer;
#[path = "executor/services.rs"]
mod services;
#[path = "executor/store.rs"]
mod store;

use std::{process::ExitCode, sync::Arc};

use tests::bench::{self, Table};
use tokio::{runtime::Runtime, sync::Notify, task::spawn_blocking};

use crate::{measure::Bench, services::Pair};

fn main() -> ExitCode {
    let runtime = Runtime::new().expect("a runtime");
    match bench::role() {
        Some((role, arguments)) => {
            runtime.block_on(play(&role, arguments));
            ExitCode::SUCCESS
        }
        None => runtime.block_on(measure()),
    }
}

/// Everything that is asked for, each measurement with services of its own.
async fn measure() -> ExitCode {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|chosen| chosen == name);
    let bench = Bench::start();
    let mut table = Table::default();
    if is_chosen("cost") {
        bench.cost(&Pair::start(bench.model()).await, &mut table).await;
    }
    if is_chosen("latency") {
        bench.latency(&Pair::start(bench.model()).await, &mut table).await;
    }
    if is_chosen("crowd") {
        bench.crowd(&Pair::start(bench.model()).await, &mut table).await;
    }
    if is_chosen("dedupe") {
        bench.dedupe(&Pair::start(bench.model()).await, &mut table).await;
    }
    if is_chosen("durable") {
        bench.durable(&mut table);
    }
    if is_chosen("memory") {
        bench.memory(&Pair::start(bench.model()).await, &mut table).await;
    }
    if is_chosen("flat") {
        bench.flat(&Pair::start(bench.model()).await, &mut table).await;
    }
    print!("{table}");
    // A miss is told by the table: figures of a machine that is busy with something else are no failure.
    ExitCode::SUCCESS
}

/// Plays a part until the benchmark lets go of it.
async fn play(role: &str, arguments: Vec<String>) {
    let begin = Arc::new(Notify::new());
    let told = Arc::clone(&begin);
    let part = async {
        match role {
            "mock" => mock::serve().await,
            "registry" => services::registry(arguments).await,
            "executor" => services::executor(arguments).await,
            "empty" => floor::empty_call().await,
            "loop" => floor::runs(arguments, &begin).await,
            "rows" => floor::rows(&arguments),
            "syncs" => floor::syncs(&arguments),
            "accepts" => store::accepts(arguments).await,
            unknown => panic!("there is no part `{unknown}`"),
        }
    };
    tokio::select! {
        () = part => {}
        left = spawn_blocking(move || bench::until_left(|_| told.notify_one())) => {
            left.expect("reading does not panic");
        }
    }
}
