//! Any bytes as `installed_plugins.json` of a user and of a project: what is wrong is said, and the rest loads.

#![no_main]

use std::{
    cell::RefCell,
    fs,
    path::{Path, PathBuf},
};

use fuzz::bounded;
use libfuzzer_sys::fuzz_target;
use registry_svc::{
    diagnostic::Code,
    merge::{OnBrokenOverride, Policy},
    source,
    workspace::{Settings, read_once},
};
use tempfile::TempDir;

const REGISTRY: &str = ".claude/plugins/installed_plugins.json";

/// A home and a project with a plugin each. Inputs name them by the directory `/T`.
struct Place {
    directory: TempDir,
    settings: Settings,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("the disk works");
        let top = directory.path();
        for plugin in ["home/.claude/plugins/p", "project/p"] {
            let agents = top.join(plugin).join("agents");
            fs::create_dir_all(&agents).expect("the disk works");
            let document = "---\nname: scout\ndescription: Looks around.\n---\n";
            fs::write(agents.join("scout.md"), document).expect("the disk works");
        }
        fs::create_dir_all(top.join("project/.git")).expect("the disk works");
        fs::create_dir_all(top.join("project/.claude/plugins")).expect("the disk works");
        let settings = settings(top);
        Self { directory, settings }
    }

    fn write(&self, owner: &str, registry: &[u8]) -> PathBuf {
        let path = self.directory.path().join(owner).join(REGISTRY);
        fs::write(&path, registry).expect("the disk works");
        path
    }
}

fn settings(top: &Path) -> Settings {
    Settings {
        name: "default".to_owned(),
        sources: source::Settings {
            cwd: Some(top.join("project")),
            home: Some(top.join("home")),
            families: Vec::new(),
            plugins: true,
            roots: Vec::new(),
            bundled: false,
            name_from_file: Vec::new(),
            link_roots: Vec::new(),
        },
        policy: Policy { protected: Vec::new(), on_broken_override: OnBrokenOverride::FallThrough },
    }
}

thread_local! {
    static PLACE: RefCell<Place> = RefCell::new(Place::new());
}

fuzz_target!(|input: &[u8]| {
    PLACE.with_borrow(|place| {
        // Whatever else an input names is not there, whichever machine this is.
        let text = String::from_utf8_lossy(input).replace("\"/", "\"/nowhere/");
        let top = place.directory.path().display().to_string();
        let text = text.replace("/nowhere/T", &top);
        let whole = if std::str::from_utf8(input).is_ok() { text.as_bytes() } else { input };
        let paths = [place.write("home", whole), place.write("project", whole)];

        let snapshot = bounded("reading plugins", || read_once(&place.settings)).expect("nothing is bundled");

        let is_json = serde_json::from_slice::<serde_json::Value>(whole).is_ok();
        for path in paths {
            let path = path.display().to_string();
            let invalid = snapshot
                .diagnostics()
                .iter()
                .any(|found| found.code == Code::PluginRegistryInvalid && found.path == path);
            assert!(is_json || invalid, "{:?}", snapshot.diagnostics());
        }
        // Only the two plugins can be named.
        for definition in snapshot.in_force() {
            assert!(definition.source.path.starts_with(&top), "{}", definition.source.path);
        }
    });
});
