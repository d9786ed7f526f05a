//! Starts the executor, or one of its commands.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    executor_svc::cli::run().await
}
