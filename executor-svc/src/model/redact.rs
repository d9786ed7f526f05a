//! Keeps a provider's key out of everything that comes back: a server may repeat it in errors and even in text.

use std::sync::Arc;

/// Below this a key is a placeholder such as `none`, and blotting it out would only garble the text.
const KEY_BYTES_MIN: usize = 8;
const MARK: &str = "[key]";

/// The key of one provider, if it has one.
#[derive(Clone)]
pub(super) struct Redactor {
    key: Option<Arc<str>>,
}

/// Redacts text that comes in pieces: what may be the beginning of the key is held back.
pub(super) struct Stream<'a> {
    key: Option<&'a str>,
    held: String,
}

impl Redactor {
    pub(super) fn new(key: Option<&str>) -> Self {
        Self { key: key.filter(|key| key.len() >= KEY_BYTES_MIN).map(Arc::from) }
    }

    pub(super) fn redact(&self, text: String) -> String {
        match &self.key {
            Some(key) if text.contains(&**key) => text.replace(&**key, MARK),
            _ => text,
        }
    }

    pub(super) fn stream(&self) -> Stream<'_> {
        Stream { key: self.key.as_deref(), held: String::new() }
    }
}

impl Stream<'_> {
    /// Takes a piece and returns what can be shown.
    pub(super) fn push(&mut self, piece: &str) -> String {
        let Some(key) = self.key else { return piece.to_owned() };
        let mut text = std::mem::take(&mut self.held);
        text.push_str(piece);
        let mut text = text.replace(key, MARK);
        let tail = key
            .char_indices()
            .rev()
            .map(|(end, _)| end)
            .find(|&end| end > 0 && text.ends_with(&key[..end]))
            .unwrap_or(0);
        self.held = text.split_off(text.len() - tail);
        text
    }

    /// What was held back, once nothing follows.
    pub(super) fn finish(self) -> String {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "sk-abcabcab";

    #[test]
    fn a_key_is_blotted_out_and_a_placeholder_is_not() {
        assert_eq!(Redactor::new(Some(KEY)).redact(format!("it is {KEY}!")), "it is [key]!");
        assert_eq!(Redactor::new(Some("none")).redact("none".to_owned()), "none");
        assert_eq!(Redactor::new(None).redact("none".to_owned()), "none");
    }

    proptest! {
        #[test]
        fn text_in_pieces_is_redacted_like_the_whole(
            parts in prop::collection::vec(prop_oneof![
                Just(KEY.to_owned()),
                (0..KEY.len()).prop_map(|end| KEY[..end].to_owned()),
                "[a-csk-]{0,3}",
            ], 0..8),
        ) {
            let redactor = Redactor::new(Some(KEY));
            let whole = parts.concat();
            let mut stream = redactor.stream();
            let mut shown: String = parts.iter().map(|part| stream.push(part)).collect();
            shown.push_str(&stream.finish());

            prop_assert!(!shown.contains(KEY));
            prop_assert_eq!(shown, redactor.redact(whole));
        }
    }
}
