//! The commands of the review gate: what is proposed, and a person's decision.

use clap::Args;
use proto::executor::v1::{DecideProposalRequest, ListProposalsRequest, Proposal, proposal::Decision};
use service_kit::console::{Colour, escape, escape_line};

use super::{Outcome, Output, Target, json, progress::word, refused};

/// The full name of a proposal, for JSON.
const PROPOSAL: &str = "roster.executor.v1.Proposal";

#[derive(Args)]
pub(super) struct Proposals {
    /// Only of this session's tree
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    session: String,
    /// Only those that a person must decide
    #[arg(long)]
    awaiting: bool,
    /// Workspace; `default` where it is left out
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    workspace: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
#[command(group(clap::ArgGroup::new("decision").required(true).args(["approve", "reject"])))]
pub(super) struct Decide {
    /// The proposal
    id: String,
    /// Digest of what was looked at
    #[arg(long, value_name = "HEX")]
    digest: String,
    /// Lets the call run, once
    #[arg(long)]
    approve: bool,
    /// Stops the call, with the reason that the worker is told
    #[arg(long, value_name = "REASON")]
    reject: Option<String>,
    #[command(flatten)]
    target: Target,
}

impl Proposals {
    pub(super) async fn run(self, output: &Output) -> Outcome {
        let decision = if self.awaiting { Decision::Pending } else { Decision::Unspecified };
        let mut client = self.target.reviews().await?;
        let mut page_token = String::new();
        loop {
            let request = ListProposalsRequest {
                workspace: self.workspace.clone(),
                session_id: self.session.clone(),
                decision: decision.into(),
                page_size: 0,
                page_token: std::mem::take(&mut page_token),
            };
            let page = client.list_proposals(request).await.map_err(|status| refused(&status))?.into_inner();
            for proposal in page.proposals.iter().filter(|proposal| proposal.awaits_person || !self.awaiting)
            {
                match self.target.json {
                    true => output.line(&json::line(PROPOSAL, proposal)?)?,
                    false => show(output, proposal)?,
                }
            }
            if page.next_page_token.is_empty() {
                return Ok(());
            }
            page_token = page.next_page_token;
        }
    }
}

impl Decide {
    pub(super) async fn run(self, output: &Output) -> Outcome {
        let Self { id, digest, approve: _, reject, target } = self;
        let decision = if reject.is_some() { Decision::Rejected } else { Decision::Approved };
        let reason = reject.unwrap_or_default();
        let request = DecideProposalRequest { proposal_id: id, decision: decision.into(), reason, digest };
        let mut client = target.reviews().await?;
        let response = client.decide_proposal(request).await.map_err(|status| refused(&status))?.into_inner();
        let proposal = response.proposal.unwrap_or_default();
        match target.json {
            true => output.line(&json::line(PROPOSAL, &proposal)?),
            false => show(output, &proposal),
        }
    }
}

/// A proposal as a person decides over it: whole, since what is not seen is approved too.
fn show(output: &Output, proposal: &Proposal) -> Outcome {
    let (colour, state) = match (proposal.awaits_person, proposal.decision()) {
        (true, _) => (Colour::Yellow, "awaits a person".to_owned()),
        (false, decision @ Decision::Approved) => (Colour::Green, word(decision.as_str_name(), "DECISION_")),
        (false, decision) => (Colour::Red, word(decision.as_str_name(), "DECISION_")),
    };
    output.line(&format!(
        "{} {} {} ({}) of {}",
        proposal.id,
        output.paint(colour, &state),
        escape_line(&proposal.action),
        word(proposal.tool_class().as_str_name(), "TOOL_CLASS_"),
        escape_line(&proposal.operator),
    ))?;
    for (title, text) in [
        ("session", &proposal.session_id),
        ("digest", &proposal.digest),
        ("reaches", &proposal.blast_radius),
        ("arguments", &proposal.target),
        ("said before", &proposal.reason),
        ("reviewer", &proposal.reviewer),
        ("decision", &proposal.decision_reason),
    ] {
        if !text.is_empty() {
            output.line(&format!("  {}: {}", output.paint(Colour::Dim, title), escape(text)))?;
        }
    }
    Ok(())
}
