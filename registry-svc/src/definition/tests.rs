//! The corpus, properties that hold for every document, and stories about whole documents.

mod corpus;

use super::*;

pub(super) fn origin() -> Origin<'static> {
    Origin { format: Format::Markdown, stem: None, name_from_stem: false, bundled: false, guarded_names: &[] }
}
