//! Standard output of a command. A reader that went away, such as `head`, is no failure.

use std::io::{self, IsTerminal as _, Write as _};

use service_kit::console::{Colour, Style};

use super::{Ending, Outcome};

/// Writes lines, coloured on a terminal.
pub(super) struct Output {
    style: Style,
    is_terminal: bool,
}

impl Output {
    pub(super) fn new(no_colour: bool) -> Self {
        Self { style: Style::stdout(no_colour), is_terminal: io::stdout().is_terminal() }
    }

    /// True where a person looks on.
    pub(super) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Text as it is: escaped already, or of our own.
    pub(super) fn write(&self, text: &str) -> Outcome {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Ending::from(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    pub(super) fn line(&self, text: &str) -> Outcome {
        self.write(&format!("{text}\n"))
    }

    /// Text of others, escaped, in a colour where there are colours.
    pub(super) fn paint(&self, colour: Colour, text: &str) -> String {
        self.style.paint(colour, text)
    }
}
