//! The frame of every tool that works on files: its arguments are parsed, its work runs where it may block.

use std::{
    io::{self, Read as _},
    marker::PhantomData,
    sync::Arc,
};

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::{
    model::ToolSpec,
    tool::{
        Class, Context, Error, Target, Tool,
        arguments::Arguments,
        boundary::{Boundary, Work},
    },
};

/// How much of a file is read at once.
const READ_BYTES: usize = 64 * 1024;

/// One call of a file tool, made of the arguments it came with.
pub(super) trait FileCall: DeserializeOwned + Send + 'static {
    const CLASS: Class;

    /// Name, description and arguments of the tool.
    fn arguments() -> Arguments;

    /// The file that this call would change, where it changes one.
    fn target(self) -> Option<String> {
        None
    }

    /// Does the work, which may block. `work` says when to give up, `approval` which file may be changed.
    fn run(self, boundary: Arc<Boundary>, work: Work, approval: Approval) -> Result<String, Error>;
}

/// What was approved of a call that changes a file. The gate looks at the file before the call; the last look is the tool's,
/// when all that takes time is done.
pub(super) struct Approval(Option<Target>);

/// The tool whose calls are `C`.
pub(super) struct FileTool<C> {
    arguments: Arguments,
    call: PhantomData<fn() -> C>,
}

impl<C: FileCall> FileTool<C> {
    pub(super) fn new() -> Self {
        Self { arguments: C::arguments(), call: PhantomData }
    }
}

#[async_trait]
impl<C: FileCall> Tool for FileTool<C> {
    fn spec(&self) -> &ToolSpec {
        self.arguments.spec()
    }

    fn class(&self) -> Class {
        C::CLASS
    }

    async fn target(&self, context: &Context, arguments: &Value) -> Result<Option<Target>, Error> {
        let call: C = self.arguments.parse(arguments)?;
        let Some(path) = call.target() else { return Ok(None) };
        blocking(context, move |boundary, work| state(&boundary, &work, &path)).await.map(Some)
    }

    async fn call(&self, context: &Context, arguments: &Value) -> Result<String, Error> {
        let call: C = self.arguments.parse(arguments)?;
        let approval = Approval(context.approved.clone());
        blocking(context, move |boundary, work| call.run(boundary, work, approval)).await
    }
}

impl Approval {
    /// Refuses where `path` leads to something else by now than what was approved.
    pub(super) fn holds(&self, boundary: &Boundary, work: &Work, path: &str) -> Result<(), Error> {
        match &self.0 {
            Some(approved) if state(boundary, work, path)? != *approved => Err(Error::Changed),
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses content to make new content from that is not what was approved.
    pub(super) fn covers(&self, content: &[u8]) -> Result<(), Error> {
        let digest: [u8; 32] = Sha256::digest(content).into();
        match &self.0 {
            Some(approved) if approved.content != Some(digest) => Err(Error::Changed),
            Some(_) | None => Ok(()),
        }
    }
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

/// The file `path` as it is now.
fn state(boundary: &Boundary, work: &Work, path: &str) -> Result<Target, Error> {
    work.check()?;
    let place = boundary.locate_target(path)?;
    let path = place.show();
    let unreadable = |error: io::Error| Error::Failed(format!("`{path}` cannot be read: {error}"));
    match boundary.stat(&place) {
        Ok(_) => {}
        Err(rustix::io::Errno::NOENT) => return Ok(Target { path, content: None }),
        Err(error) => return Err(unreadable(error.into())),
    }
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
}
