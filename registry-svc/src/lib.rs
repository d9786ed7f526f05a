//! The registry: discovers agent definitions in many sources, merges them in a fixed order and serves the result.

// -- domain --
pub mod agent;
pub mod definition;
pub mod diagnostic;
