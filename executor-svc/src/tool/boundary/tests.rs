use std::{fs, path::Path};

use proptest::prelude::*;
use rustix::fs::OFlags;

use super::{Boundary, Place, Purpose, open_by_steps};
use crate::tool::Workspace;

fn workspace(root: &Path) -> Workspace {
    Workspace {
        name: "default".to_owned(),
        cwd: root.to_owned(),
        hidden: Vec::new(),
        frozen: vec![root.join("agents")],
        read_deny: Vec::new(),
        gitignore: true,
    }
}

#[test]
fn a_directory_swapped_for_a_link_after_the_judgement_is_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("inside");
    fs::create_dir_all(root.join("a")).unwrap();
    fs::create_dir_all(directory.path().join("outside")).unwrap();
    fs::write(root.join("a/x"), "harmless").unwrap();
    fs::write(directory.path().join("outside/x"), "secret").unwrap();
    let boundary = Boundary::open(&workspace(&root)).unwrap();
    let place = boundary.locate("a/x", Purpose::Read).unwrap();

    fs::remove_dir_all(root.join("a")).unwrap();
    std::os::unix::fs::symlink("../outside", root.join("a")).unwrap();

    assert!(fs::read_to_string(root.join("a/x")).unwrap().contains("secret"), "the swap happened");
    assert!(boundary.file(&place).is_err());
}

#[test]
fn stepping_keeps_the_promise_of_openat2() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/b/x"), "").unwrap();
    std::os::unix::fs::symlink("b", root.join("a/link")).unwrap();
    std::os::unix::fs::symlink("x", root.join("a/b/last")).unwrap();
    let boundary = Boundary::open(&workspace(root)).unwrap();

    for (path, opens) in [
        ("a/b/x", true),
        ("a/link/x", false),
        ("a/b/last", false),
        ("a/../a/b/x", false),
        ("/etc/passwd", false),
        ("a/b/none", false),
    ] {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let by_steps = open_by_steps(&boundary.directory, Path::new(path), flags);
        let at_once = boundary.open_inside(Path::new(path), OFlags::RDONLY);
        assert_eq!(by_steps.is_ok(), opens, "{path}");
        // `..` that stays inside is no danger to either; only names without it are ever asked for.
        if !path.contains("..") {
            assert_eq!(at_once.is_ok(), opens, "{path}");
        }
    }
}

#[test]
fn a_file_to_be_written_may_be_new_but_not_anywhere() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("inside");
    fs::create_dir_all(root.join("src")).unwrap();
    fs::create_dir_all(directory.path().join("outside")).unwrap();
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, root.join(name)).unwrap();
    link("../outside", "out");
    link("nowhere", "dangling");
    link("src", "alias");
    link(".git", "git");
    fs::create_dir_all(root.join(".git/hooks")).unwrap();
    let boundary = Boundary::open(&workspace(&root)).unwrap();

    for (name, place) in [("src/new.rs", "src/new.rs"), ("a/b/c", "a/b/c"), ("alias/new.rs", "src/new.rs")] {
        assert_eq!(boundary.locate_target(name).unwrap(), Place(place.into()), "{name}");
    }
    for (name, because) in [
        ("../x", "outside of the workspace"),
        ("out/x", "leads out of the workspace"),
        ("dangling", "leads nowhere"),
        ("dangling/x", "leads nowhere"),
        (".git/hooks/pre-commit", "tools never change"),
        ("git/hooks/pre-commit", "tools never change"),
        ("vendor/.claude/agents/x.md", "tools never change"),
        (".github/agents/x.md", "tools never change"),
        ("agents/x.md", "tools never change"),
    ] {
        let message = boundary.locate_target(name).unwrap_err().to_string();
        assert!(message.contains(because), "{name}: {message}");
    }
    assert!(boundary.locate_target(".github/workflows/ci.yml").is_ok());
}

proptest! {
    #[test]
    fn no_name_leads_out(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "a", "b", "x", "..", ".", "", "in", "out", "up", "around", "/", "/etc", "secret", "inside", "outside",
            ]),
            1..8,
        ),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("inside");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir_all(directory.path().join("outside")).unwrap();
        fs::write(root.join("a/b/x"), "harmless").unwrap();
        fs::write(root.join("x"), "harmless").unwrap();
        fs::write(directory.path().join("outside/secret"), "secret").unwrap();
        for (target, link) in
            [("a/b", "in"), ("../outside", "out"), ("..", "a/up"), ("../../outside/../inside/a", "a/around")]
        {
            std::os::unix::fs::symlink(target, root.join(link)).unwrap();
        }
        let boundary = Boundary::open(&workspace(&root)).unwrap();
        let name = parts.join("/");

        let read = boundary.locate(&name, Purpose::Read);
        let written = boundary.locate_target(&name);

        for place in read.iter().chain(written.iter()) {
            prop_assert!(place.path().components().all(|part| matches!(part, std::path::Component::Normal(_))));
            // No component is a link, so the place is where its name says.
            let mut path = root.clone();
            for part in place.path() {
                path.push(part);
                prop_assert!(!path.is_symlink(), "{} by {name}", path.display());
            }
        }
        if let Ok(place) = &read
            && let Ok(mut file) = boundary.file(place)
        {
            let mut content = String::new();
            std::io::Read::read_to_string(&mut file, &mut content).unwrap();
            prop_assert_eq!(content, "harmless");
        }
    }
}
