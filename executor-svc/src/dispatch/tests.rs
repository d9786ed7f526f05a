//! Admission and dedupe over the real store, with a model in memory and a clock that the tests own.

mod admission;
mod dedupe;
mod narrowing;

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::*;
use crate::{
    clock::Clock,
    config::Config,
    double::{Agents, Core, Standstill, anybody, call, definition},
    kernel::Models,
    registry::Registry,
    session::{Log as _, sqlite::Store},
    worker::{SessionId, Worker},
};

/// Far more than anything here takes.
const TICKS_MAX: u32 = 10_000;

/// A store that outlives the cores over it.
struct World {
    store: Arc<Store>,
    clock: Clock,
    _still: Standstill,
    _directory: tempfile::TempDir,
}

impl World {
    fn begin() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Clock::start();
        let store = Arc::new(Store::open(directory.path(), Arc::new(move || clock.now())).unwrap());
        Self { store, clock, _still: Standstill::begin(), _directory: directory }
    }

    fn core(&self, config: Config, registry: impl Registry, models: Arc<dyn Models>) -> Core {
        Core::start(config, self.clock, Arc::clone(&self.store), Arc::new(registry), models, Vec::new())
    }

    /// Lets time pass, a little at a time, until the work is done.
    async fn until<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.tick() => {}
            }
        }
    }

    /// A millisecond, and one transaction of the store: what was asked of it before is answered.
    async fn tick(&self) {
        tokio::time::advance(Duration::from_millis(1)).await;
        self.store.close_root(&SessionId::new_root()).await.unwrap();
    }

    /// Lets time pass until a worker has come that far.
    async fn until_asked(&self, asked: &AtomicUsize) {
        for _ in 0..TICKS_MAX {
            if asked.load(Ordering::Relaxed) > 0 {
                return;
            }
            self.tick().await;
        }
        panic!("the model is not asked");
    }

    /// Waits for the end of whoever answers a call.
    async fn end_of(&self, dispatched: Dispatched) -> Worker {
        match &dispatched.waiter {
            Some(waiter) => self.until(waiter.closed()).await,
            None => dispatched.worker,
        }
    }

    async fn end(self, core: Core) {
        self.until(core.end()).await;
        self.store.close().await;
    }
}

fn agents(names: &[&str]) -> Agents {
    Agents(names.iter().map(|name| ((*name).to_owned(), definition(name))).collect())
}
