//! The rules for names: what text may name an agent, and what looks like another agent's name.

use unicode_normalization::UnicodeNormalization as _;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory as _};

/// Characters of a name: fits a line of any list, and any identifier made from it.
const NAME_MAX: usize = 128;

/// Checks a trimmed name and brings it into composed form (NFC).
///
/// Fails with what is wrong, for a message.
pub(super) fn check(text: &str) -> Result<String, String> {
    let name: String = text.nfc().collect();
    let length = name.chars().count();
    if length > NAME_MAX {
        return Err(format!("is {length} characters long, at most {NAME_MAX} are allowed"));
    }
    if let Some(character) = name.chars().find(|character| !is_allowed(*character)) {
        return Err(format!("contains U+{:04X}, which no name may contain", u32::from(character)));
    }
    if name.contains("..") {
        return Err("contains `..`".to_owned());
    }
    if let Some(start) = ["./", "-", "/"].into_iter().find(|start| name.starts_with(start)) {
        return Err(format!("begins with `{start}`"));
    }
    if !parentheses_balance(&name) {
        return Err("has unbalanced parentheses".to_owned());
    }
    Ok(name)
}

/// Names that another name must not be confusable with, with what they look like.
#[derive(Clone, Debug, Default)]
pub struct GuardedNames(Vec<Guarded>);

/// No names.
pub static UNGUARDED: GuardedNames = GuardedNames(Vec::new());

#[derive(Clone, Debug)]
struct Guarded {
    name: String,
    looks: Looks,
}

/// What a name looks like, as it is and in lower case.
#[derive(Clone, Debug)]
struct Looks {
    lower: String,
    skeleton: String,
    lower_skeleton: String,
}

impl GuardedNames {
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let guarded = |name: &str| Guarded { name: name.to_owned(), looks: Looks::of(name) };
        Self(names.into_iter().map(guarded).collect())
    }

    /// The guarded name that `name` could be taken for: it looks the same and is another.
    pub(super) fn confusable_with(&self, name: &str) -> Option<&str> {
        if self.0.is_empty() {
            return None;
        }
        let looks = Looks::of(name);
        let confusable = self.0.iter().find(|guarded| {
            // Names that differ only in case are another finding.
            guarded.looks.lower != looks.lower
                && (guarded.looks.skeleton == looks.skeleton
                    || guarded.looks.lower_skeleton == looks.lower_skeleton)
        });
        confusable.map(|guarded| guarded.name.as_str())
    }
}

impl Looks {
    fn of(name: &str) -> Self {
        let lower = name.to_lowercase();
        let skeleton = skeleton(name);
        let lower_skeleton = if lower == name { skeleton.clone() } else { self::skeleton(&lower) };
        Self { lower, skeleton, lower_skeleton }
    }
}

/// True when every closing parenthesis has its opening one before it, and the other way round.
pub(super) fn parentheses_balance(text: &str) -> bool {
    let mut depth = 0_usize;
    for byte in text.bytes() {
        match byte {
            b'(' => depth += 1,
            b')' if depth == 0 => return false,
            b')' => depth -= 1,
            _ => {}
        }
    }
    depth == 0
}

fn is_allowed(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_alphanumeric() || " -_.:+#&'!@/()".contains(character);
    }
    character.general_category() == GeneralCategory::DecimalNumber
        || matches!(
            character.general_category_group(),
            GeneralCategoryGroup::Letter | GeneralCategoryGroup::Mark
        )
}

/// What a name looks like, by Unicode's table of confusable characters (UTS 39).
fn skeleton(name: &str) -> String {
    unicode_security::skeleton(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn accepted(name: &str) {
        assert_eq!(check(name).as_deref(), Ok(name));
    }

    #[track_caller]
    fn refused(name: &str) {
        assert!(check(name).is_err(), "{name:?}");
    }

    #[test]
    fn names_that_people_use_are_accepted() {
        accepted("a");
        accepted("42");
        accepted("Code Reviewer");
        accepted("specialist-disk-2");
        accepted("C++ & C# expert: .NET's");
        accepted("UI/UX Researcher (mobile)");
        accepted("@team/agent_1!");
        accepted("项目管理");
        accepted("समीक्षक");
        accepted("مراجع");
        accepted("१२३");
        accepted(&"é".repeat(128));
    }

    #[test]
    fn a_name_is_composed() {
        assert_eq!(check("re\u{301}viseur").as_deref(), Ok("r\u{e9}viseur"));
    }

    #[test]
    fn anything_else_is_refused() {
        for name in [
            "a, b", "a;b", "a\"b", "a*", "a?b", "a<b>", "a|b", "a\\b", "a`b", "$a", "a=b", "a%b", "[a]",
            "{a}",
        ] {
            refused(name);
        }
        for name in [
            "a\nb",
            "a\tb",
            "a\u{7}b",
            "a\u{a0}b",
            "a\u{200b}b",
            "a\u{200d}b",
            "a\u{202e}b",
            "a\u{e0041}",
            "🚀",
            "½",
        ] {
            refused(name);
        }
        refused(&"a".repeat(129));
    }

    #[test]
    fn a_name_never_looks_like_a_path_or_an_option() {
        for name in ["../a", "a/../b", "a..b", "-rf", "/etc", "./a"] {
            refused(name);
        }
        accepted(".hidden");
        accepted("a/b");
        accepted("a-");
    }

    #[test]
    fn parentheses_must_balance() {
        accepted("a (b (c)) (d)");
        for name in ["a (b", "a b)", "a )b(", "a (b))"] {
            refused(name);
        }
    }

    #[test]
    fn names_that_look_like_a_guarded_one_are_confusable() {
        let guarded = GuardedNames::new(["reviewer", "explore"]);

        for (name, like) in
            [("rev\u{456}ewer", "reviewer"), ("REV\u{406}EWER", "reviewer"), ("exp1ore", "explore")]
        {
            assert_eq!(guarded.confusable_with(name), Some(like), "{name}");
        }
        for name in ["reviewer", "Reviewer", "REVIEWER", "review", "explorer", "项目管理"] {
            assert_eq!(guarded.confusable_with(name), None, "{name}");
        }
    }
}
