//! One workspace's part of the store.

use std::{
    collections::{BTreeMap, VecDeque},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::{
    disk::{Disk, TEMPORARY, temporary, write_durably},
    failed,
    log::{Base, Line, Log, Step, WriteLine, digest},
};
use crate::{
    agent::{AgentName, Digest},
    document::Authored,
    error::StoreError,
    store::{Commit, Stored, Write},
};

/// The log of changes.
const LOG_FILE: &str = "changes.log";

/// Ending of a definition's file; before it stands the digest of the name.
const DEFINITION_ENDING: &str = ".definition";

/// The log is written anew when it is longer. A day of changes, one a second, takes about 25 MiB; it takes 50 ms to read.
const LOG_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Bytes of changes kept over that, so that the next time is far away.
const KEPT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// One workspace's files, and as much of them in memory as writing the log anew takes.
pub(super) struct Shelf {
    directory: PathBuf,
    disk: Arc<dyn Disk>,
    log_length: u64,
    /// The log is written anew when it is longer.
    pub(super) rewrite_at: u64,
    /// Without the definitions themselves.
    stored: Stored,
    /// A failure could not be undone: the files may be ahead of the memory.
    is_refusing: bool,
}

/// The first line of a definition's file; the document follows.
#[derive(Debug, Deserialize, Serialize)]
struct Header {
    name: String,
    digest: String,
    by_administrator: bool,
    shadowed: Vec<(String, String)>,
}

impl Shelf {
    /// Opens a workspace, and ends what an earlier process began and did not answer.
    pub(super) fn open(directory: PathBuf, disk: Arc<dyn Disk>) -> Result<(Self, Stored), StoreError> {
        remove_temporaries(&directory, &*disk)?;
        let path = directory.join(LOG_FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let bytes = Line::Base(Base::of(0, None, &BTreeMap::new())).encode();
                write_durably(&*disk, &path, &bytes).map_err(failed("write", &path))?;
                bytes
            }
            Err(error) => return Err(failed("read", &path)(error)),
        };
        let damaged = |(line, reason)| StoreError::Damaged { path: path.display().to_string(), line, reason };
        let mut log = Log::parse(&bytes).map_err(damaged)?;
        drop_unfinished(&mut log, &directory)?;
        let log_length = log.length;
        if log_length < bytes.len() as u64 {
            disk.truncate(&path, log_length).map_err(failed("truncate", &path))?;
        }

        let mut stored = log.stored().map_err(damaged)?;
        read_definitions(&directory, &mut stored)?;
        stored.forget(SystemTime::now());
        let shelf = Self {
            directory,
            disk,
            log_length,
            rewrite_at: LOG_BYTES_MAX,
            stored: Stored { authored: BTreeMap::new(), damaged: BTreeMap::new(), ..stored.clone() },
            is_refusing: false,
        };
        Ok((shelf, stored))
    }

    /// Records a change. Answers only when it is durable.
    pub(super) fn commit(&mut self, commit: Commit) -> Result<(), StoreError> {
        if self.is_refusing {
            return Err(StoreError::Refusing);
        }
        let Commit { entry, write } = commit;
        let line = Line::Step(Step::of(&entry, write.as_ref())).encode();
        let path = self.directory.join(LOG_FILE);
        if let Err(error) = self.disk.append(&path, &line).and_then(|()| self.disk.sync(&path)) {
            self.take_back();
            return Err(failed("write", &path)(error));
        }
        if let Some(write) = &write {
            self.write(write)?;
        }
        self.log_length += line.len() as u64;
        self.stored.apply(entry);
        self.stored.forget(SystemTime::now());
        if self.log_length > self.rewrite_at
            && let Err(error) = self.compact()
        {
            // The change is durable, the log is only longer than need be.
            warn!(path = %path.display(), %error, "log not written anew");
        }
        Ok(())
    }

    /// Does to the definition's file what the last line of the log says.
    fn write(&mut self, write: &Write) -> Result<(), StoreError> {
        let (name, done) = match write {
            Write::Put(name, authored) => {
                let path = self.directory.join(file_name(name));
                let temporary = temporary(&path);
                let bytes = encode(name, authored);
                let done = self.disk.write(&temporary, &bytes);
                let done = done.and_then(|()| self.disk.sync(&temporary));
                let done = done.and_then(|()| self.disk.rename(&temporary, &path));
                if done.is_err() {
                    // It is removed at the next start if not now.
                    let _ = self.disk.remove(&temporary);
                }
                (name, done)
            }
            Write::Remove(name) => {
                let done = self.disk.remove(&self.directory.join(file_name(name)));
                let is_gone = done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
                (name, if is_gone { Ok(()) } else { done })
            }
        };
        let path = self.directory.join(file_name(name));
        if let Err(error) = done {
            self.take_back();
            return Err(failed("write", &path)(error));
        }
        if let Err(error) = self.disk.sync_directory(&self.directory) {
            // Whether the file's new name is durable is not known, and there is no way to find out or to undo it.
            self.is_refusing = true;
            return Err(failed("write", &path)(error));
        }
        Ok(())
    }

    /// Removes the line that was just added, whole or in part.
    fn take_back(&mut self) {
        self.is_refusing = self.disk.truncate(&self.directory.join(LOG_FILE), self.log_length).is_err();
    }

    /// Writes the log anew: the changes that are kept, and the state after them.
    fn compact(&mut self) -> io::Result<()> {
        let mut kept = VecDeque::new();
        let mut length = 0;
        for entry in self.stored.entries.iter().rev() {
            let line = Line::Kept(Step::of(entry, None)).encode();
            length += line.len();
            if length > KEPT_BYTES_MAX {
                break;
            }
            kept.push_front(line);
        }
        let forgotten = self.stored.entries.len() - kept.len();
        let mut bytes = kept.into_iter().flatten().collect::<Vec<u8>>();
        bytes.extend(
            Line::Base(Base::of(self.stored.generation, self.stored.state, &self.stored.in_force)).encode(),
        );
        write_durably(&*self.disk, &self.directory.join(LOG_FILE), &bytes)?;
        self.stored.entries.drain(..forgotten);
        self.log_length = bytes.len() as u64;
        // A state that is large by itself is not written anew at each change.
        self.rewrite_at = LOG_BYTES_MAX.max(2 * self.log_length);
        Ok(())
    }
}

/// The last line counts only if the file that it is about agrees: otherwise its change was never answered.
fn drop_unfinished(log: &mut Log, directory: &Path) -> Result<(), StoreError> {
    let Some(Line::Step(Step { write: Some(write), .. })) = log.lines.last() else { return Ok(()) };
    let is_finished = match write {
        WriteLine::Put { name, digest } => {
            let path = directory.join(file_name(&AgentName::new_valid(name)));
            match read(&path)? {
                Some(bytes) => decode(&bytes).is_ok_and(|(header, _)| header.digest == *digest),
                None => false,
            }
        }
        WriteLine::Remove { name } => !directory
            .join(file_name(&AgentName::new_valid(name)))
            .try_exists()
            .map_err(failed("read", directory))?,
    };
    if !is_finished {
        log.lines.pop();
        log.length = log.starts.pop().unwrap_or(0);
    }
    Ok(())
}

fn remove_temporaries(directory: &Path, disk: &dyn Disk) -> Result<(), StoreError> {
    for entry in fs::read_dir(directory).map_err(failed("read", directory))? {
        let path = entry.map_err(failed("read", directory))?.path();
        if path.as_os_str().as_encoded_bytes().ends_with(TEMPORARY.as_bytes()) {
            disk.remove(&path).map_err(failed("remove", &path))?;
        }
    }
    Ok(())
}

fn read_definitions(directory: &Path, stored: &mut Stored) -> Result<(), StoreError> {
    for entry in fs::read_dir(directory).map_err(failed("read", directory))? {
        let path = entry.map_err(failed("read", directory))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(digest_of_name) = name.strip_suffix(DEFINITION_ENDING) else { continue };
        let bytes = read(&path)?.unwrap_or_default();
        match decode(&bytes).and_then(|(header, document)| header.check(digest_of_name, document)) {
            Ok((name, authored)) => {
                stored.authored.insert(name, authored);
            }
            Err(reason) => {
                // Its name is on record where it was in force; without one there is nothing to block.
                let is_name =
                    |name: &&AgentName| Digest::of(name.as_str().as_bytes()).to_string() == digest_of_name;
                let Some(name) = stored.in_force.keys().find(is_name) else {
                    return Err(StoreError::Damaged { path: path.display().to_string(), line: 1, reason });
                };
                stored.damaged.insert(name.clone(), reason);
            }
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path)(error)),
    }
}

/// Names are not made into paths; their digests are.
fn file_name(name: &AgentName) -> String {
    format!("{}{DEFINITION_ENDING}", Digest::of(name.as_str().as_bytes()))
}

fn encode(name: &AgentName, authored: &Authored) -> Vec<u8> {
    let Authored { document, by_administrator, shadowed } = authored;
    let header = Header {
        name: name.as_str().to_owned(),
        digest: Digest::of(document).to_string(),
        by_administrator: *by_administrator,
        shadowed: shadowed.iter().map(|(path, digest)| (path.clone(), digest.to_string())).collect(),
    };
    let mut bytes = serde_json::to_vec(&header).expect("text is always JSON");
    bytes.push(b'\n');
    bytes.extend_from_slice(document);
    bytes
}

fn decode(bytes: &[u8]) -> Result<(Header, &[u8]), String> {
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or("it has no first line")?;
    let header = serde_json::from_slice(&bytes[..end]).map_err(|error| error.to_string())?;
    Ok((header, &bytes[end + 1..]))
}

impl Header {
    /// The definition, where the file is what was written.
    fn check(self, digest_of_name: &str, document: &[u8]) -> Result<(AgentName, Authored), String> {
        let Self { name, digest: written, by_administrator, shadowed } = self;
        if Digest::of(name.as_bytes()).to_string() != digest_of_name {
            return Err(format!("it holds `{name}`, which has another file"));
        }
        if Digest::of(document).to_string() != written {
            return Err("its digest does not match".to_owned());
        }
        let below = |(path, of_document): (String, String)| Ok((path, digest(&of_document)?));
        let shadowed = shadowed.into_iter().map(below).collect::<Result<_, String>>()?;
        let document = document.to_vec().into();
        Ok((AgentName::new_valid(&name), Authored { document, by_administrator, shadowed }))
    }
}
