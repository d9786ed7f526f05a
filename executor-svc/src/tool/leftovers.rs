//! Finds and ends what a child process leaves running: its process group, and what left the group but still carries a mark
//! in its environment.

use std::{fs, io::Read as _};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Most rounds of looking. A process that forks faster than it can be found is held up by the first rounds already.
const ROUNDS_MAX: usize = 50;

/// How much of an environment is looked at: the mark is among the few variables that the child is given.
const ENVIRONMENT_MAX: u64 = 64 * 1024;

/// Ends a child and all it started when dropped.
pub(super) struct Leftovers {
    group: Option<Pid>,
    /// `NAME=value`, unique for the child.
    mark: String,
}

impl Leftovers {
    /// `leader` is the id of the child, which leads its group; `None` when it is gone already.
    pub(super) fn new(leader: Option<u32>, mark: String) -> Self {
        let group = leader.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Self { group, mark }
    }

    /// The processes that live and belong to the child.
    fn living(&self) -> Vec<Pid> {
        let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
        processes
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw))
            .filter(|&process| self.owns(process))
            .collect()
    }

    fn owns(&self, process: Pid) -> bool {
        let Some((state, group)) = state_and_group(process) else { return false };
        let is_dead = matches!(state, 'Z' | 'X');
        !is_dead && (Some(group) == self.group.map(Pid::as_raw_pid) || self.is_marked(process))
    }

    fn is_marked(&self, process: Pid) -> bool {
        let Ok(file) = fs::File::open(format!("/proc/{}/environ", process.as_raw_pid())) else {
            return false;
        };
        let mut environment = Vec::new();
        file.take(ENVIRONMENT_MAX).read_to_end(&mut environment).is_ok()
            && environment.split(|&byte| byte == 0).any(|variable| variable == self.mark.as_bytes())
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        // At once, while the group is certainly the child's; the rounds below look at each process before they end it.
        if let Some(group) = self.group.filter(|&group| self.owns(group)) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        for _ in 0..ROUNDS_MAX {
            let living = self.living();
            if living.is_empty() {
                return;
            }
            for process in living {
                let _ = kill_process(process, Signal::KILL);
            }
        }
        tracing::warn!(group = ?self.group, "processes of a child are still running");
    }
}

/// From `/proc/<pid>/stat`: `pid (name) state parent group …`, where the name may contain anything.
fn state_and_group(process: Pid) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid())).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let group = fields.nth(1)?.parse().ok()?;
    Some((state, group))
}
