//! Stubs for tools that a coordinator calls though an agent has them: they answer whom to dispatch instead.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{Class, Context, Error, Tool, name};
use crate::model::ToolSpec;

/// One stub.
pub struct Redirect {
    spec: ToolSpec,
    agent: String,
}

/// The stubs of a session: for each of `tools.redirects` whose tool is not in the bag and whose agent may be spawned.
pub fn stubs(
    redirects: &BTreeMap<String, String>,
    bag: &[&str],
    is_offered: impl Fn(&str) -> bool,
) -> Vec<Redirect> {
    redirects
        .iter()
        .filter(|(tool, agent)| !bag.contains(&tool.as_str()) && is_offered(agent))
        .map(|(tool, agent)| Redirect::new(tool, agent))
        .collect()
}

impl Redirect {
    fn new(tool: &str, agent: &str) -> Self {
        let description = format!("Not here: dispatch the agent `{agent}` with `{}` instead.", name::SPAWN);
        let input_schema = json!({"type": "object", "properties": {}});
        Self { spec: ToolSpec { name: tool.to_owned(), description, input_schema }, agent: agent.to_owned() }
    }

    /// What a call is answered with.
    pub fn answer(&self) -> String {
        format!(
            "`{}` cannot be called from here. Use `{}` with `subagent_type` `{}`, and put into `prompt` what is to be done.",
            self.spec.name,
            name::SPAWN,
            self.agent
        )
    }
}

#[async_trait]
impl Tool for Redirect {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self) -> Class {
        Class::Read
    }

    async fn call(&self, _: &Context, _: &Value) -> Result<String, Error> {
        Ok(self.answer())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::stubs;

    #[test]
    fn a_stub_stands_only_where_its_tool_is_absent_and_its_agent_may_be_spawned() {
        let redirects = BTreeMap::from([("host_bash".to_owned(), "specialist-ops".to_owned())]);

        for (bag, offered, count) in [
            (&["read"][..], "specialist-ops", 1),
            (&[], "specialist-ops", 1),
            (&[], "explore", 0),
            (&["host_bash"], "specialist-ops", 0),
        ] {
            let stubs = stubs(&redirects, bag, |agent| agent == offered);
            assert_eq!(stubs.len(), count, "{bag:?} {offered}");
        }
        let answer = stubs(&redirects, &[], |_| true)[0].answer();
        assert!(answer.contains("Use `AgentTool` with `subagent_type` `specialist-ops`"), "{answer}");
    }
}
