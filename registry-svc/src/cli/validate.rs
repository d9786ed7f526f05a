//! `validate`: documents and directories, checked as the registry would read them, without one.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;

use super::{
    Ending, Format, Outcome, Output,
    output::{Finding, severity},
};
use crate::{
    config::WorkspaceConfig,
    definition::{self, GuardedNames, Origin},
};

/// A tree of definitions is shallow; a deeper one is something else.
const DEPTH_MAX: usize = 32;

/// Larger files are no documents; the parser says so of the first bytes beyond its limit.
const READ_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// Directories that hold other things than definitions.
const OTHER_THINGS: [&str; 2] = ["commands", "skills"];

/// Directories of definitions inside a family's.
const AGENT_DIRECTORIES: [&str; 2] = ["agents", "agent"];

/// Families that a workspace may be extended by, beside those it has by default.
const FURTHER_FAMILIES: [&str; 2] = [".qwen", ".omp"];

/// Files that stand beside definitions without being any.
const BYSTANDERS: [&str; 3] = ["readme.md", "claude.md", "agents.md"];

#[derive(Args)]
pub(super) struct Validate {
    /// Documents, and directories that are read with all below them
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// How to write the findings
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

impl Validate {
    pub(super) fn run(self, output: &Output) -> Outcome {
        let config = WorkspaceConfig::default();
        let mut files = Vec::new();
        for path in &self.paths {
            let metadata = fs::metadata(path)
                .map_err(|error| Ending::Refused(format!("cannot read `{}`: {error}", path.display())))?;
            if metadata.is_dir() {
                collect(path, 0, &config, &mut files).map_err(|error| {
                    Ending::FailedWith(format!("cannot read `{}`: {error}", path.display()))
                })?;
            } else {
                files.push(path.clone());
            }
        }
        let mut findings = Vec::new();
        for file in &files {
            check(file, &config, &mut findings)?;
        }
        match self.format {
            Format::Text => {
                let lines: String = findings.iter().map(|finding| finding.line(output) + "\n").collect();
                output.write(&lines)?;
            }
            Format::Json => output.json(&findings)?,
        }
        let errors = findings.iter().filter(|finding| finding.severity == "error").count();
        eprintln!("{} documents: {errors} errors, {} warnings", files.len(), findings.len() - errors);
        if errors > 0 { Err(Ending::Failed) } else { Ok(()) }
    }
}

/// Documents below a directory in byte order. Of what is hidden only the families count, and of these their definitions.
fn collect(
    directory: &Path,
    depth: usize,
    config: &WorkspaceConfig,
    files: &mut Vec<PathBuf>,
) -> io::Result<()> {
    if depth > DEPTH_MAX {
        return Ok(());
    }
    let mut entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().to_lowercase();
        let is_directory = entry.file_type()?.is_dir();
        if name.starts_with('.') {
            for agents in AGENT_DIRECTORIES.map(|agents| path.join(agents)) {
                if is_family(&name, config) && agents.is_dir() {
                    collect(&agents, depth + 1, config, files)?;
                }
            }
        } else if is_directory && !OTHER_THINGS.contains(&name.as_str()) {
            collect(&path, depth + 1, config, files)?;
        } else if !is_directory && is_document(&path, &name) && !is_bystander(&path, &name) {
            files.push(path);
        }
    }
    Ok(())
}

fn is_family(name: &str, config: &WorkspaceConfig) -> bool {
    FURTHER_FAMILIES.contains(&name)
        || config.families.iter().chain(&config.name_from_file).any(|family| family == name)
}

fn is_document(path: &Path, name: &str) -> bool {
    name.ends_with(".md") || (name.ends_with(".toml") && is_below(path, ".codex"))
}

/// Such a file counts only where it begins like a document.
fn is_bystander(path: &Path, name: &str) -> bool {
    BYSTANDERS.contains(&name) && !fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"---"))
}

fn is_below(path: &Path, directory: &str) -> bool {
    path.components().any(|component| component.as_os_str() == directory)
}

fn check(path: &Path, config: &WorkspaceConfig, findings: &mut Vec<Finding>) -> Outcome {
    let failed = |error: io::Error| Ending::FailedWith(format!("cannot read `{}`: {error}", path.display()));
    let document = read(path).map_err(failed)?;
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let stem = stem.as_deref().map(|stem| stem.strip_suffix(".agent").unwrap_or(stem));
    let is_toml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
    let guarded_names = GuardedNames::new(config.protected.iter().map(String::as_str));
    let parsed = definition::parse(
        &document,
        &Origin {
            format: if is_toml { definition::Format::Toml } else { definition::Format::Markdown },
            stem,
            name_from_stem: config.name_from_file.iter().any(|family| is_below(path, family)),
            bundled: false,
            guarded_names: &guarded_names,
        },
    );
    findings.extend(parsed.diagnostics.into_iter().map(|diagnostic| Finding {
        path: path.display().to_string(),
        line: diagnostic.line,
        column: diagnostic.column,
        severity: severity(diagnostic.severity),
        code: diagnostic.code.as_str().to_owned(),
        message: diagnostic.message,
        agent: diagnostic.agent,
    }));
    Ok(())
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    use io::Read as _;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_project_the_definitions_are_read_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for path in [
            "b.md",
            "a/c.MD",
            "a/README.md",
            ".hidden/agents/d.md",
            ".claude/agents/e.md",
            ".claude/commands/f.md",
            ".codex/agents/g.toml",
            "commands/h.md",
            "i.txt",
            "j.toml",
        ] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "text").unwrap();
        }
        fs::write(root.join("AGENTS.md"), "---\nname: x\n---\n").unwrap();

        let mut files = Vec::new();
        collect(root, 0, &WorkspaceConfig::default(), &mut files).unwrap();

        let files: Vec<_> =
            files.iter().map(|file| file.strip_prefix(root).unwrap().display().to_string()).collect();
        assert_eq!(files, [".claude/agents/e.md", ".codex/agents/g.toml", "AGENTS.md", "a/c.MD", "b.md"]);
    }
}
