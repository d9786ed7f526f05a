//! The services: parse, ask, render. Who may call what is one table.

mod access;
mod conversation;
mod describe;
mod events;
mod executor;
mod from_proto;
mod listing;
mod review;
mod session;
pub mod status;
mod to_proto;

use std::sync::Arc;

pub use self::access::RULES;
use crate::kernel::Kernel;

/// All three services over one kernel.
#[derive(Clone)]
pub struct Api {
    kernel: Arc<Kernel>,
}

impl Api {
    pub fn new(kernel: Arc<Kernel>) -> Self {
        Self { kernel }
    }
}
