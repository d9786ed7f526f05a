//! The least that the same work can cost: a bare gRPC handler that passes ready bytes, and files that are only looked at or
//! read.

use std::{
    collections::HashMap,
    convert::Infallible,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Instant,
};

use bytes::{Buf as _, BufMut as _, Bytes};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use proto::registry::v1::ByNameRequest;
use tests::bench;
use tokio::{net::TcpListener, task::JoinSet};
use tonic::{
    Request, Response, Status,
    body::Body,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::http,
    server::{Grpc, UnaryService},
};

/// Messages are bytes, in both directions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Raw;

/// Serves one answer under one name, and nothing else of what a service does.
pub(crate) async fn bare(arguments: &[String]) {
    let [name, file] = arguments else { panic!("a name, and a file with its answer") };
    let answer = Bytes::from(fs::read(file).expect("the answer was written"));
    let answers = Arc::new(HashMap::from([(name.clone(), answer)]));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    bench::announce(&listener.local_addr().expect("a bound address").to_string());
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("a socket takes its options");
        let bare = Bare(Arc::clone(&answers));
        let service = service_fn(move |request: http::Request<Incoming>| {
            let bare = bare.clone();
            async move {
                let answered = Grpc::new(Raw).unary(bare, request.map(Body::new)).await;
                Ok::<_, Infallible>(answered)
            }
        });
        let server = http2::Builder::new(TokioExecutor::new());
        connections.spawn(async move {
            // The benchmark cuts its connections when it has measured.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Does something with the files of a directory, so many times, and tells milliseconds of each time.
pub(crate) fn repeat(arguments: &[String], work: fn(&[PathBuf]) -> u64) {
    let [directory, times] = arguments else { panic!("a directory and a count") };
    let mut took = Vec::new();
    for _ in 0..times.parse().expect("a count") {
        let began = Instant::now();
        work(&list(Path::new(directory)));
        took.push(format!("{:.3}", began.elapsed().as_secs_f64() * 1e3));
    }
    bench::announce(&took.join(" "));
}

/// Asks for the state of every file.
pub(crate) fn stat(files: &[PathBuf]) -> u64 {
    files.iter().map(|file| fs::metadata(file).expect("the file is there").len()).sum()
}

/// Reads every file, half of them on another thread.
pub(crate) fn read_by_two(files: &[PathBuf]) -> u64 {
    let read = |files: &[PathBuf]| -> Vec<Vec<u8>> {
        files.iter().map(|file| fs::read(file).expect("the file is there")).collect()
    };
    let (left, right) = files.split_at(files.len() / 2);
    thread::scope(|scope| {
        let other = scope.spawn(|| read(right));
        let all = [read(left), other.join().expect("reading does not panic")];
        all.iter().flatten().map(|bytes| bytes.len() as u64).sum()
    })
}

fn list(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("the directory is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

#[derive(Clone)]
struct Bare(Arc<HashMap<String, Bytes>>);

impl UnaryService<Bytes> for Bare {
    type Response = Bytes;
    type Future = std::future::Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let answer = ByNameRequest::decode(request.into_inner())
            .map_err(|error| Status::invalid_argument(error.to_string()))
            .and_then(|request| {
                let answer = self.0.get(&request.name);
                answer.cloned().ok_or_else(|| Status::not_found(request.name))
            });
        std::future::ready(answer.map(Response::new))
    }
}

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(item.len());
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
