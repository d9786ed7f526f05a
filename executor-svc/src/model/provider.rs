//! The configured providers, and which model a worker gets.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    io::{self, Read as _},
    path::Path,
    sync::Arc,
};

use parking_lot::Mutex;

use super::{
    Model, anthropic,
    config::{self, Kind, Models},
    http::Endpoint,
    openai,
    pace::Pace,
    rehearsal::{Rehearsal, SCRIPT_BYTES_MAX, Script},
    retry::Retrying,
};
use crate::toolbag::Pattern;

/// Aliases of aliases of aliases are a mistake.
const ALIAS_STEPS_MAX: usize = 4;

/// Models kept of one provider. Their names come from agent files and callers.
const MODELS_MAX: usize = 256;

/// What is left for an answer where the operator has set no limit: room for a few pages.
const ANSWER_TOKENS: u32 = 4_096;

/// All that is configured below `models`.
pub struct Providers {
    default: Option<String>,
    aliases: BTreeMap<String, String>,
    context_tokens: BTreeMap<String, u32>,
    providers: BTreeMap<String, Provider>,
}

/// What may name the model of a worker, from the strongest wish to the weakest. Empty text is no wish.
#[derive(Clone, Copy, Debug)]
pub struct Wishes<'a> {
    /// The request's own. It is met or the worker is refused.
    pub request: &'a str,
    /// The definition's, of which the first that resolves is taken.
    pub patterns: &'a [String],
    /// The parent's model, as resolved.
    pub parent: &'a str,
}

/// The model that a worker gets.
#[derive(Clone)]
pub struct Resolved {
    /// `<provider>/<model>`.
    pub name: String,
    pub model: Arc<dyn Model>,
    /// The most tokens that it takes beside its answer, where the operator has said so.
    pub input_tokens_max: Option<u32>,
    /// It replays a script: every answer says so, and it decides nothing for real workers.
    pub is_rehearsal: bool,
}

/// No wish resolves.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no model for {}; {}", patterns_in_words(.patterns), providers_in_words(.providers))]
pub struct NoModel {
    /// What was tried.
    pub patterns: Vec<String>,
    /// The providers there are.
    pub providers: Vec<String>,
}

struct Provider {
    protocol: Protocol,
    config: config::Provider,
    pace: Arc<Pace>,
    /// The models that were asked for: what one has learned of its server, the next turn knows.
    models: Mutex<HashMap<String, Arc<dyn Model>>>,
}

enum Protocol {
    Openai(Endpoint),
    Anthropic(Endpoint),
    Rehearsal(Arc<Rehearsal>),
}

impl Providers {
    /// Opens the configured providers; relative paths of scripts begin at `directory`. Nothing is asked of a server yet.
    ///
    /// # Errors
    ///
    /// Every mistake, as the configuration key and what is wrong with it.
    pub fn new(models: &Models, directory: &Path) -> Result<Self, Vec<(String, String)>> {
        let Models { default, aliases, context_tokens, providers } = models;
        let mut mistakes = Vec::new();
        let mut opened = BTreeMap::new();
        for (name, config) in providers {
            if name.is_empty()
                || name.contains(|character: char| character == '/' || character.is_whitespace())
            {
                let message =
                    "a provider's name stands before the slash of a model: no slash, no blank".to_owned();
                mistakes.push((format!("models.providers.{name}"), message));
            }
            match Provider::open(name, config, directory) {
                Ok(provider) => {
                    opened.insert(name.clone(), provider);
                }
                Err(found) => mistakes.extend(
                    found
                        .into_iter()
                        .map(|(key, message)| (format!("models.providers.{name}.{key}"), message)),
                ),
            }
        }
        let this = Self {
            default: default.clone(),
            aliases: aliases.clone(),
            context_tokens: context_tokens.clone(),
            providers: opened,
        };
        let declared: BTreeSet<&str> = providers.keys().map(String::as_str).collect();
        let default = default.iter().map(|target| ("models.default".to_owned(), target));
        let aliases = aliases.iter().map(|(name, target)| (format!("models.aliases.{name}"), target));
        for (key, target) in default.chain(aliases) {
            // A provider that is there but broken has been told of already.
            let is_known = this.target(target).is_some_and(|(provider, _)| declared.contains(provider));
            if !is_known {
                let declared: Vec<String> = declared.iter().map(|name| (*name).to_owned()).collect();
                let there_are = providers_in_words(&declared);
                mistakes.push((
                    key,
                    format!("`{target}` is neither an alias nor `<provider>/<model>`; {there_are}"),
                ));
            }
        }
        if mistakes.is_empty() { Ok(this) } else { Err(mistakes) }
    }

    /// The model for a worker.
    ///
    /// # Errors
    ///
    /// [`NoModel`] with what was tried.
    pub fn resolve(&self, wishes: Wishes<'_>) -> Result<Resolved, NoModel> {
        let Wishes { request, patterns, parent } = wishes;
        let wished: Vec<&str> = if request.is_empty() {
            let weaker = [parent, self.default.as_deref().unwrap_or_default()];
            let all = patterns.iter().map(String::as_str).chain(weaker);
            all.filter(|wish| !wish.trim().is_empty()).collect()
        } else {
            vec![request]
        };
        wished.iter().find_map(|wish| self.model(wish)).ok_or_else(|| NoModel {
            patterns: wished.iter().map(|wish| (*wish).to_owned()).collect(),
            providers: self.names(),
        })
    }

    /// The names of the providers, in order.
    pub fn names(&self) -> Vec<String> {
        self.providers.keys().cloned().collect()
    }

    fn model(&self, wish: &str) -> Option<Resolved> {
        let (name, model) = self.target(wish)?;
        let provider = self.providers.get(name)?;
        let full_name = format!("{name}/{model}");
        let context_tokens = Pattern::longest(&self.context_tokens, &full_name).copied();
        Some(Resolved {
            name: full_name,
            model: provider.model(model),
            input_tokens_max: context_tokens.map(|tokens| provider.beside_answer(tokens)),
            is_rehearsal: matches!(provider.protocol, Protocol::Rehearsal(_)),
        })
    }

    /// Provider and model that a wish means, the provider perhaps not there.
    fn target<'a>(&'a self, wish: &'a str) -> Option<(&'a str, &'a str)> {
        let mut name = wish.trim();
        for _ in 0..ALIAS_STEPS_MAX {
            match self.aliases.get(name) {
                Some(target) => name = target.trim(),
                None => {
                    return name
                        .split_once('/')
                        .filter(|(provider, model)| !provider.is_empty() && !model.is_empty());
                }
            }
        }
        None
    }
}

impl Provider {
    fn open(name: &str, config: &config::Provider, directory: &Path) -> Result<Self, Vec<(String, String)>> {
        let owned = |(key, message): (&str, String)| (key.to_owned(), message);
        let mistakes = config.mistakes();
        if !mistakes.is_empty() {
            return Err(mistakes.into_iter().map(owned).collect());
        }
        let endpoint = |endpoint: Result<Endpoint, _>| endpoint.map_err(|mistake| vec![owned(mistake)]);
        let protocol = match config.kind {
            Kind::Openai => Protocol::Openai(endpoint(openai::endpoint(name, config))?),
            Kind::Anthropic => Protocol::Anthropic(endpoint(anthropic::endpoint(name, config))?),
            Kind::Rehearsal => {
                let path = directory.join(config.script.as_deref().unwrap_or_else(|| Path::new("")));
                let script = read_script(&path).map_err(|found| {
                    found.into_iter().map(|message| ("script".to_owned(), message)).collect::<Vec<_>>()
                })?;
                Protocol::Rehearsal(Arc::new(Rehearsal::new(name, script)))
            }
        };
        // Behind a script there is no server to spare.
        let requests_max = match config.kind {
            Kind::Openai | Kind::Anthropic => config.max_concurrent,
            Kind::Rehearsal => u32::MAX,
        };
        let (config, pace) = (config.clone(), Arc::new(Pace::new(requests_max)));
        Ok(Self { protocol, config, pace, models: Mutex::default() })
    }

    /// What is left of a model's tokens for the question.
    fn beside_answer(&self, context_tokens: u32) -> u32 {
        let answer = self.config.max_output_tokens.unwrap_or(ANSWER_TOKENS);
        context_tokens - answer.min(context_tokens / 2)
    }

    fn model(&self, name: &str) -> Arc<dyn Model> {
        let mut models = self.models.lock();
        if let Some(model) = models.get(name) {
            return Arc::clone(model);
        }
        let model = self.open_model(name);
        if models.len() < MODELS_MAX {
            models.insert(name.to_owned(), Arc::clone(&model));
        }
        model
    }

    fn open_model(&self, model: &str) -> Arc<dyn Model> {
        let pace = Arc::clone(&self.pace);
        match &self.protocol {
            Protocol::Openai(endpoint) => {
                Arc::new(Retrying::new(openai::Chat::new(endpoint.clone(), model, &self.config), pace))
            }
            Protocol::Anthropic(endpoint) => {
                Arc::new(Retrying::new(anthropic::Messages::new(endpoint.clone(), model, &self.config), pace))
            }
            Protocol::Rehearsal(rehearsal) => Arc::new(Retrying::new(Arc::clone(rehearsal), pace)),
        }
    }
}

/// Reads a script; each message begins with the path.
fn read_script(path: &Path) -> Result<Script, Vec<String>> {
    let shown = path.display();
    let text = read_text(path).map_err(|error| vec![format!("`{shown}` cannot be read: {error}")])?;
    Script::parse(&text)
        .map_err(|problems| problems.iter().map(|problem| format!("{shown}:{problem}")).collect())
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(SCRIPT_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > SCRIPT_BYTES_MAX {
        return Err(io::Error::other(format!("it is over {SCRIPT_BYTES_MAX} bytes")));
    }
    Ok(text)
}

fn patterns_in_words(patterns: &[String]) -> String {
    match patterns {
        [] => "an agent that names none, and no `models.default`".to_owned(),
        _ => quoted(patterns),
    }
}

fn providers_in_words(providers: &[String]) -> String {
    match providers {
        [] => "no provider is configured".to_owned(),
        _ => format!("providers: {}", quoted(providers)),
    }
}

/// At most 20 names; then how many more there are.
fn quoted(names: &[String]) -> String {
    const SHOWN_MAX: usize = 20;
    let mut words: Vec<String> = names.iter().take(SHOWN_MAX).map(|name| format!("`{name}`")).collect();
    if names.len() > SHOWN_MAX {
        words.push(format!("… ({} more)", names.len() - SHOWN_MAX));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests;
