//! An executor of one's own over a registry of one's own, with a script in the model's place.

use std::{fs, net::SocketAddr, path::PathBuf};

use executor_svc::{Config, Executor as Service, Surroundings, model::config};
use proto::executor::v1::{
    GetLimitsRequest, GetWorkerRequest, SpawnRequest, SpawnResponse, SpawnStreamRequest, Worker, WorkerEvent,
    executor_service_client::ExecutorServiceClient, session_service_client::SessionServiceClient,
    worker_event::Body,
};
use service_kit::{
    client::{self, Connection},
    server::Listeners,
    shutdown::Shutdown,
};
use tokio::task::JoinHandle;
use tonic::{Status, Streaming, transport::Channel};

use crate::registry::Registry;

/// A running executor. Dropping it without [`Executor::stop`] leaves its end to the runtime.
pub struct Executor {
    pub address: SocketAddr,
    pub admin: SocketAddr,
    /// Calls without credentials.
    pub client: ExecutorServiceClient<Channel>,
    pub sessions: SessionServiceClient<Channel>,
    /// The connection of both.
    pub channel: Channel,
    pub shutdown: Shutdown,
    data: PathBuf,
    task: JoinHandle<anyhow::Result<()>>,
}

/// The events of a spawn, one after the other.
pub struct Events(Streaming<proto::executor::v1::SpawnStreamResponse>);

impl Executor {
    /// An executor whose models follow a rehearsal script.
    pub async fn start(registry: &Registry, script: &str) -> Self {
        Self::start_with(registry, script, |_| {}).await
    }

    /// The same, after `change` has seen its configuration. It shares the registry's data directory and looks at its
    /// project.
    pub async fn start_with(registry: &Registry, script: &str, change: impl FnOnce(&mut Config)) -> Self {
        let directory = registry.directory.path();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        fs::write(directory.join("script.yaml"), script).expect("the script is written");
        let mut offline = config::Provider::new(config::Kind::Rehearsal);
        offline.script = Some("script.yaml".into());
        let mut config = Config {
            listen: any,
            admin: any,
            data: directory.join("var"),
            registry: format!("http://{}", registry.address),
            ..Config::default()
        };
        config.models.default = Some("offline/script".to_owned());
        config.models.providers.insert("offline".to_owned(), offline);
        let workspace = config.workspaces.get_mut("default").expect("the default configuration has it");
        workspace.cwd = registry.project("");
        change(&mut config);

        let data = config.data.clone();
        let listeners = Listeners::bind(config.listen, config.admin).await.expect("free ports");
        let address = listeners.grpc.local_addr().expect("a bound address");
        let admin = listeners.admin.local_addr().expect("a bound address");
        let shutdown = Shutdown::new();
        let surroundings =
            Surroundings { directory: directory.to_owned(), files: Vec::new(), blocked_agents: Vec::new() };
        let service = match Service::new(config, surroundings) {
            Ok(service) => service,
            Err(mistakes) => panic!("the configuration is not usable: {mistakes:?}"),
        };
        let mut task = tokio::spawn(service.serve(listeners, shutdown.clone()));
        let endpoint = Channel::from_shared(format!("http://{address}")).expect("an address is a URL");
        let channel = tokio::select! {
            channel = endpoint.connect() => channel.expect("the listener is bound"),
            ended = &mut task => panic!("the executor does not start: {ended:?}"),
        };
        let mut client = ExecutorServiceClient::new(channel.clone());
        // The listener is bound before the store is open; an answer says that both are.
        let _ = client.get_limits(GetLimitsRequest::default()).await;
        let sessions = SessionServiceClient::new(channel.clone());
        Self { address, admin, client, sessions, channel, shutdown, data, task }
    }

    /// Calls with the token of the data directory.
    pub async fn administrator(&self) -> ExecutorServiceClient<Connection> {
        ExecutorServiceClient::new(self.authorised().await)
    }

    /// A connection with the token of the data directory.
    pub async fn authorised(&self) -> Connection {
        client::connect(&self.address.to_string(), &self.data).await.expect("the executor answers")
    }

    /// Spawns and waits for the end.
    pub async fn spawn(&mut self, request: SpawnRequest) -> Result<SpawnResponse, Status> {
        self.client.spawn(request).await.map(tonic::Response::into_inner)
    }

    /// Spawns and follows.
    pub async fn follow(&mut self, request: SpawnRequest) -> Events {
        let request = SpawnStreamRequest { spawn: Some(request) };
        Events(self.client.spawn_stream(request).await.expect("the spawn is accepted").into_inner())
    }

    pub async fn worker(&mut self, id: &str) -> Worker {
        let request = GetWorkerRequest { worker_id: id.to_owned() };
        let response = self.client.get_worker(request).await.expect("the worker is there");
        response.into_inner().worker.expect("an answer has a worker")
    }

    /// Drains and waits for the end.
    pub async fn stop(self) {
        let Self { client, sessions, channel, shutdown, task, .. } = self;
        drop((client, sessions, channel));
        shutdown.begin();
        task.await.expect("the service does not panic").expect("the service ends well");
    }
}

impl Events {
    /// The next event; none after the last one.
    pub async fn next(&mut self) -> Option<WorkerEvent> {
        let response = self.0.message().await.expect("the stream does not fail")?;
        Some(response.event.expect("a message has an event"))
    }

    /// Reads up to the first event that fits, and answers it.
    pub async fn until(&mut self, fits: impl Fn(&Body) -> bool) -> WorkerEvent {
        loop {
            let event = self.next().await.expect("the event comes before the end");
            if event.body.as_ref().is_some_and(&fits) {
                return event;
            }
        }
    }

    /// All events up to the end.
    pub async fn rest(mut self) -> Vec<WorkerEvent> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

/// A spawn with nothing but what is required.
pub fn call(agent: &str, prompt: &str) -> SpawnRequest {
    SpawnRequest { subagent_type: agent.to_owned(), prompt: prompt.to_owned(), ..SpawnRequest::default() }
}

/// The body of an event.
pub fn body(event: &WorkerEvent) -> &Body {
    event.body.as_ref().expect("an event has a body")
}
