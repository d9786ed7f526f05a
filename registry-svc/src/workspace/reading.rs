//! The blocking half of a workspace: reading the sources and merging what was read.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::Notify;

use super::Settings;
use crate::{
    agent::AgentName,
    command::{self, Command},
    definition::GuardedNames,
    document::Document,
    error::StartError,
    merge::{Merged, Policy, merge},
    skill::{self, Skill},
    source::{Scan, Scanner, watch::Watch},
};

/// Authored definitions by name.
pub(super) type AuthoredDocuments = BTreeMap<AgentName, Arc<Document>>;

/// Reads and merges. Moves to the blocking pool and back.
pub(super) struct Desk {
    scanner: Scanner,
    policy: Policy,
    watch: Option<Watch>,
    scan: Scan,
    /// False until what was read last has been published.
    settled: bool,
}

/// A merge, not yet published.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) merged: Merged,
    pub(super) commands: Vec<Arc<Command>>,
    pub(super) skills: Vec<Arc<Skill>>,
}

impl Desk {
    /// `touched` is told of file events; without it nothing is watched.
    pub(super) fn new(settings: &Settings, touched: Option<Arc<Notify>>) -> Result<Self, StartError> {
        Ok(Self {
            scanner: Scanner::new(&settings.sources, &settings.policy)?,
            policy: settings.policy.clone(),
            watch: touched.and_then(Watch::start),
            scan: Scan::default(),
            settled: false,
        })
    }

    pub(super) fn guarded_names(&self) -> &GuardedNames {
        self.scanner.guarded_names()
    }

    /// Reads what changed. Nothing when all is as it was published.
    pub(super) fn read(&mut self, authored: &AuthoredDocuments) -> Option<Reading> {
        let scan = self.scanner.scan();
        if let Some(watch) = &mut self.watch {
            watch.follow(&scan.interests);
        }
        if self.settled && scan.same_as(&self.scan) {
            return None;
        }
        self.scan = scan;
        self.settled = false;
        Some(self.merge(authored))
    }

    /// Merges what was read last with other authored definitions.
    pub(super) fn merge(&self, authored: &AuthoredDocuments) -> Reading {
        let Scan { documents, findings, commands, skills, interests: _ } = &self.scan;
        let mut findings = findings.clone();
        let commands = command::first_wins(commands.iter().cloned(), &mut findings);
        let skills = skill::first_wins(skills.iter().cloned(), &mut findings);
        let documents = authored.values().chain(documents).cloned().collect();
        Reading { merged: merge(documents, &findings, &self.policy), commands, skills }
    }

    /// Says that what was read last has been published.
    pub(super) fn settle(&mut self) {
        self.settled = true;
    }
}
