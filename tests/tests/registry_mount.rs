//! A mounted ConfigMap that is swapped again and again: what is served comes from one generation of it, and soon.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use proto::registry::v1::{
    ListDiagnosticsRequest, ListRequest, View, WatchRequest, registry_service_client::RegistryServiceClient,
    watch_response::Body,
};
use registry_svc::config::Config;
use tests::{
    registry::{Registry, document},
    scale::{is_full, scaled},
};
use tokio::time::timeout;
use tonic::{Streaming, transport::Channel};

/// Definitions of each generation. Odd generations have one more.
const AGENTS: usize = 20;

/// Far below the half minute after which the sources are compared: only events bring a change so early.
const SOON: Duration = Duration::from_secs(8);

/// Longest time from a swap to its being served, unless the machine is busy with other tests.
const VISIBLE_WITHIN: Duration = Duration::from_secs(1);

/// Two swaps within this time are one change to whoever waits for quiet.
const TOGETHER: Duration = Duration::from_millis(50);

/// A directory as the kubelet mounts a ConfigMap.
struct Mount {
    path: PathBuf,
    generation: usize,
}

/// The system prompts in force, by name. Each begins with the generation that it was written for.
type Prompts = BTreeMap<String, String>;

impl Mount {
    fn new(path: PathBuf) -> Self {
        fs::create_dir_all(&path).expect("the disk works");
        let mut mount = Self { path, generation: 0 };
        mount.swap(0);
        mount
    }

    /// Swaps the next generation in, the first `broken` documents of which cannot be used, and removes the one before.
    fn swap(&mut self, broken: usize) {
        let before = self.directory();
        self.generation += 1;
        let directory = self.directory();
        fs::create_dir(&directory).expect("the disk works");
        for name in names(self.generation) {
            let text = document(&name, &self.generation.to_string());
            let is_broken = name < format!("agent-{broken:02}");
            let text = if is_broken { text.replacen("description", "describes", 1) } else { text };
            fs::write(directory.join(format!("{name}.md")), text).expect("the disk works");
        }

        let link = self.path.join("..data_tmp");
        symlink(directory.file_name().expect("a name"), &link).expect("the disk works");
        fs::rename(link, self.path.join("..data")).expect("the disk works");
        for name in names(self.generation) {
            let file = format!("{name}.md");
            let link = self.path.join(&file);
            if link.symlink_metadata().is_err() {
                symlink(Path::new("..data").join(&file), link).expect("the disk works");
            }
        }
        if self.generation.is_multiple_of(2) {
            fs::remove_file(self.path.join(format!("agent-{AGENTS:02}.md"))).expect("the disk works");
        }
        if before.exists() {
            fs::remove_dir_all(before).expect("the disk works");
        }
    }

    fn directory(&self) -> PathBuf {
        self.path.join(format!("..2026_11_30_{:06}", self.generation))
    }
}

fn names(generation: usize) -> Vec<String> {
    (0..AGENTS + generation % 2).map(|number| format!("agent-{number:02}")).collect()
}

/// The generation of the mount that all of this comes from.
#[track_caller]
fn generation(prompts: &Prompts, half_broken: usize) -> usize {
    let generation: usize =
        prompts.values().next().expect("something is in force").parse().expect("a number");
    let mut expected = names(generation);
    if generation == half_broken {
        expected.drain(..AGENTS / 2);
    }
    assert!(prompts.values().all(|prompt| *prompt == generation.to_string()), "mixed: {prompts:?}");
    assert!(prompts.keys().eq(expected.iter()), "generation {generation} is not whole: {prompts:?}");
    generation
}

/// What a watcher has of the mount.
struct Follower {
    messages: Streaming<proto::registry::v1::WatchResponse>,
    prompts: Prompts,
    half_broken: usize,
}

impl Follower {
    async fn new(mut client: RegistryServiceClient<Channel>, half_broken: usize) -> Self {
        let request = WatchRequest { view: View::Full.into(), ..WatchRequest::default() };
        let messages = client.watch(request).await.expect("the registry answers").into_inner();
        Self { messages, prompts: Prompts::new(), half_broken }
    }

    /// Follows until this generation of the mount is in force.
    async fn until(&mut self, wanted: usize) {
        loop {
            let message = timeout(SOON, self.messages.message()).await;
            let message =
                message.unwrap_or_else(|_| panic!("generation {wanted} is not seen: {:?}", self.prompts));
            let is_last =
                match message.expect("a message").expect("a watch does not end well").body.expect("a body") {
                    Body::Snapshot(snapshot) => {
                        self.upsert(snapshot.agents);
                        snapshot.last
                    }
                    Body::Change(change) => {
                        self.upsert(change.upserted);
                        change.removed.iter().for_each(|name| drop(self.prompts.remove(name)));
                        change.last
                    }
                    Body::Bookmark(_) => false,
                };
            if is_last && generation(&self.prompts, self.half_broken) == wanted {
                return;
            }
        }
    }

    fn upsert(&mut self, agents: Vec<proto::agent::v1::AgentDefinition>) {
        self.prompts.extend(agents.into_iter().map(|agent| (agent.name, agent.system_prompt)));
    }
}

async fn listed(client: &mut RegistryServiceClient<Channel>) -> Prompts {
    let request = ListRequest { page_size: 200, view: View::Full.into(), ..ListRequest::default() };
    let agents = client.list(request).await.expect("the registry answers").into_inner().agents;
    agents.into_iter().map(|agent| (agent.name, agent.system_prompt)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swapped_mount_is_served_whole_and_soon() {
    let swaps = scaled(20, 200);
    let half_broken = swaps / 2;
    let directory = tempfile::tempdir().expect("the disk works");
    fs::create_dir_all(directory.path().join("project/.git")).expect("the disk works");
    let mut mount = Mount::new(directory.path().join("mount"));
    let root = mount.path.clone();
    let only_the_mount = |config: &mut Config| {
        let workspace = config.workspaces.get_mut("default").expect("the default workspace");
        workspace.roots = vec![root];
        workspace.bundled = false;
    };
    let mut registry = Registry::start_in(directory, only_the_mount).await;
    let mut follower = Follower::new(registry.client.clone(), half_broken).await;
    follower.until(1).await;
    let (mut slowest, mut twins) = (Duration::ZERO, 0);

    while mount.generation < swaps {
        let is_half_broken = mount.generation + 1 == half_broken;
        mount.swap(if is_half_broken { AGENTS / 2 } else { 0 });
        let swapped = Instant::now();
        // Now and then twice within a few milliseconds: the first of the two may never be seen, but not half of it.
        if mount.generation % 4 == 1 && !is_half_broken && mount.generation + 1 != half_broken {
            mount.swap(0);
            twins += usize::from(swapped.elapsed() < TOGETHER);
        }
        let now = generation(&listed(&mut registry.client).await, half_broken);
        assert!(now <= mount.generation);
        follower.until(mount.generation).await;
        slowest = slowest.max(swapped.elapsed());

        assert_eq!(listed(&mut registry.client).await, follower.prompts);
        let findings = registry
            .client
            .list_diagnostics(ListDiagnosticsRequest::default())
            .await
            .expect("the registry answers");
        let broken = if is_half_broken { AGENTS / 2 } else { 0 };
        let findings = findings.into_inner().diagnostics;
        let missing = findings.iter().filter(|finding| finding.code == "MISSING_FIELD");
        assert_eq!(missing.count(), broken, "{findings:?}");
    }

    println!("{swaps} swaps, the slowest seen after {slowest:?}");
    assert!(slowest < if is_full() { VISIBLE_WITHIN } else { SOON });
    assert!(twins > 0, "no two swaps came together");
    drop(follower);
    registry.stop().await;
}
