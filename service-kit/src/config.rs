//! Configuration from flags, environment, a YAML file and defaults. Every mistake is found at once, each with its place.
//!
//! A service describes its configuration by a struct; its JSON Schema, derived from the same struct, knows the keys, the
//! defaults, the documentation and what a value may be.

mod layers;
mod print;
mod reference;
mod schema;
mod text;
mod tree;
pub mod yaml;

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub use self::{
    reference::{Section, reference},
    text::{Address, Secret, Span},
};
use self::{schema::Schema, tree::Tree};

/// What a service's configuration struct has to be. `#[serde(default, deny_unknown_fields)]` belongs on each of its structs.
pub trait Configuration: DeserializeOwned + Serialize + JsonSchema {
    /// What only the whole can tell: keys that contradict each other. Each mistake names its key, such as `limits.max_turns`.
    fn check(&self) -> Vec<(String, String)>;
}

/// A value from the command line.
#[derive(Clone, Debug)]
pub struct Flag {
    /// As the user writes it, such as `--listen`.
    pub name: &'static str,
    /// The key it sets, such as `workspaces.default.cwd`.
    pub key: &'static str,
    pub value: Value,
}

/// The process environment, or what a test puts in its place.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, String>);

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    File { path: PathBuf, line: usize, column: usize },
    Environment(String),
    Flag(&'static str),
}

/// One mistake: its place, its key where it has one, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub place: String,
    pub key: String,
    pub message: String,
}

/// A configuration that cannot be used, with all its mistakes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Invalid(pub Vec<Mistake>);

/// A configuration, and where each of its values comes from.
#[derive(Debug)]
pub struct Loaded<C> {
    pub config: C,
    /// The files whose text stands in values: secrets, mostly.
    pub files: Vec<PathBuf>,
    tree: Tree,
    schema: Schema,
}

/// Reads a configuration.
///
/// # Errors
///
/// [`Invalid`] lists every mistake of every layer.
pub fn load<C: Configuration>(
    file: Option<&Path>,
    environment: &Environment,
    flags: Vec<Flag>,
) -> Result<Loaded<C>, Invalid> {
    let schema = Schema::of::<C>();
    let mut mistakes = Vec::new();
    let mut tree = match file {
        Some(path) => layers::file(path, &mut mistakes),
        None => Tree::default(),
    };
    layers::environment(&mut tree, environment, &schema, &mut mistakes);
    layers::flags(&mut tree, flags);
    schema.fill_defaults(&mut tree);
    let files = layers::interpolate(&mut tree, environment, &schema, &mut mistakes);
    schema.check(&tree, &mut mistakes);
    if !mistakes.is_empty() {
        return Err(Invalid(mistakes));
    }

    let config: C = serde_json::from_value(tree.value.clone()).map_err(|error| {
        let place = file.map_or_else(|| "configuration".to_owned(), |path| path.display().to_string());
        Invalid(vec![Mistake { place, key: String::new(), message: error.to_string() }])
    })?;
    let mistakes: Vec<Mistake> =
        config.check().into_iter().map(|(key, message)| tree.mistake_at_key(&key, message)).collect();
    if mistakes.is_empty() { Ok(Loaded { config, files, tree, schema }) } else { Err(Invalid(mistakes)) }
}

/// The mistake of an address that may not be served without protection.
pub fn check_exposure(listen: SocketAddr, insecure: bool) -> Option<(String, String)> {
    (!listen.ip().is_loopback() && !insecure).then(|| {
        let message = format!(
            "`{listen}` is not a loopback address and would be served without TLS; say `insecure: true` to do so"
        );
        ("listen".to_owned(), message)
    })
}

impl<C> Loaded<C> {
    /// The whole configuration as YAML, each value with its origin, secrets masked.
    pub fn print(&self) -> String {
        print::render(&self.tree, &self.schema)
    }
}

impl Flag {
    pub fn new(name: &'static str, key: &'static str, value: impl Into<Value>) -> Self {
        Self { name, key, value: value.into() }
    }
}

impl Environment {
    /// The variables of this process; those that are no UTF-8 count as unset.
    pub fn of_process() -> Self {
        let readable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self(std::env::vars_os().filter_map(readable).collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Self {
        Self(variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => formatter.write_str("default"),
            Self::File { path, line, column } => write!(formatter, "{}:{line}:{column}", path.display()),
            Self::Environment(name) => formatter.write_str(name),
            Self::Flag(name) => formatter.write_str(name),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            write!(formatter, "{}: {}", self.place, self.message)
        } else {
            write!(formatter, "{}: `{}`: {}", self.place, self.key, self.message)
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(formatter)?;
            }
            write!(formatter, "{mistake}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
