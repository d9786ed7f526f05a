//! `ReviewService`. The review gate is not built yet: it refuses every call that would need a decision.

use ::proto::executor::v1::{self as proto, review_service_server::ReviewService};
use tonic::{Request, Response, Status};

use super::Api;
use crate::error::Error;

#[tonic::async_trait]
impl ReviewService for Api {
    async fn list_proposals(
        &self,
        _: Request<proto::ListProposalsRequest>,
    ) -> Result<Response<proto::ListProposalsResponse>, Status> {
        Err(Error::NotBuilt("ListProposals").into())
    }

    async fn decide_proposal(
        &self,
        _: Request<proto::DecideProposalRequest>,
    ) -> Result<Response<proto::DecideProposalResponse>, Status> {
        Err(Error::NotBuilt("DecideProposal").into())
    }
}
