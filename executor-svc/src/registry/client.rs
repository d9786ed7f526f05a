//! Calls over gRPC, with retries inside a bound and with the faults of a connection told from the registry's own answers.

use std::{error::Error as _, future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use proto::registry::v1::{
    ByNameRequest, GetCatalogRequest, ListSkillsRequest, ResolveSkillsRequest,
    registry_service_client::RegistryServiceClient, skill_service_client::SkillServiceClient,
};
use service_kit::config::Secret;
use tokio::time::Instant;
use tonic::{
    Code, Request, Status,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};
use tonic_types::StatusExt as _;
use tracing::debug;

use super::{Catalog, LookupError, Registry, flight::Flights, from_proto, pool::Pool};
use crate::{
    definition::{Definition, SpawnPolicy},
    prompt::Skill,
};

/// How long a lookup is tried; then the spawn is refused. A registry that restarts is back within it.
const LOOKUP_TIME_MAX: Duration = Duration::from_secs(2);

/// One attempt: long enough for a busy registry, short enough to try another connection.
const ATTEMPT_TIME_MAX: Duration = Duration::from_millis(900);

/// First wait between attempts; each further one is twice as long.
const RETRY_WAIT_MIN: Duration = Duration::from_millis(25);

/// What the way to the registry takes of a deadline.
const HOP: Duration = Duration::from_millis(50);

/// The registry behind one name.
#[derive(Clone, Debug)]
pub struct Client {
    pool: Pool,
    bearer: Option<MetadataValue<Ascii>>,
    questions: Arc<Questions>,
}

/// What many spawns ask at the same time is asked once, after all of them came.
#[derive(Debug, Default)]
struct Questions {
    definitions: Flights<(String, String), Definition>,
    catalogs: Flights<(String, SpawnPolicy), Catalog>,
    /// Whether a workspace has any skill at all.
    skills: Flights<String, bool>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum InvalidAddress {
    #[error("`{0}` is not a URL such as `http://127.0.0.1:7401`")]
    Url(String),
    #[error("the registry's token cannot be sent in a header")]
    Token,
}

impl Client {
    /// A client that connects when it is first asked, and again whenever the connection is lost.
    ///
    /// # Errors
    ///
    /// Fails where the address is no URL or the token no header value.
    pub fn new(url: &str, token: Option<&Secret>) -> Result<Self, InvalidAddress> {
        let pool = Pool::new(url).ok_or_else(|| InvalidAddress::Url(url.to_owned()))?;
        let bearer = token
            .map(|token| format!("Bearer {}", token.expose()).parse())
            .transpose()
            .map_err(|_| InvalidAddress::Token)?;
        Ok(Self { pool, bearer, questions: Arc::default() })
    }

    fn request<T>(&self, message: T, time_left: Duration) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(time_left);
        if let Some(bearer) = &self.bearer {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        request
    }

    /// Repeats a read while the registry is unavailable. Each attempt takes the next connection; one that failed is dropped.
    async fn retried<T, F>(
        &self,
        until: Instant,
        call: impl Fn(Channel, Duration) -> F,
    ) -> Result<T, LookupError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut wait = RETRY_WAIT_MIN;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let status = match self.attempt(left.min(ATTEMPT_TIME_MAX), &call).await {
                Ok(value) => return Ok(value),
                Err(status) => status,
            };
            if !is_unavailable(&status) {
                return Err(answered(status));
            }
            if Instant::now() + wait >= until {
                return Err(LookupError::Unavailable(Box::new(status)));
            }
            debug!(code = ?status.code(), "registry unavailable, trying again");
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
    }

    /// What is active depends on each prompt, but most workspaces have no skill, and that is the same for all.
    async fn has_skills(&self, workspace: &str, until: Instant) -> Result<bool, LookupError> {
        let question = async {
            let response = self.retried(until, async |channel, left| {
                let message = ListSkillsRequest { workspace: workspace.to_owned() };
                let mut client = SkillServiceClient::new(channel);
                client.list_skills(self.request(message, left)).await
            });
            Ok(!response.await?.into_inner().skills.is_empty())
        };
        self.questions.skills.ask(workspace.to_owned(), until, question).await
    }

    async fn attempt<T, F>(&self, time: Duration, call: &impl Fn(Channel, Duration) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let member = self.pool.next().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let answer = tokio::time::timeout(time, call(member.channel, time)).await;
        let answer =
            answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("the registry did not answer in time")));
        if answer.as_ref().is_err_and(is_unavailable) {
            self.pool.drop_member(member.address);
        }
        answer
    }
}

#[async_trait]
impl Registry for Client {
    async fn by_name(
        &self,
        workspace: &str,
        name: &str,
        deadline: Option<Instant>,
    ) -> Result<Definition, LookupError> {
        let until = until(deadline);
        let question = async {
            let response = self.retried(until, async |channel, left| {
                let message = ByNameRequest { workspace: workspace.to_owned(), name: name.to_owned() };
                let mut client = RegistryServiceClient::new(channel);
                client.by_name(self.request(message, left)).await
            });
            let agent = response.await?.into_inner().agent;
            agent
                .map(from_proto::definition)
                .ok_or_else(|| LookupError::Unavailable("the registry sent no definition".into()))
        };
        self.questions.definitions.ask((workspace.to_owned(), name.to_owned()), until, question).await
    }

    async fn catalog(
        &self,
        workspace: &str,
        policy: &SpawnPolicy,
        deadline: Option<Instant>,
    ) -> Result<Catalog, LookupError> {
        let until = until(deadline);
        let question = async {
            let response = self.retried(until, async |channel, left| {
                let spawns = Some(from_proto::policy_message(policy));
                let message = GetCatalogRequest { workspace: workspace.to_owned(), spawns };
                let mut client = RegistryServiceClient::new(channel);
                client.get_catalog(self.request(message, left)).await
            });
            Ok(from_proto::catalog(response.await?.into_inner()))
        };
        self.questions.catalogs.ask((workspace.to_owned(), policy.clone()), until, question).await
    }

    async fn skills(
        &self,
        workspace: &str,
        names: &[String],
        text: &str,
        deadline: Option<Instant>,
    ) -> Result<Vec<Skill>, LookupError> {
        let until = until(deadline);
        if !self.has_skills(workspace, until).await? {
            return Ok(Vec::new());
        }
        let response = self
            .retried(until, async |channel, left| {
                let message = ResolveSkillsRequest {
                    workspace: workspace.to_owned(),
                    names: names.to_vec(),
                    user_text: text.to_owned(),
                };
                let mut client = SkillServiceClient::new(channel);
                client.resolve_skills(self.request(message, left)).await
            })
            .await?;
        Ok(from_proto::skills(response.into_inner()))
    }
}

/// When a lookup is given up: after its bound, or when the caller stops to wait.
fn until(deadline: Option<Instant>) -> Instant {
    let bound = Instant::now() + LOOKUP_TIME_MAX;
    let deadline = deadline.and_then(|deadline| deadline.checked_sub(HOP));
    deadline.map_or(bound, |deadline| deadline.min(bound))
}

/// True where nobody answered: the registry itself, or the connection to it.
fn is_unavailable(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded => true,
        // A connection that breaks, or is told to go away, shows as one of these, with the fault as its source.
        Code::Cancelled | Code::Internal | Code::Unknown => status.source().is_some(),
        _ => false,
    }
}

/// The registry's own refusal.
fn answered(status: Status) -> LookupError {
    let details = status.get_error_details();
    let Some(info) = details.error_info() else { return LookupError::Unavailable(Box::new(status)) };
    let metadata = |key: &str| info.metadata.get(key).cloned().unwrap_or_default();
    match info.reason.as_str() {
        "UNKNOWN_AGENT" => LookupError::Unknown {
            message: status.message().to_owned(),
            suggestion: metadata("suggestion"),
            available_count: metadata("available_count"),
        },
        "AGENT_BROKEN" => LookupError::Broken { message: status.message().to_owned() },
        "WORKSPACE_NOT_FOUND" => LookupError::WorkspaceNotFound,
        _ => LookupError::Unavailable(Box::new(status)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn client() -> Client {
        Client::new("http://127.0.0.1:1", None).unwrap()
    }

    /// A fault of the connection, as the transport reports it.
    fn broken(code: Code) -> Status {
        let mut status = Status::from_error(Box::new(std::io::Error::other("connection reset")));
        assert!(status.source().is_some());
        if code != Code::Unknown {
            status = Status::unavailable("gone");
        }
        status
    }

    async fn attempts(
        client: &Client,
        failures: u32,
        status: fn() -> Status,
    ) -> (Result<u32, LookupError>, u32) {
        let count = AtomicU32::new(0);
        let result = client
            .retried(until(None), |_, _| {
                let attempt = count.fetch_add(1, Ordering::Relaxed) + 1;
                async move { if attempt > failures { Ok(attempt) } else { Err(status()) } }
            })
            .await;
        (result, count.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_unavailable_is_asked_again() {
        for status in [|| broken(Code::Unavailable), || broken(Code::Unknown)] {
            let (result, count) = attempts(&client(), 3, status).await;

            assert_eq!((result.unwrap(), count), (4, 4));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_registrys_own_answer_is_not_asked_again() {
        let (result, count) = attempts(&client(), 1, || Status::internal("a defect of the registry")).await;

        assert!(matches!(result, Err(LookupError::Unavailable(_))));
        assert_eq!(count, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn two_seconds_are_the_end_and_a_nearer_deadline_is_an_earlier_one() {
        let client = client();
        let never = |_, _| async { Err::<(), _>(Status::unavailable("gone")) };
        for (deadline, bound) in [(None, 2_000), (Some(Duration::from_millis(300)), 250)] {
            let began = Instant::now();
            let deadline = deadline.map(|left| began + left);

            let result = client.retried(until(deadline), never).await;

            assert!(matches!(result, Err(LookupError::Unavailable(_))));
            assert!(began.elapsed() <= Duration::from_millis(bound), "{:?}", began.elapsed());
            assert!(began.elapsed() >= Duration::from_millis(bound / 3), "{:?}", began.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_hangs_is_given_up() {
        let client = client();
        let count = AtomicU32::new(0);

        let result = client
            .retried(until(None), |_, _| {
                let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
                async move { if is_first { std::future::pending().await } else { Ok(()) } }
            })
            .await;

        assert!(result.is_ok());
    }
}
