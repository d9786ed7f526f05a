//! The tools of one run, fixed when it starts, and what is to be done with each call.

use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt as _;
use serde_json::Value;

use super::{Answer, gated::rejected};
use crate::{
    admission::Permit,
    definition::{Definition, SpawnPolicy},
    gate,
    kernel::Kernel,
    limits::Names,
    model::ToolSpec,
    react::{self, Call},
    run::Owner,
    schema::Schema,
    tool::{
        self, Class, Context, Outcome, Tool,
        builtin::submit_result,
        calls::{Admission, CallLimits, Calls},
        name, redirect, spawn_spec,
    },
    toolbag,
    transcript::Message,
    worker::Worker,
};

/// Said of a call that may have changed something, or not.
const LOOK_FIRST: &str = "look before you call it again";

/// The tools of a run.
pub(in crate::run) struct Tools {
    granted: HashMap<String, Granted>,
    /// As the model is told of them, in the order of the list of all tools.
    specs: Vec<ToolSpec>,
    spec_bytes: usize,
    calls: Calls,
    /// It may spawn nobody: whatever it wants to spawn is refused by admission, in words that say why.
    spawns_nobody: bool,
}

struct Granted {
    class: Class,
    /// Absent for those that the loop performs itself.
    tool: Option<Arc<dyn Tool>>,
    timeout: Duration,
}

/// What is to be done with a call.
pub(super) enum Decision {
    /// Nothing runs.
    Answered(Answer),
    Run(ToolRun),
    /// It runs if the gate approves it.
    Review(ToolRun),
    /// The arguments of the spawn tool.
    Spawn(Value),
    /// The arguments of the tool that sends a further message.
    Send(Value),
    /// The arguments of the tool that stops a worker.
    Stop(Value),
}

/// One call, ready to run.
pub(super) struct ToolRun {
    tool: Arc<dyn Tool>,
    class: Class,
    /// The arguments as the model wrote them, and what they say.
    text: String,
    arguments: Value,
    timeout: Duration,
}

impl Tools {
    pub(in crate::run) async fn of(kernel: &Kernel, owner: &Owner<'_>, schema: Option<&Schema>) -> Self {
        let (worker, spec) = (owner.worker(), owner.spec());
        let limits = kernel.limits_of(&worker.workspace);
        let permit = Permit::of(worker);
        let rules = kernel.bag_rules(&worker.workspace, &spec.definition, &permit);
        let inventory = kernel.inventory().await;
        let bag = toolbag::pack(&inventory.known, &rules);
        let mut tools = Self {
            granted: HashMap::new(),
            specs: Vec::new(),
            spec_bytes: 0,
            spawns_nobody: !worker.spawns.permits_any(),
            calls: Calls::new(CallLimits {
                read: limits.read_calls_per_tool.get().map(|_| limits.read_calls_per_tool.count()),
                other: limits.calls_per_tool.get().map(|_| limits.calls_per_tool.count()),
            }),
        };
        for (known, verdict) in inventory.known.iter().zip(&bag.verdicts) {
            if !verdict.granted {
                continue;
            }
            let tool = inventory.tools.get(&known.name).cloned();
            let described = match (known.name.as_str(), &tool) {
                (name::SUBMIT_RESULT, _) => submit_result::spec(schema),
                (name::SPAWN, _) => kernel.spawn_tool(&worker.workspace, &worker.spawns).await,
                (name::SEND_MESSAGE, _) => spawn_spec::send_message(),
                (name::STOP, _) => spawn_spec::stop(),
                (_, Some(tool)) => tool.spec().clone(),
                // Known by name only: it is not part of this executor.
                (_, None) => continue,
            };
            tools.spec_bytes += bytes_of(&described);
            tools.specs.push(described);
            let timeout = kernel.config.tools.timeout(&known.name).unwrap_or(limits.tool_timeout.0);
            tools.granted.insert(known.name.clone(), Granted { class: known.class, tool, timeout });
        }
        if worker.is_turn() {
            tools.redirect(kernel, worker);
        }
        tools.replay(owner.state().own_messages());
        tools
    }

    /// Puts stubs in for tools that a coordinator has not, and agents have.
    fn redirect(&mut self, kernel: &Kernel, worker: &Worker) {
        let is_offered = |agent: &str| {
            let rules = kernel.workspaces.get(&worker.workspace);
            rules.is_some_and(|rules| kernel.rules(rules).is_offered(&worker.spawns, agent))
        };
        let bag: Vec<&str> = self.granted.keys().map(String::as_str).collect();
        for stub in redirect::stubs(&kernel.config.tools.redirects, &bag, is_offered) {
            let spec = stub.spec().clone();
            let timeout = kernel.limits_of(&worker.workspace).tool_timeout.0;
            let granted = Granted { class: Class::Read, tool: Some(Arc::new(stub)), timeout };
            self.granted.insert(spec.name.clone(), granted);
            self.spec_bytes += bytes_of(&spec);
            self.specs.push(spec);
        }
    }

    pub(in crate::run) fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }

    /// How much they are, in bytes of a request.
    pub(in crate::run) fn bytes(&self) -> usize {
        self.spec_bytes
    }

    /// The class of a call, and what is to be done with it.
    pub(super) fn decide(&mut self, call: &Call) -> (Class, Decision) {
        let (tool, text) = (call.call.tool.as_str(), call.call.arguments.as_str());
        let Some(granted) = self.granted.get(tool) else {
            if let (name::SPAWN, true, Ok(arguments)) = (tool, self.spawns_nobody, serde_json::from_str(text))
            {
                return (Class::Read, Decision::Spawn(arguments));
            }
            let mut names: Vec<&str> = self.granted.keys().map(String::as_str).collect();
            names.sort_unstable();
            let text = format!("there is no tool `{tool}` here; there are {}", names.join(", "));
            // What it would have done is not known: it is shown as the worst.
            return (Class::Destructive, Decision::Answered(Answer { outcome: Outcome::Denied, text }));
        };
        let class = granted.class;
        let text = or_empty(text);
        let arguments: Value = match serde_json::from_str(text) {
            Ok(arguments) => arguments,
            Err(error) => {
                let text = format!("the arguments are not JSON: {error}");
                return (class, Decision::Answered(Answer::error(text)));
            }
        };
        match self.calls.admit(tool, class, text) {
            Admission::Run => {}
            Admission::Remembered(text) => return (class, Decision::Answered(Answer::ok(text))),
            Admission::OverLimit(text) => {
                return (class, Decision::Answered(Answer { outcome: Outcome::OverLimit, text }));
            }
        }
        let decision = match &granted.tool {
            _ if tool == name::SPAWN => Decision::Spawn(arguments),
            _ if tool == name::SEND_MESSAGE => Decision::Send(arguments),
            _ if tool == name::STOP => Decision::Stop(arguments),
            Some(tool) => {
                let (tool, timeout) = (Arc::clone(tool), granted.timeout);
                let run = ToolRun { tool, class, text: text.to_owned(), arguments, timeout };
                match class {
                    Class::Read => Decision::Run(run),
                    Class::Write | Class::Destructive => Decision::Review(run),
                }
            }
            None => Decision::Answered(Answer::error(format!("`{tool}` cannot be called here"))),
        };
        (class, decision)
    }

    /// Takes note of the end of a call, so that the same read call is not run twice.
    pub(super) fn ended(&mut self, call: &Call, answer: &Answer) {
        let class = self.granted.get(&call.call.tool).map_or(Class::Read, |granted| granted.class);
        let good = (answer.outcome == Outcome::Ok).then_some(answer.text.as_str());
        self.calls.ended(&call.call.tool, class, or_empty(&call.call.arguments), good);
    }

    /// Counts and remembers what a run before this one called.
    fn replay(&mut self, messages: &[Message]) {
        let mut open = HashMap::new();
        for message in messages {
            match message {
                Message::User { .. } => {}
                Message::Assistant { tool_calls, .. } => {
                    open = tool_calls.iter().map(|call| (call.id.as_str(), call)).collect();
                }
                Message::Tool { call_id, text, is_error, .. } => {
                    let Some(call) = open.get(call_id.as_str()) else { continue };
                    let Some(granted) = self.granted.get(&call.tool) else { continue };
                    let arguments = or_empty(&call.arguments);
                    self.calls.admit(&call.tool, granted.class, arguments);
                    let good = (!is_error && !react::is_cut_down(text)).then_some(text.as_str());
                    self.calls.ended(&call.tool, granted.class, arguments, good);
                }
            }
        }
    }
}

fn bytes_of(ToolSpec { name, description, input_schema }: &ToolSpec) -> usize {
    name.len() + description.len() + input_schema.to_string().len()
}

/// No arguments are none.
fn or_empty(arguments: &str) -> &str {
    if arguments.trim().is_empty() { "{}" } else { arguments }
}

impl ToolRun {
    /// The call as the gate sees it.
    pub(super) fn request<'a>(
        &'a self,
        worker: &'a Worker,
        context: &'a Context,
        (task, said): (&'a str, &'a str),
    ) -> gate::Request<'a> {
        let Self { tool, class, text, arguments, timeout: _ } = self;
        gate::Request { worker, task, said, tool: tool.as_ref(), class: *class, text, arguments, context }
    }

    /// Runs what was approved, and nothing else.
    pub(super) async fn run_approved(self, context: &Context, approved: gate::Approved) -> Answer {
        let gate::Approved { arguments, target } = approved;
        let context = Context { approved: target, ..context.clone() };
        Self { arguments, ..self }.run(&context).await
    }

    /// Runs the call inside its time.
    pub(super) async fn run(self, context: &Context) -> Answer {
        // The tool is told when nobody waits for it any more.
        let context = Context { cancel: context.cancel.child_token(), ..context.clone() };
        let _given_up = context.cancel.clone().drop_guard();
        // A defect of one tool is its answer, and no end of the worker.
        let call = AssertUnwindSafe(self.tool.call(&context, &self.arguments)).catch_unwind();
        let call = call.map(|answer| {
            let died = |_| Err(tool::Error::Lost("a defect of the tool ended the call".to_owned()));
            answer.unwrap_or_else(died)
        });
        match tokio::time::timeout(self.timeout, call).await {
            Ok(Ok(text)) => Answer::ok(text),
            Ok(Err(error @ (tool::Error::Failed(_) | tool::Error::Cancelled))) => {
                Answer::error(error.to_string())
            }
            Ok(Err(error @ tool::Error::Changed)) => rejected(&error.to_string()),
            Ok(Err(tool::Error::Lost(text))) => match self.class {
                Class::Read => Answer::error(text),
                Class::Write | Class::Destructive => {
                    Answer { outcome: Outcome::Unknown, text: format!("{text}; {LOOK_FIRST}") }
                }
            },
            Err(_) => {
                let time = service_kit::config::Span(self.timeout);
                let text = format!("the call took longer than {time} and was given up");
                let text = match self.class {
                    Class::Read => text,
                    Class::Write | Class::Destructive => {
                        format!("{text}, so what it has done is not known; {LOOK_FIRST}")
                    }
                };
                Answer { outcome: Outcome::Timeout, text }
            }
        }
    }
}

impl Kernel {
    /// What decides over the tools of a worker, or of one that would be spawned.
    pub fn bag_rules<'a>(
        &'a self,
        workspace: &str,
        definition: &'a Definition,
        permit: &'a Permit,
    ) -> toolbag::Rules<'a> {
        let limits = self.limits_of(workspace);
        toolbag::Rules {
            selection: &definition.tools,
            disallowed: &definition.disallowed_tools,
            mcp_servers: &definition.mcp_servers,
            spawns: &permit.spawns,
            permission_mode: permit.permission_mode,
            plan_mode: permit.plan_mode,
            depth: permit.depth,
            depth_max: limits.max_recursion_depth.get().map(|_| limits.max_recursion_depth.count()),
            root_tools: match &limits.root_tools {
                Names::All => &self.all_tools,
                Names::Listed(names) => names,
            },
            aliases: &self.config.tools.aliases,
            // Nobody else has no depth: a worker is below something.
            is_coordinator: permit.depth == 0,
        }
    }

    /// The spawn tool as a session is told of it.
    pub async fn spawn_tool(&self, workspace: &str, policy: &SpawnPolicy) -> ToolSpec {
        let (catalog, omitted) = self.offered(workspace, policy, None).await.unwrap_or_default();
        spawn_spec::spec(&catalog.entries, omitted)
    }
}
