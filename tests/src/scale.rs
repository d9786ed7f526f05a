//! How much of a long test is run: a part by default, all of it by `deploy/test --full`.

use std::env;

/// The count that the present scale asks for.
pub fn scaled(reduced: usize, full: usize) -> usize {
    if is_full() { full } else { reduced }
}

/// True when long tests run at full scale.
pub fn is_full() -> bool {
    env::var("ROSTER_TEST_SCALE").is_ok_and(|scale| scale == "full")
}
