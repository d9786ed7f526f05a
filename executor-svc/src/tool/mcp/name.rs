//! Names of MCP tools on the wire: what every provider takes, and never two that mean the same.

use sha2::{Digest as _, Sha256};

/// Longest name of a server: with it, half of [`NAME_MAX`] is left for the tool.
const SERVER_MAX: usize = 24;

/// Longest name of a tool that the providers of models take.
const NAME_MAX: usize = 64;

/// Hexadecimal digits of the hash that tells mangled names apart.
const HASH_DIGITS: usize = 8;

/// True for `[a-z0-9-]{1,24}`: no underscore, so that a wire name has one reading only.
pub(super) fn is_server(name: &str) -> bool {
    (1..=SERVER_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// `mcp__<server>__<tool>`. Where a provider would not take that, the tool's part is mended and ends in a hash of what its
/// server calls it.
pub(super) fn on_the_wire(server: &str, tool: &str) -> String {
    let prefix = format!("mcp__{server}__");
    let is_taken_as_is = !tool.is_empty() && tool.bytes().all(is_taken);
    if is_taken_as_is && prefix.len() + tool.len() <= NAME_MAX {
        return prefix + tool;
    }
    let hash: String = Sha256::digest(tool).iter().map(|byte| format!("{byte:02x}")).collect();
    let room = NAME_MAX - prefix.len() - 1 - HASH_DIGITS;
    let mended = tool.chars().map(|letter| if is_taken_letter(letter) { letter } else { '_' });
    let mended: String = mended.take(room).collect();
    format!("{prefix}{mended}_{}", &hash[..HASH_DIGITS])
}

fn is_taken(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

fn is_taken_letter(letter: char) -> bool {
    u8::try_from(letter).is_ok_and(is_taken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_providers_take_stay_and_others_are_mended() {
        for name in ["read_file", "Read-File", "2"] {
            assert_eq!(on_the_wire("files", name), format!("mcp__files__{name}"));
        }
        let (long, cut) = ("x".repeat(60), format!("mcp__files__{}_", "x".repeat(43)));
        for (tool, expected) in [
            ("read.file", "mcp__files__read_file_"),
            ("read/file", "mcp__files__read_file_"),
            ("読む", "mcp__files_____"),
            ("", "mcp__files___"),
            (&long, &cut),
        ] {
            let name = on_the_wire("files", tool);
            let (mended, hash) = name.split_at(name.len() - HASH_DIGITS);
            assert_eq!(mended, expected, "{tool}");
            assert!(hash.bytes().all(|digit| digit.is_ascii_hexdigit()), "{name}");
        }
        assert_ne!(on_the_wire("files", "read.file"), on_the_wire("files", "read/file"));
    }

    proptest! {
        #[test]
        fn every_name_is_taken_by_every_provider(server in "[a-z0-9-]{1,24}", tool in ".{0,100}") {
            let name = on_the_wire(&server, &tool);
            prop_assert!(name.len() <= NAME_MAX && name.bytes().all(is_taken), "{}", name);
            let prefix = format!("mcp__{server}__");
            prop_assert!(name.starts_with(&prefix) && name.len() > prefix.len());
        }
    }
}
