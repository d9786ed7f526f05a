//! The gate's own spawn: of admission only what the reviewer itself needs, and whatever depth, policy, budget and slots of
//! the session say.

use std::{collections::BTreeMap, sync::Arc};

use super::{Admitted, Below, Call, Caller, Dispatched, Place};
use crate::{
    admission::{Budget, Grant, Permit, REVIEWER, Spawner},
    definition::{Definition, PermissionMode, SpawnPolicy, ToolSelection},
    error::Error,
    kernel::Kernel,
    model::provider::Wishes,
    open::OpenWorker,
    review,
    schema::Schema,
    session::{Acceptance, Parent},
    tool::name,
    worker::{SchemaSource, Worker},
};

impl Kernel {
    /// Records a reviewer below a worker. The caller runs it.
    ///
    /// # Errors
    ///
    /// Why nobody can review, as the worker is told.
    pub async fn dispatch_reviewer(
        self: &Arc<Self>,
        worker: &Worker,
        brief: String,
        parent: Arc<OpenWorker>,
    ) -> Result<Dispatched, String> {
        let acceptance = self.reviewer(worker, brief).await?;
        let dispatched = self.accept(acceptance, false, Some(parent)).await;
        dispatched.map_err(|error| format!("no reviewer can be started: {}", self.told(&error)))
    }

    async fn reviewer(&self, worker: &Worker, brief: String) -> Result<Acceptance, String> {
        let because = |error: &Error| format!("there is no reviewer: {}", self.told(error));
        let asking = Spawner::root(SpawnPolicy::None);
        let definition = self.look_up(&worker.workspace, REVIEWER, &asking, None).await;
        let definition = narrowed(definition.map_err(|error| because(&error))?);
        let wishes = Wishes { request: "", patterns: &definition.models, parent: &worker.model };
        let resolved = self.models.resolve(wishes).map_err(|failure| {
            let failure = Error::NoModel { agent: REVIEWER.to_owned(), no_model: failure };
            because(&failure)
        })?;
        if resolved.is_rehearsal && !self.is_rehearsal(&worker.model) {
            return Err("a rehearsal decides nothing for a worker of a real model".to_owned());
        }
        let schema = definition.output_schema.clone().unwrap_or_default();
        Schema::compile(&schema)
            .map_err(|fault| format!("the output schema of the reviewer is not usable: {fault}"))?;
        let limits = self.limits_of(&worker.workspace);
        let permit = Permit {
            depth: worker.depth + 1,
            spawns: SpawnPolicy::None,
            permission_mode: PermissionMode::ReadOnly,
            plan_mode: false,
            thinking: definition.thinking_level,
        };
        let grant = Grant {
            turns: definition.max_turns.unwrap_or_else(|| limits.max_turns.count()),
            tokens: None,
            wall_time: self.config.review.timeout.0,
            spawns: None,
        };
        let below = Below {
            spawner: asking,
            workspace: worker.workspace.clone(),
            parent: Parent::Worker(worker.id.clone()),
            parent_id: worker.id.clone(),
            root_id: worker.root.clone(),
            dedupe_scope: None,
        };
        let admitted = Admitted {
            definition,
            permit,
            model: resolved.name,
            schema: Some((schema, SchemaSource::Agent)),
            grant: Ok(grant),
        };
        let caller = Caller::on_behalf_of(worker);
        let (acceptance, _) = self
            .acceptance(&caller, call(worker, brief), below, admitted)
            .await
            .map_err(|error| because(&error))?;
        Ok(Acceptance { is_review: true, ..acceptance })
    }
}

/// Whatever a definition says, a reviewer reads, spawns nobody and submits a decision.
fn narrowed(definition: Definition) -> Definition {
    let tools = [name::READ, name::GREP, name::FIND, name::LS].map(str::to_owned);
    let schema = definition.output_schema.clone().unwrap_or_else(|| review::SCHEMA.to_owned());
    Definition {
        tools: ToolSelection::Listed(tools.to_vec()),
        mcp_servers: Vec::new(),
        spawns: SpawnPolicy::None,
        permission_mode: Some(PermissionMode::ReadOnly),
        output_schema: Some(schema),
        ..definition
    }
}

fn call(worker: &Worker, brief: String) -> Call {
    Call {
        workspace: worker.workspace.clone(),
        agent: REVIEWER.to_owned(),
        description: "review of one call".to_owned(),
        prompt: brief,
        place: Place::Below(worker.id.to_string()),
        output_schema: None,
        schema_is_permissive: false,
        background: false,
        plan_mode: false,
        bypass_dedupe: true,
        budget: Budget::default(),
        model: None,
        request: None,
        labels: BTreeMap::new(),
        locale: String::new(),
        deadline: None,
    }
}
