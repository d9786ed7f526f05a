//! What comes in: checked once, here, and never again.

use ::proto::{agent::v1 as agent_proto, registry::v1 as proto};

use super::status::Failure;
use crate::{
    agent::{Digest, SourceKind, SpawnPolicy},
    config::DEFAULT_WORKSPACE,
};

/// A name has at most 128 characters of four bytes; nothing longer can be one.
const NAME_BYTES_MAX: usize = 512;

/// A request id is a UUID or a little more.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// Most names in a spawn policy or a skill list: more than there are agents in one workspace of any use.
const NAMES_MAX: usize = 10_000;

/// How much of a definition to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Basic,
    Full,
}

/// Empty means `default`.
pub(super) fn workspace(text: &str) -> &str {
    if text.is_empty() { DEFAULT_WORKSPACE } else { text }
}

pub(super) fn name(text: &str) -> Result<&str, Failure> {
    match text.len() {
        0 => Err(Failure::invalid("name", "is required")),
        1..=NAME_BYTES_MAX => Ok(text),
        _ => Err(Failure::invalid("name", "is longer than 128 characters")),
    }
}

/// Empty is none.
pub(super) fn digest(field: &'static str, text: &str) -> Result<Option<Digest>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    let digest = Digest::parse(text);
    digest.map(Some).ok_or_else(|| Failure::invalid(field, "is not a SHA-256 in lower-case hexadecimal"))
}

/// Absent expects nothing; empty expects that there is none yet.
pub(super) fn expected_digest(text: Option<String>) -> Result<Option<String>, Failure> {
    digest("expected_digest", text.as_deref().unwrap_or_default())?;
    Ok(text)
}

pub(super) fn request_id(text: String) -> Result<Option<String>, Failure> {
    if text.len() > REQUEST_ID_BYTES_MAX || text.chars().any(char::is_control) {
        return Err(Failure::invalid("request_id", "is longer than 128 bytes, or has control characters"));
    }
    Ok(Some(text).filter(|text| !text.is_empty()))
}

pub(super) fn document(bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
    if bytes.is_empty() { Err(Failure::invalid("document", "is required")) } else { Ok(bytes) }
}

pub(super) fn view(number: i32) -> Result<View, Failure> {
    match proto::View::try_from(number) {
        Ok(proto::View::Unspecified | proto::View::Basic) => Ok(View::Basic),
        Ok(proto::View::Full) => Ok(View::Full),
        Err(_) => Err(Failure::invalid("view", format!("has no value {number}"))),
    }
}

/// None means all.
pub(super) fn kinds(numbers: &[i32]) -> Result<Vec<SourceKind>, Failure> {
    use agent_proto::source::Kind;
    let kind = |number: &i32| match Kind::try_from(*number) {
        Ok(Kind::Authored) => Ok(SourceKind::Authored),
        Ok(Kind::Project) => Ok(SourceKind::Project),
        Ok(Kind::User) => Ok(SourceKind::User),
        Ok(Kind::Plugin) => Ok(SourceKind::Plugin),
        Ok(Kind::Root) => Ok(SourceKind::Root),
        Ok(Kind::Bundled) => Ok(SourceKind::Bundled),
        Ok(Kind::Unspecified) | Err(_) => {
            Err(Failure::invalid("kinds", format!("has {number}, which is no kind of source")))
        }
    };
    let mut kinds = numbers.iter().map(kind).collect::<Result<Vec<_>, _>>()?;
    kinds.sort_unstable();
    kinds.dedup();
    Ok(kinds)
}

pub(super) fn spawns(policy: Option<agent_proto::SpawnPolicy>) -> Result<Option<SpawnPolicy>, Failure> {
    use agent_proto::spawn_policy::Mode;
    let Some(agent_proto::SpawnPolicy { mode, names }) = policy else { return Ok(None) };
    match Mode::try_from(mode) {
        Ok(Mode::None) => Ok(Some(SpawnPolicy::None)),
        Ok(Mode::All) => Ok(Some(SpawnPolicy::All)),
        Ok(Mode::Listed) => Ok(Some(SpawnPolicy::Listed(self::names("spawns.names", names)?))),
        Ok(Mode::Unspecified) | Err(_) => Err(Failure::invalid("spawns.mode", "is required")),
    }
}

pub(super) fn names(field: &'static str, names: Vec<String>) -> Result<Vec<String>, Failure> {
    if names.len() > NAMES_MAX || names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
        return Err(Failure::invalid(field, "has more than 10000 names, or one of more than 128 characters"));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_required_and_bounded() {
        assert_eq!(name("explore"), Ok("explore"));
        assert_eq!(name("../../etc/passwd"), Ok("../../etc/passwd"));
        assert!(name("").is_err());
        assert!(name(&"n".repeat(513)).is_err());
    }

    #[test]
    fn digests_are_hexadecimal_or_empty() {
        assert_eq!(digest("digest", ""), Ok(None));
        assert!(digest("digest", &"0a".repeat(32)).unwrap().is_some());
        for text in ["0", "xyz", &"0A".repeat(32)] {
            assert!(digest("digest", text).is_err(), "{text}");
        }
        assert_eq!(expected_digest(Some(String::new())), Ok(Some(String::new())));
        assert_eq!(expected_digest(None), Ok(None));
    }

    #[test]
    fn numbers_outside_an_enum_are_refused() {
        assert_eq!(view(0), Ok(View::Basic));
        assert_eq!(view(2), Ok(View::Full));
        assert!(view(9).is_err());
        assert_eq!(kinds(&[5, 1, 5]), Ok(vec![SourceKind::Authored, SourceKind::Root]));
        assert!(kinds(&[0]).is_err());
        assert!(kinds(&[42]).is_err());
    }

    #[test]
    fn a_spawn_policy_needs_a_mode() {
        let policy = |mode, names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            spawns(Some(agent_proto::SpawnPolicy { mode, names }))
        };
        assert_eq!(spawns(None), Ok(None));
        assert_eq!(policy(3, &["a"]), Ok(Some(SpawnPolicy::Listed(vec!["a".to_owned()]))));
        assert!(policy(0, &["a"]).is_err());
    }

    #[test]
    fn request_ids_are_short_text() {
        assert_eq!(request_id(String::new()), Ok(None));
        assert_eq!(request_id("r1".to_owned()), Ok(Some("r1".to_owned())));
        assert!(request_id("r".repeat(129)).is_err());
        assert!(request_id("a\nb".to_owned()).is_err());
    }
}
