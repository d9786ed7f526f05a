//! Any bytes as an answer of the messages protocol, in pieces of any length.

#![no_main]

use executor_svc::model::fuzz::anthropic_stream;
use fuzz::bounded;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| bounded("reading a stream", || anthropic_stream(input)));
