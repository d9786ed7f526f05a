//! Stories of one workspace over real files and a real store, without a server.

mod authoring;
mod following;
mod reading;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::TempDir;
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    merge::OnBrokenOverride,
    store::{directory::DirectoryStore, memory::MemoryStore},
};

/// Longest wait for something that has to happen: generous, since the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// A workspace with a project directory, a home and a root, and its owner running.
struct Harness {
    place: TempDir,
    handle: Handle,
    cancel: CancellationToken,
    owner: JoinHandle<()>,
}

impl Harness {
    async fn start() -> Self {
        let place = place();
        Self::start_in(place, Arc::new(MemoryStore::new())).await
    }

    /// With a store that outlives the harness.
    async fn start_durable(place: TempDir) -> Self {
        let store = DirectoryStore::open(place.path().join("data")).await.unwrap();
        Self::start_in(place, Arc::new(store)).await
    }

    async fn start_in(place: TempDir, store: Arc<dyn Store>) -> Self {
        let (handle, owner) = open(settings(place.path()), store).await.unwrap();
        let cancel = CancellationToken::new();
        let owner = tokio::spawn(owner.run(cancel.clone()));
        Self { place, handle, cancel, owner }
    }

    async fn stop(self) -> TempDir {
        self.cancel.cancel();
        timeout(PATIENCE, self.owner).await.unwrap().unwrap();
        self.place
    }

    fn write(&self, path: &str, content: &str) {
        write(self.place.path(), path, content);
    }

    fn path(&self, path: &str) -> PathBuf {
        self.place.path().join(path)
    }

    /// The body of what is in force under a name.
    fn body(&self, name: &str) -> Option<String> {
        self.handle.snapshot().in_force_as(name).map(|definition| definition.agent.system_prompt.clone())
    }

    fn codes(&self) -> Vec<&'static str> {
        self.handle.snapshot().diagnostics().iter().map(|diagnostic| diagnostic.code.as_str()).collect()
    }

    async fn replace(&self, document: &str) -> Result<Replaced, Error> {
        self.handle.replace(request(document)).await
    }
}

fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    for directory in ["p/.git", "h", "r"] {
        fs::create_dir_all(place.path().join(directory)).unwrap();
    }
    place
}

fn settings(place: &Path) -> Settings {
    Settings {
        name: "default".to_owned(),
        sources: source::Settings {
            cwd: Some(place.join("p")),
            home: Some(place.join("h")),
            families: [".xcsh", ".claude", ".codex", ".gemini"].map(str::to_owned).to_vec(),
            plugins: true,
            roots: vec![place.join("r")],
            bundled: false,
            name_from_file: Vec::new(),
            link_roots: Vec::new(),
        },
        policy: Policy {
            protected: ["default", "reviewer"].map(str::to_owned).to_vec(),
            on_broken_override: OnBrokenOverride::FallThrough,
        },
    }
}

fn write(place: &Path, path: &str, content: &str) {
    let path = place.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn agent(name: &str, body: &str) -> String {
    format!("---\nname: {name}\ndescription: d\n---\n{body}\n")
}

fn author() -> Author {
    Author { caller: "me".to_owned(), is_administrator: false }
}

fn request(document: &str) -> Replace {
    Replace {
        author: author(),
        document: document.as_bytes().to_vec(),
        expected_digest: None,
        expected_name: None,
        request_id: None,
    }
}

fn removal(name: &str) -> Remove {
    Remove { author: author(), name: name.to_owned(), expected_digest: None, request_id: None }
}
