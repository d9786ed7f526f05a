//! From a call to a recorded worker: the rows of admission in their order, then one transaction.

mod acceptance;
mod conversation;
mod further;
mod record;
mod review;
mod session;

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::Instant;

use self::acceptance::Admitted;
pub use self::{
    conversation::{Talk, Turn},
    further::Further,
    session::{ANONYMOUS, Below, Caller},
};
use crate::{
    admission::{Budget, Grant, Permit, Rules, Spawner},
    definition::{Definition, PermissionMode, SpawnPolicy},
    error::{Error, list},
    kernel::{Kernel, WorkspaceRules},
    model::provider::Wishes,
    open::{OpenWorker, Waiter},
    registry::LookupError,
    schema::{self, Schema},
    session::Request,
    worker::{SchemaSource, Worker},
};

/// A spawn whose arguments are well formed.
#[derive(Clone, Debug)]
pub struct Call {
    pub workspace: String,
    pub agent: String,
    pub description: String,
    pub prompt: String,
    pub place: Place,
    pub output_schema: Option<String>,
    pub schema_is_permissive: bool,
    pub background: bool,
    pub plan_mode: bool,
    pub bypass_dedupe: bool,
    pub budget: Budget,
    pub model: Option<String>,
    pub request: Option<Request>,
    pub labels: BTreeMap<String, String>,
    pub locale: String,
    /// When the caller stops to wait.
    pub deadline: Option<Instant>,
}

/// Where a caller wants the worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Below a new root.
    UnnamedRoot,
    /// Below the caller's own root.
    NamedRoot(String),
    /// Below an existing session.
    Below(String),
}

/// The answer to a spawn.
#[derive(Debug)]
pub struct Dispatched {
    /// As recorded; closed already where an earlier worker answers.
    pub worker: Worker,
    pub deduplicated: bool,
    /// Present in the foreground: waits for the end, and stops the worker when dropped before.
    pub waiter: Option<Waiter>,
}

impl Kernel {
    /// Lets a worker in, or says why not. A refusal has written nothing.
    ///
    /// # Errors
    ///
    /// The first row of admission that does not hold.
    pub async fn dispatch(
        self: &Arc<Self>,
        caller: &Caller,
        call: Call,
        parent: Option<Arc<OpenWorker>>,
    ) -> Result<Dispatched, Error> {
        let rules = self.workspace(caller, &call.workspace)?;
        // What a running worker needs to end is still let in.
        if self.shutdown.is_draining() && parent.is_none() {
            return Err(Error::Draining);
        }
        if let Some(worker) = self.repeated(caller, &call.workspace, call.request.as_ref()).await? {
            return self.join(worker, call.background, false, parent).await;
        }
        let place = call.place.clone();
        match self.admit(caller, rules, call, parent).await {
            Err(refusal) => Err(self.unless_closed(caller, rules, &place, refusal).await?),
            Ok(dispatched) => Ok(dispatched),
        }
    }

    /// Rows 3 to 11.
    async fn admit(
        self: &Arc<Self>,
        caller: &Caller,
        rules: &WorkspaceRules,
        call: Call,
        parent: Option<Arc<OpenWorker>>,
    ) -> Result<Dispatched, Error> {
        let below = self.below(caller, &call.workspace, &call.place, rules).await?;
        let admission = self.rules(rules);
        admission.before_lookup(&below.spawner, &call.agent)?;
        let Call { workspace, agent, deadline, .. } = &call;
        let definition =
            self.look_up_enabled(&admission, workspace, agent, &below.spawner, *deadline).await?;
        let permit = admission.permit(&below.spawner, &definition, call.plan_mode);
        let wishes = Wishes {
            request: call.model.as_deref().unwrap_or_default(),
            patterns: &definition.models,
            parent: below.spawner.model.as_deref().unwrap_or_default(),
        };
        let model = self.model_name(&call.agent, wishes)?;
        let schema = effective_schema(
            &definition,
            call.output_schema.as_deref(),
            below.spawner.output_schema.as_deref(),
        )?;
        check_identity(caller, &permit)?;
        let grant = Grant::new(&call.budget, &below.spawner, &definition, &admission);

        let background = call.background && !definition.blocking;
        let admitted = Admitted { definition, permit, model, schema, grant };
        let (acceptance, exhausted) = self.acceptance(caller, call, below, admitted).await?;
        self.accept(acceptance, background, parent).await.map_err(|refusal| match exhausted {
            Some(exhausted) if matches!(refusal, Error::BudgetExhausted { .. }) => exhausted,
            Some(_) | None => admission.located(refusal),
        })
    }

    /// The agents a session may be told of, as one line.
    pub async fn available(
        &self,
        workspace: &str,
        policy: &SpawnPolicy,
        deadline: Option<Instant>,
    ) -> String {
        match self.offered(workspace, policy, deadline).await {
            Ok((catalog, omitted)) => {
                let names = catalog.entries.iter().map(|entry| entry.name.as_str());
                list(names, catalog.entries.len() + omitted as usize)
            }
            // The refusal stands without the list.
            Err(_) => list([], 0),
        }
    }

    /// Row 8: the definition in force.
    ///
    /// # Errors
    ///
    /// The registry's refusal, told to a session in terms of what that session may spawn.
    pub async fn look_up(
        &self,
        workspace: &str,
        agent: &str,
        spawner: &Spawner,
        deadline: Option<Instant>,
    ) -> Result<Definition, Error> {
        let error = match self.registry.by_name(workspace, agent, deadline).await {
            Ok(definition) => return Ok(definition),
            Err(error) => error,
        };
        let agent = agent.to_owned();
        Err(match error {
            LookupError::Unknown { message, suggestion, available_count } => match spawner.agent {
                None => Error::UnknownAgent { agent, message, suggestion, available_count },
                Some(_) => {
                    let available = self.available(workspace, &spawner.policy, deadline).await;
                    let message = format!("Unknown agent \"{agent}\". Available: {available}");
                    let (suggestion, available_count) = (String::new(), String::new());
                    Error::UnknownAgent { agent, message, suggestion, available_count }
                }
            },
            LookupError::Broken { message } => Error::AgentBroken { agent, message },
            LookupError::WorkspaceNotFound => Error::WorkspaceNotFound(workspace.to_owned()),
            LookupError::Unavailable(source) => Error::RegistryUnavailable { agent, source },
        })
    }

    /// Rows 8 and 9: the definition in force, unless the operator has switched the agent off.
    async fn look_up_enabled(
        &self,
        admission: &Rules<'_>,
        workspace: &str,
        agent: &str,
        spawner: &Spawner,
        deadline: Option<Instant>,
    ) -> Result<Definition, Error> {
        let definition = self.look_up(workspace, agent, spawner, deadline).await?;
        if admission.is_disabled(agent) {
            let available = self.available(workspace, &spawner.policy, deadline).await;
            return Err(Error::AgentDisabled { agent: agent.to_owned(), available });
        }
        Ok(definition)
    }

    /// Row 2: the worker that the same request id made.
    async fn repeated(
        &self,
        caller: &Caller,
        workspace: &str,
        request: Option<&Request>,
    ) -> Result<Option<Worker>, Error> {
        match request {
            Some(request) => {
                let found = self.log.repeated(workspace, &caller.operator, request).await;
                found.map_err(record::accept_error)
            }
            None => Ok(None),
        }
    }

    fn model_name(&self, agent: &str, wishes: Wishes<'_>) -> Result<String, Error> {
        match self.models.resolve(wishes) {
            Ok(resolved) => Ok(resolved.name),
            Err(no_model) => Err(Error::NoModel { agent: agent.to_owned(), no_model }),
        }
    }
}

/// The schema that counts, compiled once to see that it can be used.
fn effective_schema(
    definition: &Definition,
    call: Option<&str>,
    parent: Option<&str>,
) -> Result<Option<(String, SchemaSource)>, Error> {
    let effective = schema::effective(definition.output_schema.as_deref(), call, parent);
    let Some((source_of, text)) = effective else { return Ok(None) };
    match Schema::compile(text) {
        Ok(_) => Ok(Some((text.to_owned(), source_of))),
        Err(fault) => Err(Error::InvalidSchema { source_of, message: fault.to_string() }),
    }
}

/// Two people have to be told apart where two must agree.
fn check_identity(caller: &Caller, permit: &Permit) -> Result<(), Error> {
    match permit.permission_mode {
        PermissionMode::DualSign if caller.is_anonymous => Err(Error::NoIdentity),
        PermissionMode::DualSign | PermissionMode::ReadOnly | PermissionMode::MutatingWithReview => Ok(()),
    }
}

#[cfg(test)]
mod tests;
