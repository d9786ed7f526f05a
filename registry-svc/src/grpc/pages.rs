//! Listings over several pages that all belong to one generation, and the generations kept for them.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use prost::Message;
use service_kit::page::{self, Position};

use super::status::Failure;
use crate::{snapshot::Snapshot, workspace::Handle};

/// Snapshots kept for listings under way. They share their definitions, so one costs little; a listing that is slower than
/// this many changes begins again.
const KEPT_MAX: usize = 16;

/// The snapshots that page tokens lead to.
#[derive(Default)]
pub(super) struct Pages {
    kept: Mutex<VecDeque<Arc<Snapshot>>>,
}

impl Pages {
    /// The snapshot of a listing and the index at which its page begins.
    pub(super) fn resume(
        &self,
        handle: &Handle,
        query: &[&str],
        token: &str,
    ) -> Result<(Arc<Snapshot>, usize), Failure> {
        let Some(Position { generation, after }) = page::decode(query, token)? else {
            return Ok((handle.snapshot(), 0));
        };
        let start = after.parse().map_err(|_| Failure::from(page::Invalid::Token))?;
        let current = handle.snapshot();
        let snapshot = if current.generation() == generation { Some(current) } else { self.at(generation) };
        snapshot.map(|snapshot| (snapshot, start)).ok_or(Failure::PageExpired { generation })
    }

    /// The token of the next page, empty where there is none. The snapshot is kept for it.
    pub(super) fn token(&self, query: &[&str], snapshot: &Arc<Snapshot>, next: Option<usize>) -> String {
        let Some(next) = next else { return String::new() };
        self.keep(snapshot);
        page::encode(query, &Position { generation: snapshot.generation(), after: next.to_string() })
    }

    fn at(&self, generation: u64) -> Option<Arc<Snapshot>> {
        self.kept.lock().iter().find(|snapshot| snapshot.generation() == generation).cloned()
    }

    fn keep(&self, snapshot: &Arc<Snapshot>) {
        let mut kept = self.kept.lock();
        if kept.iter().any(|other| other.generation() == snapshot.generation()) {
            return;
        }
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(Arc::clone(snapshot));
    }
}

/// Takes rows until a page is full. Answers the index of the first that is left over, if one is.
///
/// The first row is always taken, so that a listing moves on.
pub(super) fn fill<M: Message>(
    rows: impl Iterator<Item = (usize, M)>,
    size: usize,
    bytes_max: usize,
) -> (Vec<M>, Option<usize>) {
    let mut page = Vec::new();
    let mut bytes = 0;
    for (index, row) in rows {
        bytes += row.encoded_len() + ROW_OVERHEAD_BYTES;
        if page.len() == size || (!page.is_empty() && bytes > bytes_max) {
            return (page, Some(index));
        }
        page.push(row);
    }
    (page, None)
}

/// Tag and length of a row inside its message.
const ROW_OVERHEAD_BYTES: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(lengths: &[usize]) -> impl Iterator<Item = (usize, String)> {
        lengths.iter().map(|length| "x".repeat(*length)).enumerate()
    }

    #[test]
    fn a_page_ends_at_its_size_or_its_bytes() {
        let lengths = |page: Vec<String>| page.iter().map(String::len).collect::<Vec<_>>();

        let (page, next) = fill(rows(&[10, 10, 10]), 2, 1_000);
        assert_eq!((lengths(page), next), (vec![10, 10], Some(2)));

        let (page, next) = fill(rows(&[10, 100, 10]), 5, 60);
        assert_eq!((lengths(page), next), (vec![10], Some(1)));

        let (page, next) = fill(rows(&[10, 10]), 2, 1_000);
        assert_eq!((lengths(page), next), (vec![10, 10], None));
    }

    #[test]
    fn a_row_larger_than_a_page_has_one_of_its_own() {
        let (page, next) = fill(rows(&[5_000, 10]), 5, 60);

        assert_eq!((page.len(), next), (1, Some(1)));
    }
}
