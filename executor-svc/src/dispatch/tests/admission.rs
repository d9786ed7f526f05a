//! Every row of admission that the kernel decides, at each depth: asked from outside, from inside a running worker, and for
//! a further message; each refusal asked for twice, and nothing written by it.

mod further;
mod rows;

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::*;
use crate::{
    definition::SpawnPolicy,
    double::{Acting, Step, calls, text},
    limits::Bound,
    model::{
        Turn,
        provider::{NoModel, Resolved},
    },
    prompt::{CatalogEntry, Skill},
    registry::Catalog,
    session::WorkerFilter,
    tool::name,
    transcript::Message,
    worker::{Status, StopReason},
};

/// The depth at which a root's great-grandchild still comes to be, so that every depth below may spawn.
const DEPTH_MAX: u64 = 3;

/// What one case is asked of.
struct Setup {
    config: Config,
    agents: BTreeMap<String, Definition>,
    /// Models that nobody has.
    models_missing: Vec<&'static str>,
}

impl Setup {
    /// `one` and `two` hold places in a tree, `leaf` is spawned.
    fn plain() -> Self {
        let mut config = Config::default();
        config.limits.max_recursion_depth = Bound::Of(DEPTH_MAX);
        let agents = ["one", "two", "leaf"].map(|name| (name.to_owned(), definition(name)));
        Self { config, agents: agents.into(), models_missing: vec!["nowhere/model"] }
    }

    fn add(&mut self, name: &str, change: impl FnOnce(&mut Definition)) {
        let mut agent = definition(name);
        change(&mut agent);
        self.agents.insert(name.to_owned(), agent);
    }

    fn start(self, world: &World) -> (Core, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let model = Acting::new(move |turn: &Turn<'_>| act(turn, &counter));
        let models = Arc::new(Picky { model, missing: self.models_missing });
        (world.core(self.config, Moody(self.agents), models), asked)
    }
}

/// Agents, one name of which is broken, and one of which nobody answers.
struct Moody(BTreeMap<String, Definition>);

#[async_trait]
impl Registry for Moody {
    async fn by_name(&self, _: &str, name: &str, _: Option<Instant>) -> Result<Definition, LookupError> {
        match name {
            "broken" => {
                Err(LookupError::Broken { message: "Agent \"broken\" cannot be used: no body.".to_owned() })
            }
            "away" => Err(LookupError::Unavailable("nobody answers".into())),
            name => self.0.get(name).cloned().ok_or_else(|| LookupError::Unknown {
                message: format!("Unknown agent \"{name}\". Available: all"),
                suggestion: String::new(),
                available_count: self.0.len().to_string(),
            }),
        }
    }

    async fn catalog(&self, _: &str, _: &SpawnPolicy, _: Option<Instant>) -> Result<Catalog, LookupError> {
        let entry = |name: &String| CatalogEntry {
            name: name.clone(),
            description: String::new(),
            when_to_use: String::new(),
        };
        Ok(Catalog { entries: self.0.keys().map(entry).collect(), ..Catalog::default() })
    }

    async fn skills(
        &self,
        _: &str,
        _: &[String],
        _: &str,
        _: Option<Instant>,
    ) -> Result<Vec<Skill>, LookupError> {
        Ok(Vec::new())
    }
}

/// A model under every name but some.
struct Picky<F> {
    model: Arc<Acting<F>>,
    missing: Vec<&'static str>,
}

impl<F> Models for Picky<F>
where
    F: Fn(&Turn<'_>) -> Step + Send + Sync + 'static,
{
    fn resolve(&self, wishes: Wishes<'_>) -> Result<Resolved, NoModel> {
        let wished = wishes.patterns.iter().map(String::as_str).chain([wishes.request]);
        let patterns: Vec<String> =
            wished.filter(|name| self.missing.contains(name)).map(str::to_owned).collect();
        match patterns.is_empty() {
            true => self.model.resolve(wishes),
            false => Err(NoModel { patterns, providers: vec!["test".to_owned()] }),
        }
    }
}

/// What a worker does, by its prompt: `hold N` stands N workers deep; `ask N ARGUMENTS` spawns with these arguments from N
/// workers deep, and reports what it is told; any other is done at once.
fn act(turn: &Turn<'_>, asked: &AtomicUsize) -> Step {
    let mut words = turn.prompt.splitn(3, ' ');
    let order = words.next().unwrap_or_default();
    let depth: u32 = words.next().and_then(|word| word.parse().ok()).unwrap_or_default();
    let rest = words.next().unwrap_or_default();
    let spawn = |arguments: &str| Step::Reply(calls("", &[("a", name::SPAWN, arguments)]));
    match (order, depth, turn.number) {
        ("hold" | "ask", 2.., 1) => {
            let prompt = format!("{order} {} {rest}", depth - 1);
            spawn(&json!({ "subagent_type": "two", "prompt": prompt }).to_string())
        }
        // A turn before it holds still: it has used as much as one that asks.
        ("hold", 1, 1) => Step::Reply(calls("", &[("a", "nothing", "{}")])),
        ("hold", 1, 2) => {
            asked.fetch_add(1, Ordering::Relaxed);
            Step::Hang
        }
        ("ask", 1, 1) => spawn(rest),
        ("ask", _, 2) => Step::Reply(text(&told(turn))),
        _ => Step::Reply(text("done")),
    }
}

/// What a tool answered: its own text, or the result of the worker below.
fn told(turn: &Turn<'_>) -> String {
    let Some(Message::Tool { text, .. }) = turn.messages.last() else { panic!("a tool has answered") };
    let report: Result<Value, _> = serde_json::from_str(text);
    match report {
        Ok(report) => report["result"].as_str().expect("a report has a result").to_owned(),
        Err(_) => text.clone(),
    }
}

/// Below the root of the caller's own.
fn chat(agent: &str, prompt: &str) -> Call {
    Call {
        agent: agent.to_owned(),
        place: Place::NamedRoot("chat".to_owned()),
        bypass_dedupe: true,
        ..call(prompt)
    }
}

async fn count(world: &World) -> usize {
    let filter = WorkerFilter { limit: usize::MAX, ..WorkerFilter::default() };
    world.store.workers(filter).await.unwrap().len()
}

fn request(id: &str) -> Option<Request> {
    Some(Request { id: id.to_owned(), content: [7; 32] })
}
