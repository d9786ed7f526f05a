//! Opaque page tokens: a place in a listing, bound to the query and to the generation of its first page.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

/// No token of ours is longer; a longer one is not decoded.
const TOKEN_BYTES_MAX: usize = 2 * 1024;

/// Bytes of the checksum that binds a token to its query.
const CHECK_BYTES: usize = 12;

const GENERATION_BYTES: usize = 8;

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The state that all pages of the listing belong to; 0 where there is none.
    pub generation: u64,
    /// The last item of the page before.
    pub after: String,
}

/// Why a page cannot be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("`page_token` is not one that this listing gave out")]
    Token,
    #[error("`page_size` is negative")]
    Size,
}

/// The token that continues the listing `query` behind `position`. The first part of a query is the name of its RPC.
pub fn encode(query: &[&str], position: &Position) -> String {
    let mut bytes = check(query, position).to_vec();
    bytes.extend_from_slice(&position.generation.to_be_bytes());
    bytes.extend_from_slice(position.after.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads a token back; `None` is the first page.
///
/// # Errors
///
/// [`Invalid::Token`] where the token was not made by [`encode`] for this query.
pub fn decode(query: &[&str], token: &str) -> Result<Option<Position>, Invalid> {
    if token.is_empty() {
        return Ok(None);
    }
    if token.len() > TOKEN_BYTES_MAX {
        return Err(Invalid::Token);
    }
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| Invalid::Token)?;
    let (checksum, rest) = bytes.split_at_checked(CHECK_BYTES).ok_or(Invalid::Token)?;
    let (generation, after) = rest.split_first_chunk::<GENERATION_BYTES>().ok_or(Invalid::Token)?;
    let position = Position {
        generation: u64::from_be_bytes(*generation),
        after: String::from_utf8(after.to_vec()).map_err(|_| Invalid::Token)?,
    };
    if check(query, &position) != checksum {
        return Err(Invalid::Token);
    }
    Ok(Some(position))
}

/// The page size to use: zero is `default`, above `maximum` is `maximum`.
///
/// # Errors
///
/// [`Invalid::Size`] where it is negative.
pub fn size(requested: i32, default: usize, maximum: usize) -> Result<usize, Invalid> {
    match usize::try_from(requested) {
        Ok(0) => Ok(default),
        Ok(size) => Ok(size.min(maximum)),
        Err(_) => Err(Invalid::Size),
    }
}

fn check(query: &[&str], position: &Position) -> [u8; CHECK_BYTES] {
    let mut hash = Sha256::new();
    for part in query.iter().copied().chain([position.after.as_str()]) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.update(position.generation.to_be_bytes());
    let whole: [u8; 32] = hash.finalize().into();
    *whole.first_chunk().expect("a SHA-256 is longer than the checksum")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(generation: u64, after: &str) -> Position {
        Position { generation, after: after.to_owned() }
    }

    #[test]
    fn a_token_leads_back_to_its_place() {
        for after in ["", "49", "日本/agent", "a,b"] {
            let token = encode(&["List", "default"], &position(7, after));

            assert_eq!(decode(&["List", "default"], &token), Ok(Some(position(7, after))));
        }
        assert_eq!(decode(&["List"], ""), Ok(None));
    }

    #[test]
    fn a_token_of_another_query_is_refused() {
        let token = encode(&["List", "default", "FULL"], &position(7, "49"));

        assert_eq!(decode(&["List", "default", "BASIC"], &token), Err(Invalid::Token));
        assert_eq!(decode(&["List", "defaultFULL"], &token), Err(Invalid::Token));
        assert_eq!(decode(&["ListDiagnostics", "default", "FULL"], &token), Err(Invalid::Token));
    }

    #[test]
    fn a_changed_or_invented_token_is_refused() {
        let token = encode(&["List"], &position(7, "49"));
        for index in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[index] = if changed[index] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();

            assert_eq!(decode(&["List"], &changed), Err(Invalid::Token), "{changed}");
        }
        for invented in ["x", "====", "AAAA", &"A".repeat(9_999)] {
            assert_eq!(decode(&["List"], invented), Err(Invalid::Token));
        }
    }

    #[test]
    fn sizes_have_a_default_and_a_maximum() {
        assert_eq!(size(0, 50, 200), Ok(50));
        assert_eq!(size(1, 50, 200), Ok(1));
        assert_eq!(size(i32::MAX, 50, 200), Ok(200));
        assert_eq!(size(-1, 50, 200), Err(Invalid::Size));
    }
}
