//! The executor: runs agents as workers and keeps a record of each that is always closed.

// -- domain --
pub mod admission;
pub mod dedupe;
pub mod definition;
pub mod error;
pub mod event;
pub mod limits;
pub mod prompt;
pub mod react;
pub mod schema;
pub mod toolbag;
pub mod transcript;
pub mod worker;

// -- application --
pub mod live;
pub mod model;
pub mod session;
pub mod tool;
