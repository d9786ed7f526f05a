//! What would apply: the spawn tool of a session, an agent's tools, the limits.

use ::proto::executor::v1 as proto;

use super::{from_proto, to_proto, to_proto::View};
use crate::{
    admission::Spawner,
    definition::SpawnPolicy,
    dispatch::{Caller, Place},
    error::Error,
    kernel::Kernel,
    limits::{Bound, Origin, Row},
    model::ToolSpec,
    tool::{
        builtin::{self, submit_result},
        name, spawn_spec,
    },
    toolbag,
    worker::SessionId,
};

impl Kernel {
    pub(super) async fn describe_spawn_tool(
        &self,
        caller: &Caller,
        workspace: &str,
        session_id: &str,
    ) -> Result<proto::DescribeSpawnToolResponse, Error> {
        let rules = self.workspace(caller, workspace)?;
        let admission = self.rules(rules);
        let maximum = rules.limits.max_recursion_depth;
        let (spawner, closed) = match self.spawner(caller, workspace, place(session_id)).await {
            Ok(spawner) => (spawner, None),
            Err(Error::SessionClosed(_)) => {
                let closed = "the session does not run, is stopping or is closed".to_owned();
                (Spawner::root(SpawnPolicy::None), Some(closed))
            }
            Err(error) => return Err(error),
        };
        let reason = closed.or_else(|| {
            match (maximum.has_room(u64::from(spawner.depth)), spawner.policy.permits_any()) {
                (false, _) => {
                    Some(format!("the session is at depth {} and the maximum is {maximum}", spawner.depth))
                }
                (true, false) => Some("the session may spawn no agent".to_owned()),
                (true, true) if spawner.plan_mode => Some("plan mode permits no spawn".to_owned()),
                (true, true) => None,
            }
        });
        let (catalog, omitted) = self.offered(workspace, &spawner.policy, None).await?;
        let ToolSpec { name, description, input_schema } = spawn_spec::spec(&catalog.entries, omitted);
        let redirects = &self.config.tools.redirects;
        let redirects = redirects.iter().filter(|(_, agent)| admission.is_offered(&spawner.policy, agent));
        Ok(proto::DescribeSpawnToolResponse {
            name,
            available: reason.is_none(),
            description: match &reason {
                Some(reason) => spawn_spec::unavailable(reason),
                None => description,
            },
            input_schema: input_schema.to_string(),
            generation: catalog.generation,
            redirects: match reason {
                Some(_) => Default::default(),
                None => redirects.map(|(tool, agent)| (tool.clone(), agent.clone())).collect(),
            },
        })
    }

    pub(super) async fn list_tools(
        &self,
        caller: &Caller,
        request: proto::ListToolsRequest,
    ) -> Result<proto::ListToolsResponse, Error> {
        let proto::ListToolsRequest { workspace, agent, parent_id, plan_mode } = request;
        let workspace = from_proto::workspace(&workspace);
        if agent.trim().is_empty() {
            return Err(Error::required("agent"));
        }
        let spawner = self.spawner(caller, &workspace, place(&parent_id)).await?;
        let rules = self.workspace(caller, &workspace)?;
        let definition = self.look_up(&workspace, &agent, &spawner, None).await?;
        let admission = self.rules(rules);
        let permit = match parent_id.is_empty() && agent == rules.coordinator {
            // It is below nothing: `Converse` opens it.
            true => admission.coordinator_permit(&spawner.root_policy, &definition, plan_mode),
            false => admission.permit(&spawner, &definition, plan_mode),
        };
        let inventory = self.inventory().await;
        let bag = toolbag::pack(&inventory.known, &self.bag_rules(&workspace, &definition, &permit));
        let mut tools = Vec::new();
        for (known, verdict) in inventory.known.iter().zip(bag.verdicts) {
            let spec = match (known.name.as_str(), inventory.tools.get(&known.name)) {
                (name::SUBMIT_RESULT, _) => submit_result::spec(None),
                (name::SPAWN, _) => self.spawn_tool(&workspace, &permit.spawns).await,
                (_, Some(tool)) => tool.spec().clone(),
                (name::BASH, None) => builtin::bash_spec(),
                (name::SEND_MESSAGE, None) => spawn_spec::send_message(),
                (name::STOP, None) => spawn_spec::stop(),
                (other, None) => nameless(other),
            };
            tools.push(proto::list_tools_response::Tool {
                name: spec.name,
                description: spec.description.lines().next().unwrap_or_default().to_owned(),
                tool_class: to_proto::class(known.class).into(),
                mcp_server: known.server.clone(),
                input_schema: spec.input_schema.to_string(),
                granted: verdict.granted,
                rule: verdict.rule,
            });
        }
        Ok(proto::ListToolsResponse { tools })
    }

    pub(super) async fn limit_rows(
        &self,
        caller: &Caller,
        workspace: &str,
        session_id: &str,
    ) -> Result<Vec<proto::get_limits_response::Limit>, Error> {
        let rules = self.workspace(caller, workspace)?;
        let mut rows = self.config.limits.rows(&rules.overrides);
        if !session_id.is_empty() {
            let id = from_proto::session_id("session_id", session_id)?;
            if id.is_worker() {
                self.narrow_to_worker(caller, &id, &mut rows).await?;
            } else {
                self.seen_root(caller, &id).await?;
            }
        }
        let limit = |Row { key, value, origin }| proto::get_limits_response::Limit {
            key: key.to_owned(),
            value,
            origin: origin.as_str().to_owned(),
        };
        Ok(rows.into_iter().map(limit).collect())
    }

    /// Puts what a worker was accepted with in the place of what is configured.
    async fn narrow_to_worker(&self, caller: &Caller, id: &SessionId, rows: &mut [Row]) -> Result<(), Error> {
        let (worker, view) = self.seen_worker(caller, id).await?;
        let spec = match view {
            View::Full => self.spec(id).await?,
            View::Basic => None,
        };
        let mut set = |key: &str, value: String, origin: Origin| {
            if let Some(row) = rows.iter_mut().find(|row| row.key == key && row.value != value) {
                row.value = value;
                row.origin = origin;
            }
        };
        set("limits.permission_mode", worker.permission_mode.as_str().to_owned(), Origin::Session);
        let Some(spec) = spec else { return Ok(()) };
        let turns = if spec.max_turns == u32::MAX { Bound::Unlimited } else { Bound::Of(spec.max_turns) };
        let origin = match spec.definition.max_turns {
            Some(own) if own == spec.max_turns => Origin::Agent,
            Some(_) | None => Origin::Request,
        };
        set("limits.max_turns", turns.to_string(), origin);
        let wall_time = service_kit::config::Span(spec.wall_time).to_string();
        set("limits.worker_wall_time", wall_time, Origin::Session);
        if let Some(tokens) = spec.tokens_max {
            set("limits.tree_tokens", tokens.to_string(), Origin::Session);
        }
        if let Some(spawns) = spec.spawns_max {
            set("limits.max_spawns_per_tree", spawns.to_string(), Origin::Session);
        }
        Ok(())
    }
}

fn place(session_id: &str) -> Place {
    if session_id.is_empty() { Place::UnnamedRoot } else { Place::Below(session_id.to_owned()) }
}

/// A tool that is known by its name only.
fn nameless(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: String::new(),
        input_schema: serde_json::json!({ "type": "object" }),
    }
}

impl Kernel {
    /// What a session may do, for calls that only ask.
    async fn spawner(&self, caller: &Caller, workspace: &str, place: Place) -> Result<Spawner, Error> {
        let rules = self.workspace(caller, workspace)?;
        Ok(self.below(caller, workspace, &place, rules).await?.spawner)
    }
}
