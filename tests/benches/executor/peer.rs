//! Agent frameworks that others use, with the same work against the same model. They are installed by
//! `tests/benches/peers/install`; what is not installed is not measured.

use std::{path::PathBuf, process::Command};

use tests::repository;

use crate::floor::Figures;

/// One framework.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    Rig,
    Autogen,
}

impl Peer {
    /// A parent with one sub-agent, so many times at once.
    ///
    /// # Errors
    ///
    /// Why it was not measured.
    pub(crate) fn parents(self, model: &str, count: usize) -> Result<Figures, String> {
        let url = format!("http://{model}/v1");
        let count = count.to_string();
        let mut command = match self {
            Self::Rig => Command::new(installed("rig/target/release/rig-peer")?),
            Self::Autogen => {
                let mut command = Command::new(installed("autogen/bin/python")?);
                command.arg(repository::root().join("tests/benches/peers/autogen.py"));
                command
            }
        };
        let output = command.args([&url, &count]).output().map_err(|error| error.to_string())?;
        let text = repository::printed(&output);
        if !output.status.success() {
            return Err(format!("it failed: {}", text.lines().last().unwrap_or_default()));
        }
        Ok(Figures::read(String::from_utf8_lossy(&output.stdout).trim()))
    }
}

fn installed(path: &str) -> Result<PathBuf, String> {
    let path = repository::root().join("target/peers").join(path);
    match path.exists() {
        true => Ok(path),
        false => Err("it is not installed: `tests/benches/peers/install`".to_owned()),
    }
}
