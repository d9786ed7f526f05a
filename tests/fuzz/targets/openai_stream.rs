//! Any bytes as an answer of chat completions, in pieces of any length.

#![no_main]

use executor_svc::model::fuzz::openai_stream;
use fuzz::bounded;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| bounded("reading a stream", || openai_stream(input)));
