//! `list` and `explain`: what a workspace resolves to, from its sources or from a running registry.

use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use service_kit::{
    config::Environment,
    console::{Colour, escape_line},
};

use super::{
    Ending, Format, Outcome, Output, Settings,
    output::{Finding, columns, severity},
    remote,
};
use crate::{agent::SourceKind, diagnostic::Diagnostic, merge::Standing, snapshot::Snapshot};

#[derive(Args)]
pub(super) struct List {
    #[command(flatten)]
    place: Place,
}

#[derive(Args)]
pub(super) struct Explain {
    /// The name, exactly
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    place: Place,
}

#[derive(Args)]
struct Place {
    #[command(flatten)]
    settings: Settings,
    /// Asks the registry running there instead of the sources
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["config", "roots", "cwd", "home"])]
    addr: Option<String>,
    /// The workspace to look at
    #[arg(long, value_name = "NAME", default_value = crate::config::DEFAULT_WORKSPACE)]
    workspace: String,
    /// Directory of the token for `--addr`
    #[arg(long, value_name = "DIR", default_value = "./var")]
    data: std::path::PathBuf,
    /// How to write the answer
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// One definition in force.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) path: String,
    pub(super) description: String,
}

/// One candidate of a name.
#[derive(Debug, Serialize)]
pub(super) struct Candidate {
    pub(super) standing: &'static str,
    pub(super) kind: &'static str,
    pub(super) path: String,
    pub(super) digest: String,
    pub(super) size_bytes: u64,
    pub(super) findings: Vec<Finding>,
}

impl List {
    pub(super) async fn run(self, environment: &Environment, output: &Output) -> Outcome {
        let Place { settings, addr, workspace, data, format } = self.place;
        let rows = match addr {
            Some(addr) => remote::list(&addr, &data, &workspace).await?,
            None => {
                let snapshot = offline(settings, environment, &workspace).await?;
                say_errors(&snapshot);
                rows(&snapshot)
            }
        };
        match format {
            Format::Json => output.json(&rows),
            Format::Text => {
                let cells = |row: &Row| {
                    vec![
                        output.paint(Colour::Bold, &escape_line(&row.name)),
                        row.kind.to_owned(),
                        escape_line(&row.path),
                    ]
                };
                output.write(&columns(&rows.iter().map(cells).collect::<Vec<_>>()))
            }
        }
    }
}

impl Explain {
    pub(super) async fn run(self, environment: &Environment, output: &Output) -> Outcome {
        let Self { name, place } = self;
        let Place { settings, addr, workspace, data, format } = place;
        let candidates = match addr {
            Some(addr) => remote::explain(&addr, &data, &workspace, &name).await?,
            None => candidates(&*offline(settings, environment, &workspace).await?, &name)?,
        };
        match format {
            Format::Json => output.json(&candidates),
            Format::Text => {
                output.write(&candidates.iter().map(|it| explained(it, output)).collect::<String>())
            }
        }
    }
}

/// The sources as the service would read them, without its store.
async fn offline(
    settings: Settings,
    environment: &Environment,
    workspace: &str,
) -> Result<Arc<Snapshot>, Ending> {
    let config = settings.load(environment, Vec::new())?.config;
    let Some(sources) = config.workspaces.get(workspace) else {
        return Err(Ending::Refused(format!("the configuration has no workspace `{workspace}`")));
    };
    crate::read_sources(workspace, sources)
        .await
        .map_err(|error| Ending::FailedWith(service_kit::status::chain(&error)))
}

fn rows(snapshot: &Snapshot) -> Vec<Row> {
    let row = |definition: &Arc<crate::document::Definition>| Row {
        name: definition.agent.name.as_str().to_owned(),
        kind: kind(definition.source.kind),
        path: definition.source.path.clone(),
        description: definition.agent.description.clone(),
    };
    snapshot.in_force().iter().map(row).collect()
}

fn candidates(snapshot: &Snapshot, name: &str) -> Result<Vec<Candidate>, Ending> {
    let candidates = snapshot.candidates(name).map_err(|miss| Ending::FailedWith(miss.to_string()))?;
    let candidate = |candidate: &crate::merge::Candidate| {
        let document = &candidate.document;
        Candidate {
            standing: standing(candidate.standing),
            kind: kind(document.source.kind),
            path: document.source.path.clone(),
            digest: document.digest.to_string(),
            size_bytes: document.size_bytes,
            findings: document
                .diagnostics
                .iter()
                .chain(&candidate.findings)
                .map(|diagnostic| finding(diagnostic, &document.source.path))
                .collect(),
        }
    };
    Ok(candidates.iter().map(candidate).collect())
}

/// Says beside the list what was not loaded, so that nobody searches for a name that a fault keeps away.
fn say_errors(snapshot: &Snapshot) {
    let plain = Output::new(true);
    for diagnostic in snapshot.diagnostics().iter().filter(|diagnostic| diagnostic.is_error()) {
        eprintln!("{}", finding(diagnostic, "").line(&plain));
    }
}

fn finding(diagnostic: &Diagnostic, document: &str) -> Finding {
    let path = if diagnostic.path.is_empty() { document } else { diagnostic.path.as_str() };
    Finding {
        path: path.to_owned(),
        line: diagnostic.line,
        column: diagnostic.column,
        severity: severity(diagnostic.severity),
        code: diagnostic.code.as_str().to_owned(),
        message: diagnostic.message.clone(),
        agent: diagnostic.agent.clone(),
    }
}

fn explained(candidate: &Candidate, output: &Output) -> String {
    let Candidate { standing, kind, path, digest, size_bytes, findings } = candidate;
    let colour = match *standing {
        "in force" => Colour::Green,
        "broken" | "protected" => Colour::Red,
        _ => Colour::Dim,
    };
    let place = if path.is_empty() { String::new() } else { format!(" {}", escape_line(path)) };
    let short = digest.get(..12).unwrap_or(digest);
    let head = format!("{}: {kind}{place} ({size_bytes} bytes, {short})\n", output.paint(colour, standing));
    findings.iter().fold(head, |text, finding| format!("{text}  {}\n", finding.line(output)))
}

pub(super) fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::InForce => "in force",
        Standing::Shadowed => "shadowed",
        Standing::Broken => "broken",
        Standing::Protected => "protected",
    }
}

pub(super) fn kind(kind: SourceKind) -> &'static str {
    match kind {
        SourceKind::Authored => "authored",
        SourceKind::Project => "project",
        SourceKind::User => "user",
        SourceKind::Plugin => "plugin",
        SourceKind::Root => "root",
        SourceKind::Bundled => "bundled",
    }
}
