//! A server under full load: h2load with 8 connections of 32 calls each.
//!
//! A client in Rust costs more than the servers it would judge, so that it could not tell them apart.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use tests::{bench::Cost, repository};
use tokio::process;

const CONNECTIONS: usize = 8;
const CALLS_PER_CONNECTION: usize = 32;

/// Calls of one round: two seconds and more on the machines we know.
pub(crate) const CALLS: usize = 200_000;

/// What a round of calls showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// Calls a second.
    pub(crate) rate: f64,
    /// Processor time of the server, microseconds a call.
    pub(crate) processor_us: f64,
    pub(crate) p99_us: f64,
}

/// What is called, and where.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    pub(crate) address: &'a str,
    pub(crate) method: &'a str,
    pub(crate) request: &'a [u8],
    /// Bytes of the answer's message, so that an error, which is shorter, is seen. None where answers differ.
    pub(crate) answer_bytes: usize,
}

/// True where h2load is installed.
pub(crate) fn is_installed() -> bool {
    Command::new("h2load")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Calls a server so many times; every call has to succeed. `process` is the server's.
pub(crate) async fn round(target: &Target<'_>, process: u32, directory: &Path) -> Round {
    let body = directory.join("request");
    let mut framed = vec![0];
    framed.extend(u32::try_from(target.request.len()).expect("a short request").to_be_bytes());
    framed.extend(target.request);
    fs::write(&body, framed).expect("the request is written");
    let log = directory.join("h2load.log");
    let _ = fs::remove_file(&log);
    let cost = Cost::of(process);
    let output = process::Command::new("h2load")
        .args(["-n", &CALLS.to_string(), "-c", &CONNECTIONS.to_string()])
        .args(["-m", &CALLS_PER_CONNECTION.to_string(), "-t", "1", "-d"])
        .arg(&body)
        .arg(format!("--log-file={}", log.display()))
        .args(["-H", "content-type: application/grpc", "-H", "te: trailers"])
        .arg(format!("http://{}{}", target.address, target.method))
        .output()
        .await
        .expect("h2load runs");
    let processor = cost.processor();
    let text = repository::printed(&output);
    assert!(output.status.success(), "h2load failed:\n{text}");
    assert_eq!(number_before(&text, " succeeded"), CALLS, "calls failed:\n{text}");
    // h2load counts what HTTP calls a success; an error of gRPC has no message.
    let data = text.split("(").filter_map(|part| part.split_once(") data")).next();
    let data: usize =
        data.and_then(|(bytes, _)| bytes.parse().ok()).expect("h2load tells the bytes of answers");
    assert_eq!(data, CALLS * (target.answer_bytes + 5), "answers are not what they should be:\n{text}");

    Round {
        rate: CALLS as f64 / seconds(&text),
        processor_us: processor.as_secs_f64() * 1e6 / CALLS as f64,
        p99_us: percentile(&log, 0.99),
    }
}

fn number_before(text: &str, what: &str) -> usize {
    let before = text.split(what).next().unwrap_or_default();
    let number = before.rsplit([' ', ',']).next().unwrap_or_default();
    number.parse().unwrap_or_else(|_| panic!("h2load tells no number{what}:\n{text}"))
}

/// From `finished in 2.31s, 86580.09 req/s, …`.
fn seconds(text: &str) -> f64 {
    let finished = text.split("finished in ").nth(1).and_then(|rest| rest.split(',').next());
    let finished = finished.unwrap_or_else(|| panic!("h2load tells no end:\n{text}"));
    let (number, scale) = match finished.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (finished.trim_end_matches('s'), 1.0),
    };
    number.parse::<f64>().expect("a duration") * scale
}

/// Of the durations in h2load's log, microseconds.
fn percentile(log: &Path, share: f64) -> f64 {
    let text = fs::read_to_string(log).expect("h2load wrote its log");
    let mut durations: Vec<u64> =
        text.lines().filter_map(|line| line.split('\t').nth(2)?.trim().parse().ok()).collect();
    durations.sort_unstable();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index below the length")]
    let index = ((durations.len() - 1) as f64 * share) as usize;
    durations[index] as f64
}
