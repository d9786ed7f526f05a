//! `ExecutorService`: spawning, looking, stopping.

use std::pin::Pin;

use ::proto::executor::v1::{self as proto, executor_service_server::ExecutorService};
use futures::{Stream, StreamExt as _};
use service_kit::{page, server::Deadline};
use tokio::time::Instant;
use tonic::{Request, Response, Status, metadata::MetadataValue};

use super::{
    Api,
    access::{caller, listed_operator},
    events::Watch,
    from_proto,
    listing::{self, PAGE_BYTES_MAX, Page},
    to_proto,
    to_proto::View,
};
use crate::{
    argument::Violations,
    dispatch::{Call, Caller, Dispatched},
    error::Error,
    kernel::Kernel,
    session::{StopWish, WorkerFilter},
    stop::{Entry, Receipt},
    worker::SessionId,
};

/// The worker's id in initial metadata.
const WORKER_ID_HEADER: &str = "roster-worker-id";

/// A stream of answers.
pub(super) type Events<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ExecutorService for Api {
    type SpawnStreamStream = Events<proto::SpawnStreamResponse>;
    type WatchWorkerStream = Events<proto::WatchWorkerResponse>;

    async fn spawn(
        &self,
        request: Request<proto::SpawnRequest>,
    ) -> Result<Response<proto::SpawnResponse>, Status> {
        let caller = caller(&request)?;
        let deadline = deadline(&request);
        let call = self.spawn_of(&caller, request.into_inner(), deadline)?;
        let Dispatched { worker, deduplicated, waiter } = self.kernel.dispatch(&caller, call, None).await?;
        let worker = match &waiter {
            Some(waiter) => waiter.closed().await,
            None => worker,
        };
        let answer = self.kernel.answer(worker, deduplicated);
        let message = proto::SpawnResponse {
            worker: Some(to_proto::worker(&answer.worker, View::Full)),
            deduplicated,
            hint: answer.hint,
        };
        Ok(with_id(Response::new(message), &answer.worker.id))
    }

    async fn spawn_stream(
        &self,
        request: Request<proto::SpawnStreamRequest>,
    ) -> Result<Response<Self::SpawnStreamStream>, Status> {
        let caller = caller(&request)?;
        let deadline = deadline(&request);
        let spawn = request.into_inner().spawn.unwrap_or_default();
        let call = self.spawn_of(&caller, spawn, deadline)?;
        let Dispatched { worker, deduplicated, waiter } = self.kernel.dispatch(&caller, call, None).await?;
        let watch = Watch::new(&self.kernel, &worker.id, 0, View::Full).answering(deduplicated, waiter);
        let events = watch
            .into_stream()
            .map(|event| event.map(|event| proto::SpawnStreamResponse { event: Some(event) }));
        Ok(with_id(Response::new(Box::pin(events)), &worker.id))
    }

    async fn get_worker(
        &self,
        request: Request<proto::GetWorkerRequest>,
    ) -> Result<Response<proto::GetWorkerResponse>, Status> {
        let caller = caller(&request)?;
        let id = from_proto::session_id("worker_id", &request.get_ref().worker_id)?;
        let (worker, view) = self.kernel.seen_worker(&caller, &id).await?;

        Ok(Response::new(proto::GetWorkerResponse { worker: Some(to_proto::worker(&worker, view)) }))
    }

    async fn list_workers(
        &self,
        request: Request<proto::ListWorkersRequest>,
    ) -> Result<Response<proto::ListWorkersResponse>, Status> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let query = listing::key(&request);
        let query: Vec<&str> = query.iter().map(String::as_str).collect();
        let limit = from_proto::page_size(request.page_size, 50, 200)?;
        let asked = View::asked(request.view());
        let workspace = from_proto::workspace(&request.workspace);
        self.kernel.workspace(&caller, &workspace)?;
        let filter = WorkerFilter {
            workspace: Some(workspace),
            operator: listed_operator(&caller),
            root: from_proto::filter_id("root_id", &request.root_id)?,
            parent: from_proto::filter_id("parent_id", &request.parent_id)?,
            agent: Some(request.agent).filter(|agent| !agent.is_empty()),
            statuses: from_proto::statuses(&request.statuses)?,
            labels: request.labels.into_iter().collect(),
            created_after: request.created_after.as_ref().map(from_proto::time),
            after: from_proto::page_after(&query, &request.page_token)?,
            oldest_first: false,
            turns: false,
            limit: limit + 1,
        };
        let found = self.kernel.log.workers(filter).await.map_err(Error::from)?;
        let page = Page::of(found, limit);
        Ok(Response::new(proto::ListWorkersResponse {
            next_page_token: page.token(&query),
            workers: page.render(|worker| {
                let view = caller.view(&worker.workspace, &worker.operator).unwrap_or(View::Basic);
                if asked == View::Full { view } else { View::Basic }
            }),
        }))
    }

    async fn get_tree(
        &self,
        request: Request<proto::GetTreeRequest>,
    ) -> Result<Response<proto::GetTreeResponse>, Status> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let id = from_proto::session_id("session_id", &request.session_id)?;
        let limit = from_proto::page_size(request.page_size, 200, 1_000)?;
        let asked = View::asked(request.view());
        let root_id = if id.is_worker() { self.kernel.seen_worker(&caller, &id).await?.0.root } else { id };
        let (root, view) = self.kernel.seen_root(&caller, &root_id).await?;
        let query = ["GetTree", root_id.as_str()];
        let filter = WorkerFilter {
            root: Some(root_id.clone()),
            after: from_proto::page_after(&query, &request.page_token)?,
            oldest_first: true,
            limit: limit + 1,
            ..WorkerFilter::default()
        };
        let found = self.kernel.log.workers(filter).await.map_err(Error::from)?;
        let page = Page::of(found, limit);
        let view = if asked == View::Full { view } else { View::Basic };
        Ok(Response::new(proto::GetTreeResponse {
            root: Some(to_proto::root(&root)),
            next_page_token: page.token(&query),
            workers: page.render(|_| view),
        }))
    }

    async fn watch_worker(
        &self,
        request: Request<proto::WatchWorkerRequest>,
    ) -> Result<Response<Self::WatchWorkerStream>, Status> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let id = from_proto::session_id("worker_id", &request.worker_id)?;
        let (_, view) = self.kernel.seen_worker(&caller, &id).await?;
        let watch = Watch::new(&self.kernel, &id, request.after_sequence, view).until_drain();
        let events = watch
            .into_stream()
            .map(|event| event.map(|event| proto::WatchWorkerResponse { event: Some(event) }));
        Ok(Response::new(Box::pin(events)))
    }

    async fn stop_worker(
        &self,
        request: Request<proto::StopWorkerRequest>,
    ) -> Result<Response<proto::StopWorkerResponse>, Status> {
        /// Longest reason that is recorded.
        const REASON_BYTES_MAX: usize = 1024;

        let caller = caller(&request)?;
        let request = request.into_inner();
        let id = from_proto::session_id("worker_id", &request.worker_id)?;
        let mut violations = Violations::default();
        let wait = request.wait.and_then(|wait| from_proto::duration_of(&mut violations, "wait", wait));
        let wait = violations.check(wait)?;
        self.kernel.own_session(&caller, &id).await?;
        let reason = crate::event::cut(&request.reason, REASON_BYTES_MAX);
        let wish = StopWish { by: caller.operator, reason };
        let receipt = self.kernel.stop(&id, wish, wait).await?;
        Ok(Response::new(proto::StopWorkerResponse {
            omitted: u32::try_from(receipt.omitted).unwrap_or(u32::MAX),
            entries: entries(receipt),
        }))
    }

    async fn send_message(
        &self,
        request: Request<proto::SendMessageRequest>,
    ) -> Result<Response<proto::SendMessageResponse>, Status> {
        let caller = caller(&request)?;
        let further = from_proto::further(request.into_inner())?;
        let Dispatched { worker, deduplicated: _, waiter } =
            self.kernel.send_further(&caller, further, None).await?;
        let worker = match &waiter {
            Some(waiter) => waiter.closed().await,
            None => worker,
        };
        let message = proto::SendMessageResponse { worker: Some(to_proto::worker(&worker, View::Full)) };
        Ok(with_id(Response::new(message), &worker.id))
    }

    async fn list_messages(
        &self,
        request: Request<proto::ListMessagesRequest>,
    ) -> Result<Response<proto::ListMessagesResponse>, Status> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let id = from_proto::session_id("session_id", &request.session_id)?;
        let limit = from_proto::page_size(request.page_size, 100, 500)?;
        let query = ["ListMessages", id.as_str()];
        let after = from_proto::page_after_sequence(&query, &request.page_token)?;
        let (messages, next) = self.kernel.messages_page(&caller, &id, after, limit).await?;
        let position = |generation| page::Position { generation, after: String::new() };
        Ok(Response::new(proto::ListMessagesResponse {
            messages,
            next_page_token: next.map(|next| page::encode(&query, &position(next))).unwrap_or_default(),
        }))
    }

    async fn describe_spawn_tool(
        &self,
        request: Request<proto::DescribeSpawnToolRequest>,
    ) -> Result<Response<proto::DescribeSpawnToolResponse>, Status> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let workspace = from_proto::workspace(&request.workspace);
        Ok(Response::new(self.kernel.describe_spawn_tool(&caller, &workspace, &request.session_id).await?))
    }

    async fn list_tools(
        &self,
        request: Request<proto::ListToolsRequest>,
    ) -> Result<Response<proto::ListToolsResponse>, Status> {
        let caller = caller(&request)?;
        Ok(Response::new(self.kernel.list_tools(&caller, request.into_inner()).await?))
    }

    async fn get_limits(
        &self,
        request: Request<proto::GetLimitsRequest>,
    ) -> Result<Response<proto::GetLimitsResponse>, Status> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let workspace = from_proto::workspace(&request.workspace);
        let limits = self.kernel.limit_rows(&caller, &workspace, &request.session_id).await?;
        Ok(Response::new(proto::GetLimitsResponse { limits }))
    }
}

impl Api {
    /// A spawn whose arguments are well formed. A workspace that is not there goes before everything else.
    fn spawn_of(
        &self,
        caller: &Caller,
        request: proto::SpawnRequest,
        deadline: Option<Instant>,
    ) -> Result<Call, Error> {
        if from_proto::is_name(&request.workspace) {
            self.kernel.workspace(caller, &from_proto::workspace(&request.workspace))?;
        }
        from_proto::spawn(request, deadline)
    }
}

/// The entries of a receipt.
pub(super) fn entries(receipt: Receipt) -> Vec<proto::stop_worker_response::Entry> {
    let entry = |Entry { worker, before, after }| proto::stop_worker_response::Entry {
        worker_id: worker.to_string(),
        before: to_proto::status(before).into(),
        after: to_proto::status(after).into(),
    };
    receipt.entries.into_iter().map(entry).collect()
}

/// When the caller stops to wait.
pub(super) fn deadline<T>(request: &Request<T>) -> Option<Instant> {
    request.extensions().get::<Deadline>().map(|Deadline(deadline)| *deadline)
}

fn with_id<T>(mut response: Response<T>, id: &SessionId) -> Response<T> {
    if let Ok(value) = MetadataValue::try_from(id.as_str()) {
        response.metadata_mut().insert(WORKER_ID_HEADER, value);
    }
    response
}

impl Kernel {
    /// One page of a transcript: the system prompt first, then what was said. The number is the next page's.
    async fn messages_page(
        &self,
        caller: &Caller,
        id: &SessionId,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<proto::Message>, Option<u64>), Error> {
        let not_found = || Error::SessionNotFound(id.to_string());
        let (create_time, view, has_transcript) = if id.is_worker() {
            let (worker, view) = self.seen_worker(caller, id).await?;
            (worker.create_time, view, true)
        } else {
            let (root, view) = self.seen_root(caller, id).await?;
            // A caller's own root has no transcript.
            (root.create_time, view, !root.agent.is_empty())
        };
        if view != View::Full {
            return Err(not_found());
        }
        if !has_transcript {
            return Ok((Vec::new(), None));
        }
        let mut messages = Vec::new();
        if after == 0 {
            let spec = self.spec(id).await?.ok_or_else(not_found)?;
            messages.push(to_proto::system_message(&spec.system, create_time));
        }
        // The system prompt is number 1 of what is sent; the store counts from the prompt on.
        let kept = self.log.messages(id, after.saturating_sub(1), limit + 1 - messages.len()).await?;
        let mut has_more = messages.len() + kept.len() > limit;
        let mut bytes: usize = messages.iter().map(|message| message.content.len()).sum();
        for (sequence, time, message) in kept {
            if messages.len() == limit {
                break;
            }
            let message = to_proto::message(sequence + 1, time, message);
            bytes += message.content.len();
            if bytes > PAGE_BYTES_MAX && !messages.is_empty() {
                has_more = true;
                break;
            }
            messages.push(message);
        }
        let last = messages.last().map(|message| message.sequence);
        Ok((messages, last.filter(|_| has_more)))
    }
}
