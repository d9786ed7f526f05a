//! The commands that look at workers and sessions, and the one that stops them.

use clap::Args;
use proto::executor::v1::{
    GetLimitsRequest, GetTreeRequest, ListMessagesRequest, ListSessionsRequest, ListToolsRequest, Role,
    StopWorkerRequest, View, WatchWorkerRequest, Worker,
};
use service_kit::console::{Colour, escape, escape_line};

use super::{
    Outcome, Output, Target, json,
    progress::{Progress, word},
    refused,
};

#[derive(Args)]
pub(super) struct Watch {
    /// The worker
    worker_id: String,
    /// Events after this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(super) struct Stop {
    /// A worker or a root session
    id: String,
    /// Recorded
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// Seconds to wait for the end
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u32>,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(super) struct Tree {
    /// Any session of the tree
    session_id: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(super) struct Sessions {
    /// Only those that are not closed
    #[arg(long)]
    open: bool,
    /// Workspace; `default` where it is left out
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    workspace: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(super) struct Messages {
    /// A worker or a root session
    session_id: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(super) struct Tools {
    /// The agent
    agent: String,
    /// The session that would spawn it
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    parent: String,
    /// Under plan mode
    #[arg(long)]
    plan_mode: bool,
    /// Workspace; `default` where it is left out
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    workspace: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(super) struct Limits {
    /// The session they would apply to
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    session: String,
    /// Workspace; `default` where it is left out
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    workspace: String,
    #[command(flatten)]
    target: Target,
}

impl Watch {
    pub(super) async fn run(self, output: &Output) -> Outcome {
        let request = WatchWorkerRequest { worker_id: self.worker_id, after_sequence: self.after };
        let mut client = self.target.executor().await?;
        let mut events = client.watch_worker(request).await.map_err(|status| refused(&status))?.into_inner();
        let mut progress = Progress::new(output, self.target.json);
        while let Some(response) = events.message().await.map_err(|status| refused(&status))? {
            progress.show(&response.event.unwrap_or_default())?;
        }
        progress.ending()
    }
}

impl Stop {
    pub(super) async fn run(self, output: &Output) -> Outcome {
        let Self { id, reason, wait, target } = self;
        let wait = wait.map(|seconds| prost_types::Duration { seconds: i64::from(seconds), nanos: 0 });
        let request = StopWorkerRequest { worker_id: id, reason, wait };
        let mut client = target.executor().await?;
        let response = client.stop_worker(request).await.map_err(|status| refused(&status))?.into_inner();
        if target.json {
            return output.line(&json::line("roster.executor.v1.StopWorkerResponse", &response)?);
        }
        for entry in &response.entries {
            let status = |name: &'static str| word(name, "WORKER_STATUS_");
            let (before, after) = (status(entry.before().as_str_name()), status(entry.after().as_str_name()));
            output.line(&format!("{} {before} -> {after}", entry.worker_id))?;
        }
        match response.omitted {
            0 => Ok(()),
            more => output.line(&format!("… and {more} more")),
        }
    }
}

impl Tree {
    pub(super) async fn run(self, output: &Output) -> Outcome {
        let mut client = self.target.executor().await?;
        let mut page_token = String::new();
        loop {
            let request = GetTreeRequest {
                session_id: self.session_id.clone(),
                page_size: 0,
                page_token: std::mem::take(&mut page_token),
                view: View::Basic.into(),
            };
            let page = client.get_tree(request).await.map_err(|status| refused(&status))?.into_inner();
            if self.target.json {
                output.line(&json::line("roster.executor.v1.GetTreeResponse", &page)?)?;
            } else {
                for worker in &page.workers {
                    output.line(&branch(output, worker))?;
                }
            }
            if page.next_page_token.is_empty() {
                return Ok(());
            }
            page_token = page.next_page_token;
        }
    }
}

impl Sessions {
    pub(super) async fn run(self, output: &Output) -> Outcome {
        let mut client = self.target.sessions().await?;
        let mut page_token = String::new();
        loop {
            let request = ListSessionsRequest {
                workspace: self.workspace.clone(),
                open_only: self.open,
                page_size: 0,
                page_token: std::mem::take(&mut page_token),
            };
            let page = client.list_sessions(request).await.map_err(|status| refused(&status))?.into_inner();
            for session in &page.sessions {
                if self.target.json {
                    output.line(&json::line("roster.executor.v1.RootSession", session)?)?;
                    continue;
                }
                let state = if session.close_time.is_some() { "closed" } else { "open" };
                let (operator, name) = (escape_line(&session.operator), escape_line(&session.caller_root_id));
                output.line(&format!(
                    "{} {state} {operator} {} open {name}",
                    session.id, session.open_workers
                ))?;
            }
            if page.next_page_token.is_empty() {
                return Ok(());
            }
            page_token = page.next_page_token;
        }
    }
}

impl Messages {
    pub(super) async fn run(self, output: &Output) -> Outcome {
        let mut client = self.target.executor().await?;
        let mut page_token = String::new();
        loop {
            let request = ListMessagesRequest {
                session_id: self.session_id.clone(),
                page_size: 0,
                page_token: std::mem::take(&mut page_token),
            };
            let page = client.list_messages(request).await.map_err(|status| refused(&status))?.into_inner();
            for message in &page.messages {
                if self.target.json {
                    output.line(&json::line("roster.executor.v1.Message", message)?)?;
                    continue;
                }
                let role = word(Role::try_from(message.role).unwrap_or_default().as_str_name(), "ROLE_");
                output.line(&output.paint(Colour::Bold, &role))?;
                output.line(&escape(&message.content))?;
                for call in &message.tool_calls {
                    output.line(&format!("{} {}", escape_line(&call.tool), escape_line(&call.arguments)))?;
                }
            }
            if page.next_page_token.is_empty() {
                return Ok(());
            }
            page_token = page.next_page_token;
        }
    }
}

impl Tools {
    pub(super) async fn run(self, output: &Output) -> Outcome {
        let Self { agent, parent, plan_mode, workspace, target } = self;
        let request = ListToolsRequest { workspace, agent, parent_id: parent, plan_mode };
        let mut client = target.executor().await?;
        let response = client.list_tools(request).await.map_err(|status| refused(&status))?.into_inner();
        for tool in &response.tools {
            if target.json {
                output.line(&json::line("roster.executor.v1.ListToolsResponse.Tool", tool)?)?;
                continue;
            }
            let (mark, colour) = if tool.granted { ("+", Colour::Green) } else { ("-", Colour::Red) };
            let class = word(tool.tool_class().as_str_name(), "TOOL_CLASS_");
            let (name, rule) = (escape_line(&tool.name), escape_line(&tool.rule));
            output.line(&format!("{} {name} ({class}): {rule}", output.paint(colour, mark)))?;
        }
        Ok(())
    }
}

impl Limits {
    pub(super) async fn run(self, output: &Output) -> Outcome {
        let Self { session, workspace, target } = self;
        let request = GetLimitsRequest { workspace, session_id: session };
        let mut client = target.executor().await?;
        let response = client.get_limits(request).await.map_err(|status| refused(&status))?.into_inner();
        for limit in &response.limits {
            if target.json {
                output.line(&json::line("roster.executor.v1.GetLimitsResponse.Limit", limit)?)?;
            } else {
                let origin = output.paint(Colour::Dim, &format!("({})", limit.origin));
                output.line(&format!("{} = {} {origin}", limit.key, escape_line(&limit.value)))?;
            }
        }
        Ok(())
    }
}

/// A worker in its place of the tree.
fn branch(output: &Output, worker: &Worker) -> String {
    let indent = "  ".repeat(worker.depth.saturating_sub(1) as usize);
    let status = word(worker.status().as_str_name(), "WORKER_STATUS_");
    let (agent, description) = (escape_line(&worker.agent), escape_line(&worker.description));
    format!("{indent}{} {agent} {status} {description}", output.paint(Colour::Dim, &worker.id))
}
