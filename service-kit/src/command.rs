//! What a command of either service writes, and how it ends.

use std::{
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
};

use crate::{
    client,
    console::{Colour, Style},
    status::chain,
};

/// A command that found errors, a worker that failed, a service that could not do what was asked.
const FAILED: u8 = 1;

/// Refused, or not to be understood.
const REFUSED: u8 = 2;

/// How a command ends that does not end well.
#[derive(Debug)]
pub enum Ending {
    /// It has said all there is to say.
    Failed,
    /// Something to tell first.
    FailedWith(String),
    Refused(String),
    /// Mistakes in a file, a line each with its place first, so that editors can go there.
    Invalid(String),
}

pub type Outcome = Result<(), Ending>;

/// Standard output of a command, coloured on a terminal.
pub struct Output {
    style: Style,
    is_terminal: bool,
}

/// Tells a person how `program` ended, and the shell by the exit code: 0, 1 failed, 2 refused or usage.
pub fn end(program: &str, outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Ending::Failed) => ExitCode::from(FAILED),
        Err(Ending::FailedWith(message)) => {
            eprintln!("{program}: {message}");
            ExitCode::from(FAILED)
        }
        Err(Ending::Refused(message)) => {
            eprintln!("{program}: {message}");
            ExitCode::from(REFUSED)
        }
        Err(Ending::Invalid(lines)) => {
            eprintln!("{lines}");
            ExitCode::from(REFUSED)
        }
    }
}

impl Output {
    /// `no_colour` is the presence of the environment's `NO_COLOR`.
    pub fn new(no_colour: bool) -> Self {
        Self { style: Style::stdout(no_colour), is_terminal: io::stdout().is_terminal() }
    }

    /// True where a person looks on.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Text as it is: escaped already, or of our own.
    ///
    /// # Errors
    ///
    /// Fails where the output cannot be written. A reader that went away, such as `head`, is no failure.
    pub fn write(&self, text: &str) -> Outcome {
        self.bytes(text.as_bytes())
    }

    /// As [`Output::write`], for what need not be text.
    ///
    /// # Errors
    ///
    /// As [`Output::write`].
    pub fn bytes(&self, bytes: &[u8]) -> Outcome {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Ending::from(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// One line, at once: programs wait for it.
    ///
    /// # Errors
    ///
    /// As [`Output::write`].
    pub fn line(&self, text: &str) -> Outcome {
        self.write(&format!("{text}\n"))
    }

    /// Whatever can be written as JSON, indented, with a line end.
    ///
    /// # Errors
    ///
    /// As [`Output::write`], and where a key is no text.
    pub fn json(&self, value: &impl serde::Serialize) -> Outcome {
        let text =
            serde_json::to_string_pretty(value).map_err(|error| Ending::FailedWith(error.to_string()))?;
        self.line(&text)
    }

    /// Text of others, escaped, in a colour where there are colours.
    pub fn paint(&self, colour: Colour, text: &str) -> String {
        self.style.paint(colour, text)
    }
}

impl From<io::Error> for Ending {
    fn from(error: io::Error) -> Self {
        Self::FailedWith(error.to_string())
    }
}

impl From<client::Error> for Ending {
    fn from(error: client::Error) -> Self {
        match error {
            client::Error::Address(_) => Self::Refused(chain(&error)),
            client::Error::Unreachable { .. } => Self::FailedWith(chain(&error)),
        }
    }
}
