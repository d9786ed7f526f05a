//! Every case of `workspaces.json`: a directory tree, and what the workspace in it resolves to.

use std::{collections::BTreeMap, fs, os::unix::fs::symlink, path::Path};

use serde::Deserialize;

use super::{Settings, read_once};
use crate::{
    agent::SourceKind,
    merge::{OnBrokenOverride, Policy, Standing},
    snapshot::Snapshot,
    source,
};

#[derive(Deserialize)]
struct Case {
    id: String,
    files: BTreeMap<String, String>,
    links: BTreeMap<String, String>,
    cwd: String,
    home: String,
    roots: Vec<String>,
    config: Config,
    expect: Expected,
}

#[derive(Deserialize)]
struct Config {
    bundled: bool,
    on_broken_override: Option<String>,
    families: Option<Vec<String>>,
    #[serde(default)]
    fifos: Vec<String>,
}

#[derive(Deserialize)]
struct Expected {
    list: Option<Vec<(String, String, String)>>,
    has: Vec<String>,
    not: Vec<String>,
    explain: BTreeMap<String, Vec<(String, String)>>,
}

#[test]
fn every_case_of_the_corpus_holds() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/workspaces.json");
    let cases: Vec<Case> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert!(cases.len() >= 32, "the corpus was cut");

    let faults: Vec<String> = cases.iter().flat_map(faults).collect();

    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn faults(case: &Case) -> Vec<String> {
    let place = tempfile::tempdir().unwrap();
    let top = place.path().canonicalize().unwrap();
    build(case, &top);

    let snapshot = read_once(&settings(case, &top)).unwrap();

    let mut faults = Vec::new();
    let mut compare = |what: &str, expected: String, actual: String| {
        if expected != actual {
            faults.push(format!("{}: {what}: expected {expected}, got {actual}", case.id));
        }
    };
    if let Some(expected) = &case.expect.list {
        compare("list", format!("{expected:?}"), format!("{:?}", list(&snapshot, &top)));
    }
    let codes: Vec<&str> = snapshot.diagnostics().iter().map(|diagnostic| diagnostic.code.as_str()).collect();
    for code in &case.expect.has {
        compare(
            code,
            "present".to_owned(),
            if codes.contains(&code.as_str()) { "present" } else { "absent" }.to_owned(),
        );
    }
    for code in &case.expect.not {
        compare(
            code,
            "absent".to_owned(),
            if codes.contains(&code.as_str()) { "present" } else { "absent" }.to_owned(),
        );
    }
    for (name, expected) in &case.expect.explain {
        compare(name, format!("{expected:?}"), format!("{:?}", explain(&snapshot, name, &top)));
    }
    faults
}

fn build(case: &Case, top: &Path) {
    fs::create_dir(top.join(".git")).unwrap();
    for directory in [&case.cwd, &case.home] {
        fs::create_dir_all(top.join(directory)).unwrap();
    }
    let above = |path: &str| fs::create_dir_all(top.join(path).parent().unwrap()).unwrap();
    for (path, content) in &case.files {
        above(path);
        fs::write(top.join(path), content.replace("T/", &format!("{}/", top.display()))).unwrap();
    }
    for (path, target) in &case.links {
        above(path);
        let target = match target.strip_prefix("T/") {
            Some(rest) => top.join(rest),
            None => target.into(),
        };
        symlink(target, top.join(path)).unwrap();
    }
    for path in &case.config.fifos {
        above(path);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, top.join(path), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }
}

fn settings(case: &Case, top: &Path) -> Settings {
    let families = [".xcsh", ".claude", ".codex", ".gemini"].map(str::to_owned).to_vec();
    Settings {
        name: "default".to_owned(),
        sources: source::Settings {
            cwd: Some(top.join(&case.cwd)),
            home: Some(top.join(&case.home)),
            families: case.config.families.clone().unwrap_or(families),
            plugins: true,
            roots: case.roots.iter().map(|root| top.join(root)).collect(),
            bundled: case.config.bundled,
            name_from_file: [".opencode", ".github", ".kilo"].map(str::to_owned).to_vec(),
            link_roots: Vec::new(),
        },
        policy: Policy {
            protected: ["default", "reviewer"].map(str::to_owned).to_vec(),
            on_broken_override: match case.config.on_broken_override.as_deref() {
                Some("block") => OnBrokenOverride::Block,
                None | Some("fall_through") => OnBrokenOverride::FallThrough,
                Some(other) => panic!("{other}"),
            },
        },
    }
}

fn list(snapshot: &Snapshot, top: &Path) -> Vec<(String, String, String)> {
    let row = |definition: &std::sync::Arc<crate::document::Definition>| {
        let kind = match definition.source.kind {
            SourceKind::Authored => "AUTHORED",
            SourceKind::Project => "PROJECT",
            SourceKind::User => "USER",
            SourceKind::Plugin => "PLUGIN",
            SourceKind::Root => "ROOT",
            SourceKind::Bundled => "BUNDLED",
        };
        (definition.agent.name.as_str().to_owned(), kind.to_owned(), below(&definition.source.path, top))
    };
    snapshot.in_force().iter().map(row).collect()
}

fn explain(snapshot: &Snapshot, name: &str, top: &Path) -> Vec<(String, String)> {
    let candidates = snapshot.candidates(name).unwrap_or_default();
    let row = |candidate: &crate::merge::Candidate| {
        let standing = match candidate.standing {
            Standing::InForce => "IN_FORCE",
            Standing::Shadowed => "SHADOWED",
            Standing::Broken => "BROKEN",
            Standing::Protected => "PROTECTED",
        };
        (standing.to_owned(), below(&candidate.document.source.path, top))
    };
    candidates.iter().map(row).collect()
}

fn below(path: &str, top: &Path) -> String {
    let path = Path::new(path);
    path.strip_prefix(top).unwrap_or(path).display().to_string()
}
