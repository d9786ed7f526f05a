//! Trees that a scanner has to read, and trees that it has to refuse.

mod rights;

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, chown, symlink},
};

use tempfile::TempDir;

use super::*;
use crate::{diagnostic::Code, merge::OnBrokenOverride};

/// A user that is neither root nor the one who runs the tests.
const SOMEBODY: u32 = 12_345;

struct Place(TempDir);

impl Place {
    /// With a repository `p`, a home `h` and a root `r`.
    fn new(files: &[(&str, &str)]) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for directory in ["p/.git", "h", "r"] {
            fs::create_dir_all(place.path(directory)).unwrap();
        }
        for (path, name) in files {
            place.write(path, &format!("---\nname: {name}\ndescription: d\n---\nB\n"));
        }
        place
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content.replace("T/", &format!("{}/", self.0.path().display()))).unwrap();
    }

    fn link(&self, path: &str, target: impl AsRef<Path>) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        symlink(target, self.path(path)).unwrap();
    }

    fn settings(&self) -> Settings {
        Settings {
            cwd: Some(self.path("p")),
            home: Some(self.path("h")),
            families: [".xcsh", ".claude", ".codex", ".gemini"].map(str::to_owned).to_vec(),
            plugins: true,
            roots: vec![self.path("r")],
            bundled: false,
            name_from_file: vec![".opencode".to_owned()],
            link_roots: Vec::new(),
        }
    }

    fn scan(&self) -> Scan {
        self.scan_with(&self.settings())
    }

    fn scan_with(&self, settings: &Settings) -> Scan {
        let policy = Policy { protected: Vec::new(), on_broken_override: OnBrokenOverride::FallThrough };
        Scanner::new(settings, &policy).unwrap().scan()
    }

    /// Names and paths of what can be used, and the codes of what was found beside the documents.
    #[track_caller]
    fn check(&self, expected: &[(&str, &str)], codes: &[Code]) {
        self.check_with(&self.settings(), expected, codes);
    }

    #[track_caller]
    fn check_with(&self, settings: &Settings, expected: &[(&str, &str)], codes: &[Code]) {
        let scan = self.scan_with(settings);
        let found: Vec<(&str, &str)> =
            scan.documents.iter().filter_map(|it| row(it, self.0.path())).collect();
        assert_eq!(found, expected);
        let found: Vec<Code> = scan.findings.iter().map(|finding| finding.code).collect();
        assert_eq!(found, codes, "{:?}", scan.findings);
    }
}

fn row<'a>(document: &'a Arc<Document>, top: &Path) -> Option<(&'a str, &'a str)> {
    let name = document.definition()?.agent.name.as_str();
    let path = &document.source.path;
    Some((name, path.strip_prefix(top.to_str().unwrap()).map_or(path, |path| path.trim_start_matches('/'))))
}

#[test]
fn a_directory_that_others_may_fill_is_not_read_but_stays_the_nearest() {
    let place = Place::new(&[("p/q/.claude/agents/1.md", "near"), ("p/.claude/agents/1.md", "far")]);
    let settings = Settings { cwd: Some(place.path("p/q")), ..place.settings() };

    fs::set_permissions(place.path("p/q/.claude/agents"), Permissions::from_mode(0o777)).unwrap();
    place.check_with(&settings, &[], &[Code::UntrustedOwner]);

    fs::set_permissions(place.path("p/q/.claude/agents"), Permissions::from_mode(0o755)).unwrap();
    place.check_with(&settings, &[("near", "p/q/.claude/agents/1.md")], &[]);

    // Only root may give a directory away; the check itself does not depend on who runs it.
    if rustix::process::geteuid().is_root() {
        fs::create_dir(place.path("p/q/.claude/commands")).unwrap();
        chown(place.path("p/q/.claude"), Some(SOMEBODY), None).unwrap();
        place.check_with(&settings, &[], &[Code::UntrustedOwner]);
    }
}

#[test]
fn roots_and_plugins_are_the_operators_and_are_not_asked_for_their_owner() {
    let place = Place::new(&[("r/1.md", "a")]);
    fs::set_permissions(place.path("r"), Permissions::from_mode(0o777)).unwrap();

    place.check(&[("a", "r/1.md")], &[]);
}

#[test]
fn a_workspace_in_the_home_itself_has_no_project() {
    let place = Place::new(&[("h/.claude/agents/1.md", "a")]);

    let scan = place.scan_with(&Settings { cwd: Some(place.path("h")), ..place.settings() });

    assert_eq!(scan.documents[0].source.kind, SourceKind::User);
    assert_eq!(scan.documents.len(), 1);
}

#[test]
fn precedence_counts_the_sources_whether_they_are_there_or_not() {
    let place = Place::new(&[("p/.xcsh/agents/1.md", "a"), ("h/.gemini/agents/1.md", "b"), ("r/1.md", "c")]);

    let of_all: Vec<u32> = place.scan().documents.iter().map(|it| it.source.precedence).collect();
    assert_eq!(of_all, [1, 8, 9]);

    let few =
        Settings { home: None, families: vec![".claude".to_owned()], bundled: true, ..place.settings() };
    let of_few: Vec<u32> = place.scan_with(&few).documents.iter().map(|it| it.source.precedence).collect();
    assert_eq!(of_few[..2], [3, 4]);
}

#[test]
fn links_count_by_where_they_lead() {
    let place = Place::new(&[("r/store/1.md", "inside"), ("shared/1.md", "outside")]);
    place.link("r/absolute.md", place.path("r/store/1.md"));
    place.link("r/escape.md", place.path("shared/1.md"));
    place.link("r/dangling.md", "nowhere");
    place.link("r/self.md", "self.md");
    place.link("r/notes.txt", place.path("shared/1.md"));

    place.check(&[("inside", "r/absolute.md")], &[Code::LinkEscapes]);

    let allowed = Settings { link_roots: vec![place.path("shared")], ..place.settings() };
    place.check_with(&allowed, &[("inside", "r/absolute.md"), ("outside", "r/escape.md")], &[]);
}

#[test]
fn the_boundary_is_the_home_for_the_user_and_the_ancestor_for_the_project() {
    let place = Place::new(&[
        ("h/dotfiles/agents/1.md", "mine"),
        ("p/tools/agents/2.md", "ours"),
        ("else/3.md", "no"),
    ]);
    place.link("h/.claude/agents", place.path("h/dotfiles/agents"));
    place.link("p/.claude/agents", "../tools/agents");
    place.check(&[("ours", "p/.claude/agents/2.md"), ("mine", "h/.claude/agents/1.md")], &[]);

    fs::remove_file(place.path("p/.claude/agents")).unwrap();
    place.link("p/.claude/agents", place.path("h/dotfiles/agents"));
    place.check(&[("mine", "h/.claude/agents/1.md")], &[Code::LinkEscapes]);
}

#[test]
fn a_directory_is_entered_once_and_the_sources_own_first() {
    let place = Place::new(&[("r/z/1.md", "a"), ("r/z/y/2.md", "b")]);
    place.link("r/a", "z");
    place.link("r/z/y/up", "../..");

    place.check(&[("a", "r/z/1.md"), ("b", "r/z/y/2.md")], &[]);
}

#[test]
fn a_file_is_read_once_under_its_first_path() {
    let place = Place::new(&[("r/b.md", "a"), ("h/.claude/agents/x.md", "b")]);
    fs::hard_link(place.path("r/b.md"), place.path("r/a.md")).unwrap();
    fs::hard_link(place.path("h/.claude/agents/x.md"), place.path("r/x.md")).unwrap();

    place.check(&[("b", "h/.claude/agents/x.md"), ("a", "r/a.md")], &[]);
}

#[test]
fn a_directory_that_two_sources_name_is_the_first_ones() {
    let place = Place::new(&[("r/1.md", "a")]);
    let twice = Settings { roots: vec![place.path("r"), place.path("r")], ..place.settings() };

    place.check_with(&twice, &[("a", "r/1.md")], &[]);
}

#[test]
fn a_tree_is_read_only_so_deep() {
    let place = Place::new(&[]);
    let deep = |levels: usize| format!("r/{}", "d/".repeat(levels));
    place.write(&format!("{}in.md", deep(32)), "---\nname: in\ndescription: d\n---\nB\n");
    place.write(&format!("{}out.md", deep(33)), "---\nname: out\ndescription: d\n---\nB\n");

    place.check(&[("in", &format!("{}in.md", deep(32)))], &[]);
}

#[test]
fn files_that_explain_a_directory_are_no_agents_unless_they_begin_with_a_fence() {
    let place = Place::new(&[("r/b/Agents.MD", "agents")]);
    for name in ["README.md", "readme.MD", "CLAUDE.md", "AGENTS.md"] {
        place.write(&format!("r/{name}"), "# Read me\n---\n");
    }
    place.write("r/other.md", "# No agent either, but that is said\n");

    let scan = place.scan();

    let paths: Vec<_> = scan.documents.iter().map(|it| it.source.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(paths, ["Agents.MD", "other.md"]);
}

#[test]
fn a_family_may_have_two_directories_and_names_from_files() {
    let place = Place::new(&[("p/.opencode/agents/2.md", "named")]);
    place.write("p/.opencode/agent/helper.agent.md", "---\ndescription: d\n---\nB\n");
    let settings = Settings { families: vec![".opencode".to_owned()], ..place.settings() };

    place.check_with(
        &settings,
        &[("helper", "p/.opencode/agent/helper.agent.md"), ("named", "p/.opencode/agents/2.md")],
        &[],
    );
}

#[test]
fn only_what_changed_is_read_and_a_thousand_files_are_read_on_two_threads() {
    let place = Place::new(&[]);
    for number in 0..1200 {
        place.write(&format!("r/{number:04}.md"), &format!("---\nname: a{number}\ndescription: d\n---\nB\n"));
    }
    let policy = Policy { protected: Vec::new(), on_broken_override: OnBrokenOverride::FallThrough };
    let mut scanner = Scanner::new(&place.settings(), &policy).unwrap();
    let first = scanner.scan();
    assert_eq!(first.documents.len(), 1200);
    assert!(first.same_as(&scanner.scan()));

    place.write("r/0500.md", "---\nname: other\ndescription: d\n---\nB\n");
    let second = scanner.scan();

    let pairs = || first.documents.iter().zip(&second.documents);
    assert_eq!(pairs().filter(|(left, right)| !Arc::ptr_eq(left, right)).count(), 1);
    assert_eq!(second.documents[500].definition().unwrap().agent.name.as_str(), "other");
}

#[test]
fn a_source_that_moves_in_the_order_takes_its_documents_along() {
    let place = Place::new(&[("r/1.md", "a"), ("plug/agents/1.md", "p")]);
    let policy = Policy { protected: Vec::new(), on_broken_override: OnBrokenOverride::FallThrough };
    let mut scanner = Scanner::new(&place.settings(), &policy).unwrap();
    assert_eq!(scanner.scan().documents[0].source.precedence, 9);

    place.write("h/.claude/plugins/installed_plugins.json", &registry(&[("p@m", USER)]));
    let scan = scanner.scan();

    let order: Vec<_> = scan.documents.iter().map(|it| (it.source.kind, it.source.precedence)).collect();
    assert_eq!(order, [(SourceKind::Plugin, 9), (SourceKind::Root, 10)]);
}

#[test]
fn a_mount_that_is_swapped_all_the_time_is_never_read_from_two_generations() {
    const FILES: usize = 40;
    const SCANS: usize = 150;
    let place = Place::new(&[]);
    let mount = |generation: usize| {
        for file in 0..FILES {
            let text = format!("---\nname: a{file}\ndescription: d\n---\n{generation}\n");
            place.write(&format!("r/..{generation}/{file:02}.md"), &text);
        }
        place.link("r/..data_tmp", format!("..{generation}"));
        fs::rename(place.path("r/..data_tmp"), place.path("r/..data")).unwrap();
    };
    mount(0);
    (0..FILES).for_each(|file| place.link(&format!("r/{file:02}.md"), format!("..data/{file:02}.md")));
    let policy = Policy { protected: Vec::new(), on_broken_override: OnBrokenOverride::FallThrough };
    let mut scanner = Scanner::new(&place.settings(), &policy).unwrap();
    assert_eq!(generation_of(&scanner.scan(), FILES), "0");
    let (done, stopped) = std::sync::mpsc::channel::<()>();

    let (seen, swaps) = std::thread::scope(|scope| {
        let (mount, place) = (&mount, &place);
        let swapping = scope.spawn(move || {
            let mut generation = 0;
            // Ends when the sender is gone, also where the other thread panics.
            while stopped.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
                generation += 1;
                mount(generation);
                fs::remove_dir_all(place.path(&format!("r/..{}", generation - 1))).unwrap();
            }
            generation
        });
        let until_the_end = done;
        let seen: HashSet<String> = (0..SCANS).map(|_| generation_of(&scanner.scan(), FILES)).collect();
        drop(until_the_end);
        (seen, swapping.join().unwrap())
    });

    assert!(seen.len() > 1, "{} generations were seen of {swaps}", seen.len());
}

/// The one generation that all documents of a mount are of.
#[track_caller]
fn generation_of(scan: &Scan, files: usize) -> String {
    assert_eq!(scan.documents.len(), files);
    let of = |document: &Arc<Document>| document.definition().unwrap().agent.system_prompt.clone();
    let bodies: HashSet<String> = scan.documents.iter().map(of).collect();
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    bodies.into_iter().next().unwrap()
}

const USER: &str = r#"{"scope": "user", "installPath": "T/plug"}"#;

fn registry(plugins: &[(&str, &str)]) -> String {
    let plugins: Vec<String> = plugins.iter().map(|(id, entry)| format!("\"{id}\": [{entry}]")).collect();
    format!("{{\"version\": 1, \"plugins\": {{{}}}}}", plugins.join(", "))
}

/// A plugin of the user, by its entry.
#[track_caller]
fn check_entry(id: &str, entry: &str, counts: bool, codes: &[Code]) {
    let place = Place::new(&[("plug/agents/deep/1.md", "a")]);
    place.write("h/.claude/plugins/installed_plugins.json", &registry(&[(id, entry)]));
    let expected: &[(&str, &str)] = if counts { &[("a", "plug/agents/deep/1.md")] } else { &[] };
    place.check(expected, codes);
}

#[test]
fn plugin_entries_count_by_scope_and_place() {
    let invalid = &[Code::PluginEntryInvalid];
    check_entry("a@m", USER, true, &[]);
    check_entry("a@b@m", USER, true, &[]);
    check_entry("a", USER, false, invalid);
    check_entry("@m", USER, false, invalid);
    check_entry("a@m", r#"{"scope": "user", "installPath": "T/plug", "enabled": false}"#, false, &[]);
    check_entry("a@m", r#"{"scope": "user", "installPath": "T/nowhere"}"#, false, &[]);
    check_entry("a@m", r#"{"scope": "user", "installPath": "plug"}"#, false, invalid);
    check_entry("a@m", r#"{"scope": "user"}"#, false, invalid);
    check_entry("a@m", r#"{"scope": "everybody", "installPath": "T/plug"}"#, false, invalid);
    check_entry("a@m", r#""T/plug""#, false, invalid);
    check_entry("a@m", r#"{"scope": "local", "installPath": "T/plug", "projectPath": "T/p"}"#, true, &[]);
    check_entry("a@m", r#"{"scope": "project", "installPath": "T/plug", "projectPath": "T/"}"#, true, &[]);
    check_entry(
        "a@m",
        r#"{"scope": "project", "installPath": "T/plug", "projectPath": "T/p/q"}"#,
        false,
        &[],
    );
    check_entry("a@m", r#"{"scope": "project", "installPath": "T/plug"}"#, false, invalid);
}

#[test]
fn a_projects_file_names_only_paths_of_the_project_and_of_the_users_plugins() {
    let check = |install_path: &str, counts: bool| {
        let place = Place::new(&[
            ("p/tools/agents/1.md", "a"),
            ("h/.claude/plugins/cache/x/agents/1.md", "a"),
            ("secret/agents/1.md", "a"),
        ]);
        place.link("p/link", "../secret");
        let entry = format!(r#"{{"scope": "user", "installPath": "{install_path}"}}"#);
        place.write("p/.claude/plugins/installed_plugins.json", &registry(&[("a@m", &entry)]));
        let scan = place.scan();
        assert_eq!(scan.documents.len(), usize::from(counts), "{install_path}");
        let codes: Vec<_> = scan.findings.iter().map(|finding| finding.code).collect();
        assert_eq!(codes.contains(&Code::PluginEntryInvalid), !counts, "{install_path}");
    };
    check("T/p/tools", true);
    check("T/h/.claude/plugins/cache/x", true);
    check("T/secret", false);
    check("T/p/../secret", false);
    check("T/p/link", false);
    check("T/p/nowhere/../../secret", false);
}

#[test]
fn plugins_come_project_scope_first_and_the_users_file_first() {
    let names = ["user-user", "user-project", "project-user", "project-project"];
    let place = Place::new(&[]);
    for name in names {
        place
            .write(&format!("p/{name}/agents/1.md"), &format!("---\nname: {name}\ndescription: d\n---\nB\n"));
    }
    let entry = |name: &str| match name.ends_with("project") {
        true => format!(r#"{{"scope": "project", "installPath": "T/p/{name}", "projectPath": "T/p"}}"#),
        false => format!(r#"{{"scope": "user", "installPath": "T/p/{name}"}}"#),
    };
    let file = |owner: &str| {
        let entries: Vec<(String, String)> = names
            .iter()
            .filter(|name| name.starts_with(owner))
            .map(|name| (format!("{name}@m"), entry(name)))
            .collect();
        registry(&entries.iter().map(|(id, entry)| (id.as_str(), entry.as_str())).collect::<Vec<_>>())
    };
    place.write("h/.claude/plugins/installed_plugins.json", &file("user"));
    place.write("p/.claude/plugins/installed_plugins.json", &file("project"));

    let scan = place.scan();

    let order: Vec<_> = scan.documents.iter().map(|it| it.source.plugin.as_str()).collect();
    assert_eq!(order, ["user-project@m", "project-project@m", "user-user@m", "project-user@m"]);
}

#[test]
fn a_broken_file_of_plugins_is_said_with_its_line() {
    let place = Place::new(&[]);
    for (content, line) in [("{\n  \"plugins\": [,]\n}", 2), ("{\"plugins\": []}", 0), ("[]", 0)] {
        place.write("h/.claude/plugins/installed_plugins.json", content);
        let scan = place.scan();
        assert_eq!(scan.findings.len(), 1, "{content}");
        assert_eq!(
            (scan.findings[0].code, scan.findings[0].line),
            (Code::PluginRegistryInvalid, line),
            "{content}"
        );
    }
}

#[test]
fn the_bundled_set_is_sound_and_comes_last() {
    let place = Place::new(&[("r/1.md", "a")]);

    let scan = place.scan_with(&Settings { bundled: true, ..place.settings() });

    let paths: Vec<_> = scan.documents[1..].iter().map(|it| it.source.path.as_str()).collect();
    let names = ["default", "designer", "explore", "plan", "quick_task", "reviewer", "task"];
    assert_eq!(paths, names.map(|name| format!("embedded:{name}.md")));
    for document in &scan.documents[1..] {
        assert!(document.definition().is_some() && document.diagnostics.is_empty(), "{document:?}");
        assert_eq!(document.source.precedence, 10);
    }
}
