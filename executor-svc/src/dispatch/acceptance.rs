//! What is recorded of a worker that is let in.

use std::collections::BTreeMap;

use super::{Below, Call, Caller};
use crate::{
    admission::{Grant, Permit},
    config, dedupe,
    definition::Definition,
    error::Error,
    event::Body,
    kernel::{Kernel, WorkspaceRules},
    prompt::{self, Parts, Skill},
    session::{Acceptance, Dedupe, Record, Spec},
    transcript::Message,
    worker::{SchemaSource, SessionId, Status, Usage, Worker},
};

/// What rows 8 to 10 found out.
pub(super) struct Admitted {
    pub(super) definition: Definition,
    pub(super) permit: Permit,
    pub(super) model: String,
    pub(super) schema: Option<(String, SchemaSource)>,
    /// An exhausted budget refuses only what no earlier worker answers.
    pub(super) grant: Result<Grant, Error>,
}

impl Kernel {
    /// The transaction's content, and the refusal that stands in place of the store's where a budget is used up.
    pub(super) async fn acceptance(
        &self,
        caller: &Caller,
        call: Call,
        below: Below,
        admitted: Admitted,
    ) -> Result<(Acceptance, Option<Error>), Error> {
        let rules = self.workspace(caller, &call.workspace)?;
        let Admitted { definition, permit, model, schema, grant } = admitted;
        let schema_text = schema.as_ref().map(|(text, _)| text.as_str());
        let (system, skills) = self.system(&call, &definition, &permit, schema_text).await?;
        let (output_schema, schema_source) = schema.unzip();
        let facts = Facts {
            call: &call,
            definition: &definition,
            permit: &permit,
            model: &model,
            output_schema: output_schema.as_deref(),
            skills: &skills,
        };
        let dedupe = below.dedupe_scope.as_deref().map(|scope| facts.dedupe(scope, &self.config.dedupe));
        let worker = Worker {
            description: call.description,
            schema_source,
            background: call.background && !definition.blocking,
            labels: call.labels,
            ..self.pending(caller, &definition, &below, &permit, model)
        };
        let (grant, exhausted) = match grant {
            Ok(grant) => (grant, None),
            Err(refusal) => (Grant::NONE, Some(refusal)),
        };
        let spec = Spec {
            definition,
            system,
            prompt: call.prompt.clone(),
            earlier: None,
            request_id: String::new(),
            output_schema,
            schema_is_permissive: call.schema_is_permissive,
            locale: call.locale,
            thinking: permit.thinking,
            max_turns: grant.turns,
            tokens_max: grant.tokens,
            wall_time: grant.wall_time,
            spawns_max: grant.spawns,
            root_spawns: below.spawner.root_policy,
        };
        let prompt = Record::Message { message: Message::User { text: call.prompt } };
        let acceptance = Acceptance {
            worker,
            records: vec![Record::Spec(Box::new(spec)), Record::Event { body: Body::Accepted }, prompt],
            parent: below.parent,
            open_max: self.config.limits.max_open.count(),
            spawns_per_tree_max: match &exhausted {
                Some(_) => Some(0),
                None => spawns_max(rules),
            },
            tokens_per_tree_max: rules.limits.tree_tokens.get(),
            tree_window: self.window(&below.root_id, &rules.limits),
            request: call.request,
            dedupe,
            is_review: false,
        };
        Ok((acceptance, exhausted))
    }

    /// The system prompt, and the skills that are active in it.
    async fn system(
        &self,
        call: &Call,
        definition: &Definition,
        permit: &Permit,
        schema: Option<&str>,
    ) -> Result<(String, Vec<Skill>), Error> {
        let Call { workspace, agent, prompt, locale, deadline, .. } = call;
        let skills = self.registry.skills(workspace, &definition.skills, prompt, *deadline).await;
        let skills = skills
            .map_err(|error| Error::RegistryUnavailable { agent: agent.clone(), source: Box::new(error) })?;
        let system = prompt::compose(&Parts {
            prompts: &self.config.prompts,
            definition,
            plan_mode: permit.plan_mode,
            catalog: &[],
            skills: &skills,
            schema,
            locale,
        });
        Ok((system, skills))
    }

    /// A worker that has not begun.
    pub(super) fn pending(
        &self,
        caller: &Caller,
        definition: &Definition,
        below: &Below,
        permit: &Permit,
        model: String,
    ) -> Worker {
        Worker {
            id: SessionId::new_worker(),
            parent: below.parent_id.clone(),
            root: below.root_id.clone(),
            workspace: below.workspace.clone(),
            agent: definition.name.clone(),
            agent_digest: definition.digest.clone(),
            depth: permit.depth,
            description: String::new(),
            status: Status::Pending,
            stop_reason: None,
            result: String::new(),
            partial: false,
            structured_output: None,
            schema_valid: None,
            schema_source: None,
            error: String::new(),
            usage: Usage::default(),
            background: false,
            spawns: permit.spawns.clone(),
            model,
            replica: String::new(),
            operator: caller.operator.clone(),
            create_time: self.clock.now(),
            start_time: None,
            close_time: None,
            labels: BTreeMap::new(),
            continues: None,
            plan_mode: permit.plan_mode,
            permission_mode: permit.permission_mode,
            takeovers: 0,
        }
    }
}

/// Workers below one root; absent where there is no limit.
pub(super) fn spawns_max(rules: &WorkspaceRules) -> Option<u32> {
    let limit = rules.limits.max_spawns_per_tree;
    limit.get().map(|_| limit.count())
}

/// What makes a call what it is.
struct Facts<'a> {
    call: &'a Call,
    definition: &'a Definition,
    permit: &'a Permit,
    model: &'a str,
    output_schema: Option<&'a str>,
    skills: &'a [Skill],
}

impl Facts<'_> {
    /// The window in which an identical call is answered by this one.
    fn dedupe(&self, scope: &str, config: &config::Dedupe) -> Dedupe {
        let Self { call, definition, permit, model, output_schema, skills } = *self;
        let skills: Vec<String> = skills.iter().map(|skill| skill.name.clone()).collect();
        let key = dedupe::key(&dedupe::Call {
            workspace: &call.workspace,
            root: scope,
            agent: &definition.name,
            prompt: &call.prompt,
            definition_digest: &definition.digest,
            output_schema,
            schema_is_permissive: call.schema_is_permissive,
            model,
            plan_mode: permit.plan_mode,
            permission_mode: permit.permission_mode,
            locale: &call.locale,
            skills: &skills,
        });
        Dedupe { key, ttl: config.ttl.0, capacity: config.capacity, bypass: call.bypass_dedupe }
    }
}
