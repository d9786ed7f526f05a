//! `SessionService`: root sessions, and the conversations with coordinators in them.

use ::proto::executor::v1::{self as proto, session_service_server::SessionService};
use futures::StreamExt as _;
use service_kit::page;
use tonic::{Request, Response, Status};

use super::{
    Api,
    access::{caller, listed_operator},
    conversation::Conversation,
    executor::{Events, deadline, entries},
    from_proto, to_proto,
};
use crate::{
    error::{Error, Violation},
    session::{Deletion, RootFilter},
    worker::SessionId,
};

#[tonic::async_trait]
impl SessionService for Api {
    type ConverseStream = Events<proto::ConverseResponse>;
    type WatchSessionStream = Events<proto::WatchSessionResponse>;

    async fn converse(
        &self,
        request: Request<proto::ConverseRequest>,
    ) -> Result<Response<Self::ConverseStream>, Status> {
        let caller = caller(&request)?;
        let deadline = deadline(&request);
        let talk = from_proto::converse(request.into_inner(), deadline)?;
        let turn = self.kernel.converse(&caller, talk).await?;

        Ok(Response::new(Box::pin(Conversation::of_turn(&self.kernel, turn).into_stream())))
    }

    async fn watch_session(
        &self,
        request: Request<proto::WatchSessionRequest>,
    ) -> Result<Response<Self::WatchSessionStream>, Status> {
        let caller = caller(&request)?;
        let proto::WatchSessionRequest { session_id, after_sequence } = request.into_inner();
        let id = root_id(&session_id)?;
        let (root, view) = self.kernel.seen_root(&caller, &id).await?;
        if root.agent.is_empty() {
            return Err(Error::NotACoordinator(id).into());
        }
        // Only its owner keeps a turn running.
        let waiter = if caller.owns(&root.operator) { self.kernel.attend(&id) } else { None };
        let watch = Conversation::of_session(&self.kernel, id, after_sequence, view, waiter);
        let events = watch
            .into_stream()
            .map(|event| event.map(|event| proto::WatchSessionResponse { event: Some(event) }));
        Ok(Response::new(Box::pin(events)))
    }

    async fn get_session(
        &self,
        request: Request<proto::GetSessionRequest>,
    ) -> Result<Response<proto::GetSessionResponse>, Status> {
        let caller = caller(&request)?;
        let id = root_id(&request.get_ref().session_id)?;
        let (root, _) = self.kernel.seen_root(&caller, &id).await?;

        Ok(Response::new(proto::GetSessionResponse { session: Some(to_proto::root(&root)) }))
    }

    async fn list_sessions(
        &self,
        request: Request<proto::ListSessionsRequest>,
    ) -> Result<Response<proto::ListSessionsResponse>, Status> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let workspace = from_proto::workspace(&request.workspace);
        self.kernel.workspace(&caller, &workspace)?;
        let limit = from_proto::page_size(request.page_size, 50, 200)?;
        let open_only = if request.open_only { "open" } else { "all" };
        let query = ["ListSessions", workspace.as_str(), open_only];
        let filter = RootFilter {
            workspace: Some(workspace.clone()),
            operator: listed_operator(&caller),
            open_only: request.open_only,
            after: from_proto::page_after(&query, &request.page_token)?,
            limit: limit + 1,
        };
        let mut roots = self.kernel.log.roots(filter).await.map_err(Error::from)?;
        let has_more = roots.len() > limit;
        roots.truncate(limit);
        let next = roots
            .last()
            .filter(|_| has_more)
            .map(|last| page::encode(&query, &page::Position { generation: 0, after: last.id.to_string() }));
        Ok(Response::new(proto::ListSessionsResponse {
            sessions: roots.iter().map(to_proto::root).collect(),
            next_page_token: next.unwrap_or_default(),
        }))
    }

    async fn close_session(
        &self,
        request: Request<proto::CloseSessionRequest>,
    ) -> Result<Response<proto::CloseSessionResponse>, Status> {
        let caller = caller(&request)?;
        let id = root_id(&request.get_ref().session_id)?;
        self.kernel.own_session(&caller, &id).await?;
        let receipt = self.kernel.close_session(&id, &caller.operator).await?;

        Ok(Response::new(proto::CloseSessionResponse { entries: entries(receipt) }))
    }

    async fn delete_session(
        &self,
        request: Request<proto::DeleteSessionRequest>,
    ) -> Result<Response<proto::DeleteSessionResponse>, Status> {
        let caller = caller(&request)?;
        let id = root_id(&request.get_ref().session_id)?;
        self.kernel.own_session(&caller, &id).await?;
        let workers = self.kernel.log.descendants(&id, usize::MAX).await.map_err(Error::from)?.len();
        match self.kernel.log.delete_tree(&id).await.map_err(Error::from)? {
            Deletion::Deleted => Ok(Response::new(proto::DeleteSessionResponse {
                workers: u32::try_from(workers).unwrap_or(u32::MAX),
            })),
            Deletion::NotFound => Err(Error::SessionNotFound(id.to_string()).into()),
            Deletion::Open => Err(Error::SessionOpen(id).into()),
        }
    }
}

/// The id of a root session; a worker's is none.
fn root_id(text: &str) -> Result<SessionId, Error> {
    let id = from_proto::session_id("session_id", text)?;
    match id.is_worker() {
        false => Ok(id),
        true => {
            let violation = Violation::new("session_id", "it is a worker's id, not a root session's");
            Err(Error::InvalidRequest(vec![violation]))
        }
    }
}
