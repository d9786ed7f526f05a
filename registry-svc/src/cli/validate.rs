//! `validate`: documents and directories, checked as the registry would read them, without one.

use std::{
    collections::HashSet,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use clap::Args;

use super::{
    Ending, Format, Outcome, Output,
    output::{Finding, severity},
};
use crate::{
    config::WorkspaceConfig,
    definition::{self, GuardedNames, Origin, Parsed},
    diagnostic::Diagnostic,
    source::{guarded_names, is_no_document, stem, unreadable},
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

#[derive(Args)]
pub(super) struct Validate {
    /// Documents, and directories that are read with all below them
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// How to write the findings
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// Documents to check, and what stands in the way of others.
#[derive(Default)]
struct Collected {
    files: Vec<PathBuf>,
    findings: Vec<Finding>,
    entered: HashSet<(u64, u64)>,
}

impl Validate {
    pub(super) fn run(self, output: &Output) -> Outcome {
        let config = WorkspaceConfig::default();
        let guarded_names = guarded_names(&config.protected, config.bundled);
        let mut collected = Collected::default();
        let mut named = Vec::new();
        for path in &self.paths {
            let metadata = fs::metadata(path)
                .map_err(|error| Ending::Refused(format!("cannot read `{}`: {error}", path.display())))?;
            if metadata.is_dir() {
                collected.enter(path, 0, &config);
            } else {
                named.push(path);
            }
        }
        let Collected { files, mut findings, .. } = collected;
        let mut checked = 0;
        let named = named.into_iter().map(|path| (path, true));
        for (path, is_named) in named.chain(files.iter().map(|path| (path, false))) {
            let document = match read(path) {
                Ok(document) => document,
                Err(error) => {
                    findings.push(finding(path, unreadable(path, &error)));
                    continue;
                }
            };
            if is_named || !is_no_document(path, &document) {
                checked += 1;
                let parsed = parse(path, &document, &config, &guarded_names);
                findings.extend(parsed.diagnostics.into_iter().map(|diagnostic| finding(path, diagnostic)));
            }
        }
        match self.format {
            Format::Text => {
                let lines: String = findings.iter().map(|finding| finding.line(output) + "\n").collect();
                output.write(&lines)?;
            }
            Format::Json => output.json(&findings)?,
        }
        let errors = findings.iter().filter(|finding| finding.severity == "error").count();
        eprintln!("{checked} documents: {errors} errors, {} warnings", findings.len() - errors);
        if errors > 0 { Err(Ending::Failed) } else { Ok(()) }
    }
}

impl Collected {
    /// Takes the documents below a directory in byte order. Of what is hidden only the families count, and of these
    /// their definitions. Links count as what they lead to; each directory is entered once, so that a loop ends.
    fn enter(&mut self, directory: &Path, depth: usize, config: &WorkspaceConfig) {
        if let Err(error) = self.try_enter(directory, depth, config) {
            self.findings.push(finding(directory, unreadable(directory, &error)));
        }
    }

    fn try_enter(&mut self, directory: &Path, depth: usize, config: &WorkspaceConfig) -> io::Result<()> {
        let metadata = directory.metadata()?;
        if depth > DEPTH_MAX || !self.entered.insert((metadata.dev(), metadata.ino())) {
            return Ok(());
        }
        let mut entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().to_lowercase();
            if name.starts_with('.') {
                for agents in AGENT_DIRECTORIES.map(|agents| path.join(agents)) {
                    if is_family(&name, config) && agents.is_dir() {
                        self.enter(&agents, depth + 1, config);
                    }
                }
                continue;
            }
            // What leads nowhere, or is no file, such as a pipe, is not loaded either.
            let Ok(metadata) = path.metadata() else { continue };
            if metadata.is_dir() && !OTHER_THINGS.contains(&name.as_str()) {
                self.enter(&path, depth + 1, config);
            } else if metadata.is_file() && is_document(&path, &name) {
                self.files.push(path);
            }
        }
        Ok(())
    }
}

fn is_family(name: &str, config: &WorkspaceConfig) -> bool {
    FURTHER_FAMILIES.contains(&name)
        || config.families.iter().chain(&config.name_from_file).any(|family| family == name)
}

fn is_document(path: &Path, name: &str) -> bool {
    name.ends_with(".md") || (name.ends_with(".toml") && is_below(path, ".codex"))
}

/// Whether a directory of this name is above, also above the current directory.
fn is_below(path: &Path, directory: &str) -> bool {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.components().any(|component| component.as_os_str() == directory)
}

fn parse(path: &Path, document: &[u8], config: &WorkspaceConfig, guarded_names: &GuardedNames) -> Parsed {
    let is_toml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
    definition::parse(
        document,
        &Origin {
            format: if is_toml { definition::Format::Toml } else { definition::Format::Markdown },
            stem: stem(path),
            name_from_stem: config.name_from_file.iter().any(|family| is_below(path, family)),
            bundled: false,
            guarded_names,
        },
    )
}

fn finding(path: &Path, diagnostic: Diagnostic) -> Finding {
    Finding {
        path: path.display().to_string(),
        line: diagnostic.line,
        column: diagnostic.column,
        severity: severity(diagnostic.severity),
        code: diagnostic.code.as_str().to_owned(),
        message: diagnostic.message,
        agent: diagnostic.agent,
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    use io::Read as _;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

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
        symlink("nowhere", root.join("k.md")).unwrap();
        symlink("../a", root.join("a/loop")).unwrap();
        symlink("b.md", root.join("l.md")).unwrap();
        mknodat(CWD, root.join("m.md"), FileType::Fifo, Mode::RUSR, 0).unwrap();

        let mut collected = Collected::default();
        collected.enter(root, 0, &WorkspaceConfig::default());

        let Collected { files, findings, .. } = collected;
        let files: Vec<_> =
            files.iter().map(|file| file.strip_prefix(root).unwrap().display().to_string()).collect();
        let expected =
            [".claude/agents/e.md", ".codex/agents/g.toml", "a/README.md", "a/c.MD", "b.md", "l.md"];
        assert_eq!(files, expected);
        assert!(findings.is_empty());
    }
}
