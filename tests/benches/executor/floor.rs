//! What a run cannot cost less than: an empty call, a row on the disk, and the loop that somebody writes by hand.

use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use proto::executor::v1::{
    DecideProposalRequest, DecideProposalResponse, ListProposalsRequest, ListProposalsResponse,
    review_service_server::{ReviewService, ReviewServiceServer},
};
use rusqlite::{Connection, params};
use serde_json::{Value, json};
use tests::bench::{self, Cost};
use tokio::{net::TcpListener, sync::Notify, task::JoinSet};
use tonic::{Request, Response, Status, body::Body, codegen::Service as _};

use crate::{mock::ANSWER, services};

/// Rows in one transaction.
const TRANSACTION_MAX: usize = 1_024;

/// One measurement, as a part tells it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) count: f64,
    pub(crate) processor: Duration,
    pub(crate) wall: Duration,
}

impl Figures {
    pub(crate) fn since(cost: &Cost, count: usize) -> Self {
        // Counts of a benchmark are far below what a float holds exactly.
        #[allow(clippy::cast_precision_loss)]
        let count = count as f64;
        Self { count, processor: cost.processor(), wall: cost.wall() }
    }

    /// Processor time of one, microseconds.
    pub(crate) fn each_us(&self) -> f64 {
        self.processor.as_secs_f64() * 1e6 / self.count
    }

    /// How many a second.
    pub(crate) fn rate(&self) -> f64 {
        self.count / self.wall.as_secs_f64()
    }

    fn tell(&self) {
        let Self { count, processor, wall } = self;
        bench::announce(&json!([count, processor.as_secs_f64(), wall.as_secs_f64()]).to_string());
    }

    pub(crate) fn read(line: &str) -> Self {
        let [count, processor, wall]: [f64; 3] = serde_json::from_str(line).expect("three figures");
        Self { count, processor: Duration::from_secs_f64(processor), wall: Duration::from_secs_f64(wall) }
    }
}

struct Empty;

#[tonic::async_trait]
impl ReviewService for Empty {
    async fn list_proposals(
        &self,
        _: Request<ListProposalsRequest>,
    ) -> Result<Response<ListProposalsResponse>, Status> {
        Ok(Response::new(ListProposalsResponse::default()))
    }

    async fn decide_proposal(
        &self,
        _: Request<DecideProposalRequest>,
    ) -> Result<Response<DecideProposalResponse>, Status> {
        Err(Status::unimplemented("this is a floor"))
    }
}

/// A bare server whose answer is empty: generated code straight behind the HTTP/2 connection.
pub(crate) async fn empty_call() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    bench::announce(&listener.local_addr().expect("a bound address").to_string());
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("a socket takes its options");
        let service = service_fn(|request: http::Request<Incoming>| {
            ReviewServiceServer::new(Empty).call(request.map(Body::new))
        });
        let server = http2::Builder::new(TokioExecutor::new());
        connections.spawn(async move {
            // The benchmark cuts its connections when it has measured.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Inserts and updates one row for each of so many callers at a time, group commit by one writer, each caller waiting for its
/// own commit.
pub(crate) fn rows(arguments: &[String]) {
    let (directory, callers, time) = store_arguments(arguments);
    let connection = open(&directory.join("floor.sqlite"));
    let (sender, receiver) = mpsc::sync_channel::<mpsc::SyncSender<()>>(TRANSACTION_MAX);
    let cost = Cost::of(std::process::id());
    let until = Instant::now() + time;
    let threads: Vec<_> = (0..callers)
        .map(|_| {
            let sender = sender.clone();
            thread::spawn(move || {
                let mut waits = Vec::new();
                while Instant::now() < until {
                    let began = Instant::now();
                    let (done, committed) = mpsc::sync_channel(1);
                    sender.send(done).expect("the writer outlives its callers");
                    committed.recv().expect("a commit is answered");
                    waits.push(began.elapsed());
                }
                waits
            })
        })
        .collect();
    drop(sender);
    let mut number = 0;
    while let Ok(first) = receiver.recv() {
        let mut waiting = vec![first];
        waiting.extend(receiver.try_iter().take(TRANSACTION_MAX - 1));
        connection.execute_batch("BEGIN IMMEDIATE").expect("a transaction");
        for _ in &waiting {
            number += 1;
            row(&connection, number);
        }
        connection.execute_batch("COMMIT").expect("a commit");
        for caller in waiting {
            let _ = caller.send(());
        }
    }
    let waits = threads.into_iter().flat_map(|thread| thread.join().expect("a caller ends")).collect();
    tell_waits(&cost, waits);
}

/// Puts one page after the other at the end of a file and on the disk.
pub(crate) fn syncs(arguments: &[String]) {
    let (directory, _, time) = store_arguments(arguments);
    let mut file = File::create(directory.join("floor.bin")).expect("a file");
    let page = [7; 4096];
    let cost = Cost::of(std::process::id());
    let until = Instant::now() + time;
    let mut waits = Vec::new();
    while Instant::now() < until {
        let began = Instant::now();
        file.write_all(&page).expect("a page is written");
        file.sync_data().expect("the page is on the disk");
        waits.push(began.elapsed());
    }
    tell_waits(&cost, waits);
}

/// What a measurement of a store is told: where, for how many callers, how long.
pub(crate) fn store_arguments(arguments: &[String]) -> (PathBuf, usize, Duration) {
    let [directory, callers, milliseconds] = arguments else { panic!("where, for how many, how long") };
    (
        directory.into(),
        callers.parse().expect("a number of callers"),
        Duration::from_millis(milliseconds.parse().expect("a time")),
    )
}

/// What a measurement of a store tells: figures, and the wait in the middle in microseconds.
pub(crate) fn tell_waits(cost: &Cost, waits: Vec<Duration>) {
    Figures::since(cost, waits.len()).tell();
    let waits = waits.into_iter().map(|wait| wait.as_secs_f64() * 1e6).collect();
    bench::announce(&bench::median(waits).to_string());
}

fn open(path: &Path) -> Connection {
    let connection = Connection::open(path).expect("a database");
    connection
        .query_row("PRAGMA journal_mode=WAL", [], |row| row.get::<_, String>(0))
        .expect("a write-ahead log");
    connection
        .execute_batch(
            "PRAGMA synchronous=FULL;
             CREATE TABLE session (id TEXT PRIMARY KEY, parent TEXT, agent TEXT NOT NULL, hash BLOB NOT NULL,
                 task TEXT NOT NULL, state INTEGER NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL,
                 result TEXT);
             CREATE UNIQUE INDEX session_by_hash ON session (hash);",
        )
        .expect("a table");
    connection
}

fn row(connection: &Connection, number: i64) {
    const TASK: &str =
        "Review the change in src/lib.rs and say what is wrong, where, and why. Keep it short.";
    let id = format!("{number:032x}");
    let mut hash = [0; 32];
    // Spread like a hash: neighbours are far from each other.
    hash[..8].copy_from_slice(&number.wrapping_mul(0x1E37_79B9_7F4A_7C15).to_le_bytes());
    hash[8..16].copy_from_slice(&number.to_le_bytes());
    connection
        .prepare_cached("INSERT INTO session VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, ?6, NULL)")
        .and_then(|mut insert| insert.execute(params![id, "root", "reviewer", hash, TASK, number]))
        .expect("a row is inserted");
    connection
        .prepare_cached("UPDATE session SET state = 2, updated = ?2, result = ?3 WHERE id = ?1")
        .and_then(|mut update| {
            update.execute(params![id, number + 1, "done: three findings, two of them in the parser"])
        })
        .expect("a row is updated");
}

/// A loop written by hand over an HTTP client and JSON, so many at a time and so many in all, with a sub-agent or without.
#[derive(Clone)]
struct Loop {
    client: reqwest::Client,
    url: String,
}

/// Runs the hand-written loop once it is told to, and tells what it cost.
pub(crate) async fn runs(arguments: Vec<String>, begin: &Notify) {
    let [model, work, at_once, count] = <[String; 4]>::try_from(arguments).expect("what, and how often");
    let (at_once, count): (usize, usize) = (parse(&at_once), parse(&count));
    // As many connections are kept as runs go on, so that the floor is not the cost of handshakes.
    let client = reqwest::Client::builder().pool_max_idle_per_host(at_once).tcp_nodelay(true).build();
    let hand = Loop { client: client.expect("a client"), url: format!("http://{model}/v1/chat/completions") };
    let has_child = work == "parent";
    let left = Arc::new(std::sync::atomic::AtomicUsize::new(count));
    hand.run(has_child).await;
    bench::announce("ready");
    begin.notified().await;
    let cost = Cost::of(std::process::id());
    let mut tasks = JoinSet::new();
    for _ in 0..at_once {
        let (hand, left) = (hand.clone(), Arc::clone(&left));
        tasks.spawn(async move {
            use std::sync::atomic::Ordering::Relaxed;
            while left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
                assert_eq!(hand.run(has_child).await, ANSWER);
            }
        });
    }
    tasks.join_all().await;
    Figures::since(&cost, count).tell();
}

impl Loop {
    fn run(&self, has_child: bool) -> BoxFuture<'_, String> {
        let tools = has_child.then(|| {
            json!([{ "type": "function", "function": {
                "name": "AgentTool", "description": "Asks another agent.",
                "parameters": { "type": "object", "properties": { "prompt": { "type": "string" } },
                                "required": ["prompt"] } } }])
        });
        Box::pin(async move {
            let mut messages = vec![
                json!({ "role": "system", "content": services::instructions() }),
                json!({ "role": "user", "content": "go" }),
            ];
            loop {
                let mut body = json!({ "model": "model", "messages": messages });
                if let Some(tools) = &tools {
                    body["tools"] = tools.clone();
                }
                let response = self.client.post(&self.url).json(&body).send().await.expect("an answer");
                let answer: Value = response.json().await.expect("an answer is JSON");
                let message = answer["choices"][0]["message"].clone();
                let Some(calls) = message["tool_calls"].as_array().cloned() else {
                    return message["content"].as_str().expect("an answer has text").to_owned();
                };
                messages.push(message);
                for call in calls {
                    let arguments = call["function"]["arguments"].as_str().expect("arguments are text");
                    let _: Value = serde_json::from_str(arguments).expect("arguments are JSON");
                    let result = self.run(false).await;
                    messages.push(json!({ "role": "tool", "tool_call_id": call["id"], "content": result }));
                }
            }
        })
    }
}

fn parse(text: &str) -> usize {
    text.parse().expect("a number")
}
