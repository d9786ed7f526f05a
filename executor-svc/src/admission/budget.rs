//! Budgets: the request's, the parent's and the operator's; the smallest of each counts.

use std::time::Duration;

use crate::{
    definition::Definition,
    error::Error,
    limits::{Limits, Origin},
};

/// What a request or a parent leaves. Absent inherits, 0 means none left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    pub turns: Option<u32>,
    pub tokens: Option<u64>,
    pub wall_time: Option<Duration>,
    pub spawns: Option<u32>,
}

/// What a worker may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Model turns; `u32::MAX` where there is no limit.
    pub turns: u32,
    /// Input plus output tokens of the worker and everything below it.
    pub tokens: Option<u64>,
    pub wall_time: Duration,
    /// Workers below it, over its whole life.
    pub spawns: Option<u32>,
}

/// The longest a worker may run where every limit is lifted: a year, so that arithmetic on time never overflows.
const WALL_TIME_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Grant {
    /// What stands in a record that is never written.
    pub const NONE: Self = Self { turns: 0, tokens: Some(0), wall_time: Duration::ZERO, spawns: Some(0) };

    /// The smallest of what the request, the parent, the definition and the operator say.
    ///
    /// # Errors
    ///
    /// `BUDGET_EXHAUSTED` where nothing is left of one of them, with the limit and where it comes from.
    pub fn new(
        request: &Budget,
        parent: &Budget,
        definition: &Definition,
        limits: &Limits,
    ) -> Result<Self, Error> {
        let own_turns = match definition.max_turns {
            Some(turns) => (turns, Origin::Agent),
            None => (limits.max_turns.count(), Origin::Config),
        };
        let turns =
            smallest("turns", [request.turns.map(|turns| (turns, Origin::Request)), Some(own_turns)])?;
        let tokens = smallest(
            "tokens",
            [
                request.tokens.map(|tokens| (tokens, Origin::Request)),
                parent.tokens.map(|tokens| (tokens, Origin::Session)),
            ],
        )?;
        let wall_time = smallest(
            "wall_time",
            [
                request.wall_time.map(|time| (time, Origin::Request)),
                parent.wall_time.map(|time| (time, Origin::Session)),
                limits.worker_wall_time.duration().map(|time| (time, Origin::Config)),
                limits.tree_wall_time.duration().map(|time| (time, Origin::Config)),
            ],
        )?;
        Ok(Self {
            turns: turns.unwrap_or(u32::MAX),
            tokens,
            wall_time: wall_time.unwrap_or(WALL_TIME_MAX).min(WALL_TIME_MAX),
            // The store counts what is spawned below each worker of the tree.
            spawns: request.spawns,
        })
    }
}

fn smallest<T, const N: usize>(
    limit: &'static str,
    candidates: [Option<(T, Origin)>; N],
) -> Result<Option<T>, Error>
where
    T: Ord + Copy + Default,
{
    let Some((value, origin)) = candidates.into_iter().flatten().min_by_key(|(value, _)| *value) else {
        return Ok(None);
    };
    if value == T::default() {
        return Err(Error::BudgetExhausted { limit: limit.to_owned(), origin: origin.as_str().to_owned() });
    }
    Ok(Some(value))
}
