//! Budgets: the request's, the parent's and the operator's; the smallest of each counts.

use std::time::Duration;

use super::{Rules, Spawner};
use crate::{definition::Definition, error::Error, limits::Origin};

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
        spawner: &Spawner,
        definition: &Definition,
        rules: &Rules<'_>,
    ) -> Result<Self, Error> {
        let (parent, limits) = (&spawner.budget, rules.limits);
        let own_turns = match definition.max_turns {
            Some(turns) => Candidate::own("turns", Origin::Agent, turns),
            None => Candidate::limit("max_turns", limits.max_turns.count()),
        };
        let turns =
            [request.turns.map(|turns| Candidate::own("turns", Origin::Request, turns)), Some(own_turns)];
        let tokens = [
            request.tokens.map(|tokens| Candidate::own("tokens", Origin::Request, tokens)),
            parent.tokens.map(|tokens| Candidate::own("tokens", Origin::Session, tokens)),
        ];
        let wall_time = [
            request.wall_time.map(|time| Candidate::own("wall_time", Origin::Request, time)),
            parent.wall_time.map(|time| Candidate::own("wall_time", Origin::Session, time)),
            limits.worker_wall_time.duration().map(|time| Candidate::limit("worker_wall_time", time)),
        ];
        let tree_time = spawner.tree_time.or_else(|| limits.tree_wall_time.duration());
        let tree_time = [tree_time.map(|time| Candidate::limit("tree_wall_time", time))];

        let (turns, tokens) = (smallest(rules, turns)?, smallest(rules, tokens)?);
        let wall_time = smallest(rules, wall_time)?;
        // The tree's clock is the tree's own: it runs on while a worker waits for a person.
        smallest(rules, tree_time)?;
        Ok(Self {
            turns: turns.unwrap_or(u32::MAX),
            tokens,
            wall_time: wall_time.unwrap_or(WALL_TIME_MAX).min(WALL_TIME_MAX),
            // The store counts what is spawned below each worker of the tree.
            spawns: request.spawns,
        })
    }
}

/// One of the bounds of which the smallest counts.
#[derive(Clone, Copy)]
struct Candidate<T> {
    name: &'static str,
    /// Absent for a limit of the operator's: it is looked up where it refuses.
    origin: Option<Origin>,
    value: T,
}

impl<T> Candidate<T> {
    fn own(name: &'static str, origin: Origin, value: T) -> Self {
        Self { name, origin: Some(origin), value }
    }

    fn limit(name: &'static str, value: T) -> Self {
        Self { name, origin: None, value }
    }
}

fn smallest<T, const N: usize>(
    rules: &Rules<'_>,
    candidates: [Option<Candidate<T>>; N],
) -> Result<Option<T>, Error>
where
    T: Ord + Copy + Default,
{
    let Some(smallest) = candidates.into_iter().flatten().min_by_key(|candidate| candidate.value) else {
        return Ok(None);
    };
    if smallest.value == T::default() {
        let origin = smallest.origin.unwrap_or_else(|| rules.origin(smallest.name));
        let (limit, origin) = (smallest.name.to_owned(), origin.as_str().to_owned());
        return Err(Error::BudgetExhausted { limit, origin });
    }
    Ok(Some(smallest.value))
}
