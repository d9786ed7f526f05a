//! `ReviewService`: the calls before the review gate, and a person's decision.

use ::proto::executor::v1::{
    self as proto, proposal::Decision as Sent, review_service_server::ReviewService,
};
use service_kit::page;
use tonic::{Request, Response, Status};

use super::{Api, access::caller, from_proto, to_proto, to_proto::View};
use crate::{
    argument::Violations,
    dispatch::Caller,
    error::{Error, Violation},
    kernel::Kernel,
    review::{Decision, Proposal},
    session::ProposalFilter,
    worker::SessionId,
};

/// Proposals of one page are at most this long, so that a page stays below what clients accept. One is always sent.
const PAGE_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Longest reason of a person.
const REASON_BYTES_MAX: usize = 4 * 1024;

#[tonic::async_trait]
impl ReviewService for Api {
    async fn list_proposals(
        &self,
        request: Request<proto::ListProposalsRequest>,
    ) -> Result<Response<proto::ListProposalsResponse>, Status> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let workspace = from_proto::workspace(&request.workspace);
        self.kernel.workspace(&caller, &workspace)?;
        let limit = from_proto::page_size(request.page_size, 50, 200)?;
        let decision = match Sent::try_from(request.decision) {
            Ok(Sent::Unspecified) => None,
            Ok(Sent::Pending) => Some(Decision::Pending),
            Ok(Sent::Approved) => Some(Decision::Approved),
            Ok(Sent::Rejected) => Some(Decision::Rejected),
            Err(_) => return Err(no_decision().into()),
        };
        let wanted = request.decision.to_string();
        let query = ["ListProposals", workspace.as_str(), request.session_id.as_str(), wanted.as_str()];
        let filter = ProposalFilter {
            workspace: Some(workspace.clone()),
            operator: (!caller.owns_all && !caller.reads_all).then(|| caller.operator.clone()),
            root: self.kernel.tree_of(&caller, &request.session_id).await?,
            session: None,
            decision,
            after: from_proto::page_after_text(&query, &request.page_token)?,
            limit: limit + 1,
        };
        let found = self.kernel.proposals.proposals(filter).await.map_err(Error::from)?;
        let shown = fitting(&found, limit);
        let next = shown
            .last()
            .filter(|_| shown.len() < found.len())
            .map(|last| page::encode(&query, &page::Position { generation: 0, after: last.id.clone() }));
        Ok(Response::new(proto::ListProposalsResponse {
            proposals: shown.iter().map(|proposal| to_proto::proposal(proposal, View::Full)).collect(),
            next_page_token: next.unwrap_or_default(),
        }))
    }

    async fn decide_proposal(
        &self,
        request: Request<proto::DecideProposalRequest>,
    ) -> Result<Response<proto::DecideProposalResponse>, Status> {
        let caller = caller(&request)?;
        let proto::DecideProposalRequest { proposal_id, decision, reason, digest } = request.into_inner();
        let mut violations = Violations::default();
        if proposal_id.is_empty() {
            violations.add("proposal_id", "it is required");
        }
        let decision = match Sent::try_from(decision) {
            Ok(Sent::Approved) => Decision::Approved,
            Ok(Sent::Rejected) => Decision::Rejected,
            Ok(Sent::Unspecified | Sent::Pending) | Err(_) => {
                violations.add("decision", "it is neither approved nor rejected");
                Decision::Pending
            }
        };
        if decision == Decision::Rejected && reason.trim().is_empty() {
            violations.add("reason", "it is required with a rejection");
        } else if reason.len() > REASON_BYTES_MAX {
            violations.add("reason", format!("it has more than {REASON_BYTES_MAX} bytes"));
        }
        if digest.is_empty() {
            violations.add("digest", "it is required");
        }
        let decision = violations.check(decision)?;
        let decided = self.kernel.decide(&caller, &proposal_id, decision, reason.trim(), &digest).await?;
        let proposal = Some(to_proto::proposal(&decided, View::Full));
        Ok(Response::new(proto::DecideProposalResponse { proposal }))
    }
}

/// As many of the first proposals as one page holds.
fn fitting(found: &[Proposal], limit: usize) -> &[Proposal] {
    let mut bytes = 0;
    let fits = |proposal: &&Proposal| {
        bytes += proposal.arguments.len() + proposal.said.len() + proposal.decision_reason.len();
        bytes <= PAGE_BYTES_MAX
    };
    let count = found.iter().take(limit).take_while(fits).count();
    &found[..count.max(1).min(found.len())]
}

fn no_decision() -> Error {
    Error::InvalidRequest(vec![Violation::new("decision", "it is no decision")])
}

impl Kernel {
    /// The root of a session that the caller sees; absent where none is named.
    async fn tree_of(&self, caller: &Caller, session_id: &str) -> Result<Option<SessionId>, Error> {
        let Some(id) = from_proto::filter_id("session_id", session_id)? else { return Ok(None) };
        Ok(Some(match id.is_worker() {
            true => self.seen_worker(caller, &id).await?.0.root,
            false => self.seen_root(caller, &id).await?.0.id,
        }))
    }
}
