//! What both services do identically, and nothing else.

pub mod auth;
pub mod client;
pub mod command;
pub mod config;
pub mod console;
pub mod id;
pub mod page;
pub mod server;
pub mod shutdown;
pub mod status;
pub mod telemetry;
