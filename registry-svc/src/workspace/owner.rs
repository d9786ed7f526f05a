//! The task that owns a workspace. Everything that changes it happens here, one thing after the other.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use tokio::{
    sync::{Notify, mpsc, oneshot},
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, interval_at, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{
    Command, Reloaded, Remove, Removed, Replace, Replaced, Settings, Shared, authoring,
    debounce::Debounce,
    history::{Change, History, recall},
    publication::{difference, entry, first},
    reading::{AuthoredDocuments, Desk, Reading},
};
use crate::{
    agent::Digest,
    error::{Error, StartError},
    explain::shadowed_by,
    snapshot::Snapshot,
    source::{self, authored},
    store::{Commit, KEPT_FOR, KEPT_GENERATIONS_MAX, Request, Store, Stored, Write},
};

/// How often the sources are compared with what was read, for changes that no event told of: network file systems and
/// overflowing queues tell of none.
const COMPARISON_INTERVAL: Duration = Duration::from_secs(30);

/// Answered requests kept for repetition, as many as generations; the oldest goes first.
const ANSWERED_MAX: usize = KEPT_GENERATIONS_MAX;

/// Owns one workspace until it is cancelled.
pub struct Owner {
    shared: Arc<Shared>,
    settings: Settings,
    store: Arc<dyn Store>,
    commands: mpsc::Receiver<Command>,
    /// Taken from `commands` already, to be served next.
    pending: Option<Command>,
    /// Away while a reading runs; absent after one that panicked.
    desk: Option<Desk>,
    authored: AuthoredDocuments,
    /// Answered requests by caller and id.
    answered: HashMap<(String, String), Answered>,
    touched: Arc<Notify>,
    debounce: Debounce,
}

/// A request that was answered.
struct Answered {
    request: Request,
    generation: u64,
    time: SystemTime,
}

impl Owner {
    pub(super) async fn open(
        settings: Settings,
        store: Arc<dyn Store>,
        commands: mpsc::Receiver<Command>,
    ) -> Result<Self, StartError> {
        let mut stored = store.load(&settings.name).await?;
        stored.forget(SystemTime::now());
        let touched = Arc::new(Notify::new());
        let mut desk = Desk::new(&settings, Some(Arc::clone(&touched)))?;
        let guarded_names = desk.guarded_names().clone();
        let authored = authored::documents(&stored, &guarded_names);

        let lent = authored.clone();
        let read = spawn_blocking(move || {
            let reading = desk.read(&lent);
            (desk, reading)
        });
        let lost = |_| StartError::Scan { workspace: settings.name.clone() };
        let (mut desk, reading) = read.await.map_err(lost)?;
        let reading = reading.expect("the first reading is always new");

        let (snapshot, step) = first(&stored, reading, store.id());
        if let Some(step) = step {
            store.commit(&settings.name, Commit { entry: step.clone(), write: None }).await?;
            stored.apply(step);
        }
        desk.settle();
        info!(
            workspace = %settings.name, generation = snapshot.generation(), agents = snapshot.in_force().len(),
            findings = snapshot.diagnostics().len(), "workspace loaded"
        );
        Ok(Self {
            shared: Arc::new(Shared {
                name: settings.name.clone(),
                guarded_names,
                reader: source::Reader::new(&settings.sources),
                history: History::new(recall(&stored.entries, &snapshot)),
                snapshot: ArcSwap::from_pointee(snapshot),
            }),
            answered: answered(&stored),
            settings,
            store,
            commands,
            pending: None,
            desk: Some(desk),
            authored,
            touched,
            debounce: Debounce::default(),
        })
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Serves the workspace until `cancel`. Commands that still wait then are answered [`Error::Stopping`].
    pub async fn run(mut self, cancel: CancellationToken) {
        let mut comparison = interval_at(Instant::now() + COMPARISON_INTERVAL, COMPARISON_INTERVAL);
        comparison.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let touched = Arc::clone(&self.touched);
        loop {
            if let Some(command) = self.pending.take() {
                self.serve(command).await;
                continue;
            }
            let due = self.debounce.due();
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                command = self.commands.recv() => match command {
                    Some(command) => self.serve(command).await,
                    None => break,
                },
                () = touched.notified() => self.debounce.note(Instant::now()),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.reload_unasked("files were touched").await;
                }
                _ = comparison.tick() => self.reload_unasked("time to compare").await,
            }
        }
        self.shared.history.close();
    }

    /// A caller that has gone away does not undo what was asked for.
    async fn serve(&mut self, command: Command) {
        match command {
            Command::Reload(reply) => self.reload_for(reply).await,
            Command::Replace(replace, reply) => drop(reply.send(self.replace(*replace).await)),
            Command::Remove(remove, reply) => drop(reply.send(self.remove(remove).await)),
        }
    }

    /// Reads the sources once for everybody who asked before the reading began.
    async fn reload_for(&mut self, reply: oneshot::Sender<Result<Arc<Reloaded>, Error>>) {
        let mut replies = vec![reply];
        while self.pending.is_none() {
            match self.commands.try_recv() {
                Ok(Command::Reload(reply)) => replies.push(reply),
                Ok(command) => self.pending = Some(command),
                Err(_) => break,
            }
        }
        let reloaded = self.reload().await;
        for reply in replies {
            drop(reply.send(reloaded.clone()));
        }
    }

    async fn reload_unasked(&mut self, why: &'static str) {
        debug!(workspace = %self.shared.name, why, "reading the sources");
        if let Err(error) = self.reload().await {
            let error: &dyn std::error::Error = &error;
            warn!(workspace = %self.shared.name, error, "sources not reloaded; the last state stays in force");
        }
    }

    async fn reload(&mut self) -> Result<Arc<Reloaded>, Error> {
        let start = Instant::now();
        self.debounce.clear();
        let before = self.shared.snapshot.load_full();
        let authored = self.authored.clone();
        let reading = self.at_desk(move |desk| desk.read(&authored)).await?;
        let snapshot = match reading {
            Some(reading) => self.publish(reading, None, None).await?,
            None => Arc::clone(&before),
        };
        Ok(Arc::new(difference(&before, snapshot, start.elapsed())))
    }

    async fn replace(&mut self, replace: Replace) -> Result<Replaced, Error> {
        let snapshot = self.shared.snapshot.load_full();
        let content = replace.content();
        let repeated = self.repeated(&replace.author.caller, replace.request_id.as_deref(), content)?;
        if let Some((request, generation)) = repeated {
            return Ok(self.replaced_before(&replace, request.created, generation));
        }

        let parsed = authored::parse(&replace.document, &self.shared.guarded_names);
        replace.admit(&parsed, &snapshot, &self.settings.policy)?;
        let definition = parsed.definition().expect("an admitted document has a definition");
        let name = definition.agent.name.clone();
        let created = !self.authored.contains_key(&name);
        authoring::require_room(self.authored.len(), created)?;

        let record = authoring::record(&replace, name.as_str(), &snapshot);
        let document = Arc::new(authored::with_record(parsed, record.clone()));
        let shadowed = shadowed_by(&snapshot, name.as_str());
        let mut authored = self.authored.clone();
        authored.insert(name.clone(), Arc::clone(&document));
        let request = request(&replace.author.caller, replace.request_id, content, created);
        let snapshot = self.write(authored, Write::Put(name.clone(), record), request).await?;

        info!(workspace = %self.shared.name, agent = %name, generation = snapshot.generation(), "definition written");
        source::warn_of_rescue(&document);
        let definition = document.definition().expect("an admitted document has a definition");
        let diagnostics = document.diagnostics.clone();
        let generation = snapshot.generation();
        Ok(Replaced { definition: Arc::clone(definition), generation, created, shadowed, diagnostics })
    }

    async fn remove(&mut self, remove: Remove) -> Result<Removed, Error> {
        let snapshot = self.shared.snapshot.load_full();
        let content = remove.content();
        let repeated = self.repeated(&remove.author.caller, remove.request_id.as_deref(), content)?;
        if let Some((_, generation)) = repeated {
            let now_in_force = snapshot.in_force_as(&remove.name).cloned();
            return Ok(Removed { generation, now_in_force });
        }

        let name = remove.admit(&snapshot, &self.settings.policy)?;
        let mut authored = self.authored.clone();
        authored.remove(&name);
        let request = request(&remove.author.caller, remove.request_id, content, false);
        let snapshot = self.write(authored, Write::Remove(name.clone()), request).await?;

        info!(workspace = %self.shared.name, agent = %name, generation = snapshot.generation(), "definition removed");
        let now_in_force = snapshot.in_force_as(name.as_str()).cloned();
        Ok(Removed { generation: snapshot.generation(), now_in_force })
    }

    /// Merges, records durably, and only then publishes.
    async fn write(
        &mut self,
        authored: AuthoredDocuments,
        write: Write,
        request: Option<Request>,
    ) -> Result<Arc<Snapshot>, Error> {
        let lent = authored.clone();
        let reading = self.at_desk(move |desk| desk.merge(&lent)).await?;
        let snapshot = self.publish(reading, Some(write), request).await?;
        self.authored = authored;
        Ok(snapshot)
    }

    async fn publish(
        &mut self,
        reading: Reading,
        write: Option<Write>,
        request: Option<Request>,
    ) -> Result<Arc<Snapshot>, Error> {
        let before = self.shared.snapshot.load_full();
        let time = SystemTime::now();
        let changed = !before.same_state(&reading.merged);
        let generation = before.generation() + u64::from(changed);
        let Reading { merged, commands, skills } = reading;
        let snapshot =
            Arc::new(Snapshot::new(generation, Arc::clone(before.store_id()), merged, commands, skills));
        let change = Change::between(&before, &snapshot, time);

        if changed || write.is_some() {
            let entry = entry(&snapshot, &change, request.clone());
            self.store.commit(&self.shared.name, Commit { entry, write }).await?;
        }
        self.remember(request, generation, time);
        self.shared.history.publish(changed.then_some(change), || {
            self.shared.snapshot.store(Arc::clone(&snapshot));
        });
        if let Some(desk) = &mut self.desk {
            desk.settle();
        }
        Ok(snapshot)
    }

    /// Works at the desk on the blocking pool. After a panic there is a new desk, which reads everything again.
    async fn at_desk<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Desk) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let mut desk = match self.desk.take() {
            Some(desk) => desk,
            None => {
                Desk::new(&self.settings, Some(Arc::clone(&self.touched))).map_err(|_| Error::ScanFailed)?
            }
        };
        let done = spawn_blocking(move || {
            let result = work(&mut desk);
            (desk, result)
        });
        let (desk, result) = done.await.map_err(|panic| {
            error!(workspace = %self.shared.name, %panic, "reading the sources panicked");
            Error::ScanFailed
        })?;
        self.desk = Some(desk);
        Ok(result)
    }

    /// The answer to an earlier request with the same id, where there is one.
    fn repeated(
        &self,
        caller: &str,
        id: Option<&str>,
        content: Digest,
    ) -> Result<Option<(Request, u64)>, Error> {
        let Some(id) = id else { return Ok(None) };
        match self.answered.get(&(caller.to_owned(), id.to_owned())) {
            Some(answered) if !is_kept(answered.time) => Ok(None),
            Some(answered) if answered.request.content == content => {
                Ok(Some((answered.request.clone(), answered.generation)))
            }
            Some(_) => Err(Error::RequestIdReused { request_id: id.to_owned() }),
            None => Ok(None),
        }
    }

    fn replaced_before(&self, replace: &Replace, created: bool, generation: u64) -> Replaced {
        let document = authored::parse(&replace.document, &self.shared.guarded_names);
        let definition = document.definition().expect("what was admitted once can be used");
        let shadowed = shadowed_by(&self.shared.snapshot.load(), definition.agent.name.as_str());
        Replaced {
            definition: Arc::clone(definition),
            generation,
            created,
            shadowed,
            diagnostics: document.diagnostics,
        }
    }

    fn remember(&mut self, request: Option<Request>, generation: u64, time: SystemTime) {
        let Some(request) = request else { return };
        self.answered.retain(|_, answered| is_kept(answered.time));
        if self.answered.len() >= ANSWERED_MAX {
            let oldest = self.answered.iter().min_by_key(|(_, answered)| answered.time);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.and_then(|key| self.answered.remove(&key));
        }
        let key = (request.caller.clone(), request.id.clone());
        self.answered.insert(key, Answered { request, generation, time });
    }
}

fn request(caller: &str, id: Option<String>, content: Digest, created: bool) -> Option<Request> {
    id.map(|id| Request { caller: caller.to_owned(), id, content, created })
}

fn answered(stored: &Stored) -> HashMap<(String, String), Answered> {
    let answered = stored.entries.iter().filter_map(|entry| {
        let request = entry.request.clone()?;
        let key = (request.caller.clone(), request.id.clone());
        Some((key, Answered { request, generation: entry.generation, time: entry.time }))
    });
    answered.collect()
}

fn is_kept(time: SystemTime) -> bool {
    // A time in the future, after the clock was set back, counts as now.
    SystemTime::now().duration_since(time).unwrap_or_default() <= KEPT_FOR
}
