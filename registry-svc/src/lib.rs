//! The registry: discovers agent definitions in many sources, merges them in a fixed order and serves the result.

// -- domain --
pub mod agent;
pub mod catalog;
pub mod command;
pub mod definition;
pub mod diagnostic;
pub mod document;
pub mod explain;
mod front_matter;
pub mod merge;
pub mod skill;
pub mod snapshot;

// -- application --
pub mod error;
pub mod source;
pub mod store;
pub mod workspace;
