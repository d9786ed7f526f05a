//! Work on many files, on all cores where that pays.

use std::{
    num::NonZero,
    panic::resume_unwind,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// From this many files on a second thread pays; below, starting it costs more than it brings (measured).
const SPLIT_FROM: usize = 1_000;

/// Threads at most: beyond this the kernel's own locks on a directory are what is waited for.
const THREADS_MAX: usize = 8;

/// Files that a thread takes at a time: few enough that all end together, many enough that taking them costs nothing.
const CHUNK: usize = 64;

/// Does `work` with each item, in whatever order, and returns the results in the order of the items.
pub(super) fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if items.len() < SPLIT_FROM {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        loop {
            let begin = next.fetch_add(CHUNK, Ordering::Relaxed);
            let Some(rest) = items.get(begin..).filter(|rest| !rest.is_empty()) else { return done };
            let chunk: Vec<R> = rest.iter().take(CHUNK).map(&work).collect();
            done.push((begin, chunk));
        }
    };
    let mut chunks = thread::scope(|scope| {
        let others: Vec<_> = (1..threads()).map(|_| scope.spawn(take)).collect();
        let mut chunks = take();
        for other in others {
            match other.join() {
                Ok(more) => chunks.extend(more),
                Err(panic) => resume_unwind(panic),
            }
        }
        chunks
    });
    chunks.sort_unstable_by_key(|(begin, _)| *begin);
    chunks.into_iter().flat_map(|(_, results)| results).collect()
}

fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_in_the_order_of_their_items_however_many_there_are() {
        for count in [0, 1, SPLIT_FROM - 1, SPLIT_FROM, SPLIT_FROM * 3 + 7] {
            let items: Vec<usize> = (0..count).collect();
            let expected: Vec<usize> = items.iter().map(|item| item * 2).collect();
            assert_eq!(map(&items, |item| item * 2), expected, "{count} items");
        }
    }

    #[test]
    fn a_panic_in_any_thread_is_one_of_the_whole() {
        let items: Vec<usize> = (0..SPLIT_FROM * 2).collect();
        for offending in [0, SPLIT_FROM, SPLIT_FROM * 2 - 1] {
            let outcome = std::panic::catch_unwind(|| map(&items, |item| assert_ne!(*item, offending)));
            assert!(outcome.is_err(), "item {offending}");
        }
    }
}
