//! Any bytes as a definition document, in every kind of place.

#![no_main]

use fuzz::bounded;
use libfuzzer_sys::fuzz_target;
use registry_svc::{
    definition::{Format, Origin, parse},
    diagnostic::Diagnostic,
};

fuzz_target!(|document: &[u8]| {
    let guarded_names = ["default".to_owned(), "reviewer".to_owned()];
    let plain = Origin {
        format: Format::Markdown,
        stem: Some("document"),
        name_from_stem: false,
        bundled: false,
        guarded_names: &guarded_names,
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
