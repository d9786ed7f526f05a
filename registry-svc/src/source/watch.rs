//! File events. They only say that something was touched; what changed is found by comparing.
//!
//! Directories are watched, never files: a ConfigMap mount swaps a link, and editors replace files whole.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::Arc,
};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::{debug, warn};

use super::{plan::Interest, walk::GENERATION_LINK};

/// Directories watched for one workspace. The kernel's limit for a user is often 8,192; changes elsewhere are found by the
/// comparison each half minute.
const DIRECTORIES_MAX: usize = 4096;

/// What a directory is watched for.
#[derive(Clone, Debug)]
struct Watched {
    /// A directory that was replaced has another inode under the same path, and only a new watch sees it.
    inode: (u64, u64),
    /// The entries that matter; all but hidden ones where absent.
    names: Option<BTreeSet<String>>,
}

type Directories = BTreeMap<PathBuf, Watched>;

/// Watches what a scan named.
pub(crate) struct Watch {
    watcher: RecommendedWatcher,
    directories: Arc<Mutex<Directories>>,
    touched: Arc<Notify>,
    is_full: bool,
}

impl Watch {
    /// Tells `touched` of events. Where the system has no room for another watcher, the comparison has to do.
    pub(crate) fn start(touched: Arc<Notify>) -> Option<Self> {
        let directories: Arc<Mutex<Directories>> = Arc::default();
        let filter = Arc::clone(&directories);
        let tell = Arc::clone(&touched);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // An error may mean that events were lost.
            if event.map_or(true, |event| matters(&event, &filter.lock())) {
                tell.notify_one();
            }
        });
        match watcher {
            Ok(watcher) => Some(Self { watcher, directories, touched, is_full: false }),
            Err(error) => {
                warn!(%error, "no file events; changes are found by comparison");
                None
            }
        }
    }

    /// Watches these directories and no others. Those that do not exist are left for a later scan.
    pub(crate) fn follow(&mut self, interests: &[Interest]) {
        let wanted = present(interests);
        // The old list stays in place meanwhile, so that no event is taken for one of no interest.
        let mut directories = self.directories.lock().clone();
        directories.retain(|directory, watched| {
            let stays = wanted.get(directory).is_some_and(|wanted| wanted.inode == watched.inode);
            if !stays {
                // Of a directory that is gone there is nothing left to unwatch.
                let _ = self.watcher.unwatch(directory);
            }
            stays
        });

        let mut is_new = false;
        for (directory, wanted) in wanted {
            if let Some(watched) = directories.get_mut(&directory) {
                watched.names = wanted.names;
            } else if directories.len() < DIRECTORIES_MAX {
                match self.watcher.watch(&directory, RecursiveMode::NonRecursive) {
                    Ok(()) => {
                        is_new = true;
                        directories.insert(directory, wanted);
                    }
                    Err(error) => debug!(directory = %directory.display(), %error, "directory not watched"),
                }
            } else if !self.is_full {
                self.is_full = true;
                warn!(
                    max = DIRECTORIES_MAX,
                    "too many directories to watch; changes are found by comparison"
                );
            }
        }
        *self.directories.lock() = directories;
        if is_new {
            // What happened between the scan and the watch sent no event.
            self.touched.notify_one();
        }
    }
}

/// The interests whose directories exist, one for each directory.
fn present(interests: &[Interest]) -> Directories {
    let mut wanted = Directories::new();
    for Interest { directory, names } in interests {
        let Ok(metadata) = directory.metadata() else { continue };
        if !metadata.is_dir() {
            continue;
        }
        let inode = (metadata.dev(), metadata.ino());
        let names: Option<BTreeSet<String>> = names.as_ref().map(|names| names.iter().cloned().collect());
        match wanted.entry(directory.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Watched { inode, names });
            }
            Entry::Occupied(mut occupied) => match (&mut occupied.get_mut().names, names) {
                (Some(earlier), Some(names)) => earlier.extend(names),
                (earlier, None) => *earlier = None,
                (None, Some(_)) => {}
            },
        }
    }
    wanted
}

fn matters(event: &Event, directories: &Directories) -> bool {
    if matches!(event.kind, EventKind::Access(_)) {
        return false;
    }
    let touches = |path: &PathBuf| {
        let of_entry = path.parent().and_then(|parent| directories.get(parent)).is_some_and(|watched| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            match &watched.names {
                Some(names) => names.contains(&*name),
                None => !name.starts_with('.') || name == GENERATION_LINK,
            }
        });
        of_entry || directories.contains_key(path)
    };
    // An event without a path means that the queue overflowed.
    event.need_rescan() || event.paths.is_empty() || event.paths.iter().any(touches)
}
