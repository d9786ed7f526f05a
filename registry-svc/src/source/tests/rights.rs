use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::*;

/// Takes from this thread what lets root read everything, so that rights count whoever runs the tests.
fn rights_count() {
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
    set_capabilities(None, sets).unwrap();
}

/// Reads a tree in which one entry has other rights: what is read of it, and where something is said to be unreadable.
#[track_caller]
fn check_rights(entry: &str, mode: u32, expected: &[(&str, &str)], unreadable: &[&str]) {
    let place = Place::new(&[
        ("p/.claude/agents/1.md", "file"),
        ("p/.claude/agents/deep/1.md", "deep"),
        ("h/.claude/agents/1.md", "user"),
        ("h/plug/agents/1.md", "plugin"),
    ]);
    place.link("p/.claude/agents/link.md", place.path("p/target/1.md"));
    place.write("p/target/1.md", "---\nname: link\ndescription: d\n---\nB\n");
    let plugins = registry(&[("a@m", r#"{"scope": "user", "installPath": "T/h/plug"}"#)]);
    place.write("h/.claude/plugins/installed_plugins.json", &plugins);
    let whole = place.path(entry).metadata().unwrap().permissions();
    fs::set_permissions(place.path(entry), Permissions::from_mode(mode)).unwrap();
    rights_count();

    let scan = place.scan();

    fs::set_permissions(place.path(entry), whole).unwrap();
    let found: Vec<_> = scan.documents.iter().filter_map(|it| row(it, place.0.path())).collect();
    assert_eq!(found, expected, "{entry}");
    let top = place.0.path().to_str().unwrap();
    let said: Vec<_> = scan.findings.iter().map(|it| (it.code, it.path.strip_prefix(top).unwrap())).collect();
    let unreadable: Vec<_> = unreadable.iter().map(|path| (Code::Unreadable, *path)).collect();
    assert_eq!(said, unreadable, "{entry}");
}

#[test]
fn what_may_not_be_read_is_empty_and_said_to_be_unreadable() {
    let file = ("file", "p/.claude/agents/1.md");
    let deep = ("deep", "p/.claude/agents/deep/1.md");
    let link = ("link", "p/.claude/agents/link.md");
    let user = ("user", "h/.claude/agents/1.md");
    let plugin = ("plugin", "h/plug/agents/1.md");

    check_rights("p", 0o755, &[file, deep, link, user, plugin], &[]);
    let [agents, nested] = ["/p/.claude/agents", "/p/.claude/agents/deep"];
    check_rights(agents, 0o000, &[user, plugin], &[agents]);
    // It can be listed, but nothing in it can be opened.
    check_rights(agents, 0o444, &[user, plugin], &[agents]);
    check_rights(nested, 0o000, &[file, link, user, plugin], &[nested]);
    check_rights(nested, 0o444, &[file, link, user, plugin], &[nested]);
    check_rights("p/.claude/agents/1.md", 0o000, &[deep, link, user, plugin], &["/p/.claude/agents/1.md"]);
    check_rights("p/target", 0o000, &[file, deep, user, plugin], &["/p/.claude/agents/link.md"]);
    let parts = ["/p/.claude/agents", "/p/.claude/commands", "/p/.claude/skills"];
    check_rights("p/.claude", 0o000, &[user, plugin], &parts);
    let plugins = "h/.claude/plugins";
    check_rights(plugins, 0o000, &[file, deep, link, user], &["/h/.claude/plugins/installed_plugins.json"]);
    check_rights(
        "h/plug",
        0o000,
        &[file, deep, link, user],
        &["/h/plug/agents", "/h/plug/commands", "/h/plug/skills"],
    );
}
