//! Logs on standard error, text for people and JSON for machines, and the recorder behind `/metrics`.

use std::{
    io::{self, IsTerminal as _},
    sync::OnceLock,
};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

/// What is logged where `RUST_LOG` says nothing.
const DEFAULT_FILTER: &str = "info";

/// Upper bounds of latency buckets in seconds: from a lookup in memory to a worker's wall time.
const LATENCY_BUCKETS: [f64; 13] =
    [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0, 1800.0];

/// The recorder is one a process, as the `metrics` crate has it.
static RECORDER: OnceLock<Result<PrometheusHandle, String>> = OnceLock::new();

/// Why telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`RUST_LOG` is not a log filter")]
    Filter(#[source] tracing_subscriber::filter::ParseError),
    #[error("logging is set up already")]
    Logging(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("failed to set up the metrics recorder: {0}")]
    Metrics(String),
}

/// Starts logging. `filter` is the value of `RUST_LOG`, if it is set.
///
/// # Errors
///
/// Fails where the filter cannot be read, or where the process logs already.
pub fn init(filter: Option<&str>) -> Result<(), Error> {
    let filter = EnvFilter::try_new(filter.unwrap_or(DEFAULT_FILTER)).map_err(Error::Filter)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    if io::stderr().is_terminal() {
        builder.try_init().map_err(Error::Logging)
    } else {
        builder.json().flatten_event(true).try_init().map_err(Error::Logging)
    }
}

/// Installs the metrics recorder, once; later calls return the same handle.
///
/// # Errors
///
/// Fails where something else in the process installed another recorder.
pub fn metrics() -> Result<PrometheusHandle, Error> {
    RECORDER
        .get_or_init(|| {
            PrometheusBuilder::new()
                .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &LATENCY_BUCKETS)
                .and_then(PrometheusBuilder::install_recorder)
                .map_err(|error| error.to_string())
        })
        .clone()
        .map_err(Error::Metrics)
}
