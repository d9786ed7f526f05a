//! When two calls are the same call: the canonical prompt and the key over everything that shapes the answer.

use sha2::{Digest as _, Sha256};
use unicode_normalization::UnicodeNormalization as _;

use crate::definition::PermissionMode;

/// Everything that makes a call what it is. Calls that differ in one field have different keys.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub workspace: &'a str,
    /// The root session, or for an unnamed root what stands in its place: its operator.
    pub root: &'a str,
    pub agent: &'a str,
    /// As the caller wrote it: made canonical here.
    pub prompt: &'a str,
    pub definition_digest: &'a str,
    /// The effective schema as JSON text.
    pub output_schema: Option<&'a str>,
    pub schema_is_permissive: bool,
    pub model: &'a str,
    pub plan_mode: bool,
    pub permission_mode: PermissionMode,
    pub locale: &'a str,
    pub skills: &'a [String],
}

/// Changes with the layout of the key, so that keys kept by an earlier version match nothing.
const LAYOUT: &str = "roster dedupe 1";

/// NFC, every run of white space one blank, trimmed. Case and punctuation stay.
pub fn canonical_prompt(prompt: &str) -> String {
    let mut canonical = String::with_capacity(prompt.len());
    let composed: String = prompt.nfc().collect();
    for word in composed.split_whitespace() {
        if !canonical.is_empty() {
            canonical.push(' ');
        }
        canonical.push_str(word);
    }
    canonical
}

/// SHA-256 over the fields, each with its length before it, so that no two lists of fields have the same bytes.
pub fn key(call: &Call<'_>) -> [u8; 32] {
    let Call {
        workspace,
        root,
        agent,
        prompt,
        definition_digest,
        output_schema,
        schema_is_permissive,
        model,
        plan_mode,
        permission_mode,
        locale,
        skills,
    } = call;
    let prompt = canonical_prompt(prompt);
    let mut hash = Sha256::new();
    for text in [LAYOUT, workspace, root, agent, &prompt, definition_digest] {
        field(&mut hash, text);
    }
    // An empty schema is not the absence of one.
    field(&mut hash, if output_schema.is_some() { "schema" } else { "no schema" });
    field(&mut hash, output_schema.unwrap_or_default());
    field(&mut hash, if *schema_is_permissive { "permissive" } else { "strict" });
    field(&mut hash, model);
    field(&mut hash, if *plan_mode { "plan" } else { "act" });
    field(&mut hash, permission_mode.as_str());
    field(&mut hash, locale);
    for skill in *skills {
        field(&mut hash, skill);
    }
    hash.finalize().into()
}

fn field(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn call() -> Call<'static> {
        Call {
            workspace: "default",
            root: "operator ada",
            agent: "explore",
            prompt: "Find the parser.",
            definition_digest: "sha256:1",
            output_schema: None,
            schema_is_permissive: false,
            model: "local/qwen3",
            plan_mode: false,
            permission_mode: PermissionMode::ReadOnly,
            locale: "",
            skills: &[],
        }
    }

    #[test]
    fn white_space_and_composition_do_not_make_a_prompt_another_one() {
        for (prompt, canonical) in [
            ("", ""),
            (" \t\r\n", ""),
            ("Find it.", "Find it."),
            ("  Find\n\n\tit. ", "Find it."),
            ("a\u{a0}b\u{3000}c\u{2003}d", "a b c d"),
            ("cafe\u{301}", "caf\u{e9}"),
            ("Å \u{212b}", "Å Å"),
            // Compatibility forms, case, punctuation and invisible characters are other prompts.
            ("ﬁnd", "ﬁnd"),
            ("FIND it!", "FIND it!"),
            ("a\u{200b}b", "a\u{200b}b"),
        ] {
            assert_eq!(canonical_prompt(prompt), canonical, "{prompt:?}");
        }
    }

    #[test]
    fn the_same_call_in_other_white_space_has_the_same_key() {
        let other = Call { prompt: "\n Find  the parser.\t", ..call() };

        assert_eq!(key(&call()), key(&other));
    }

    #[test]
    fn a_call_that_differs_in_one_field_has_another_key() {
        let (one, two, joined) = (["a".to_owned()], ["a".to_owned(), "b".to_owned()], ["ab".to_owned()]);
        let calls = [
            call(),
            Call { workspace: "other", ..call() },
            Call { root: "operator bob", ..call() },
            Call { agent: "reviewer", ..call() },
            Call { prompt: "find the parser.", ..call() },
            Call { definition_digest: "sha256:2", ..call() },
            Call { output_schema: Some(""), ..call() },
            Call { output_schema: Some("{}"), ..call() },
            Call { schema_is_permissive: true, ..call() },
            Call { model: "local/other", ..call() },
            Call { plan_mode: true, ..call() },
            Call { permission_mode: PermissionMode::DualSign, ..call() },
            Call { permission_mode: PermissionMode::MutatingWithReview, ..call() },
            Call { locale: "de", ..call() },
            Call { skills: &one, ..call() },
            Call { skills: &two, ..call() },
            Call { skills: &joined, ..call() },
        ];

        let keys: HashMap<[u8; 32], usize> =
            calls.iter().enumerate().map(|(index, call)| (key(call), index)).collect();

        assert_eq!(keys.len(), calls.len());
    }

    proptest! {
        #[test]
        fn a_canonical_prompt_stays_as_it_is(prompt in "\\PC*|[ \t\na-zé\u{301}\u{2003}]*") {
            let canonical = canonical_prompt(&prompt);

            prop_assert_eq!(canonical_prompt(&canonical), canonical);
        }

        /// Few letters and short texts, so that the same bytes often fall on the two sides of a border between fields.
        #[test]
        fn keys_are_equal_only_where_every_field_is(
            left in prop::array::uniform6("[ab]{0,2}"),
            right in prop::array::uniform6("[ab]{0,2}"),
            left_skills in prop::collection::vec("[ab]{0,2}", 0..3),
            right_skills in prop::collection::vec("[ab]{0,2}", 0..3),
        ) {
            let same = left == right && left_skills == right_skills;

            prop_assert_eq!(key(&of(&left, &left_skills)) == key(&of(&right, &right_skills)), same);
        }
    }

    fn of<'a>(fields: &'a [String; 6], skills: &'a [String]) -> Call<'a> {
        let [workspace, root, agent, prompt, model, locale] = fields;
        Call { workspace, root, agent, prompt, model, locale, skills, ..call() }
    }
}
