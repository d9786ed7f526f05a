//! From an approval to the one run that it is good for.

use serde_json::Value;

use super::Request;
use crate::{
    kernel::Kernel,
    review::{Decision, Proposal},
    session::StoreError,
    tool::{self, Target},
};

/// What may run, once: the recorded bytes, and for tools that change one file only on the file that was reviewed.
#[derive(Debug)]
pub struct Approved {
    pub arguments: Value,
    pub target: Option<Target>,
}

impl Kernel {
    /// Uses an approval up, if it holds for the call as it is now.
    ///
    /// # Errors
    ///
    /// The inner one: why it does not hold.
    pub async fn take_approval(
        &self,
        request: &Request<'_>,
        proposal: &Proposal,
    ) -> Result<Result<Approved, String>, StoreError> {
        if proposal.decision != Decision::Approved || proposal.execute_time.is_some() {
            return Ok(Err("the call has no approval that is not used up".to_owned()));
        }
        let arguments: Value = match serde_json::from_str(&proposal.arguments) {
            Ok(arguments) => arguments,
            Err(error) => return Ok(Err(format!("what is recorded of the call cannot be read: {error}"))),
        };
        let target = match request.tool.target(request.context, &arguments).await {
            Ok(target) => target,
            Err(failure) => return Ok(Err(format!("the target cannot be looked at again: {failure}"))),
        };
        if request.digest(target.as_ref()) != proposal.digest {
            return Ok(Err(tool::Error::Changed.to_string()));
        }
        let executed = Proposal { execute_time: Some(self.clock.now()), ..proposal.clone() };
        match self.proposals.exchange(proposal.clone(), executed).await? {
            true => Ok(Ok(Approved { arguments, target })),
            false => Ok(Err("the approval is used up or withdrawn".to_owned())),
        }
    }
}
