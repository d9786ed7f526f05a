//! `executor-svc spawn AGENT PROMPT`: dispatches, shows, and stops the worker on Ctrl-C.

use std::{collections::HashMap, io::Read as _};

use clap::Args;
use proto::executor::v1::{
    Budget, SchemaMode, SpawnRequest, SpawnStreamRequest, StopWorkerRequest,
    executor_service_client::ExecutorServiceClient,
};
use service_kit::client::Connection;
use tokio::signal;

use super::{Ending, Outcome, Output, Target, progress::Progress, refused};

/// Longest prompt that is read from standard input, so that a wrong pipe does not fill the memory.
const PROMPT_BYTES_MAX: u64 = 2 * 1024 * 1024;

#[derive(Args)]
pub(super) struct Spawn {
    /// The agent's exact name
    agent: String,
    /// The brief; `-` reads it from standard input
    prompt: String,
    #[command(flatten)]
    target: Target,
    /// Workspace; `default` where it is left out
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    workspace: String,
    /// One line for people
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    description: String,
    /// Model, as `<provider>/<model>` or an alias
    #[arg(long, value_name = "MODEL", default_value = "", hide_default_value = true)]
    model: String,
    /// JSON Schema of the result, as a file
    #[arg(long, value_name = "FILE")]
    schema: Option<std::path::PathBuf>,
    /// Accept a result that does not match its schema
    #[arg(long)]
    permissive: bool,
    /// Look and plan only
    #[arg(long)]
    plan_mode: bool,
    /// Run even if the same call was answered a moment ago
    #[arg(long)]
    bypass_dedupe: bool,
    /// Model turns
    #[arg(long, value_name = "N")]
    turns: Option<u32>,
    /// Your own root session
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    root: String,
    /// Spawn below this session
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true, conflicts_with = "root")]
    parent: String,
    /// Language of the answer, as a BCP 47 tag
    #[arg(long, value_name = "TAG", default_value = "", hide_default_value = true)]
    locale: String,
    /// Label, as `key=value`; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
}

impl Spawn {
    pub(super) async fn run(self, output: &Output) -> Outcome {
        let target = self.target.clone();
        let request = SpawnStreamRequest { spawn: Some(self.request()?) };
        let mut client = target.executor().await?;
        let mut events = client.spawn_stream(request).await.map_err(|status| refused(&status))?.into_inner();
        let mut progress = Progress::new(output, target.json);
        let mut is_stopped = false;
        loop {
            tokio::select! {
                event = events.message() => match event {
                    Ok(Some(response)) => progress.show(&response.event.unwrap_or_default())?,
                    Ok(None) => return progress.ending(),
                    Err(status) => return Err(Ending::FailedWith(service_kit::client::explain(&status))),
                },
                pressed = signal::ctrl_c() => {
                    pressed?;
                    if is_stopped {
                        return Err(Ending::FailedWith("given up; the worker is being stopped".to_owned()));
                    }
                    is_stopped = true;
                    stop(&mut client, progress.worker_id()).await?;
                }
            }
        }
    }

    fn request(self) -> Result<SpawnRequest, Ending> {
        let prompt = match self.prompt.as_str() {
            "-" => {
                let mut text = String::new();
                std::io::stdin().take(PROMPT_BYTES_MAX).read_to_string(&mut text)?;
                text
            }
            _ => self.prompt,
        };
        let output_schema = match &self.schema {
            Some(path) => Some(
                std::fs::read_to_string(path)
                    .map_err(|error| Ending::Refused(format!("`{}`: {error}", path.display())))?,
            ),
            None => None,
        };
        let mode = if self.permissive { SchemaMode::Permissive } else { SchemaMode::Strict };
        Ok(SpawnRequest {
            workspace: self.workspace,
            subagent_type: self.agent,
            description: self.description,
            prompt,
            parent_id: self.parent,
            output_schema,
            schema_mode: mode.into(),
            background: false,
            plan_mode: self.plan_mode,
            bypass_dedupe: self.bypass_dedupe,
            budget: self.turns.map(|turns| Budget {
                turns: Some(turns),
                tokens: None,
                wall_time: None,
                spawns: None,
            }),
            model: self.model,
            request_id: String::new(),
            labels: self.labels.into_iter().collect::<HashMap<_, _>>(),
            locale: self.locale,
            root_id: self.root,
        })
    }
}

/// Tells the executor to stop the worker; its end is then shown as it comes.
async fn stop(client: &mut ExecutorServiceClient<Connection>, worker_id: &str) -> Outcome {
    if worker_id.is_empty() {
        return Err(Ending::FailedWith("given up before the worker was accepted".to_owned()));
    }
    let reason = "interrupted on the command line".to_owned();
    let request = StopWorkerRequest { worker_id: worker_id.to_owned(), reason, wait: None };
    client.stop_worker(request).await.map_err(|status| refused(&status))?;
    Ok(())
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not `key=value`"))?;
    Ok((key.to_owned(), value.to_owned()))
}
