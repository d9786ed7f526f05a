//! Starts the registry, or one of its commands.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    registry_svc::cli::run().await
}
