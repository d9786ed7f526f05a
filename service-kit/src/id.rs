//! Identifiers: a word that says what it names, and a time-ordered UUID.

use uuid::Uuid;

/// A new identifier such as `worker-0190…`. Later ones sort behind earlier ones of the same prefix.
pub fn new(prefix: &str) -> String {
    format!("{prefix}-{}", Uuid::now_v7().simple())
}

/// True for what [`new`] makes with this prefix.
pub fn is_valid(prefix: &str, text: &str) -> bool {
    text.strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix('-'))
        .is_some_and(|uuid| uuid.len() == 32 && Uuid::try_parse(uuid).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_says_what_it_names() {
        let id = new("worker");

        assert!(is_valid("worker", &id));
        assert!(!is_valid("session", &id));
        assert!(!is_valid("worker", "worker-"));
        assert!(!is_valid("worker", "worker-../../etc/passwd"));
    }
}
