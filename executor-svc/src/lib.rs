//! The executor: runs agents as workers and keeps a record of each that is always closed.

mod serve;

pub use self::{
    config::Config,
    serve::{Executor, Surroundings},
};

// -- domain --
pub mod admission;
pub mod argument;
pub mod dedupe;
pub mod definition;
pub mod error;
pub mod event;
pub mod hint;
pub mod limits;
pub mod prompt;
pub mod react;
pub mod review;
pub mod schema;
pub mod toolbag;
pub mod transcript;
pub mod worker;

// -- application --
pub mod clock;
pub mod dispatch;
pub mod gate;
pub mod kernel;
pub mod live;
pub mod meter;
pub mod model;
pub mod open;
pub mod registry;
pub mod run;
pub mod session;
pub mod slots;
pub mod stop;
pub mod supervisor;
pub mod tool;

// -- edge --
pub mod cli;
pub mod config;
pub mod grpc;

#[cfg(test)]
mod double;
