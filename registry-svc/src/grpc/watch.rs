//! A watch as messages: the state, then each change, then a sign of life where nothing happens.

use std::{collections::VecDeque, pin::Pin, sync::Arc, time::Duration};

use ::proto::{
    agent::v1::AgentDefinition,
    registry::v1::{
        self as proto,
        watch_response::{self, Body, Bookmark},
    },
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

/// Definitions of one part. One that is larger is a part by itself. A reader behind a slow line must take a part before
/// it counts as one that has stopped to read.
const PART_BYTES_MAX: usize = 256 * 1024;

/// A watcher hears something at least every 10 s; this leaves two seconds for the way.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(8);

/// What a watcher gets. At drain the server ends it as it ends every stream.
pub(super) type Messages = Pin<Box<dyn Stream<Item = Result<proto::WatchResponse, Status>> + Send>>;

struct Watch {
    subscription: Subscription,
    /// What was not said yet. It is rendered part by part: a reader that stops holds no copy of a workspace.
    unsaid: VecDeque<Unsaid>,
    generation: u64,
    store_id: Arc<str>,
    view: View,
    paths: Paths,
    ended: bool,
}

/// A state or a change, from one of its definitions on.
enum Unsaid {
    Snapshot { snapshot: Arc<Snapshot>, from: usize },
    Change { change: Arc<Change>, from: usize },
    Bookmark,
}

/// Follows a workspace.
pub(super) fn messages(handle: &Handle, resume: Option<&Resume>, view: View, paths: Paths) -> Messages {
    let mut subscription = handle.subscribe(resume);
    let start =
        std::mem::replace(&mut subscription.start, Start::Resumed { changes: Vec::new(), generation: 0 });
    let store_id = Arc::clone(handle.peek().store_id());
    let (generation, unsaid) = begin(start);
    let watch = Watch { subscription, unsaid, generation, store_id, view, paths, ended: false };
    Box::pin(stream::unfold(watch, |mut watch| async move {
        let message = watch.next().await?;
        Some((message, watch))
    }))
}

/// The generation that a watch begins with, and what it begins with.
fn begin(start: Start) -> (u64, VecDeque<Unsaid>) {
    match start {
        Start::Fresh(snapshot) => (snapshot.generation(), [Unsaid::Snapshot { snapshot, from: 0 }].into()),
        Start::Resumed { changes, generation } if changes.is_empty() => {
            (generation, [Unsaid::Bookmark].into())
        }
        Start::Resumed { changes, generation } => {
            (generation, changes.into_iter().map(|change| Unsaid::Change { change, from: 0 }).collect())
        }
    }
}

impl Watch {
    async fn next(&mut self) -> Option<Result<proto::WatchResponse, Status>> {
        if self.ended {
            return None;
        }
        let unsaid = match self.unsaid.pop_front() {
            Some(unsaid) => unsaid,
            None => match timeout(BOOKMARK_INTERVAL, self.subscription.next()).await {
                Ok(Ok(Some(change))) => Unsaid::Change { change, from: 0 },
                Ok(Ok(None)) => return self.end(Failure::Draining),
                Ok(Err(_)) => return self.end(Failure::WatchLagged),
                Err(_) => Unsaid::Bookmark,
            },
        };
        Some(Ok(self.say(unsaid)))
    }

    fn end(&mut self, failure: Failure) -> Option<Result<proto::WatchResponse, Status>> {
        self.ended = true;
        Some(Err(failure.into()))
    }

    /// The next message, and back with what does not fit into it.
    fn say(&mut self, unsaid: Unsaid) -> proto::WatchResponse {
        let body = match unsaid {
            Unsaid::Snapshot { snapshot, from } => {
                self.generation = snapshot.generation();
                let (agents, next) = self.part(snapshot.in_force(), from);
                let last = next.is_none();
                if let Some(from) = next {
                    self.unsaid.push_front(Unsaid::Snapshot { snapshot, from });
                }
                Body::Snapshot(watch_response::Snapshot { agents, last })
            }
            Unsaid::Change { change, from } => {
                self.generation = change.generation;
                let (upserted, next) = self.part(&change.upserted, from);
                let mut removed = Vec::new();
                let last = next.is_none();
                match next {
                    Some(from) => self.unsaid.push_front(Unsaid::Change { change, from }),
                    None => removed.extend(change.removed.iter().map(|name| name.as_str().to_owned())),
                }
                Body::Change(watch_response::Change { upserted, removed, last })
            }
            Unsaid::Bookmark => Body::Bookmark(Bookmark {}),
        };
        proto::WatchResponse {
            generation: self.generation,
            store_id: self.store_id.to_string(),
            body: Some(body),
        }
    }

    /// As many definitions as make one part, and where the next one begins.
    fn part(&self, definitions: &[Arc<Definition>], from: usize) -> (Vec<AgentDefinition>, Option<usize>) {
        let rest = definitions.iter().skip(from);
        part(rest.map(|definition| to_proto::definition(definition, self.view, &self.paths)), from)
    }
}

/// Takes definitions up to [`PART_BYTES_MAX`], at least one, and answers the index of the first that was left.
fn part(
    rendered: impl Iterator<Item = AgentDefinition>,
    from: usize,
) -> (Vec<AgentDefinition>, Option<usize>) {
    let (mut agents, mut bytes) = (Vec::new(), 0);
    for agent in rendered {
        bytes += agent.encoded_len();
        if bytes > PART_BYTES_MAX && !agents.is_empty() {
            let next = from + agents.len();
            return (agents, Some(next));
        }
        agents.push(agent);
    }
    (agents, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stay_below_their_limit_and_keep_the_order() {
        let agent = |name: &str, parts: usize| AgentDefinition {
            name: name.to_owned(),
            system_prompt: "p".repeat(PART_BYTES_MAX * parts / 10),
            ..Default::default()
        };
        let agents = [agent("a", 6), agent("b", 3), agent("c", 3), agent("d", 12), agent("e", 1)];

        let (mut parts, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            let (agents, rest) = part(agents.iter().skip(from).cloned(), from);
            parts.push(agents.into_iter().map(|agent| agent.name).collect::<Vec<_>>());
            next = rest;
        }

        assert_eq!(parts, [vec!["a", "b"], vec!["c"], vec!["d"], vec!["e"]]);
        assert_eq!(part(std::iter::empty(), 0), (Vec::new(), None));
    }
}
