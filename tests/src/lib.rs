//! What the black-box tests share.

pub mod aimock;
pub mod executor;
pub mod openai;
pub mod program;
pub mod refusal;
pub mod registry;
pub mod repository;
pub mod source;
