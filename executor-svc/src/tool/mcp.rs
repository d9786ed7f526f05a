//! Tools of MCP servers that the operator configured. A server that fails costs its tools and nothing else.

mod answer;
mod client;
pub mod config;
mod connection;
mod keeper;
mod name;
mod offer;
mod process;
mod server;
mod shorten;
mod transport;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use async_trait::async_trait;
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    keeper::Keeper,
    offer::Offer,
    server::{Server, Status},
};
use super::{Class, Context, Error, Tool};
use crate::{model::ToolSpec, toolbag::Known};

/// The configured servers, kept connected in the background.
pub struct Servers {
    servers: Vec<Arc<Server>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// A tool of a server, as it was when it was looked up.
struct McpTool {
    server: Arc<Server>,
    offer: Arc<Offer>,
}

impl Servers {
    /// Starts the servers, commands in `directory`. None of them is waited for.
    pub fn start(configured: &BTreeMap<String, config::Server>, directory: &Path) -> Self {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let servers = configured
            .iter()
            .map(|(name, config)| {
                let server = Arc::new(Server::new(name.clone(), tasks.clone()));
                let keeper = Keeper {
                    server: Arc::clone(&server),
                    config: config.clone(),
                    directory: directory.to_owned(),
                    stop: stop.clone(),
                };
                tasks.spawn(keeper.run());
                server
            })
            .collect();
        Self { servers, stop, tasks }
    }

    /// The tools there are now, in the class that their servers deserve. Of a server that is not there its tools are named,
    /// or it alone where they are not known, with the reason. Waits until each server has started or failed once.
    pub async fn tools(&self) -> Vec<(Known, Option<Arc<dyn Tool>>)> {
        let mut tools = Vec::new();
        for server in &self.servers {
            server.settled().await;
            match server.status() {
                Status::Starting => {}
                Status::Up { offers, .. } => tools.extend(offers.values().map(|offer| {
                    let tool = McpTool { server: Arc::clone(server), offer: Arc::clone(offer) };
                    (server.known(offer, None), Some(Arc::new(tool) as Arc<dyn Tool>))
                })),
                Status::Down { reason, offers } => {
                    let off = format!("the MCP server `{}` is not connected: {reason}", server.name);
                    match offers.is_empty() {
                        true => tools.push((server.nothing_known(off), None)),
                        false => tools.extend(
                            offers.values().map(|offer| (server.known(offer, Some(off.clone())), None)),
                        ),
                    }
                }
            }
        }
        tools
    }

    /// Ends all servers with everything that they started, within 5 s.
    pub async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Server {
    fn known(&self, offer: &Offer, off: Option<String>) -> Known {
        Known {
            name: offer.spec.name.clone(),
            class: offer.class,
            server: self.name.clone(),
            own_name: offer.own_name.clone(),
            off,
        }
    }

    fn nothing_known(&self, off: String) -> Known {
        Known {
            name: format!("mcp__{}", self.name),
            class: Class::Destructive,
            server: self.name.clone(),
            own_name: String::new(),
            off: Some(off),
        }
    }
}

#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.offer.spec
    }

    fn class(&self) -> Class {
        self.offer.class
    }

    fn server(&self) -> &str {
        &self.server.name
    }

    async fn call(&self, context: &Context, arguments: &Value) -> Result<String, Error> {
        let Value::Object(arguments) = arguments else {
            return Err(Error::Failed("the arguments are an object with the tool's properties".to_owned()));
        };
        self.server.call(&self.offer, arguments, &context.cancel).await
    }
}

#[cfg(test)]
mod tests;
