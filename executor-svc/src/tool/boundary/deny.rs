//! Patterns of names that are never opened.

use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Compiled patterns. One without a slash denies every file and directory of that name, and what lies in it; one with a
/// slash denies that path at any depth.
pub(super) struct Deny {
    patterns: Vec<String>,
    set: GlobSet,
}

impl Deny {
    pub(super) fn new(patterns: &[String]) -> Result<Self, String> {
        let mut set = GlobSetBuilder::new();
        for pattern in patterns {
            let anywhere = format!("**/{}", pattern.trim_start_matches('/'));
            // Case is ignored: `.ENV` is as secret as `.env`.
            let glob = GlobBuilder::new(&anywhere)
                .literal_separator(true)
                .case_insensitive(true)
                .build()
                .map_err(|error| format!("`tools.read_deny` has a broken pattern: {error}"))?;
            set.add(glob);
        }
        let set = set.build().map_err(|error| format!("`tools.read_deny` is too large: {error}"))?;
        Ok(Self { patterns: patterns.to_vec(), set })
    }

    /// The pattern that denies a path or a directory above it.
    pub(super) fn matching(&self, relative: &Path) -> Option<&str> {
        relative
            .ancestors()
            .filter(|path| !path.as_os_str().is_empty())
            .find_map(|path| self.set.matches(path).first().map(|&index| self.patterns[index].as_str()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Deny;

    #[track_caller]
    fn check(pattern: &str, path: &str, denied: bool) {
        let deny = Deny::new(&[pattern.to_owned()]).unwrap();
        assert_eq!(deny.matching(Path::new(path)).is_some(), denied, "{pattern} on {path}");
    }

    #[test]
    fn a_name_is_denied_at_any_depth_and_so_is_what_lies_in_it() {
        check(".env*", ".env", true);
        check(".env*", "deploy/.env.production", true);
        check(".env*", ".env.d/keys/one", true);
        check(".env*", "src/env.rs", false);
        check("*.pem", "tls/SERVER.PEM", true);
        check("*.pem", "tls/server.pem.md", false);
        check("id_*", "home/.ssh/id_ed25519", true);
        check("id_*", "src/grid_map.rs", false);
    }

    #[test]
    fn a_path_is_denied_as_a_whole() {
        check(".git/config", ".git/config", true);
        check(".git/config", "vendor/x/.git/config", true);
        check(".git/config", "config", false);
        check("/secrets/*", "secrets/a/b", true);
    }

    #[test]
    fn a_broken_pattern_is_named() {
        let Err(message) = Deny::new(&["[".to_owned()]) else { panic!("`[` is no pattern") };
        assert!(message.contains("tools.read_deny"), "{message}");
    }
}
