//! A further message to a completed worker: a new worker that sees the whole earlier transcript. Parent, depth, modes and
//! definition are the earlier one's; the rest of admission is as for a spawn, without dedupe.

use std::sync::Arc;

use super::{Below, Caller, Dispatched, acceptance::spawns_max, check_identity};
use crate::{
    admission::{Budget, Grant, Permit, Spawner},
    error::Error,
    event::Body,
    kernel::Kernel,
    model::provider::Wishes,
    open::OpenWorker,
    session::{Acceptance, Parent, Record, Request, Spec},
    transcript::Message,
    worker::{SessionId, Status, Worker},
};

/// Messages read at once.
const PAGE: usize = 500;

/// A further message whose arguments are well formed.
#[derive(Clone, Debug)]
pub struct Further {
    pub worker: SessionId,
    pub message: String,
    pub background: bool,
    pub budget: Budget,
    pub request: Option<Request>,
}

impl Kernel {
    /// Lets a further run in, or says why not.
    ///
    /// # Errors
    ///
    /// The first row of admission that does not hold.
    pub async fn send_further(
        self: &Arc<Self>,
        caller: &Caller,
        further: Further,
        parent: Option<Arc<OpenWorker>>,
    ) -> Result<Dispatched, Error> {
        if self.shutdown.is_draining() && parent.is_none() {
            return Err(Error::Draining);
        }
        let not_found = || Error::SessionNotFound(further.worker.to_string());
        let earlier = self.log.worker(&further.worker).await?.ok_or_else(not_found)?;
        if !caller.sees_workspace(&earlier.workspace) || !caller.owns(&earlier.operator) {
            return Err(not_found());
        }
        if let Some(worker) = self.repeated(caller, &earlier.workspace, further.request.as_ref()).await? {
            return self.join(worker, further.background, false, parent).await;
        }
        let rules = self.workspace(caller, &earlier.workspace)?;
        let root = self.log.root(&earlier.root).await?.ok_or_else(not_found)?;
        if root.close_time.is_some() {
            return Err(Error::SessionClosed(earlier.root));
        }
        if earlier.status != Status::Completed {
            return Err(Error::WorkerNotCompleted(further.worker));
        }
        let below = self.below_parent_of(caller, &earlier).await?;
        let spec = self.spec(&earlier.id).await?.ok_or_else(not_found)?;
        let root_spawns = below.spawner.root_policy.intersect(&spec.root_spawns);
        let spec = Spec { root_spawns, ..spec };
        let admission = self.rules(rules);
        admission.before_lookup(&below.spawner, &earlier.agent)?;
        if admission.is_disabled(&earlier.agent) {
            let available = self.available(&earlier.workspace, &below.spawner.policy, None).await;
            return Err(Error::AgentDisabled { agent: earlier.agent, available });
        }
        let permit = Permit {
            thinking: spec.thinking,
            ..admission.permit_again(&below.spawner, &spec.definition, &earlier)
        };
        let wishes = Wishes { request: &earlier.model, patterns: &[], parent: "" };
        let model = self.model_name(&earlier.agent, wishes)?;
        check_identity(caller, &permit)?;
        let grant = Grant::new(&further.budget, &below.spawner, &spec.definition, &admission)?;

        let background = further.background && !spec.definition.blocking;
        let worker = Worker {
            description: earlier.description.clone(),
            schema_source: earlier.schema_source,
            background,
            labels: earlier.labels.clone(),
            continues: Some(earlier.id.clone()),
            ..self.pending(caller, &spec.definition, &below, &permit, model)
        };
        let acceptance = Acceptance {
            worker,
            records: self.continued(&earlier.id, spec, grant, further.message).await?,
            parent: below.parent,
            open_max: self.config.limits.max_open.count(),
            spawns_per_tree_max: spawns_max(rules),
            tokens_per_tree_max: rules.limits.tree_tokens.get(),
            tree_window: self.window(&below.root_id, &rules.limits),
            request: further.request,
            dedupe: None,
            is_review: false,
        };
        self.accept(acceptance, background, parent).await.map_err(|refusal| admission.located(refusal))
    }

    /// The first records of a further run: what the earlier one ran with, all that was said, and the message.
    async fn continued(
        &self,
        earlier: &SessionId,
        spec: Spec,
        grant: Grant,
        message: String,
    ) -> Result<Vec<Record>, Error> {
        let spec = Spec {
            prompt: message.clone(),
            max_turns: grant.turns,
            tokens_max: grant.tokens,
            wall_time: grant.wall_time,
            spawns_max: grant.spawns,
            ..spec
        };
        let mut records = vec![Record::Spec(Box::new(spec)), Record::Event { body: Body::Accepted }];
        records.extend(self.transcript(earlier).await?);
        records.push(Record::Message { message: Message::User { text: message } });
        Ok(records)
    }

    /// The place of an earlier worker: the parent may have ended, only the root counts.
    async fn below_parent_of(&self, caller: &Caller, earlier: &Worker) -> Result<Below, Error> {
        let rules = self.workspace(caller, &earlier.workspace)?;
        let root_policy = self.root_policy(caller, rules);
        // A caller's own root is no worker; a coordinator's is the row of its turn.
        let parent = self.log.worker(&earlier.parent).await?;
        let (spawner, place) = match parent {
            Some(parent) => {
                let place = Parent::Worker(parent.id.clone());
                (self.spawner_of(parent, root_policy).await?, place)
            }
            None => (Spawner::root(root_policy), Parent::Root(earlier.root.clone())),
        };
        Ok(Below {
            spawner,
            workspace: earlier.workspace.clone(),
            parent: place,
            parent_id: earlier.parent.clone(),
            root_id: earlier.root.clone(),
            dedupe_scope: None,
        })
    }

    /// Everything that was said in a session.
    async fn transcript(&self, id: &SessionId) -> Result<Vec<Record>, Error> {
        let mut records = Vec::new();
        let mut after = 0;
        loop {
            let page = self.log.messages(id, after, PAGE).await?;
            let is_last = page.len() < PAGE;
            after = page.last().map_or(after, |(sequence, ..)| *sequence);
            records.extend(page.into_iter().map(|(.., message)| Record::Message { message }));
            if is_last {
                return Ok(records);
            }
        }
    }
}
