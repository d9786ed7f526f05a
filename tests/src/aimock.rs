//! A model server that somebody else wrote, with the answers of a test.

use std::process::Stdio;

use executor_svc::model::config::{Kind, Provider};
use serde_json::{Value, json};
use service_kit::config::Secret;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::repository;

/// The running server. It ends with the test.
pub struct Aimock {
    url: String,
    _process: Child,
    _fixtures: tempfile::TempDir,
}

impl Aimock {
    /// Starts it on a free port. A request that no entry of `answers` fits is refused, and text is sent five characters
    /// at a time.
    pub async fn start(answers: &Value, arguments: &[&str]) -> Self {
        let fixtures = tempfile::tempdir().expect("a directory can be made");
        let path = fixtures.path().join("answers.json");
        let text = json!({ "fixtures": answers }).to_string();
        std::fs::write(&path, text).expect("the fixtures can be written");

        let mut process = Command::new(repository::tool("llmock"))
            .args(["--port", "0", "--strict", "--chunk-size", "5", "--fixtures"])
            .arg(&path)
            .args(arguments)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the installed server starts");
        let mut lines = BufReader::new(process.stdout.take().expect("its output is piped")).lines();
        let url = loop {
            let line =
                lines.next_line().await.expect("its output is text").expect("it says where it listens");
            if let Some((_, url)) = line.split_once("listening on ") {
                break url.trim().to_owned();
            }
        };
        Self { url, _process: process, _fixtures: fixtures }
    }

    /// The providers `openai` and `anthropic`, one for each of its wire formats.
    pub fn providers(&self) -> [(String, Provider); 2] {
        let provider = |kind, path: &str| Provider {
            base_url: Some(format!("{}{path}", self.url)),
            api_key: Some(Secret::new("sk-for-the-mock-server")),
            ..Provider::new(kind)
        };
        [
            ("openai".to_owned(), provider(Kind::Openai, "/v1")),
            ("anthropic".to_owned(), provider(Kind::Anthropic, "")),
        ]
    }
}
