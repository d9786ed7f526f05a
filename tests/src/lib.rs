//! What the black-box tests share.

pub mod repository;
pub mod source;
