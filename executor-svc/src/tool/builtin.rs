//! The tools that come with the executor.

mod bash;
mod edit;
mod find;
mod grep;
mod ls;
mod read;
pub mod submit_result;
mod write;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{
    Context, Error, Tool,
    boundary::{Boundary, Work},
    settings::Settings,
};
use crate::model::ToolSpec;

/// The built-in tools that work on files. `bash` is among them only where the operator switched it on; see
/// [`crate::toolbag::builtins`] for what is known of all.
pub fn all(settings: &Settings) -> Vec<Arc<dyn Tool>> {
    let mut tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(read::Read::new()),
        Arc::new(grep::Grep::new()),
        Arc::new(find::Find::new()),
        Arc::new(ls::Ls::new()),
        Arc::new(write::Write::new()),
        Arc::new(edit::Edit::new()),
    ];
    if settings.bash {
        tools.push(Arc::new(bash::Bash::new()));
    }
    tools
}

/// The tool `bash` as it is described where it is switched off.
pub fn bash_spec() -> ToolSpec {
    bash::Bash::new().spec().clone()
}

/// Runs a call's file work where it may block. When the call is cancelled or given up, the work stops at its next check.
async fn blocking<F>(context: &Context, work: F) -> Result<String, Error>
where
    F: FnOnce(Arc<Boundary>, Work) -> Result<String, Error> + Send + 'static,
{
    let cancel: CancellationToken = context.cancel.child_token();
    let _given_up = cancel.clone().drop_guard();
    let workspace = context.workspace.clone();
    let task = tokio::task::spawn_blocking(move || {
        let boundary = Boundary::open(&workspace)?;
        work(boundary, Work::new(cancel))
    });
    match task.await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(Error::Cancelled),
    }
}

#[cfg(test)]
mod fixture;
