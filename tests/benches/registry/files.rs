//! From files to definitions: full load, reloads, memory.

use std::{fs, path::Path};

use proto::registry::v1::{ByNameRequest, ReloadRequest};
use tempfile::TempDir;
use tests::{
    bench::{Goal, Part, Table, median, resident_bytes},
    repository,
};

use crate::{
    agents::{self, Set},
    peer,
    service::{self, Registry, path},
};

/// Definitions of a large organisation, ten times over.
pub(crate) const COUNT: usize = 10_000;

/// Rounds of a measurement; the one in the middle counts.
const ROUNDS: usize = 3;

/// Repetitions inside a process.
const TIMES: usize = 5;

/// A directory with a project of so many definitions, on the disk of the build and not in memory.
pub(crate) fn project() -> (TempDir, Set) {
    let directory = tempfile::tempdir_in(repository::root().join("target")).expect("a directory");
    let project = directory.path().join("project");
    fs::create_dir_all(project.join(".git")).expect("a project");
    let set = agents::write(&service::agents(&project), COUNT, "this");
    (directory, set)
}

/// From nothing to a snapshot.
pub(crate) fn load(table: &mut Table) {
    let (directory, set) = project();
    let project = directory.path().join("project");
    let agents = service::agents(&project);
    let (mut ours, mut first, mut floor, mut peers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut peer = Ok(());
    for _ in 0..ROUNDS {
        floor.push(median(times("read", &agents)));
        let took = times("load", &project);
        first.push(took[0]);
        ours.push(median(took));
        peer = peer::discover(&project, TIMES, COUNT).map(|took| peers.push(median(took)));
    }
    let (ours, first, floor) = (median(ours), median(first), median(floor));
    let size = set.bytes as f64 / 1e6;
    let figures = format!("{ours:.0} ms of {floor:.0}, {first:.0} at first; {COUNT} files, {size:.1} MB");
    table.ratio("full load beside reading on two threads", ours / floor, Goal::AtMost(1.8), figures);
    let what = "full load, times faster than oh-my-pi";
    match peer {
        Ok(()) => {
            let peer = median(peers);
            table.ratio(what, peer / ours, Goal::AtLeast(2.0), format!("{peer:.0} ms to {ours:.0}"));
        }
        Err(why) => table.skipped(what, why),
    }
}

/// Reloads of a running registry.
pub(crate) async fn reload(table: &mut Table) {
    let (directory, set) = project();
    let agents = service::agents(&directory.path().join("project"));
    let mut registry = Registry::start(directory.path()).await;
    let (mut unchanged, mut changed, mut floor) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        floor.push(median(times("stat", &agents)));
        for time in 0..TIMES {
            unchanged.push(registry.reload(0).await);
            let file = agents.join(format!("{}.md", set.names[round * TIMES + time]));
            let text = fs::read_to_string(&file).expect("the file is there");
            fs::write(&file, text + "One line more.\n").expect("the file is written");
            changed.push(registry.reload(1).await);
        }
    }
    let (unchanged, changed, floor) = (median(unchanged), median(changed), median(floor));
    let figures = format!("{unchanged:.1} ms of {floor:.1}");
    table.ratio("reload, nothing changed, beside a stat", unchanged / floor, Goal::AtMost(1.4), figures);
    let more = changed - unchanged;
    let figures = format!("{changed:.1} ms, {unchanged:.1} without");
    table.ratio("reload, one file changed, ms more", more, Goal::AtMost(1.0), figures);
}

/// What stays in memory, after every definition was asked for once.
pub(crate) async fn memory(table: &mut Table) {
    let (directory, set) = project();
    let mut registry = Registry::start(directory.path()).await;
    registry.reload(0).await;
    let loaded = resident_bytes(registry.part.process()) as f64 / 1e6;
    for name in &set.names {
        let request = ByNameRequest { workspace: String::new(), name: name.clone() };
        registry.client.by_name(request).await.expect("the definition is in force");
    }
    let bytes = resident_bytes(registry.part.process()) as f64;
    let (resident, files) = (bytes / 1e6, set.bytes as f64 / 1e6);
    let figures = format!("{resident:.1} MB of {files:.1}; {loaded:.1} before the first call");
    table.ratio("memory beside the bytes of the files", resident / files, Goal::AtMost(2.2), figures);
}

impl Registry {
    /// Milliseconds that a reload takes which finds so many definitions changed.
    async fn reload(&mut self, changed: usize) -> f64 {
        let response = self.client.reload(ReloadRequest::default()).await.expect("it reloads").into_inner();
        assert_eq!((response.changed.len(), response.added.len()), (changed, 0));
        response.duration_us as f64 / 1e3
    }
}

/// What a part tells of its repetitions, milliseconds each.
fn times(role: &str, directory: &Path) -> Vec<f64> {
    let mut part = Part::start(role, &[path(directory), &TIMES.to_string()]);
    part.line().split(' ').map(|figure| figure.parse().expect("a figure")).collect()
}
