//! The command line: the service itself, checks and questions offline, and calls to a running registry.

mod inspect;
mod output;
mod remote;
mod validate;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand, ValueEnum};
use service_kit::{
    auth,
    command::{self, Ending, Outcome, Output},
    config::{self, Environment, Flag, Loaded},
    server::Listeners,
    shutdown::{self, Shutdown},
    status::chain,
    telemetry,
};

use crate::config::Config;

#[derive(Parser)]
#[command(
    name = "registry-svc",
    version,
    about = "Discovers, merges and serves agent definitions",
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the registry
    #[command(
        after_help = "Examples:\n  registry-svc serve\n  registry-svc serve --config registry.yaml --print-config\n  registry-svc serve --listen 127.0.0.1:0 --root ./agents --data ./var"
    )]
    Serve(Serve),
    /// Checks documents and directories without a running registry
    #[command(
        after_help = "One line a finding: path:line:col: severity CODE message\n\nExit: 0 no errors (warnings are allowed), 1 errors, 2 usage\n\nExamples:\n  registry-svc validate .claude/agents\n  registry-svc validate --format json agents/explore.md"
    )]
    Validate(validate::Validate),
    /// Lists the definitions that a workspace resolves to
    #[command(
        after_help = "Examples:\n  registry-svc list\n  registry-svc list --root ./agents --format json\n  registry-svc list --addr 127.0.0.1:7401"
    )]
    List(inspect::List),
    /// Says why a name resolves as it does
    #[command(
        after_help = "Examples:\n  registry-svc explain explore\n  registry-svc explain explore --addr 127.0.0.1:7401"
    )]
    Explain(inspect::Explain),
    /// Writes the document of a definition in force to standard output
    #[command(
        after_help = "Examples:\n  registry-svc get explore\n  registry-svc get explore --addr 127.0.0.1:7401 > explore.md"
    )]
    Get(remote::Get),
    /// Inserts or updates an authored definition
    #[command(
        after_help = "Examples:\n  registry-svc replace explore.md\n  cat explore.md | registry-svc replace - --name explore"
    )]
    Replace(remote::Replace),
    /// Removes an authored definition
    #[command(after_help = "Examples:\n  registry-svc remove explore")]
    Remove(remote::Remove),
    /// Follows the changes of a workspace, one line each, until Ctrl-C
    #[command(
        after_help = "Examples:\n  registry-svc watch\n  registry-svc watch --workspace team --format json"
    )]
    Watch(remote::Watch),
}

#[derive(Args)]
struct Serve {
    #[command(flatten)]
    settings: Settings,
    /// Address of the gRPC interface; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Address of /livez, /readyz and /metrics; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// Directory of the token and the store
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Where authored definitions are kept: `directory`
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Prints the configuration with the origin of each value, secrets masked, and ends
    #[arg(long)]
    print_config: bool,
}

/// What decides the sources of a workspace.
#[derive(Args)]
struct Settings {
    /// YAML file of the configuration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of definitions for the workspace `default`; may be given several times
    #[arg(long = "root", value_name = "DIR")]
    roots: Vec<String>,
    /// Directory from which project directories are looked for, upwards
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Directory of the user directories
    #[arg(long, value_name = "DIR")]
    home: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Runs the command that the process was called with.
pub async fn run() -> ExitCode {
    // Wrong usage ends here with 2 and a text, `--help` and `--version` with 0.
    let Cli { command } = Cli::parse();
    let environment = Environment::of_process();
    let output = Output::new(environment.get("NO_COLOR").is_some());
    let outcome = match command {
        Command::Serve(serve) => serve.run(&environment, &output).await,
        Command::Validate(validate) => validate.run(&output),
        Command::List(list) => list.run(&environment, &output).await,
        Command::Explain(explain) => explain.run(&environment, &output).await,
        Command::Get(get) => get.run(&output).await,
        Command::Replace(replace) => replace.run(&output).await,
        Command::Remove(remove) => remove.run(&output).await,
        Command::Watch(watch) => watch.run(&output).await,
    };
    command::end("registry-svc", outcome)
}

impl Serve {
    async fn run(self, environment: &Environment, output: &Output) -> Outcome {
        let Self { settings, listen, admin, data, store, print_config } = self;
        let own = [("--listen", "listen", listen), ("--admin", "admin", admin)]
            .into_iter()
            .chain([("--data", "data", data), ("--store", "store", store)])
            .filter_map(|(name, key, value)| Some(Flag::new(name, key, value?)))
            .collect();
        let loaded = settings.load(environment, own)?;
        if print_config {
            return output.write(&loaded.print());
        }
        telemetry::init(environment.get("RUST_LOG")).map_err(|error| Ending::Refused(chain(&error)))?;
        serve(loaded.config, output).await
    }
}

impl Settings {
    fn load(self, environment: &Environment, mut flags: Vec<Flag>) -> Result<Loaded<Config>, Ending> {
        let Self { config, roots, cwd, home } = self;
        let single = [("--cwd", "workspaces.default.cwd", cwd), ("--home", "workspaces.default.home", home)];
        flags.extend(single.into_iter().filter_map(|(name, key, value)| Some(Flag::new(name, key, value?))));
        if !roots.is_empty() {
            flags.push(Flag::new("--root", "workspaces.default.roots", roots));
        }
        config::load(config.as_deref(), environment, flags)
            .map_err(|invalid| Ending::Invalid(invalid.to_string()))
    }
}

/// Binds, says so, and serves until a signal.
async fn serve(config: Config, output: &Output) -> Outcome {
    let failed = |error: anyhow::Error| Ending::FailedWith(format!("{error:#}"));
    let listeners =
        Listeners::bind(config.listen, config.admin).await.map_err(|error| failed(error.into()))?;
    auth::ensure_token(&config.data).map_err(|error| failed(error.into()))?;
    output.line(&listeners.announcement()?)?;
    let shutdown = Shutdown::new();
    shutdown::with_signals(&shutdown, crate::serve(config, listeners, shutdown.clone()))
        .await?
        .map_err(failed)
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
            assert!(help.contains(&format!("registry-svc {}", command.get_name())), "{}", command.get_name());
        }
    }

    #[test]
    fn wrong_usage_is_refused() {
        for arguments in [
            &["registry-svc"][..],
            &["registry-svc", "serf"],
            &["registry-svc", "serve", "--port", "1"],
            &["registry-svc", "validate"],
            &["registry-svc", "explain"],
            &["registry-svc", "list", "--format", "xml"],
        ] {
            assert!(Cli::try_parse_from(arguments).is_err(), "{arguments:?}");
        }
    }
}
