//! Commands and skills: what is found like agents but served beside them.

use std::sync::Arc;

use ::proto::registry::v1::{
    self as proto, command_service_server::CommandService, skill_service_server::SkillService,
};
use prost::Message as _;
use service_kit::server;
use tonic::{Request, Response, Status};

use super::{PAGE_BYTES_MAX, Registry, from_proto, to_proto};
use crate::{error::Error, skill};

/// Implements `CommandService` and `SkillService`. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Collections(pub(crate) Registry);

#[tonic::async_trait]
impl CommandService for Collections {
    async fn list_commands(
        &self,
        request: Request<proto::ListCommandsRequest>,
    ) -> Result<Response<proto::ListCommandsResponse>, Status> {
        let identity = server::identity(&request)?;
        let snapshot = self.0.handle(identity, &request.get_ref().workspace)?.snapshot();
        let paths = self.0.paths(identity, &snapshot);
        let mut commands: Vec<_> =
            snapshot.commands().iter().map(|command| to_proto::command(command, &paths)).collect();
        shorten(&mut commands);

        Ok(Response::new(proto::ListCommandsResponse { commands }))
    }

    async fn get_command(
        &self,
        request: Request<proto::GetCommandRequest>,
    ) -> Result<Response<proto::GetCommandResponse>, Status> {
        let identity = server::identity(&request)?;
        let proto::GetCommandRequest { workspace, name, arguments } = request.get_ref();
        let name = from_proto::name(name)?;
        let snapshot = self.0.handle(identity, workspace)?.snapshot();
        let command = snapshot
            .commands()
            .iter()
            .find(|command| command.name == name)
            .ok_or_else(|| Error::UnknownCommand { name: name.to_owned() })?;

        Ok(Response::new(proto::GetCommandResponse {
            command: Some(to_proto::command(command, &self.0.paths(identity, &snapshot))),
            expanded: command.expand(arguments),
        }))
    }
}

#[tonic::async_trait]
impl SkillService for Collections {
    async fn list_skills(
        &self,
        request: Request<proto::ListSkillsRequest>,
    ) -> Result<Response<proto::ListSkillsResponse>, Status> {
        let identity = server::identity(&request)?;
        let snapshot = self.0.handle(identity, &request.get_ref().workspace)?.snapshot();
        let paths = self.0.paths(identity, &snapshot);

        Ok(Response::new(proto::ListSkillsResponse {
            skills: snapshot.skills().iter().map(|skill| to_proto::skill(skill, false, &paths)).collect(),
        }))
    }

    async fn resolve_skills(
        &self,
        request: Request<proto::ResolveSkillsRequest>,
    ) -> Result<Response<proto::ResolveSkillsResponse>, Status> {
        let identity = server::identity(&request)?.clone();
        let proto::ResolveSkillsRequest { workspace, names, user_text } = request.into_inner();
        let names = from_proto::names("names", names)?;
        let snapshot = Arc::clone(&self.0.handle(&identity, &workspace)?.snapshot());
        let paths = self.0.paths(&identity, &snapshot);
        let resolved = skill::resolve(snapshot.skills(), &names, &user_text);

        Ok(Response::new(proto::ResolveSkillsResponse {
            skills: resolved.skills.iter().map(|skill| to_proto::skill(skill, true, &paths)).collect(),
            missing: resolved.missing,
        }))
    }
}

/// Leaves out the templates that would make the answer too large; `GetCommand` has each of them.
fn shorten(commands: &mut [proto::Command]) {
    let mut bytes = 0;
    for command in commands {
        bytes += command.encoded_len();
        if bytes > PAGE_BYTES_MAX {
            bytes -= command.content.len();
            command.content.clear();
        }
    }
}
