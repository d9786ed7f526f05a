//! Row 1 of admission: what can be an argument, wherever a call comes from.

use crate::error::{Error, Violation};

/// Longest prompt.
pub const PROMPT_BYTES_MAX: usize = 1024 * 1024;

/// Longest name of an agent, a model, a workspace, an id or a language tag.
pub const NAME_BYTES_MAX: usize = 128;

/// The mistakes of one call.
#[derive(Default)]
pub struct Violations(Vec<Violation>);

impl Violations {
    pub fn add(&mut self, field: &'static str, description: impl Into<String>) {
        self.0.push(Violation::new(field, description));
    }

    /// The value, if there was no mistake.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` with all mistakes.
    pub fn check<T>(self, value: T) -> Result<T, Error> {
        if self.0.is_empty() { Ok(value) } else { Err(Error::InvalidRequest(self.0)) }
    }

    /// The name of an agent to spawn.
    pub fn agent(&mut self, field: &'static str, text: &str) {
        if text.trim().is_empty() {
            self.add(field, "it is required");
        }
        self.name(field, text);
    }

    pub fn name(&mut self, field: &'static str, text: &str) {
        if text.len() > NAME_BYTES_MAX {
            self.add(field, format!("it has more than {NAME_BYTES_MAX} bytes"));
        } else if text.chars().any(char::is_control) {
            self.add(field, "it has control characters");
        }
    }

    pub fn locale(&mut self, text: &str) {
        self.name("locale", text);
        if !text.chars().all(|character| character.is_ascii_alphanumeric() || character == '-') {
            self.add("locale", "it is no BCP 47 tag");
        }
    }

    pub fn prompt(&mut self, field: &'static str, text: &str) {
        if text.trim().is_empty() {
            self.add(field, "it is required");
        } else if text.len() > PROMPT_BYTES_MAX {
            self.add(field, format!("it has more than {PROMPT_BYTES_MAX} bytes"));
        }
    }
}
