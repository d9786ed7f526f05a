//! The tools that act on workers, as a model is told of them: dispatching, talking, stopping.

use serde_json::json;

use super::name;
use crate::{
    model::ToolSpec,
    prompt::{CatalogEntry, bullets},
};

const DESCRIPTION: &str = "Dispatches a task to a specialised agent and waits for its result. The agent starts fresh: it sees \
    nothing of this conversation, so `prompt` has to say all it needs to know. Independent tasks go into several calls of one \
    turn, which run side by side. The answer is JSON with `status`, `result` and, where the agent has an output schema, \
    `structured_output`. Agents with a schema of their own must not be told another output format in `prompt`. An identical \
    task that was dispatched already is answered with the first one's result; `hint` says so.";

/// The tool with the agents that may be dispatched. `omitted` is how many more the registry has.
pub fn spec(catalog: &[CatalogEntry], omitted: u32) -> ToolSpec {
    let mut description = format!("{DESCRIPTION}\n\nAgents:\n{}", bullets(catalog));
    if omitted > 0 {
        description.push_str(&format!("\n… and {omitted} more"));
    }
    ToolSpec {
        name: name::SPAWN.to_owned(),
        description,
        input_schema: json!({
            "type": "object",
            "properties": {
                "description": {"type": "string", "description": "the task in three to five words, for people"},
                "subagent_type": {"type": "string", "minLength": 1, "description": "the agent's name, exactly as listed"},
                "prompt": {"type": "string", "minLength": 1, "description": "the task, with all the agent needs to know"},
                "output_schema": {
                    "type": "object",
                    "description": "a JSON Schema for the result; only for agents without one of their own",
                },
            },
            "required": ["description", "subagent_type", "prompt"],
        }),
    }
}

/// The tool that sends a finished worker a further message.
pub fn send_message() -> ToolSpec {
    ToolSpec {
        name: name::SEND_MESSAGE.to_owned(),
        description: "Sends a further message to a worker that has completed. It goes on with all it knows; the answer is that \
            of the spawn tool."
            .to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "to": {"type": "string", "minLength": 1, "description": "the worker's `task_id`"},
                "message": {"type": "string", "minLength": 1, "description": "what it is to do next"},
            },
            "required": ["to", "message"],
        }),
    }
}

/// The tool that stops a worker and everything below it.
pub fn stop() -> ToolSpec {
    ToolSpec {
        name: name::STOP.to_owned(),
        description: "Stops a worker and everything below it. One that has ended is left as it is."
            .to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "task_id": {"type": "string", "minLength": 1, "description": "the worker's `task_id`"},
            },
            "required": ["task_id"],
        }),
    }
}

/// What is said in the description's place to a session that cannot spawn.
pub fn unavailable(reason: &str) -> String {
    format!("No agent can be dispatched: {reason}.")
}

#[cfg(test)]
mod tests {
    use super::{send_message, spec, stop};
    use crate::prompt::CatalogEntry;

    #[test]
    fn the_agents_stand_in_the_description_and_what_is_left_out_is_counted() {
        let catalog = [CatalogEntry {
            name: "explore".to_owned(),
            description: "Looks around.".to_owned(),
            when_to_use: String::new(),
        }];

        let spec = spec(&catalog, 3);

        assert_eq!(spec.name, "AgentTool");
        assert!(spec.description.contains("must not be told another output format"));
        assert!(spec.description.ends_with("Agents:\n- `explore`: Looks around.\n… and 3 more"));
        for spec in [spec, send_message(), stop()] {
            jsonschema::meta::validate(&spec.input_schema).unwrap();
        }
    }
}
