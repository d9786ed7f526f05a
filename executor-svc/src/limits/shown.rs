//! Limits as people and `GetLimits` are shown them.

use std::fmt;

use service_kit::config::Span;

use super::{Bound, Names};
use crate::definition::PermissionMode;

pub(super) trait Shown {
    fn shown(&self) -> String;
}

impl<T: fmt::Display> Shown for Bound<T> {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for Span {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for PermissionMode {
    fn shown(&self) -> String {
        self.as_str().to_owned()
    }
}

impl Shown for Vec<String> {
    fn shown(&self) -> String {
        if self.is_empty() { "none".to_owned() } else { self.join(", ") }
    }
}

impl Shown for Names {
    fn shown(&self) -> String {
        match self {
            Self::All => "*".to_owned(),
            Self::Listed(names) => names.shown(),
        }
    }
}
