//! Health by the standard protocol, a name for each service, and reflection in both versions that clients speak.

use anyhow::Context as _;
use tonic_health::{
    ServingStatus,
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

use super::Server;
use crate::auth::{Role, Rule};

const ANY_ROLE: &[Role] = &[Role::Reader, Role::Spawner, Role::Auditor, Role::Author, Role::Approver];

/// A probe has no credentials.
pub const HEALTH_RULES: &[Rule] = &[
    Rule::read("/grpc.health.v1.Health/Check", ANY_ROLE, true),
    Rule::read("/grpc.health.v1.Health/List", ANY_ROLE, true),
    Rule::read("/grpc.health.v1.Health/Watch", ANY_ROLE, true),
];

const REFLECTION_OPEN: &[Rule] = &[
    Rule::read("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", ANY_ROLE, true),
    Rule::read("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", ANY_ROLE, true),
];

/// Beyond loopback the shape of the interface is for known callers.
const REFLECTION_GUARDED: &[Rule] = &[
    Rule::read("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", ANY_ROLE, false),
    Rule::read("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", ANY_ROLE, false),
];

const REFLECTION_NAMES: [&str; 2] =
    ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"];

/// The health of the served services.
pub(super) struct Health {
    reporter: HealthReporter,
    names: Vec<&'static str>,
}

impl Health {
    pub(super) fn new(names: &[&'static str]) -> Self {
        Self { reporter: HealthReporter::new(), names: names.to_vec() }
    }

    pub(super) fn server(&self) -> HealthServer<HealthService> {
        HealthServer::new(HealthService::from_health_reporter(self.reporter.clone()))
    }

    pub(super) async fn serving(&self) {
        self.set(ServingStatus::Serving).await;
    }

    pub(super) async fn not_serving(&self) {
        self.set(ServingStatus::NotServing).await;
    }

    async fn set(&self, status: ServingStatus) {
        // The empty name is the server as a whole.
        for name in self.names.iter().chain([&""]) {
            self.reporter.set_service_status(name, status).await;
        }
    }
}

/// Adds reflection over the server's own descriptors, health and the types inside error details.
pub(super) fn add_reflection(server: Server, loopback: bool) -> anyhow::Result<Server> {
    let rules = if loopback { REFLECTION_OPEN } else { REFLECTION_GUARDED };
    let builder = || {
        let builder = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(server.descriptors)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET);
        // The descriptors may describe more services than are served here.
        let listed = server.names.iter().chain(&REFLECTION_NAMES);
        listed.fold(builder, |builder, name| builder.with_service_name(*name))
    };
    let v1 = builder().build_v1().context("reflection v1")?;
    let v1alpha = builder().build_v1alpha().context("reflection v1alpha")?;
    Ok(server.add(v1, rules).add(v1alpha, rules))
}
