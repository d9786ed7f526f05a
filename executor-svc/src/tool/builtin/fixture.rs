//! A workspace in a temporary directory, for the tests of the tools.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{CWD, Mode};
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::{
    tool::{Context, Error, Tool, Workspace, settings::READ_DENY},
    worker::SessionId,
};

/// `inside` is the workspace, `outside` lies beside it.
pub(super) struct Fixture {
    directory: TempDir,
    pub(super) context: Context,
}

impl Fixture {
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a fixture can be made");
        let inside = directory.path().join("inside");
        fs::create_dir(&inside).expect("a fixture can be made");
        let workspace = Workspace {
            name: "default".to_owned(),
            cwd: inside.clone(),
            hidden: vec![inside.join("var"), inside.join("executor.yaml")],
            frozen: vec![inside.join("agents")],
            read_deny: READ_DENY.map(str::to_owned).to_vec(),
            gitignore: true,
        };
        let context = Context {
            session: SessionId::new_worker(),
            workspace: Arc::new(workspace),
            cancel: CancellationToken::new(),
            approved: None,
        };
        let fixture = Self { directory, context };
        for (path, content) in files {
            fixture.file(path, content);
        }
        fixture
    }

    /// Relative to the workspace; `../outside/…` lies beside it.
    pub(super) fn path(&self, relative: &str) -> PathBuf {
        self.directory.path().join("inside").join(relative)
    }

    pub(super) fn file(&self, relative: &str, content: impl AsRef<[u8]>) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().expect("a fixture can be made")).expect("a fixture can be made");
        fs::write(path, content).expect("a fixture can be made");
    }

    pub(super) fn link(&self, relative: &str, target: impl AsRef<Path>) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().expect("a fixture can be made")).expect("a fixture can be made");
        symlink(target, path).expect("a fixture can be made");
    }

    pub(super) fn fifo(&self, relative: &str) {
        rustix::fs::mkfifoat(CWD, self.path(relative), Mode::RUSR | Mode::WUSR)
            .expect("a fixture can be made");
    }

    pub(super) fn content(&self, relative: &str) -> String {
        fs::read_to_string(self.path(relative)).expect("a fixture can be made")
    }

    pub(super) async fn call(&self, tool: &dyn Tool, arguments: Value) -> Result<String, Error> {
        tool.call(&self.context, &arguments).await
    }

    pub(super) async fn ok(&self, tool: &dyn Tool, arguments: Value) -> String {
        match self.call(tool, arguments.clone()).await {
            Ok(text) => text,
            Err(error) => panic!("{arguments}: {error}"),
        }
    }

    pub(super) async fn refused(&self, tool: &dyn Tool, arguments: Value, because: &str) {
        match self.call(tool, arguments.clone()).await {
            Ok(text) => panic!("{arguments} was answered: {text}"),
            Err(error) => assert!(error.to_string().contains(because), "{arguments}: {error}"),
        }
    }
}
