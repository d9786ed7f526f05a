//! The command line: the service itself, and calls to a running executor.

mod converse;
mod json;
mod look;
mod progress;
mod review;
mod serve;
mod spawn;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};
use proto::executor::v1::{
    executor_service_client::ExecutorServiceClient, review_service_client::ReviewServiceClient,
    session_service_client::SessionServiceClient,
};
use service_kit::{
    client::{self, Connection, explain},
    command::{self, Ending, Outcome, Output},
    config::Environment,
};

#[derive(Parser)]
#[command(
    name = "executor-svc",
    version,
    about = "Runs agents as workers and keeps a record of each",
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the executor
    #[command(
        after_help = "Examples:\n  executor-svc serve\n  executor-svc serve --config executor.yaml --print-config\n  executor-svc serve --listen 127.0.0.1:0 --registry http://127.0.0.1:7401 --rehearsal script.yaml"
    )]
    Serve(serve::Serve),
    /// Dispatches an agent and shows what it does
    #[command(
        after_help = "Exit: 0 completed, 1 failed or killed, 2 refused or usage. Ctrl-C stops the worker.\n\nExamples:\n  executor-svc spawn explore 'Where is the parser?'\n  executor-svc spawn --json explore - < brief.md"
    )]
    Spawn(spawn::Spawn),
    /// Talks with a coordinator and shows what it dispatches
    #[command(
        after_help = "Exit: 0 answered, 1 the turn failed or was stopped, 2 refused or usage. Ctrl-C stops the turn; the session stays.\n\nExamples:\n  executor-svc converse\n  executor-svc converse --session root-0190c2f0-0000-7000-8000-000000000000 'And the tests?'"
    )]
    Converse(converse::Converse),
    /// Follows a worker to its end
    #[command(after_help = "Examples:\n  executor-svc watch worker-0190c2f0-0000-7000-8000-000000000000")]
    Watch(look::Watch),
    /// Stops a worker, or a session's workers, and everything below
    #[command(
        after_help = "Examples:\n  executor-svc stop worker-0190c2f0-0000-7000-8000-000000000000 --reason 'wrong branch'"
    )]
    Stop(look::Stop),
    /// Shows a session and everything below it
    #[command(after_help = "Examples:\n  executor-svc tree root-0190c2f0-0000-7000-8000-000000000000")]
    Tree(look::Tree),
    /// Lists root sessions, newest first
    #[command(after_help = "Examples:\n  executor-svc sessions --open")]
    Sessions(look::Sessions),
    /// Shows what was said in a session
    #[command(after_help = "Examples:\n  executor-svc messages worker-0190c2f0-0000-7000-8000-000000000000")]
    Messages(look::Messages),
    /// Lists the tools an agent would get, and why
    #[command(after_help = "Examples:\n  executor-svc tools explore --plan-mode")]
    Tools(look::Tools),
    /// Lists the calls before the review gate, newest first
    #[command(after_help = "Examples:\n  executor-svc proposals --awaiting\n  executor-svc proposals --json")]
    Proposals(review::Proposals),
    /// Decides a call that awaits a person
    #[command(
        after_help = "The digest is the one that `proposals` shows: the decision holds for exactly that call.\n\nExamples:\n  executor-svc decide proposal-0190c2f000007000800000000000000a --digest 9f86d0… --approve\n  executor-svc decide proposal-0190c2f000007000800000000000000a --digest 9f86d0… --reject 'wrong host'"
    )]
    Decide(review::Decide),
    /// Lists the limits in force
    #[command(after_help = "Examples:\n  executor-svc limits --workspace default")]
    Limits(look::Limits),
}

/// Which executor to call.
#[derive(Args, Clone, Debug)]
struct Target {
    /// Address of the executor
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7402")]
    addr: String,
    /// Data directory whose token is sent
    #[arg(long, value_name = "DIR", default_value = "./var")]
    data: PathBuf,
    /// JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// Runs the command that the process was called with.
pub async fn run() -> ExitCode {
    // Wrong usage ends here with 2 and a text, `--help` and `--version` with 0.
    let Cli { command } = Cli::parse();
    let environment = Environment::of_process();
    let output = Output::new(environment.get("NO_COLOR").is_some());
    let outcome = match command {
        Command::Serve(serve) => serve.run(&environment, &output).await,
        Command::Spawn(spawn) => spawn.run(&output).await,
        Command::Converse(converse) => converse.run(&output).await,
        Command::Watch(watch) => watch.run(&output).await,
        Command::Stop(stop) => stop.run(&output).await,
        Command::Tree(tree) => tree.run(&output).await,
        Command::Sessions(sessions) => sessions.run(&output).await,
        Command::Messages(messages) => messages.run(&output).await,
        Command::Tools(tools) => tools.run(&output).await,
        Command::Proposals(proposals) => proposals.run(&output).await,
        Command::Decide(decide) => decide.run(&output).await,
        Command::Limits(limits) => limits.run(&output).await,
    };
    command::end("executor-svc", outcome)
}

impl Target {
    async fn connect(&self) -> Result<Connection, Ending> {
        Ok(client::connect(&self.addr, &self.data).await?)
    }

    async fn executor(&self) -> Result<ExecutorServiceClient<Connection>, Ending> {
        Ok(ExecutorServiceClient::new(self.connect().await?))
    }

    async fn sessions(&self) -> Result<SessionServiceClient<Connection>, Ending> {
        Ok(SessionServiceClient::new(self.connect().await?))
    }

    async fn reviews(&self) -> Result<ReviewServiceClient<Connection>, Ending> {
        Ok(ReviewServiceClient::new(self.connect().await?))
    }
}

/// A refusal of the service.
fn refused(status: &tonic::Status) -> Ending {
    Ending::Refused(explain(status))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("executor-svc {}", command.get_name())), "{}", command.get_name());
        }
    }

    #[test]
    fn wrong_usage_is_refused() {
        for arguments in [
            &["executor-svc"][..],
            &["executor-svc", "spwan"],
            &["executor-svc", "spawn", "explore"],
            &["executor-svc", "serve", "--port", "1"],
            &["executor-svc", "stop"],
            &["executor-svc", "decide", "proposal-1", "--digest", "0"],
            &["executor-svc", "decide", "proposal-1", "--approve"],
            &["executor-svc", "decide", "proposal-1", "--digest", "0", "--approve", "--reject", "no"],
        ] {
            assert!(Cli::try_parse_from(arguments).is_err(), "{arguments:?}");
        }
    }
}
