//! `rig-peer URL COUNT`: so many parents with one sub-agent at once, and what that took: count, processor seconds, seconds.

use std::{env, fs, time::Instant};

use rig::{
    Agent,
    agent::AgentBuilder,
    prelude::*,
    providers::openai::{OpenAI, OpenAIConfig, Route},
};
use tokio::task::JoinSet;

/// What the benchmark gives every agent.
const SENTENCE: &str = "You review the change you are given. Say what is wrong, where, and why. ";
const SENTENCES: usize = 10;

/// Ticks of a processor a second, as Linux tells them.
const TICKS: f64 = 100.0;

/// A new agent for each run, on connections that all share.
fn parent(client: &OpenAI) -> Agent {
    let agent = || AgentBuilder::new(client.completion("model")).preamble(SENTENCE.repeat(SENTENCES));
    let child = agent().name("AgentTool").description("Asks a sub-agent.").build();
    let tool = child.into_tool().expect("an agent is a tool");
    agent().default_max_turns(5).dynamic_tool(tool).build()
}

async fn at_once(client: &OpenAI, count: usize) {
    let mut runs = JoinSet::new();
    for _ in 0..count {
        let agent = parent(client);
        runs.spawn(async move {
            let answer = agent.prompt("go").await.expect("a run ends well");
            assert_eq!(answer.output(), "done");
        });
    }
    runs.join_all().await;
}

fn processor_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("the process can be read");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| fields[field].parse::<f64>().expect("a number of ticks");
    (ticks(11) + ticks(12)) / TICKS
}

#[tokio::main]
async fn main() {
    let mut arguments = env::args().skip(1);
    let (Some(url), Some(count)) = (arguments.next(), arguments.next()) else {
        panic!("usage: rig-peer URL COUNT");
    };
    let count = count.parse().expect("a count");
    let mut config = OpenAIConfig::new("key").with_route(Route::Chat);
    config.base_url = url;
    let client = config.client();
    // Connections are made in the first round, as those of the others are.
    at_once(&client, count).await;
    let (processor, began) = (processor_seconds(), Instant::now());
    at_once(&client, count).await;
    println!("[{count}, {}, {}]", processor_seconds() - processor, began.elapsed().as_secs_f64());
}
