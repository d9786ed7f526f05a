//! Names with wildcards.

/// A name in which each `*` stands for any text, none included. Compared exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern<'a>(pub &'a str);

impl Pattern<'_> {
    pub fn is_exact(&self) -> bool {
        !self.0.contains('*')
    }

    /// Each part between two stars is looked for from the left, which is enough since the first find leaves most room.
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else { return false };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        for part in parts {
            match rest.find(part) {
                Some(start) => rest = &rest[start + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }

    /// The value of the longest pattern that matches; of two as long, the later in order.
    pub fn longest<'m, V>(
        patterns: impl IntoIterator<Item = (&'m String, &'m V)>,
        name: &str,
    ) -> Option<&'m V> {
        patterns
            .into_iter()
            .filter(|(pattern, _)| Pattern(pattern).matches(name))
            .max_by_key(|(pattern, _)| pattern.len())
            .map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::Pattern;

    #[track_caller]
    fn check(pattern: &str, name: &str, matches: bool) {
        assert_eq!(Pattern(pattern).matches(name), matches, "{pattern} on {name}");
    }

    #[test]
    fn a_star_stands_for_any_text() {
        check("read", "read", true);
        check("read", "reader", false);
        check("read", "Read", false);
        check("*", "read", true);
        check("*", "", true);
        check("", "", true);
        check("", "a", false);
        check("re*", "read", true);
        check("re*", "re", true);
        check("*ad", "read", true);
        check("*ad", "ad", true);
        check("a*a", "a", false);
        check("a*a", "aa", true);
        check("mcp__*__write_*", "mcp__files__write_file", true);
        check("mcp__*__write_*", "mcp__files__read_file", false);
        check("*a*b*", "xxaxxbxx", true);
        check("*a*b*", "xxbxxaxx", false);
        check("a**b", "ab", true);
    }

    #[test]
    fn the_longest_pattern_counts() {
        let values = BTreeMap::from([("*".to_owned(), 1), ("mcp__*".to_owned(), 2), ("bash".to_owned(), 3)]);
        assert_eq!(Pattern::longest(&values, "mcp__a__b"), Some(&2));
        assert_eq!(Pattern::longest(&values, "bash"), Some(&3));
        assert_eq!(Pattern::longest(&values, "read"), Some(&1));
    }
}
