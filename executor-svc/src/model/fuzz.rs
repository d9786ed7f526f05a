//! The stream parsers as the fuzz targets call them.

use std::sync::LazyLock;

use tokio::runtime::{Builder, Runtime};

use super::{answer::Assembly, anthropic, openai, trial};

/// Checks a stream of chat completions.
pub fn openai_stream(input: &[u8]) {
    check::<openai::Answer>(input);
}

/// Checks a stream of the messages protocol.
pub fn anthropic_stream(input: &[u8]) {
    check::<anthropic::Answer>(input);
}

/// The first byte says how long the pieces are, the rest is the stream.
fn check<A: Assembly + Default>(input: &[u8]) {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| Builder::new_current_thread().enable_time().build().expect("a runtime can be made"));
    let Some((length, stream)) = input.split_first() else { return };
    let pieces: Vec<&[u8]> = stream.chunks(usize::from(*length).max(1)).collect();
    trial::check::<A>(&RUNTIME, &pieces);
}
