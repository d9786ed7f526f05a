//! What a coordinator alone does with workers below its own root: sends a further message, and stops.

use std::time::Duration;

use futures::{FutureExt as _, future::BoxFuture};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Answer, Ended, Happened, Step,
    child::{self, Child},
};
use crate::{
    admission::Budget,
    dispatch::{Caller, Dispatched, Further},
    error::Error,
    react::Call,
    run::Run,
    session::StopWish,
    tool::Outcome,
    worker::{SessionId, Worker},
};

/// How long a stop waits for the ends it asks for: a worker that hears of it has one row to write.
const STOP_WAIT: Duration = Duration::from_secs(5);

/// Arguments of `SendMessage`.
#[derive(Deserialize)]
struct Message {
    to: String,
    message: String,
}

/// Arguments of `TaskStop`.
#[derive(Deserialize)]
struct Stop {
    task_id: String,
}

impl Run<'_> {
    /// A further run of a completed worker, which is waited for like a child.
    pub(super) async fn send(&self, parent: &Worker, turn: u32, call: Call, arguments: Value) -> Child {
        let dispatched = self.try_send(parent, turn, &call, arguments).await;
        Child { call, dispatched }
    }

    async fn try_send(
        &self,
        parent: &Worker,
        turn: u32,
        call: &Call,
        arguments: Value,
    ) -> Result<Dispatched, Error> {
        let Message { to, message } = read(arguments)?;
        if message.trim().is_empty() {
            return Err(Error::Arguments("`message` is empty".to_owned()));
        }
        let further = Further {
            worker: self.below(parent, &to).await?,
            message,
            background: false,
            budget: Budget::default(),
            request: Some(child::request(parent, turn, call)),
        };
        let open = std::sync::Arc::clone(self.open);
        self.kernel.send_further(&Caller::on_behalf_of(parent), further, Some(open)).await
    }

    /// Stops a worker and everything below it.
    pub(super) fn stop<'s>(&'s self, parent: &Worker, call: Call, arguments: Value) -> BoxFuture<'s, Step> {
        let parent = parent.clone();
        async move {
            let began = Instant::now();
            let stopping = self.try_stop(&parent, arguments);
            let answer = match self.unless_interrupted(stopping).await {
                Ok(Ok(receipt)) => Answer::ok(receipt),
                Ok(Err(refusal)) => Answer { outcome: Outcome::Denied, text: self.kernel.told(&refusal) },
                Err(interrupted) => return Ok(Err(interrupted)),
            };
            let took = began.elapsed();
            Ok(Ok(Happened::Ended(Ended { call, answer, took, waited_only: true })))
        }
        .boxed()
    }

    async fn try_stop(&self, parent: &Worker, arguments: Value) -> Result<String, Error> {
        let Stop { task_id } = read(arguments)?;
        let id = self.below(parent, &task_id).await?;
        let wish = StopWish { by: parent.agent.clone(), reason: "its coordinator stopped it".to_owned() };
        let receipt = self.kernel.stop(&id, wish, Some(STOP_WAIT)).await?;
        let entries: Vec<Value> = receipt
            .entries
            .iter()
            .map(|entry| json!({ "task_id": entry.worker, "before": entry.before, "after": entry.after }))
            .collect();
        Ok(json!({ "stopped": entries, "omitted": receipt.omitted }).to_string())
    }

    /// A worker below the coordinator's own root; another one is not there.
    async fn below(&self, parent: &Worker, text: &str) -> Result<SessionId, Error> {
        let not_found = || Error::SessionNotFound(text.to_owned());
        let id = SessionId::parse(text).filter(SessionId::is_worker).ok_or_else(not_found)?;
        let worker = self.kernel.log.worker(&id).await?.ok_or_else(not_found)?;
        match worker.root == parent.root {
            true => Ok(id),
            false => Err(not_found()),
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(arguments: Value) -> Result<T, Error> {
    serde_json::from_value(arguments).map_err(|error| Error::Arguments(error.to_string()))
}
