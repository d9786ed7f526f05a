//! Places in a write of the registry at which a process can be made to end itself, as `kill -9` would.

use std::{
    fmt::{self, Display, Formatter},
    str::FromStr,
};

/// One thing a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The line of the log.
    Append,
    /// The temporary file.
    Write,
    /// The contents of either.
    Sync,
    /// The temporary file becomes the definition.
    Rename,
    /// A definition's file goes.
    Remove,
    /// The names in the directory.
    SyncDirectory,
    /// The store has answered, the snapshot is not swapped yet.
    Swap,
    /// The snapshot is swapped, the caller not answered yet.
    Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    Before,
    /// Half of the bytes are there.
    Halfway,
    After,
}

/// A place, and how many times it is passed before the process ends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failpoint {
    pub step: Step,
    pub moment: Moment,
    pub passes: usize,
}

/// Every place.
pub const PLACES: [(Step, Moment); 16] = [
    (Step::Append, Moment::Before),
    (Step::Append, Moment::Halfway),
    (Step::Append, Moment::After),
    (Step::Write, Moment::Before),
    (Step::Write, Moment::Halfway),
    (Step::Write, Moment::After),
    (Step::Sync, Moment::Before),
    (Step::Sync, Moment::After),
    (Step::Rename, Moment::Before),
    (Step::Rename, Moment::After),
    (Step::Remove, Moment::Before),
    (Step::Remove, Moment::After),
    (Step::SyncDirectory, Moment::Before),
    (Step::SyncDirectory, Moment::After),
    (Step::Swap, Moment::Before),
    (Step::Answer, Moment::Before),
];

impl Display for Failpoint {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self { step, moment, passes } = self;
        write!(formatter, "{step:?}:{moment:?}:{passes}")
    }
}

impl FromStr for Failpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("`{text}` is no `STEP:MOMENT:PASSES`");
        let (place, passes) = text.rsplit_once(':').ok_or_else(invalid)?;
        let of_place = |(step, moment): &&(Step, Moment)| format!("{step:?}:{moment:?}") == place;
        let (step, moment) = *PLACES.iter().find(of_place).ok_or_else(invalid)?;
        Ok(Self { step, moment, passes: passes.parse().map_err(|_| invalid())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failpoint_is_read_as_it_is_written() {
        for (step, moment) in PLACES {
            let failpoint = Failpoint { step, moment, passes: 3 };

            assert_eq!(failpoint.to_string().parse(), Ok(failpoint));
        }
        assert!("Append:Sideways:1".parse::<Failpoint>().is_err());
    }
}
