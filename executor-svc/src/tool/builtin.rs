//! The tools that come with the executor.

mod bash;
mod edit;
mod find;
mod grep;
mod ls;
mod read;
pub mod submit_result;
mod write;

use std::{
    io::{self, Read as _},
    sync::Arc,
};

use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use super::{
    Context, Error, Target, Tool,
    boundary::{Boundary, Work},
    settings::Settings,
};
use crate::model::ToolSpec;

/// How much of a file is read at once.
const READ_BYTES: usize = 64 * 1024;

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
async fn blocking<T, F>(context: &Context, work: F) -> Result<T, Error>
where
    T: Send + 'static,
    F: FnOnce(Arc<Boundary>, Work) -> Result<T, Error> + Send + 'static,
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

/// The file that a call would change, as it is now.
async fn target(context: &Context, name: String) -> Result<Target, Error> {
    blocking(context, move |boundary, work| {
        work.check()?;
        let place = boundary.locate_target(&name)?;
        let path = place.show();
        if boundary.stat(&place).is_err() {
            return Ok(Target { path, content: None });
        }
        let unreadable = |error: io::Error| Error::Failed(format!("`{path}` cannot be read: {error}"));
        let mut file = boundary.file(&place)?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            work.check()?;
            match file.read(&mut buffer).map_err(unreadable)? {
                0 => break,
                length => hash.update(&buffer[..length]),
            }
        }
        Ok(Target { path, content: Some(hash.finalize().into()) })
    })
    .await
}

#[cfg(test)]
mod fixture;
