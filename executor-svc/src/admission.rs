//! Who may spawn whom, how deep and with what: the rows of admission that need no store and no network, in their order.

mod budget;

use std::time::Duration;

use crate::{
    definition::{Definition, PermissionMode, SpawnPolicy, ThinkingLevel},
    error::{Error, list},
    limits::{Bound, Limits, Origin, Overrides},
    worker::Worker,
};

pub use self::budget::{Budget, Grant};

/// The agent that decides proposals. Only the review gate spawns it.
pub const REVIEWER: &str = "reviewer";

/// What is recorded of the session that spawns. Nothing here comes from the request.
#[derive(Clone, Debug)]
pub struct Spawner {
    /// 0 for a root.
    pub depth: u32,
    /// The agent it runs; absent for a caller's own root.
    pub agent: Option<String>,
    /// Its definition's own `spawns`; absent for a caller's own root.
    pub own_spawns: Option<SpawnPolicy>,
    /// Whom it may spawn, after the root's policy and depth.
    pub policy: SpawnPolicy,
    /// What the root allows; the policy of every session below is within it.
    pub root_policy: SpawnPolicy,
    /// Absent for a root: nothing narrows yet.
    pub permission_mode: Option<PermissionMode>,
    pub plan_mode: bool,
    pub model: Option<String>,
    pub thinking: Option<ThinkingLevel>,
    pub output_schema: Option<String>,
    pub budget: Budget,
    /// What is left of the wall time of its tree; absent where the tree begins with the new worker, or has no limit.
    pub tree_time: Option<Duration>,
}

/// What the operator of the workspace says.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    pub limits: &'a Limits,
    /// Which of them the workspace sets for itself.
    pub overrides: &'a Overrides,
    /// The workspace's coordinator, which nobody dispatches.
    pub coordinator: &'a str,
    /// From `ROSTER_BLOCKED_AGENT` and `PI_BLOCKED_AGENT`.
    pub blocked: &'a [String],
}

/// How a worker is let in: what its record says of its rights.
#[derive(Clone, Debug, PartialEq)]
pub struct Permit {
    pub depth: u32,
    /// Whom it may spawn, after depth and the root's policy.
    pub spawns: SpawnPolicy,
    pub permission_mode: PermissionMode,
    pub plan_mode: bool,
    pub thinking: Option<ThinkingLevel>,
}

impl Spawner {
    /// A caller's own root session.
    pub fn root(policy: SpawnPolicy) -> Self {
        Self {
            depth: 0,
            agent: None,
            own_spawns: None,
            root_policy: policy.clone(),
            policy,
            permission_mode: None,
            plan_mode: false,
            model: None,
            thinking: None,
            output_schema: None,
            budget: Budget::default(),
            tree_time: None,
        }
    }
}

impl Permit {
    /// The rights that a recorded worker has.
    pub fn of(worker: &Worker) -> Self {
        Self {
            depth: worker.depth,
            spawns: worker.spawns.clone(),
            permission_mode: worker.permission_mode,
            plan_mode: worker.plan_mode,
            thinking: None,
        }
    }
}

impl Rules<'_> {
    /// Rows 4 to 7: depth, self-recursion, spawn policy, reserved names. The registry has not been asked yet.
    ///
    /// # Errors
    ///
    /// The refusal of the first row that does not hold.
    pub fn before_lookup(&self, spawner: &Spawner, agent: &str) -> Result<(), Error> {
        let maximum = self.limits.max_recursion_depth;
        if let Bound::Of(maximum) = maximum
            && u64::from(spawner.depth) >= maximum
        {
            return Err(Error::DepthExceeded { depth: spawner.depth, maximum });
        }
        if self.is_self_recursion(spawner, agent) {
            return Err(Error::SelfRecursion(agent.to_owned()));
        }
        if !spawner.policy.allows(agent) {
            return Err(Error::SpawnDenied { agent: agent.to_owned(), allowed: shown(&spawner.policy) });
        }
        if self.is_reserved(agent) {
            return Err(Error::ReservedAgent(agent.to_owned()));
        }
        Ok(())
    }

    /// Who may talk with whom: the reviewer with nobody, another agent than the workspace's coordinator with whom the root's
    /// policy allows it.
    ///
    /// # Errors
    ///
    /// The refusal of the first row that does not hold.
    pub fn before_conversation(&self, root_policy: &SpawnPolicy, agent: &str) -> Result<(), Error> {
        if agent != self.coordinator && !root_policy.allows(agent) {
            return Err(Error::SpawnDenied { agent: agent.to_owned(), allowed: shown(root_policy) });
        }
        if agent == REVIEWER {
            return Err(Error::ReservedAgent(agent.to_owned()));
        }
        Ok(())
    }

    /// The rights of a coordinator: it is the root of its tree.
    pub fn coordinator_permit(
        &self,
        root_policy: &SpawnPolicy,
        definition: &Definition,
        plan_mode: bool,
    ) -> Permit {
        self.permit_at(0, &Spawner::root(root_policy.clone()), definition, plan_mode)
    }

    /// What the worker's record says of its rights.
    pub fn permit(&self, spawner: &Spawner, definition: &Definition, plan_mode_asked: bool) -> Permit {
        self.permit_at(spawner.depth + 1, spawner, definition, plan_mode_asked)
    }

    fn permit_at(
        &self,
        depth: u32,
        spawner: &Spawner,
        definition: &Definition,
        plan_mode_asked: bool,
    ) -> Permit {
        let plan_mode = spawner.plan_mode || plan_mode_asked;
        let spawns = match self.limits.max_recursion_depth.has_room(u64::from(depth)) && !plan_mode {
            true => spawner.root_policy.intersect(&definition.spawns),
            false => SpawnPolicy::None,
        };
        let own_mode = definition.permission_mode.unwrap_or(self.limits.permission_mode);
        let above = spawner.permission_mode.unwrap_or(PermissionMode::MutatingWithReview);

        Permit {
            depth,
            spawns,
            permission_mode: own_mode.min(above).min(self.limits.permission_mode),
            plan_mode,
            thinking: definition.thinking_level.or(spawner.thinking),
        }
    }

    /// The rights of a worker that continues an earlier one: the earlier one's, within what holds today.
    pub fn permit_again(&self, spawner: &Spawner, definition: &Definition, earlier: &Worker) -> Permit {
        let permit = self.permit(spawner, definition, earlier.plan_mode);
        Permit {
            spawns: permit.spawns.intersect(&earlier.spawns),
            permission_mode: permit.permission_mode.min(earlier.permission_mode),
            ..permit
        }
    }

    /// A refusal of the store's, with where the limit comes from: the store does not know.
    pub fn located(&self, refusal: Error) -> Error {
        match refusal {
            Error::BudgetExhausted { limit, origin } if origin == Origin::Config.as_str() => {
                let origin = self.origin(&limit).as_str().to_owned();
                Error::BudgetExhausted { limit, origin }
            }
            other => other,
        }
    }

    /// Where a limit in force comes from. `key` stands without `limits.`.
    pub fn origin(&self, key: &str) -> Origin {
        let rows = self.limits.rows(self.overrides);
        let found = rows.iter().find(|row| row.key.strip_prefix("limits.") == Some(key));
        found.map_or(Origin::Config, |row| row.origin)
    }

    /// True for agents that no session may spawn.
    pub fn is_reserved(&self, agent: &str) -> bool {
        agent == REVIEWER || agent == self.coordinator
    }

    pub fn is_disabled(&self, agent: &str) -> bool {
        self.limits.disabled_agents.iter().any(|disabled| disabled == agent)
    }

    /// True for agents that a session's catalog shows.
    pub fn is_offered(&self, policy: &SpawnPolicy, agent: &str) -> bool {
        policy.allows(agent) && !self.is_reserved(agent) && !self.is_disabled(agent)
    }

    fn is_self_recursion(&self, spawner: &Spawner, agent: &str) -> bool {
        let is_itself = spawner.agent.as_deref() == Some(agent)
            && !spawner.own_spawns.as_ref().is_some_and(|own| own.names(agent));
        is_itself || self.limits.blocked_agents.iter().chain(self.blocked).any(|blocked| blocked == agent)
    }
}

/// The names of a policy in a message.
pub fn shown(policy: &SpawnPolicy) -> String {
    match policy {
        SpawnPolicy::None => list([], 0),
        SpawnPolicy::All => "*".to_owned(),
        SpawnPolicy::Listed(names) => list(names.iter().map(String::as_str), names.len()),
    }
}

#[cfg(test)]
mod tests;
