//! Workers one page at a time.

use ::proto::executor::v1 as proto;
use service_kit::page;

use super::{from_proto, to_proto, to_proto::View};
use crate::worker::Worker;

/// Records of one page are at most this long, so that a page stays below what clients accept. A record's result has at
/// most 1 MiB; one is always sent.
pub(super) const PAGE_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Workers of one page, and whether there are more.
pub(super) struct Page {
    workers: Vec<Worker>,
    has_more: bool,
}

impl Page {
    /// `found` has one more than the page where there are more.
    pub(super) fn of(mut found: Vec<Worker>, limit: usize) -> Self {
        let mut has_more = found.len() > limit;
        found.truncate(limit);
        let mut bytes = 0;
        let fitting = found
            .iter()
            .take_while(|worker| {
                bytes += worker.result.len() + worker.structured_output.as_ref().map_or(0, String::len);
                bytes <= PAGE_BYTES_MAX
            })
            .count();
        if fitting < found.len() {
            has_more = true;
            found.truncate(fitting.max(1));
        }
        Self { workers: found, has_more }
    }

    pub(super) fn token(&self, query: &[&str]) -> String {
        match self.workers.last() {
            Some(last) if self.has_more => {
                page::encode(query, &page::Position { generation: 0, after: last.id.to_string() })
            }
            Some(_) | None => String::new(),
        }
    }

    pub(super) fn render(self, view: impl Fn(&Worker) -> View) -> Vec<proto::Worker> {
        self.workers.iter().map(|worker| to_proto::worker(worker, view(worker))).collect()
    }
}

/// Everything that a page of workers is bound to.
pub(super) fn key(request: &proto::ListWorkersRequest) -> Vec<String> {
    let proto::ListWorkersRequest {
        workspace,
        root_id,
        parent_id,
        agent,
        statuses,
        page_size: _,
        page_token: _,
        labels,
        created_after,
        view: _,
    } = request;
    let mut labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    labels.sort_unstable();
    let mut key = vec!["ListWorkers".to_owned(), from_proto::workspace(workspace)];
    key.extend([root_id.clone(), parent_id.clone(), agent.clone()]);
    key.push(format!("{statuses:?} {created_after:?}"));
    key.extend(labels);
    key
}
