//! Any text as the arguments of a call, for every built-in tool that works on files.

#![no_main]

use executor_svc::tool::fuzz::arguments;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| arguments(&String::from_utf8_lossy(input)));
