//! `executor-svc serve`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use service_kit::{
    auth,
    config::{self, Environment, Flag},
    server::Listeners,
    shutdown::{self, Shutdown},
    status::chain,
    telemetry,
};

use super::{Ending, Outcome, Output};
use crate::{Config, Executor, Surroundings, config::blocked_agents};

/// The provider and the model that `--rehearsal` stands for.
const REHEARSAL_PROVIDER_KEY: &str = "models.providers.offline";
const REHEARSAL_MODEL: &str = "offline/script";

#[derive(Args)]
pub(super) struct Serve {
    /// YAML file of the configuration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address of the gRPC interface; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Address of /livez, /readyz and /metrics; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// URL of the registry
    #[arg(long, value_name = "URL")]
    registry: Option<String>,
    /// Directory of the token and the store
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Where sessions are kept: `sqlite`
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Answers with a script instead of a model, as `models.default: offline/script` does
    #[arg(long, value_name = "FILE")]
    rehearsal: Option<PathBuf>,
    /// Prints the configuration with the origin of each value, secrets masked, and ends
    #[arg(long)]
    print_config: bool,
}

impl Serve {
    pub(super) async fn run(self, environment: &Environment, output: &Output) -> Outcome {
        let print_config = self.print_config;
        let file = self.config.clone();
        let flags = self.flags()?;
        let loaded = config::load::<Config>(file.as_deref(), environment, flags)
            .map_err(|invalid| Ending::Invalid(invalid.to_string()))?;
        if print_config {
            return output.write(&loaded.print());
        }
        telemetry::init(environment.get("RUST_LOG")).map_err(|error| Ending::Refused(chain(&error)))?;
        let surroundings = Surroundings {
            directory: directory_of(file.as_deref()),
            files: loaded.files.iter().cloned().chain(file).collect(),
            blocked_agents: blocked_agents(environment),
        };
        let (listen, admin) = (loaded.config.listen, loaded.config.admin);
        let data = loaded.config.data.clone();
        let executor = Executor::new(loaded.config, surroundings)
            .map_err(|mistakes| Ending::Invalid(in_lines(&mistakes)))?;

        let failed = |error: anyhow::Error| Ending::FailedWith(format!("{error:#}"));
        let listeners = Listeners::bind(listen, admin).await.map_err(|error| failed(error.into()))?;
        auth::ensure_token(&data).map_err(|error| failed(error.into()))?;
        output.line(&listeners.announcement()?)?;
        let shutdown = Shutdown::new();
        shutdown::with_signals(&shutdown, executor.serve(listeners, shutdown.clone())).await?.map_err(failed)
    }

    fn flags(self) -> Result<Vec<Flag>, Ending> {
        let Self { config: _, listen, admin, registry, data, store, rehearsal, print_config: _ } = self;
        let mut flags: Vec<Flag> = [
            ("--listen", "listen", listen),
            ("--admin", "admin", admin),
            ("--registry", "registry", registry),
            ("--data", "data", data),
            ("--store", "store", store),
        ]
        .into_iter()
        .filter_map(|(name, key, value)| Some(Flag::new(name, key, value?)))
        .collect();
        if let Some(script) = rehearsal {
            // A flag's path begins where the command was called, not where a configuration file lies.
            let script = std::path::absolute(&script)
                .map_err(|error| Ending::Refused(format!("`{}`: {error}", script.display())))?;
            let provider = json!({ "kind": "rehearsal", "script": script });
            flags.push(Flag::new("--rehearsal", "models.default", REHEARSAL_MODEL));
            flags.push(Flag::new("--rehearsal", REHEARSAL_PROVIDER_KEY, provider));
        }
        Ok(flags)
    }
}

fn directory_of(file: Option<&Path>) -> PathBuf {
    let parent = file.and_then(Path::parent).filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or_else(|| Path::new(".")).to_owned()
}

fn in_lines(mistakes: &[(String, String)]) -> String {
    let lines: Vec<String> = mistakes.iter().map(|(key, message)| format!("`{key}`: {message}")).collect();
    lines.join("\n")
}
