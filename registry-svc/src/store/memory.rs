//! A store that forgets, for tests.

use std::{collections::HashMap, time::SystemTime};

use async_trait::async_trait;
use parking_lot::Mutex;

use super::{Commit, Store, Stored};
use crate::error::StoreError;

/// Keeps workspaces as long as the process lives.
pub(crate) struct MemoryStore {
    id: String,
    workspaces: Mutex<HashMap<String, Stored>>,
}

impl MemoryStore {
    pub(crate) fn new() -> Self {
        Self { id: uuid::Uuid::now_v7().to_string(), workspaces: Mutex::default() }
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn id(&self) -> &str {
        &self.id
    }

    async fn load(&self, workspace: &str) -> Result<Stored, StoreError> {
        Ok(self.workspaces.lock().get(workspace).cloned().unwrap_or_default())
    }

    async fn commit(&self, workspace: &str, commit: Commit) -> Result<(), StoreError> {
        let mut workspaces = self.workspaces.lock();
        let stored = workspaces.entry(workspace.to_owned()).or_default();
        stored.apply(commit.entry);
        if let Some(write) = commit.write {
            stored.apply_write(write);
        }
        stored.forget(SystemTime::now());
        Ok(())
    }
}
