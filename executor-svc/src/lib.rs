//! The executor: runs agents as workers and keeps a record of each that is always closed.

// -- domain --
pub mod definition;
pub mod event;
pub mod transcript;
pub mod worker;

// -- application --
pub mod model;
pub mod session;
pub mod tool;
