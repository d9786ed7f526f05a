//! What the registry costs, as ratios to a floor or a peer in the same run. `cargo bench -p tests --bench registry` measures
//! all of it; names of measurements behind `--` choose some.

#[path = "registry/agents.rs"]
mod agents;
#[path = "registry/answers.rs"]
mod answers;
#[path = "registry/files.rs"]
mod files;
#[path = "registry/floor.rs"]
mod floor;
#[path = "registry/load.rs"]
mod load;
#[path = "registry/peer.rs"]
mod peer;
#[path = "registry/service.rs"]
mod service;

use std::process::ExitCode;

use tests::bench::{self, Table};
use tokio::{runtime::Runtime, task::spawn_blocking};

fn main() -> ExitCode {
    let runtime = Runtime::new().expect("a runtime");
    match bench::role() {
        Some((role, arguments)) => runtime.block_on(play(&role, arguments)),
        None => runtime.block_on(measure()),
    }
    // A miss is told by the table: figures of a machine that is busy with something else are no failure.
    ExitCode::SUCCESS
}

/// Everything that is asked for.
async fn measure() {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|chosen| chosen == name);
    let mut table = Table::default();
    if is_chosen("by_name") {
        answers::by_name(&mut table).await;
    }
    if is_chosen("reloading") {
        answers::reloading(&mut table).await;
    }
    if is_chosen("load") {
        files::load(&mut table);
    }
    if is_chosen("reload") {
        files::reload(&mut table).await;
    }
    if is_chosen("memory") {
        files::memory(&mut table).await;
    }
    print!("{table}");
}

/// Plays a part until the benchmark lets go of it.
async fn play(role: &str, arguments: Vec<String>) {
    let part = async {
        match role {
            "registry" => service::registry(&arguments).await,
            "bare" => floor::bare(&arguments).await,
            "stat" => floor::repeat(&arguments, floor::stat),
            "read" => floor::repeat(&arguments, floor::read_by_two),
            "load" => service::load(&arguments).await,
            unknown => panic!("there is no part `{unknown}`"),
        }
    };
    tokio::select! {
        () = part => {}
        left = spawn_blocking(|| bench::until_left(|_| {})) => left.expect("reading does not panic"),
    }
}
