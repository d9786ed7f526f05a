//! A message to a coordinator: let in like a worker, recorded as the next turn of its root session, and run by the same
//! kernel. The session is kept, and each turn sees the end of what was said before.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Below, Caller, check_identity, effective_schema};
use crate::{
    admission::{Budget, Grant, Permit, Spawner},
    definition::Definition,
    error::{Error, Violation},
    event::Body,
    kernel::{Kernel, WorkspaceRules},
    model::provider::Wishes,
    open::Waiter,
    prompt::{self, Parts},
    run::{self, Owner},
    session::{Acceptance, Earlier, Parent, Position, Record, Request, Root, Spec, Stored},
    transcript::{self, Message},
    worker::{SchemaSource, SessionId, Worker},
};

/// Messages of earlier turns that a turn sees at most.
const EARLIER_MAX: usize = 50;

/// A message to a coordinator whose arguments are well formed.
#[derive(Clone, Debug)]
pub struct Talk {
    /// Absent: the session's own, or the default one.
    pub workspace: Option<String>,
    /// Absent opens a new one.
    pub session: Option<SessionId>,
    /// Absent: the session's own, or the workspace's coordinator.
    pub agent: Option<String>,
    pub message: String,
    pub locale: String,
    pub request: Option<Request>,
    pub plan_mode: bool,
    pub output_schema: Option<String>,
    pub budget: Budget,
    /// When the caller stops to wait.
    pub deadline: Option<Instant>,
}

/// A coordinator's turn.
#[derive(Debug)]
pub struct Turn {
    pub root: SessionId,
    /// Its events come behind this one.
    pub after: u64,
    /// Present while it runs: keeps it running.
    pub waiter: Option<Waiter>,
}

impl Kernel {
    /// Lets a turn in, or says why not. The same request id finds the turn that it began.
    ///
    /// # Errors
    ///
    /// The first row of admission that does not hold.
    pub async fn converse(self: &Arc<Self>, caller: &Caller, talk: Talk) -> Result<Turn, Error> {
        let root = match &talk.session {
            Some(id) => Some(self.own_conversation(caller, id, talk.workspace.as_deref()).await?),
            None => None,
        };
        let workspace = match (&root, &talk.workspace) {
            (Some(root), _) => root.workspace.clone(),
            (None, Some(workspace)) => workspace.clone(),
            (None, None) => crate::config::DEFAULT_WORKSPACE.to_owned(),
        };
        let rules = self.workspace(caller, &workspace)?;
        if self.shutdown.is_draining() {
            return Err(Error::Draining);
        }
        if let Some(earlier) = self.repeated(caller, &workspace, talk.request.as_ref()).await? {
            return self.join_turn(&earlier.id, talk.request.as_ref()).await;
        }
        if let Some(root) = &root {
            self.check_free(root, &talk)?;
        }
        let acceptance = self.turn(caller, rules, root.as_ref(), talk).await?;
        let id = acceptance.worker.id.clone();
        let admission = self.rules(rules);
        let dispatched = self.accept(acceptance, false, None).await;
        let dispatched = dispatched.map_err(|refusal| admission.located(refusal))?;
        match self.turn_of(&id, None).await? {
            Some((after, _)) => Ok(Turn { root: id, after, waiter: dispatched.waiter }),
            None => Err(Error::Defect(format!("session `{id}` has no turn, though one was recorded"))),
        }
    }

    /// Joins those who follow the turn that runs, so that it goes on when the others leave. Nothing where none runs.
    pub fn attend(&self, root: &SessionId) -> Option<Waiter> {
        self.open.get(root)?.join(None)
    }

    /// A root session of the caller's own. One in another workspace than the caller says is not there.
    async fn own_conversation(
        &self,
        caller: &Caller,
        id: &SessionId,
        workspace: Option<&str>,
    ) -> Result<Root, Error> {
        let root = self.log.root(id).await?;
        let is_meant = |root: &Root| {
            caller.sees_workspace(&root.workspace)
                && caller.owns(&root.operator)
                && workspace.is_none_or(|workspace| workspace == root.workspace)
        };
        root.filter(is_meant).ok_or_else(|| Error::SessionNotFound(id.to_string()))
    }

    /// Row 3: open, a coordinator's, of that agent, and without a turn that runs.
    fn check_free(&self, root: &Root, talk: &Talk) -> Result<(), Error> {
        if root.agent.is_empty() {
            return Err(Error::NotACoordinator(root.id.clone()));
        }
        if root.close_time.is_some() {
            return Err(Error::SessionClosed(root.id.clone()));
        }
        if talk.agent.as_ref().is_some_and(|agent| *agent != root.agent) {
            let violation = Violation::new("agent", format!("the session runs under `{}`", root.agent));
            return Err(Error::InvalidRequest(vec![violation]));
        }
        match root.turn_running || self.open.get(&root.id).is_some() {
            true => Err(Error::TurnInProgress(root.id.clone())),
            false => Ok(()),
        }
    }

    /// The turn that a request id began, and a place among those who follow it while it runs.
    async fn join_turn(&self, root: &SessionId, request: Option<&Request>) -> Result<Turn, Error> {
        let id = request.map(|request| request.id.as_str()).unwrap_or_default();
        let mut before = None;
        while let Some((after, turn)) = self.turn_of(root, before).await? {
            if turn.request_id == id {
                let waiter = if before.is_none() { self.attend(root) } else { None };
                return Ok(Turn { root: root.clone(), after, waiter });
            }
            before = Some(turn.position);
        }
        Err(Error::SessionNotFound(root.to_string()))
    }

    /// The last turn of a session, or the last one that begins before a position, with the number of the event that it
    /// comes behind.
    async fn turn_of(
        &self,
        root: &SessionId,
        before: Option<Position>,
    ) -> Result<Option<(u64, Begun)>, Error> {
        if before == Some(0) {
            return Ok(None);
        }
        let position = self.log.turn(root, before).await?;
        let mut first = self.log.records(root, position, 2).await?.into_iter();
        match (first.next(), first.next()) {
            (
                Some(Stored { record: Record::Spec(spec), .. }),
                Some(Stored { sequence, record: Record::Event { body: Body::Accepted }, .. }),
            ) => Ok(Some((sequence - 1, Begun { request_id: spec.request_id, position }))),
            _ => Ok(None),
        }
    }

    /// Rows 6 to 10, and what row 11 records.
    async fn turn(
        self: &Arc<Self>,
        caller: &Caller,
        rules: &WorkspaceRules,
        root: Option<&Root>,
        talk: Talk,
    ) -> Result<Acceptance, Error> {
        let workspace = &rules.place.name;
        let admission = self.rules(rules);
        let root_policy = self.root_policy(caller, rules);
        let agent =
            root.map(|root| &root.agent).or(talk.agent.as_ref()).unwrap_or(&rules.coordinator).clone();
        admission.before_conversation(&root_policy, &agent)?;
        let spawner = Spawner::root(root_policy);
        let definition = self.look_up_enabled(&admission, workspace, &agent, &spawner, talk.deadline).await?;
        let permit = admission.coordinator_permit(&spawner.root_policy, &definition, talk.plan_mode);
        let wishes = Wishes { request: "", patterns: &definition.models, parent: "" };
        let model = self.model_name(&agent, wishes)?;
        let schema = effective_schema(&definition, talk.output_schema.as_deref(), None)?;
        check_identity(caller, &permit)?;
        let grant = Grant::new(&talk.budget, &spawner, &definition, &admission)?;
        let system = self.coordinator_prompt(workspace, &talk, &definition, &permit, schema.as_ref()).await?;
        let before = match root {
            Some(root) => Some(self.before_turn(&root.id).await?),
            None => None,
        };

        let id = root.map_or_else(SessionId::new_root, |root| root.id.clone());
        let (output_schema, schema_source) = schema.unzip();
        let below = Below {
            spawner,
            workspace: workspace.clone(),
            parent: Parent::Turn(before.as_ref().map(|before| before.position)),
            parent_id: id.clone(),
            root_id: id.clone(),
            dedupe_scope: None,
        };
        let worker =
            Worker { id, schema_source, ..self.pending(caller, &definition, &below, &permit, model) };
        let spec = Spec {
            definition,
            system,
            prompt: talk.message,
            earlier: before.as_ref().map(|before| before.earlier),
            request_id: talk.request.as_ref().map(|request| request.id.clone()).unwrap_or_default(),
            output_schema,
            schema_is_permissive: false,
            locale: talk.locale,
            thinking: permit.thinking,
            max_turns: grant.turns,
            tokens_max: grant.tokens,
            wall_time: grant.wall_time,
            spawns_max: grant.spawns,
            root_spawns: below.spawner.root_policy,
        };
        Ok(Acceptance {
            worker,
            records: records(before, spec),
            parent: below.parent,
            open_max: self.config.limits.max_open.count(),
            // What is spawned in the turn is counted when it is spawned.
            spawns_per_tree_max: None,
            tokens_per_tree_max: None,
            tree_window: rules.limits.tree_window.0,
            request: talk.request,
            dedupe: None,
            is_review: false,
        })
    }

    /// The system prompt, with the agents that may be dispatched.
    async fn coordinator_prompt(
        &self,
        workspace: &str,
        talk: &Talk,
        definition: &Definition,
        permit: &Permit,
        schema: Option<&(String, SchemaSource)>,
    ) -> Result<String, Error> {
        let unavailable = |error| Error::RegistryUnavailable {
            agent: definition.name.clone(),
            source: Box::new(error) as Box<dyn std::error::Error + Send + Sync>,
        };
        let skills = self.registry.skills(workspace, &definition.skills, &talk.message, talk.deadline).await;
        let skills = skills.map_err(unavailable)?;
        let catalog = match permit.spawns.permits_any() {
            true => self.offered(workspace, &permit.spawns, talk.deadline).await.map_err(unavailable)?.0,
            false => Default::default(),
        };
        Ok(prompt::compose(&Parts {
            prompts: &self.config.prompts,
            definition,
            plan_mode: permit.plan_mode,
            catalog: &catalog.entries,
            skills: &skills,
            schema: schema.map(|(text, _)| text.as_str()),
            locale: &talk.locale,
        }))
    }

    /// What stands before the next turn of a session: what of it is seen, and the answers to calls that have none.
    async fn before_turn(self: &Arc<Self>, id: &SessionId) -> Result<Before, Error> {
        let owner = Owner::load(self, id).await?.ok_or_else(|| Error::SessionNotFound(id.to_string()))?;
        let lost = run::left_open(&owner).await?;
        let recent = self.log.recent(id, EARLIER_MAX).await?;
        let last = recent.last().map_or(0, |(sequence, _)| *sequence);
        let answers = lost.iter().filter_map(|record| match record {
            Record::Message { message } => Some(message),
            Record::Spec(_) | Record::Event { .. } => None,
        });
        let messages: Vec<&Message> = recent.iter().map(|(_, message)| message).chain(answers).collect();
        let count = transcript::whole_groups(&messages, EARLIER_MAX);
        let end = last + (messages.len() - recent.len()) as u64;
        Ok(Before { position: owner.position(), lost, earlier: Earlier { after: end - count as u64, count } })
    }
}

/// Where a turn begins.
struct Begun {
    request_id: String,
    /// Of the record before it.
    position: Position,
}

/// The session that a turn continues.
struct Before {
    position: Position,
    /// To be recorded before the turn.
    lost: Vec<Record>,
    earlier: Earlier,
}

/// The first records of a turn: the answers that calls before it never got, what it runs with, and the message.
fn records(before: Option<Before>, spec: Spec) -> Vec<Record> {
    let mut records = before.map(|before| before.lost).unwrap_or_default();
    let message = Message::User { text: spec.prompt.clone() };
    records.extend([
        Record::Spec(Box::new(spec)),
        Record::Event { body: Body::Accepted },
        Record::Message { message },
    ]);
    records
}

#[cfg(test)]
mod tests;
