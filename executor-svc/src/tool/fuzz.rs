//! The path of a call's arguments as the fuzz target calls it.

use std::sync::LazyLock;

use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use super::builtin::{submit_result, trial};
use crate::review::unambiguous;

/// Takes what a model wrote as the arguments of a call, and calls every tool with it.
pub fn arguments(text: &str) {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| Builder::new_current_thread().enable_all().build().expect("a runtime can be made"));
    let is_clear = unambiguous(text).is_ok();
    let Ok(arguments) = serde_json::from_str::<Value>(text) else {
        assert!(!is_clear, "what nobody can read is not clear");
        return;
    };
    assert!(!is_clear || arguments.is_object(), "{text}");
    // Whatever it says of them, it has to say something.
    let _ = submit_result::read(None, &arguments);
    trial::check(&RUNTIME, &[arguments]);
}
