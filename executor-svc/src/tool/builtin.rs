//! The tools that come with the executor.

mod bash;
mod edit;
mod file_tool;
mod find;
mod grep;
mod ls;
mod read;
pub mod submit_result;
mod write;

use std::sync::Arc;

use self::file_tool::FileTool;
use super::{Tool, settings::Settings};
use crate::model::ToolSpec;

/// The built-in tools that work on files. `bash` is among them only where the operator switched it on; see
/// [`crate::toolbag::builtins`] for what is known of all.
pub fn all(settings: &Settings) -> Vec<Arc<dyn Tool>> {
    let mut tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(FileTool::<read::Read>::new()),
        Arc::new(FileTool::<grep::Grep>::new()),
        Arc::new(FileTool::<find::Find>::new()),
        Arc::new(FileTool::<ls::Ls>::new()),
        Arc::new(FileTool::<write::Write>::new()),
        Arc::new(FileTool::<edit::Edit>::new()),
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

#[cfg(any(test, fuzzing))]
#[cfg_attr(fuzzing, allow(dead_code, reason = "the trial needs a part of it"))]
mod fixture;
#[cfg(test)]
mod strange;
#[cfg(any(test, fuzzing))]
pub(super) mod trial;
