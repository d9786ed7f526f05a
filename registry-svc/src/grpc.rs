//! The registry's services: each handler parses, asks and renders.

pub(crate) mod access;
mod by_name;
mod collections;
mod from_proto;
mod pages;
pub mod status;
mod to_proto;
mod watch;

use std::{collections::BTreeMap, sync::Arc};

use ::proto::registry::v1::{self as proto, registry_service_server::RegistryService};
use service_kit::{
    auth::Identity,
    page,
    server::{self, OnStall, RESPONSE_BYTES_MAX},
};
use tonic::{Request, Response, Status};

pub(crate) use self::{by_name::WithReadyAnswers, collections::Collections};
use self::{from_proto::View, pages::Pages, status::Failure, to_proto::Paths};
use crate::{
    catalog,
    definition::{GuardedNames, UNGUARDED},
    diagnostic::Diagnostic,
    error::Error,
    snapshot::Snapshot,
    workspace::{self, Author, Handle, Remove, Replace},
};

/// A page is rather short than large: room for the rest of the message is left below the limit.
const PAGE_BYTES_MAX: usize = RESPONSE_BYTES_MAX - 256 * 1024;

const LIST_SIZE: usize = 50;
const LIST_SIZE_MAX: usize = 200;
const DIAGNOSTICS_SIZE: usize = 100;
const DIAGNOSTICS_SIZE_MAX: usize = 1_000;

/// Findings that `Reload` sends along; the rest are listed.
const RELOAD_DIAGNOSTICS_MAX: usize = 100;

/// Implements `RegistryService`. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Registry(Arc<Shared>);

struct Shared {
    workspaces: BTreeMap<String, Served>,
    /// Whoever is let in may see whole paths: on loopback without configured credentials.
    whole_paths: bool,
}

/// One workspace and the listings that are under way in it.
struct Served {
    handle: Handle,
    pages: Pages,
}

impl Registry {
    pub(crate) fn new(handles: Vec<Handle>, whole_paths: bool) -> Self {
        let served = |handle: Handle| (handle.name().to_owned(), Served { handle, pages: Pages::default() });
        let workspaces = handles.into_iter().map(served).collect();
        Self(Arc::new(Shared { workspaces, whole_paths }))
    }

    /// A workspace that the caller may see; any other is answered as if it did not exist.
    fn served(&self, identity: &Identity, workspace: &str) -> Result<&Served, Error> {
        let name = from_proto::workspace(workspace);
        let visible = self.0.workspaces.get(name).filter(|_| identity.sees_workspace(name));
        visible.ok_or_else(|| Error::WorkspaceNotFound { workspace: name.to_owned() })
    }

    fn handle(&self, identity: &Identity, workspace: &str) -> Result<&Handle, Error> {
        self.served(identity, workspace).map(|served| &served.handle)
    }

    /// What a document without a workspace must not be confusable with.
    fn guarded_names(&self) -> &GuardedNames {
        let default = self.0.workspaces.get(from_proto::workspace(""));
        let served = default.or_else(|| self.0.workspaces.values().next());
        served.map_or(&UNGUARDED, |served| served.handle.guarded_names())
    }

    fn sees_whole_paths(&self, identity: &Identity) -> bool {
        self.0.whole_paths || identity.is_admin()
    }

    fn paths(&self, identity: &Identity, snapshot: &Snapshot) -> Paths {
        if self.sees_whole_paths(identity) { Paths::Absolute } else { Paths::below(snapshot) }
    }

    /// An error as this caller may read it: the place of a broken document is shown like any other.
    fn shown(&self, identity: &Identity, snapshot: &Snapshot, error: impl Into<Error>) -> Error {
        match error.into() {
            Error::Miss(crate::snapshot::Miss::Broken { name, path, codes }) => {
                let path = self.paths(identity, snapshot).finding(&path);
                Error::Miss(crate::snapshot::Miss::Broken { name, path, codes })
            }
            other => other,
        }
    }
}

#[tonic::async_trait]
impl RegistryService for Registry {
    async fn by_name(
        &self,
        request: Request<proto::ByNameRequest>,
    ) -> Result<Response<proto::ByNameResponse>, Status> {
        let identity = server::identity(&request)?;
        let proto::ByNameRequest { workspace, name } = request.get_ref();
        let name = from_proto::name(name)?;
        let snapshot = self.handle(identity, workspace)?.snapshot();
        let definition = snapshot.by_name(name).map_err(|miss| self.shown(identity, &snapshot, miss))?;
        let paths = self.paths(identity, &snapshot);

        Ok(Response::new(proto::ByNameResponse {
            agent: Some(to_proto::definition(definition, View::Full, &paths)),
            generation: snapshot.generation(),
        }))
    }

    async fn get_document(
        &self,
        request: Request<proto::GetDocumentRequest>,
    ) -> Result<Response<proto::GetDocumentResponse>, Status> {
        let identity = server::identity(&request)?;
        let proto::GetDocumentRequest { workspace, name, digest } = request.get_ref();
        let name = from_proto::name(name)?;
        let digest = from_proto::digest("digest", digest)?;
        let handle = self.handle(identity, workspace)?;
        let snapshot = handle.snapshot();
        let fetched =
            handle.document(name, digest).await.map_err(|error| self.shown(identity, &snapshot, error))?;

        Ok(Response::new(proto::GetDocumentResponse {
            digest: fetched.digest.to_string(),
            source: Some(to_proto::source(&fetched.source, &self.paths(identity, &snapshot))),
            document: fetched.document,
        }))
    }

    async fn list(
        &self,
        request: Request<proto::ListRequest>,
    ) -> Result<Response<proto::ListResponse>, Status> {
        let identity = server::identity(&request)?;
        let proto::ListRequest { workspace, page_size, page_token, view, kinds } = request.get_ref();
        let (view, kinds) = (from_proto::view(*view)?, from_proto::kinds(kinds)?);
        let size = page::size(*page_size, LIST_SIZE, LIST_SIZE_MAX).map_err(Failure::from)?;
        let served = self.served(identity, workspace)?;
        let (view_text, kinds_text) = (format!("{view:?}"), format!("{kinds:?}"));
        let query = ["List", served.handle.name(), &view_text, &kinds_text];
        let (snapshot, start) = served.pages.resume(&served.handle, &query, page_token)?;

        let paths = self.paths(identity, &snapshot);
        let chosen = |kind| kinds.is_empty() || kinds.contains(&kind);
        let rows = snapshot
            .in_force()
            .iter()
            .enumerate()
            .skip(start)
            .filter(|(_, definition)| chosen(definition.source.kind))
            .map(|(index, definition)| (index, to_proto::definition(definition, view, &paths)));
        let (agents, next) = pages::fill(rows, size, PAGE_BYTES_MAX);

        Ok(Response::new(proto::ListResponse {
            agents,
            next_page_token: served.pages.token(&query, &snapshot, next),
            generation: snapshot.generation(),
        }))
    }

    async fn explain(
        &self,
        request: Request<proto::ExplainRequest>,
    ) -> Result<Response<proto::ExplainResponse>, Status> {
        let identity = server::identity(&request)?;
        let proto::ExplainRequest { workspace, name } = request.get_ref();
        let name = from_proto::name(name)?;
        let snapshot = self.handle(identity, workspace)?.snapshot();
        let candidates = snapshot.candidates(name).map_err(Error::from)?;
        let paths = self.paths(identity, &snapshot);

        Ok(Response::new(proto::ExplainResponse {
            candidates: candidates.iter().map(|candidate| to_proto::candidate(candidate, &paths)).collect(),
            generation: snapshot.generation(),
        }))
    }

    async fn list_diagnostics(
        &self,
        request: Request<proto::ListDiagnosticsRequest>,
    ) -> Result<Response<proto::ListDiagnosticsResponse>, Status> {
        let identity = server::identity(&request)?;
        let proto::ListDiagnosticsRequest { workspace, page_size, page_token } = request.get_ref();
        let size = page::size(*page_size, DIAGNOSTICS_SIZE, DIAGNOSTICS_SIZE_MAX).map_err(Failure::from)?;
        let served = self.served(identity, workspace)?;
        let query = ["ListDiagnostics", served.handle.name()];
        let (snapshot, start) = served.pages.resume(&served.handle, &query, page_token)?;

        let paths = self.paths(identity, &snapshot);
        let rows = snapshot
            .diagnostics()
            .iter()
            .enumerate()
            .skip(start)
            .map(|(index, diagnostic)| (index, to_proto::diagnostic(diagnostic, &paths)));
        let (diagnostics, next) = pages::fill(rows, size, PAGE_BYTES_MAX);

        Ok(Response::new(proto::ListDiagnosticsResponse {
            diagnostics,
            next_page_token: served.pages.token(&query, &snapshot, next),
            generation: snapshot.generation(),
        }))
    }

    async fn get_catalog(
        &self,
        request: Request<proto::GetCatalogRequest>,
    ) -> Result<Response<proto::GetCatalogResponse>, Status> {
        let identity = server::identity(&request)?.clone();
        let proto::GetCatalogRequest { workspace, spawns } = request.into_inner();
        let spawns = from_proto::spawns(spawns)?;
        let snapshot = self.handle(&identity, &workspace)?.snapshot();
        let catalog::Catalog { entries, omitted } = catalog::catalog(snapshot.in_force(), spawns.as_ref());

        Ok(Response::new(proto::GetCatalogResponse {
            entries: entries.into_iter().map(to_proto::catalog_entry).collect(),
            omitted: to_proto::count(omitted),
            generation: snapshot.generation(),
        }))
    }

    type WatchStream = watch::Messages;

    async fn watch(
        &self,
        request: Request<proto::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let identity = server::identity(&request)?.clone();
        let proto::WatchRequest { workspace, from_generation, store_id, view } = request.into_inner();
        let view = from_proto::view(view)?;
        if from_generation > 0 && store_id.is_empty() {
            return Err(Failure::invalid("store_id", "is required with `from_generation`").into());
        }
        let handle = self.handle(&identity, &workspace)?;
        let paths = self.paths(&identity, &handle.snapshot());
        let resume =
            (from_generation > 0).then_some(workspace::Resume { generation: from_generation, store_id });

        let mut response = Response::new(watch::messages(handle, resume.as_ref(), view, paths));
        response.extensions_mut().insert(OnStall(Failure::WatchLagged.into()));
        Ok(response)
    }

    async fn replace(
        &self,
        request: Request<proto::ReplaceRequest>,
    ) -> Result<Response<proto::ReplaceResponse>, Status> {
        let identity = server::identity(&request)?.clone();
        let proto::ReplaceRequest { workspace, document, expected_digest, request_id, expected_name } =
            request.into_inner();
        let replace = Replace {
            author: author(&identity),
            document: from_proto::document(document)?,
            expected_digest: from_proto::expected_digest(expected_digest)?,
            expected_name: Some(expected_name).filter(|name| !name.is_empty()),
            request_id: from_proto::request_id(request_id)?,
        };
        let handle = self.handle(&identity, &workspace)?;
        let replaced = handle.replace(replace).await?;
        let paths = self.paths(&identity, &handle.snapshot());

        Ok(Response::new(proto::ReplaceResponse {
            agent: Some(to_proto::definition(&replaced.definition, View::Full, &paths)),
            generation: replaced.generation,
            created: replaced.created,
            shadowed: replaced.shadowed.iter().map(|source| to_proto::source(source, &paths)).collect(),
            diagnostics: diagnostics(&replaced.diagnostics, &paths),
        }))
    }

    async fn remove(
        &self,
        request: Request<proto::RemoveRequest>,
    ) -> Result<Response<proto::RemoveResponse>, Status> {
        let identity = server::identity(&request)?.clone();
        let proto::RemoveRequest { workspace, name, expected_digest, request_id } = request.into_inner();
        let remove = Remove {
            author: author(&identity),
            name: from_proto::name(&name)?.to_owned(),
            expected_digest: from_proto::expected_digest(expected_digest)?,
            request_id: from_proto::request_id(request_id)?,
        };
        let handle = self.handle(&identity, &workspace)?;
        let removed = handle.remove(remove).await?;
        let paths = self.paths(&identity, &handle.snapshot());

        Ok(Response::new(proto::RemoveResponse {
            generation: removed.generation,
            now_in_force: removed
                .now_in_force
                .map(|definition| to_proto::definition(&definition, View::Full, &paths)),
        }))
    }

    async fn reload(
        &self,
        request: Request<proto::ReloadRequest>,
    ) -> Result<Response<proto::ReloadResponse>, Status> {
        let identity = server::identity(&request)?;
        let handle = self.handle(identity, &request.get_ref().workspace)?;
        let reloaded = handle.reload().await?;
        let paths = self.paths(identity, &reloaded.snapshot);
        let findings = reloaded.snapshot.diagnostics();

        Ok(Response::new(proto::ReloadResponse {
            generation: reloaded.snapshot.generation(),
            added: reloaded.added.clone(),
            changed: reloaded.changed.clone(),
            removed: reloaded.removed.clone(),
            unchanged: to_proto::count(reloaded.unchanged),
            diagnostics: diagnostics(&findings[..findings.len().min(RELOAD_DIAGNOSTICS_MAX)], &paths),
            duration_us: u64::try_from(reloaded.duration.as_micros()).unwrap_or(u64::MAX),
        }))
    }

    async fn validate(
        &self,
        request: Request<proto::ValidateRequest>,
    ) -> Result<Response<proto::ValidateResponse>, Status> {
        let identity = server::identity(&request)?.clone();
        let proto::ValidateRequest { document, workspace } = request.into_inner();
        let document = from_proto::document(document)?;
        let (validated, paths) = if workspace.is_empty() {
            (workspace::validate(&document, self.guarded_names()), Paths::Absolute)
        } else {
            let handle = self.handle(&identity, &workspace)?;
            (handle.validate(&document), self.paths(&identity, &handle.snapshot()))
        };

        Ok(Response::new(proto::ValidateResponse {
            agent: validated
                .definition
                .map(|definition| to_proto::definition(&definition, View::Full, &paths)),
            diagnostics: diagnostics(&validated.diagnostics, &paths),
            would_shadow: validated
                .would_shadow
                .iter()
                .map(|source| to_proto::source(source, &paths))
                .collect(),
        }))
    }
}

fn author(identity: &Identity) -> Author {
    Author { caller: identity.name().unwrap_or_default().to_owned(), is_administrator: identity.is_admin() }
}

fn diagnostics(diagnostics: &[Diagnostic], paths: &Paths) -> Vec<proto::Diagnostic> {
    diagnostics.iter().map(|diagnostic| to_proto::diagnostic(diagnostic, paths)).collect()
}
