//! Any bytes as a definition document, in every kind of place.

#![no_main]

use std::sync::LazyLock;

use fuzz::bounded;
use libfuzzer_sys::fuzz_target;
use registry_svc::{
    definition::{Format, GuardedNames, Origin, parse},
    diagnostic::Diagnostic,
};

fuzz_target!(|document: &[u8]| {
    static GUARDED_NAMES: LazyLock<GuardedNames> =
        LazyLock::new(|| GuardedNames::new(["default", "reviewer"]));
    let plain = Origin {
        format: Format::Markdown,
        stem: Some("document"),
        name_from_stem: false,
        bundled: false,
        guarded_names: &GUARDED_NAMES,
    };
    for origin in [
        Origin { format: Format::Toml, ..plain },
        Origin { bundled: true, ..plain },
        Origin { name_from_stem: true, ..plain },
        plain,
    ] {
        let parsed = bounded("reading a document", || parse(document, &origin));
        let is_error = parsed.diagnostics.iter().any(Diagnostic::is_error);
        assert_ne!(parsed.agent.is_some(), is_error || parsed.disabled, "{parsed:?}");
        assert!(parsed.diagnostics.iter().all(|found| found.line > 0 && found.column > 0), "{parsed:?}");

        let again = parse(document, &origin);
        assert_eq!(parsed.diagnostics, again.diagnostics);
        assert_eq!(parsed.agent, again.agent);
    }
});
