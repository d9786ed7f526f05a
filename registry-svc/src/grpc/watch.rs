//! A watch as messages: the state, then each change, then a sign of life where nothing happens.

use std::{collections::VecDeque, pin::Pin, sync::Arc, time::Duration};

use ::proto::registry::v1::{
    self as proto,
    watch_response::{self, Body, Bookmark},
};
use futures::{Stream, stream};
use prost::Message as _;
use tokio::time::timeout;
use tonic::Status;

use super::{
    from_proto::View,
    status::Failure,
    to_proto::{self, Paths},
};
use crate::{
    document::Definition,
    snapshot::Snapshot,
    workspace::{Change, Handle, Resume, Start, Subscription},
};

/// Definitions of one part. One that is larger is a part by itself.
const PART_BYTES_MAX: usize = 1024 * 1024;

/// A watcher hears something at least every 10 s; this leaves two seconds for the way.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(8);

/// What a watcher gets. At drain the server ends it as it ends every stream.
pub(super) type Messages = Pin<Box<dyn Stream<Item = Result<proto::WatchResponse, Status>> + Send>>;

struct Watch {
    subscription: Subscription,
    ready: VecDeque<proto::WatchResponse>,
    generation: u64,
    store_id: Arc<str>,
    view: View,
    paths: Paths,
    ended: bool,
}

/// Follows a workspace.
pub(super) fn messages(handle: &Handle, resume: Option<&Resume>, view: View, paths: Paths) -> Messages {
    let mut subscription = handle.subscribe(resume);
    let start =
        std::mem::replace(&mut subscription.start, Start::Resumed { changes: Vec::new(), generation: 0 });
    let store_id = Arc::clone(handle.peek().store_id());
    let mut watch =
        Watch { subscription, ready: VecDeque::new(), generation: 0, store_id, view, paths, ended: false };
    watch.begin(start);
    Box::pin(stream::unfold(watch, |mut watch| async move {
        let message = watch.next().await?;
        Some((message, watch))
    }))
}

impl Watch {
    fn begin(&mut self, start: Start) {
        match start {
            Start::Fresh(snapshot) => self.snapshot(&snapshot),
            Start::Resumed { changes, generation } => {
                self.generation = generation;
                for change in &changes {
                    self.change(change);
                }
                if changes.is_empty() {
                    self.bookmark();
                }
            }
        }
    }

    async fn next(&mut self) -> Option<Result<proto::WatchResponse, Status>> {
        while self.ready.is_empty() && !self.ended {
            match timeout(BOOKMARK_INTERVAL, self.subscription.next()).await {
                Ok(Ok(Some(change))) => self.change(&change),
                Ok(Ok(None)) => return self.end(Failure::Draining),
                Ok(Err(_)) => return self.end(Failure::WatchLagged),
                Err(_) => self.bookmark(),
            }
        }
        self.ready.pop_front().map(Ok)
    }

    fn end(&mut self, failure: Failure) -> Option<Result<proto::WatchResponse, Status>> {
        self.ended = true;
        Some(Err(failure.into()))
    }

    fn snapshot(&mut self, snapshot: &Snapshot) {
        self.generation = snapshot.generation();
        let mut parts = parts(self.render(snapshot.in_force()));
        let last = parts.pop().unwrap_or_default();
        for agents in parts {
            self.push(Body::Snapshot(watch_response::Snapshot { agents, last: false }));
        }
        self.push(Body::Snapshot(watch_response::Snapshot { agents: last, last: true }));
    }

    fn change(&mut self, change: &Change) {
        self.generation = change.generation;
        let removed = change.removed.iter().map(|name| name.as_str().to_owned()).collect();
        let mut parts = parts(self.render(&change.upserted));
        let upserted = parts.pop().unwrap_or_default();
        for upserted in parts {
            self.push(Body::Change(watch_response::Change { upserted, removed: Vec::new(), last: false }));
        }
        self.push(Body::Change(watch_response::Change { upserted, removed, last: true }));
    }

    fn bookmark(&mut self) {
        self.push(Body::Bookmark(Bookmark {}));
    }

    fn push(&mut self, body: Body) {
        self.ready.push_back(proto::WatchResponse {
            generation: self.generation,
            store_id: self.store_id.to_string(),
            body: Some(body),
        });
    }

    fn render(&self, definitions: &[Arc<Definition>]) -> Vec<::proto::agent::v1::AgentDefinition> {
        definitions
            .iter()
            .map(|definition| to_proto::definition(definition, self.view, &self.paths))
            .collect()
    }
}

/// Cuts a list into parts of at most [`PART_BYTES_MAX`].
fn parts(agents: Vec<::proto::agent::v1::AgentDefinition>) -> Vec<Vec<::proto::agent::v1::AgentDefinition>> {
    let mut parts: Vec<Vec<_>> = Vec::new();
    let mut bytes = 0;
    for agent in agents {
        let length = agent.encoded_len();
        bytes += length;
        match parts.last_mut() {
            Some(part) if bytes <= PART_BYTES_MAX => part.push(agent),
            _ => {
                bytes = length;
                parts.push(vec![agent]);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stay_below_their_limit_and_keep_the_order() {
        let agent = |name: &str, length: usize| ::proto::agent::v1::AgentDefinition {
            name: name.to_owned(),
            system_prompt: "p".repeat(length),
            ..Default::default()
        };
        let agents =
            vec![agent("a", 600_000), agent("b", 400_000), agent("c", 300_000), agent("d", 1_200_000)];

        let names: Vec<Vec<String>> = parts(agents)
            .into_iter()
            .map(|part| part.into_iter().map(|agent| agent.name).collect())
            .collect();

        assert_eq!(names, [vec!["a", "b"], vec!["c"], vec!["d"]]);
        assert!(parts(Vec::new()).is_empty());
    }
}
