//! What others make of the same work. What is not installed is not measured.

use std::{
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bytes::Bytes;
use prost::Message as _;
use tests::repository;
use tokio::time::sleep;
use tonic::{client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel};

use crate::floor::Raw;

/// Longer than etcd takes to start.
const START_MAX: Duration = Duration::from_secs(30);

/// Between two attempts to reach it.
const START_INTERVAL: Duration = Duration::from_millis(100);

/// The method that reads a key of etcd.
pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";

/// A running etcd of one node. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Etcd {
    child: Child,
    pub(crate) address: String,
}

/// Of `etcdserverpb.PutRequest`.
#[derive(Clone, PartialEq, prost::Message)]
struct Put {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// Of `etcdserverpb.RangeRequest`. A serializable read asks no other node.
#[derive(Clone, PartialEq, prost::Message)]
struct Range {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bool, tag = "7")]
    serializable: bool,
}

impl Etcd {
    /// Starts one with its data in a directory.
    ///
    /// # Errors
    ///
    /// Why it is not measured.
    pub(crate) async fn start(directory: &Path) -> Result<Self, String> {
        let [clients, peers] = [free_port(), free_port()].map(|port| format!("http://127.0.0.1:{port}"));
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(directory.join("etcd"))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|_| "etcd is not installed".to_owned())?;
        let address = clients.trim_start_matches("http://").to_owned();
        Ok(Self { child, address })
    }

    /// Stores a value, and returns the request that reads it and the bytes of the answer.
    pub(crate) async fn put(&self, key: &str, value: Vec<u8>) -> (Vec<u8>, usize) {
        let deadline = Instant::now() + START_MAX;
        let put = Put { key: key.into(), value }.encode_to_vec();
        while let Err(error) = self.call("/etcdserverpb.KV/Put", put.clone()).await {
            assert!(Instant::now() < deadline, "etcd does not start: {error}");
            sleep(START_INTERVAL).await;
        }
        let range = Range { key: key.into(), serializable: true }.encode_to_vec();
        let answer = self.call(RANGE, range.clone()).await.expect("etcd answers");
        (range, answer.len())
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    async fn call(&self, method: &'static str, request: Vec<u8>) -> Result<Bytes, String> {
        let endpoint = Channel::from_shared(format!("http://{}", self.address)).expect("an address is a URL");
        let channel = endpoint.connect().await.map_err(|error| error.to_string())?;
        let mut grpc = Grpc::new(channel);
        grpc.ready().await.map_err(|error| error.to_string())?;
        let request = tonic::Request::new(Bytes::from(request));
        let answer = grpc.unary(request, PathAndQuery::from_static(method), Raw).await;
        answer.map(tonic::Response::into_inner).map_err(|status| status.to_string())
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// oh-my-pi's own discovery over the same project, milliseconds of each time. `tests/benches/peers/install` installs it.
///
/// # Errors
///
/// Why it is not measured.
pub(crate) fn discover(project: &Path, times: usize, count: usize) -> Result<Vec<f64>, String> {
    let peer = repository::root().join("target/peers/oh-my-pi");
    let bun = peer.join("node_modules/.bin/bun");
    if !bun.exists() {
        return Err("oh-my-pi is not installed: `tests/benches/peers/install`".to_owned());
    }
    let home = tempfile::tempdir().expect("an empty home");
    let output = Command::new(bun)
        .arg(peer.join("discover.ts"))
        .arg(project)
        .arg(times.to_string())
        .current_dir(&peer)
        .env("HOME", home.path())
        .output()
        .map_err(|error| error.to_string())?;
    let text = repository::printed(&output);
    if !output.status.success() {
        return Err(format!("oh-my-pi failed: {}", text.lines().last().unwrap_or_default()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let (found, took) = text.trim().split_once(' ').ok_or("oh-my-pi tells nothing")?;
    if found.parse() != Ok(count) {
        return Err(format!("oh-my-pi found {found} definitions, not {count}"));
    }
    Ok(took.split_whitespace().filter_map(|figure| figure.parse().ok()).collect())
}

/// A port that nobody has now. etcd takes no port 0.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound address").port()
}
