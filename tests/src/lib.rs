//! What the black-box tests share.

pub mod admin;
pub mod aimock;
pub mod bench;
pub mod executor;
pub mod executor_program;
pub mod failpoint;
pub mod openai;
pub mod program;
pub mod refusal;
pub mod registry;
pub mod registry_program;
pub mod repository;
pub mod scale;
pub mod source;
