//! The commands that call a running registry.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use ::proto::{
    agent::v1::{AgentDefinition, source::Kind},
    registry::v1::{
        self as proto, View, registry_service_client::RegistryServiceClient, watch_response::Body,
    },
};
use clap::Args;
use service_kit::{
    client::{self, Connection},
    console::escape_line,
    server::RESPONSE_BYTES_MAX,
};
use tonic::Status;

use super::{
    Ending, Format, Outcome, Output,
    inspect::{Candidate, Row},
    output::Finding,
};

/// Definitions asked for at a time.
const PAGE_SIZE: i32 = 200;

/// A document is at most 1 MiB; what is longer is sent as it is, and the registry says what it thinks of it.
const DOCUMENT_BYTES_MAX: u64 = 2 * 1024 * 1024;

#[derive(Args)]
struct Remote {
    /// Address of the registry
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7401")]
    addr: String,
    /// The workspace
    #[arg(long, value_name = "NAME", default_value = crate::config::DEFAULT_WORKSPACE)]
    workspace: String,
    /// Directory of the registry's token
    #[arg(long, value_name = "DIR", default_value = "./var")]
    data: PathBuf,
}

#[derive(Args)]
pub(super) struct Get {
    /// The name, exactly
    #[arg(value_name = "NAME")]
    name: String,
    /// The digest of a candidate that `explain` named, instead of the one in force
    #[arg(long, value_name = "SHA256", default_value = "", hide_default_value = true)]
    digest: String,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
pub(super) struct Replace {
    /// The document, or `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Refuses a document that defines another name
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    name: String,
    /// Refuses unless the authored definition has this digest; empty for none yet
    #[arg(long, value_name = "SHA256")]
    expected_digest: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
pub(super) struct Remove {
    /// The name, exactly
    #[arg(value_name = "NAME")]
    name: String,
    /// Refuses unless the authored definition has this digest
    #[arg(long, value_name = "SHA256")]
    expected_digest: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
pub(super) struct Watch {
    /// How to write the changes: lines, or one JSON object a line
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    #[command(flatten)]
    remote: Remote,
}

type Client = RegistryServiceClient<Connection>;

impl Get {
    pub(super) async fn run(self, output: &Output) -> Outcome {
        let Self { name, digest, remote: Remote { addr, workspace, data } } = self;
        let request = proto::GetDocumentRequest { workspace, name, digest };
        let response = connect(&addr, &data).await?.get_document(request).await.map_err(refused)?;
        output.bytes(&response.into_inner().document)
    }
}

impl Replace {
    pub(super) async fn run(self, output: &Output) -> Outcome {
        let Self { file, name, expected_digest, remote: Remote { addr, workspace, data } } = self;
        let document = read(&file)
            .map_err(|error| Ending::Refused(format!("cannot read `{}`: {error}", file.display())))?;
        let request = proto::ReplaceRequest {
            workspace,
            document,
            expected_digest,
            request_id: String::new(),
            expected_name: name,
        };
        let response = connect(&addr, &data).await?.replace(request).await.map_err(refused)?.into_inner();
        let agent = response.agent.unwrap_or_default();
        let verb = if response.created { "created" } else { "updated" };
        let mut text = format!("{verb} {} (generation {})\n", escape_line(&agent.name), response.generation);
        for source in &response.shadowed {
            text.push_str(&format!("shadows {}\n", escape_line(&source.path)));
        }
        for diagnostic in response.diagnostics {
            text.push_str(&format!("{}\n", finding(diagnostic).line(output)));
        }
        output.write(&text)
    }
}

impl Remove {
    pub(super) async fn run(self, output: &Output) -> Outcome {
        let Self { name, expected_digest, remote: Remote { addr, workspace, data } } = self;
        let shown = escape_line(&name);
        let request = proto::RemoveRequest { workspace, name, expected_digest, request_id: String::new() };
        let response = connect(&addr, &data).await?.remove(request).await.map_err(refused)?.into_inner();
        let mut text = format!("removed {shown} (generation {})\n", response.generation);
        if let Some(source) = response.now_in_force.and_then(|agent| agent.source) {
            text.push_str(&format!("now in force: {}\n", escape_line(&source.path)));
        }
        output.write(&text)
    }
}

impl Watch {
    pub(super) async fn run(self, output: &Output) -> Outcome {
        let Self { format, remote: Remote { addr, workspace, data } } = self;
        let request = proto::WatchRequest {
            workspace,
            from_generation: 0,
            store_id: String::new(),
            view: View::Basic.into(),
        };
        let mut messages = connect(&addr, &data).await?.watch(request).await.map_err(refused)?.into_inner();
        while let Some(message) = messages.message().await.map_err(refused)? {
            let Some((kind, agents, removed)) = parts(message.body) else { continue };
            let text = match format {
                Format::Json => json_line(message.generation, kind, &agents, &removed),
                Format::Text => lines(message.generation, kind, &agents, &removed),
            };
            output.write(&text)?;
        }
        Ok(())
    }
}

/// All definitions in force, page by page.
pub(super) async fn list(addr: &str, data: &Path, workspace: &str) -> Result<Vec<Row>, Ending> {
    let mut client = connect(addr, data).await?;
    let mut rows = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = proto::ListRequest {
            workspace: workspace.to_owned(),
            page_size: PAGE_SIZE,
            page_token,
            view: View::Basic.into(),
            kinds: Vec::new(),
        };
        let response = client.list(request).await.map_err(refused)?.into_inner();
        rows.extend(response.agents.into_iter().map(row));
        page_token = response.next_page_token;
        if page_token.is_empty() {
            return Ok(rows);
        }
    }
}

/// The candidates of a name.
pub(super) async fn explain(
    addr: &str,
    data: &Path,
    workspace: &str,
    name: &str,
) -> Result<Vec<Candidate>, Ending> {
    let request = proto::ExplainRequest { workspace: workspace.to_owned(), name: name.to_owned() };
    let response = connect(addr, data).await?.explain(request).await.map_err(refused)?.into_inner();
    Ok(response.candidates.into_iter().map(candidate).collect())
}

async fn connect(addr: &str, data: &Path) -> Result<Client, Ending> {
    let connection = client::connect(addr, data).await?;
    Ok(RegistryServiceClient::new(connection).max_decoding_message_size(RESPONSE_BYTES_MAX))
}

fn refused(status: Status) -> Ending {
    Ending::FailedWith(client::explain(&status))
}

fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut document = Vec::new();
    if file == Path::new("-") {
        std::io::stdin().take(DOCUMENT_BYTES_MAX).read_to_end(&mut document)?;
    } else {
        std::fs::File::open(file)?.take(DOCUMENT_BYTES_MAX).read_to_end(&mut document)?;
    }
    Ok(document)
}

fn row(agent: AgentDefinition) -> Row {
    let source = agent.source.unwrap_or_default();
    Row { name: agent.name, kind: kind(source.kind()), path: source.path, description: agent.description }
}

fn candidate(candidate: proto::Candidate) -> Candidate {
    let standing = match candidate.standing() {
        proto::candidate::Standing::InForce => "in force",
        proto::candidate::Standing::Shadowed => "shadowed",
        proto::candidate::Standing::Broken => "broken",
        proto::candidate::Standing::Protected => "protected",
        proto::candidate::Standing::Unspecified => "unknown",
    };
    let source = candidate.source.unwrap_or_default();
    Candidate {
        standing,
        kind: kind(source.kind()),
        path: source.path,
        digest: candidate.digest,
        size_bytes: candidate.size_bytes,
        findings: candidate.diagnostics.into_iter().map(finding).collect(),
    }
}

fn finding(diagnostic: proto::Diagnostic) -> Finding {
    let severity = match diagnostic.severity() {
        proto::diagnostic::Severity::Error => "error",
        proto::diagnostic::Severity::Warning | proto::diagnostic::Severity::Unspecified => "warning",
    };
    let proto::Diagnostic { severity: _, code, message, path, line, column, agent } = diagnostic;
    Finding { path, line, column, severity, code, message, agent }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Authored => "authored",
        Kind::Project => "project",
        Kind::User => "user",
        Kind::Plugin => "plugin",
        Kind::Root => "root",
        Kind::Bundled => "bundled",
        Kind::Unspecified => "unknown",
    }
}

/// What a message says; nothing for a mere sign of life.
fn parts(body: Option<Body>) -> Option<(&'static str, Vec<AgentDefinition>, Vec<String>)> {
    match body? {
        Body::Snapshot(snapshot) => Some(("snapshot", snapshot.agents, Vec::new())),
        Body::Change(change) => Some(("change", change.upserted, change.removed)),
        Body::Bookmark(_) => None,
    }
}

fn json_line(generation: u64, kind: &str, agents: &[AgentDefinition], removed: &[String]) -> String {
    let agents: Vec<_> = agents
        .iter()
        .map(|agent| serde_json::json!({ "name": agent.name, "digest": agent.digest }))
        .collect();
    let line = serde_json::json!({
        "generation": generation,
        "kind": kind,
        "agents": agents,
        "removed": removed,
    });
    format!("{line}\n")
}

fn lines(generation: u64, kind: &str, agents: &[AgentDefinition], removed: &[String]) -> String {
    let mark = if kind == "snapshot" { "=" } else { "+" };
    let there = agents.iter().map(|agent| {
        let source = agent.source.clone().unwrap_or_default();
        format!("{generation} {mark} {} {}\n", escape_line(&agent.name), escape_line(&source.path))
    });
    let gone = removed.iter().map(|name| format!("{generation} - {}\n", escape_line(name)));
    there.chain(gone).collect()
}
