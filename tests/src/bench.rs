//! What the benchmarks share: parts that run as processes of their own, what they cost, and a table of ratios with goals.

mod cost;
mod part;
mod table;

pub use self::{
    cost::{Cost, median, processor_time, resident_bytes},
    part::{Part, announce, role, until_left},
    table::{Goal, Table},
};
