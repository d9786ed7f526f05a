//! What a refusal has to carry.

use std::collections::HashMap;

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Checks code and reason; answers the metadata.
#[track_caller]
pub fn reason(status: &Status, code: Code, reason: &str) -> HashMap<String, String> {
    assert_eq!(status.code(), code, "{status:?}");
    let info = status.get_details_error_info().expect("every refusal has an ErrorInfo");
    assert_eq!(info.reason, reason, "{status:?}");
    assert!(info.domain.ends_with(".roster"), "{status:?}");
    info.metadata
}
