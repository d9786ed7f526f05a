//! Who is calling and what they may do: bearer tokens, roles, and one row for every method.

mod token;

use std::{collections::HashMap, path::Path, sync::Arc};

use http::{HeaderMap, header::AUTHORIZATION};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tonic::Code;

pub use self::token::{TokenError, ensure as ensure_token, read as read_token};
use crate::status::{Reason, Verdict};

/// The identity that `<data>/token` stands for.
pub const LOCAL_IDENTITY: &str = "local";

/// The refusals of this module, for the reason tables of both services.
pub const REASONS: &[Reason] = &[
    Reason {
        reason: "CREDENTIALS_REQUIRED",
        code: Code::Unauthenticated,
        metadata: &[],
        meaning: "The call needs credentials. Send `authorization: Bearer <token>`; the service writes one to `<data>/token`.",
    },
    Reason {
        reason: "CREDENTIALS_INVALID",
        code: Code::Unauthenticated,
        metadata: &[],
        meaning: "The credentials sent are not known here. They are never ignored, not even where none are needed.",
    },
    Reason {
        reason: "ROLE_REQUIRED",
        code: Code::PermissionDenied,
        metadata: &["roles"],
        meaning: "The caller is known but has none of the roles that the call needs.",
    },
];

/// What an identity may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The registry, and records without prompts and results.
    Reader,
    /// Spawn and converse, and its own trees whole.
    Spawner,
    /// All content.
    Auditor,
    /// `Replace`, `Remove`, `Reload`.
    Author,
    /// `DecideProposal`.
    Approver,
    /// Everything.
    Admin,
}

/// Bearer tokens that the operator gives out. The tokens themselves are nowhere in the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Credentials {
    /// Static tokens. With any, a caller without credentials may do nothing.
    pub tokens: Vec<StaticToken>,
}

/// One bearer token and whom it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StaticToken {
    /// The name under which this caller's doings are recorded.
    #[schemars(length(min = 1, max = 128))]
    pub identity: String,
    /// SHA-256 of the token, lower-case hexadecimal.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub sha256: String,
    /// What the caller may do.
    pub roles: Vec<Role>,
    /// The workspaces the caller sees; empty means all.
    #[serde(default)]
    pub workspaces: Vec<String>,
    /// The agents the caller may spawn; absent means the operator's limits only.
    #[serde(default)]
    pub spawns: Option<Vec<String>>,
}

/// A caller, as every handler finds it in the request's extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(Arc<Known>);

#[derive(Debug, PartialEq, Eq)]
struct Known {
    name: Option<String>,
    roles: Vec<Role>,
    workspaces: Vec<String>,
    spawns: Option<Vec<String>>,
}

/// One row of a service's access table.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Path of the method, such as `/roster.registry.v1.RegistryService/ByName`.
    pub method: &'static str,
    /// Any of these roles is enough; `admin` always is.
    pub roles: &'static [Role],
    /// A caller without credentials may call it, where no credentials are configured.
    pub anonymous: bool,
    /// It starts work, so it is refused while the service drains.
    pub starts_work: bool,
}

/// Why a call is refused before it reaches a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("this call needs credentials: send `authorization: Bearer <token>`")]
    CredentialsRequired,
    #[error("the credentials are not known")]
    CredentialsInvalid,
    #[error("this call needs one of the roles {}", names(.0))]
    RoleRequired(&'static [Role]),
}

/// Turns the headers of a call into an identity.
#[derive(Debug)]
pub struct Authenticator {
    by_digest: HashMap<[u8; 32], Identity>,
    anonymous: Identity,
    /// True where a caller without credentials is let in as far as the rules say.
    open: bool,
}

impl Identity {
    /// A caller without credentials.
    pub fn anonymous() -> Self {
        Self(Arc::new(Known { name: None, roles: Vec::new(), workspaces: Vec::new(), spawns: None }))
    }

    /// A caller with a name, all workspaces and no spawn policy.
    pub fn named(name: &str, roles: &[Role]) -> Self {
        Self(Arc::new(Known {
            name: Some(name.to_owned()),
            roles: roles.to_vec(),
            workspaces: Vec::new(),
            spawns: None,
        }))
    }

    /// Absent for a caller without credentials.
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    pub fn is_anonymous(&self) -> bool {
        self.0.name.is_none()
    }

    /// True for the role itself and for `admin`.
    pub fn has(&self, role: Role) -> bool {
        self.0.roles.iter().any(|own| *own == role || *own == Role::Admin)
    }

    pub fn is_admin(&self) -> bool {
        self.has(Role::Admin)
    }

    /// False for a foreign workspace, which is then answered as if it did not exist.
    pub fn sees_workspace(&self, workspace: &str) -> bool {
        self.0.workspaces.is_empty() || self.0.workspaces.iter().any(|own| own == workspace)
    }

    /// The workspaces this caller sees; empty means all.
    pub fn workspaces(&self) -> &[String] {
        &self.0.workspaces
    }

    /// The agents this caller may spawn; absent where its credentials do not say.
    pub fn spawns(&self) -> Option<&[String]> {
        self.0.spawns.as_deref()
    }
}

impl Rule {
    /// A row that only looks.
    pub const fn read(method: &'static str, roles: &'static [Role], anonymous: bool) -> Self {
        Self { method, roles, anonymous, starts_work: false }
    }

    /// A row that changes something or begins something long.
    pub const fn work(method: &'static str, roles: &'static [Role], anonymous: bool) -> Self {
        Self { method, roles, anonymous, starts_work: true }
    }
}

impl Refusal {
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::CredentialsRequired => Verdict::new(Code::Unauthenticated, "CREDENTIALS_REQUIRED"),
            Self::CredentialsInvalid => Verdict::new(Code::Unauthenticated, "CREDENTIALS_INVALID"),
            Self::RoleRequired(roles) => {
                Verdict::new(Code::PermissionDenied, "ROLE_REQUIRED").with("roles", names(roles))
            }
        }
    }
}

impl Authenticator {
    /// Knows the configured tokens and that of the data directory, which is created if absent.
    ///
    /// # Errors
    ///
    /// Fails where `<data>/token` can be neither read nor written.
    pub fn open(data: &Path, credentials: &Credentials) -> Result<Self, TokenError> {
        let local = token::read_or_create(data)?;
        let mut by_digest: HashMap<[u8; 32], Identity> = credentials
            .tokens
            .iter()
            .filter_map(|configured| Some((parse_digest(&configured.sha256)?, identity(configured))))
            .collect();
        by_digest.insert(digest(local.expose()), Identity::named(LOCAL_IDENTITY, &[Role::Admin]));
        Ok(Self { by_digest, anonymous: Identity::anonymous(), open: credentials.tokens.is_empty() })
    }

    /// True where no credentials are configured, so that a caller without any is let in as far as the rules say.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// The caller, if the rule lets it in.
    ///
    /// # Errors
    ///
    /// A [`Refusal`] that says what is missing.
    pub fn admit(&self, headers: &HeaderMap, rule: &Rule) -> Result<Identity, Refusal> {
        let Some(value) = headers.get(AUTHORIZATION) else {
            let admitted = self.open && rule.anonymous;
            return if admitted { Ok(self.anonymous.clone()) } else { Err(Refusal::CredentialsRequired) };
        };
        let identity = value
            .to_str()
            .ok()
            .and_then(bearer)
            .and_then(|presented| self.by_digest.get(&digest(presented)))
            .ok_or(Refusal::CredentialsInvalid)?;
        if rule.roles.iter().any(|role| identity.has(*role)) || identity.is_admin() {
            Ok(identity.clone())
        } else {
            Err(Refusal::RoleRequired(rule.roles))
        }
    }
}

fn identity(configured: &StaticToken) -> Identity {
    let StaticToken { identity, sha256: _, roles, workspaces, spawns } = configured.clone();
    Identity(Arc::new(Known { name: Some(identity), roles, workspaces, spawns }))
}

/// The scheme is compared without case, as HTTP has it.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Tokens are compared by digest, so that the time of a look-up says nothing of a token.
fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn parse_digest(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[index * 2..index * 2 + 2], 16).ok()?;
    }
    Some(bytes)
}

fn names(roles: &[Role]) -> String {
    let names: Vec<String> = roles.iter().map(|role| format!("{role:?}").to_lowercase()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Rule = Rule::read("/x/Read", &[Role::Reader], true);
    const WRITE: Rule = Rule::work("/x/Write", &[Role::Author], false);

    fn headers(authorization: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if !authorization.is_empty() {
            headers.insert(AUTHORIZATION, authorization.parse().unwrap());
        }
        headers
    }

    fn configured(identity: &str, token: &str, roles: &[Role]) -> StaticToken {
        let sha256 = digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
        StaticToken {
            identity: identity.to_owned(),
            sha256,
            roles: roles.to_vec(),
            workspaces: vec!["team".to_owned()],
            spawns: None,
        }
    }

    #[test]
    fn without_configured_credentials_an_anonymous_caller_reads_and_the_local_token_does_all() {
        let data = tempfile::tempdir().unwrap();
        let authenticator = Authenticator::open(data.path(), &Credentials::default()).unwrap();
        let token = read_token(data.path()).unwrap();
        let local = headers(&format!("Bearer {}", token.expose()));

        assert!(authenticator.admit(&headers(""), &READ).unwrap().is_anonymous());
        assert_eq!(authenticator.admit(&headers(""), &WRITE), Err(Refusal::CredentialsRequired));
        assert_eq!(authenticator.admit(&headers("Bearer wrong"), &READ), Err(Refusal::CredentialsInvalid));
        assert_eq!(authenticator.admit(&headers("Basic abc"), &READ), Err(Refusal::CredentialsInvalid));
        let identity = authenticator.admit(&local, &WRITE).unwrap();
        assert_eq!((identity.name(), identity.is_admin()), (Some("local"), true));
    }

    #[test]
    fn with_configured_credentials_nobody_is_anonymous_and_roles_count() {
        let data = tempfile::tempdir().unwrap();
        let credentials = Credentials { tokens: vec![configured("ann", "s3cret", &[Role::Reader])] };
        let authenticator = Authenticator::open(data.path(), &credentials).unwrap();

        assert_eq!(authenticator.admit(&headers(""), &READ), Err(Refusal::CredentialsRequired));
        let ann = authenticator.admit(&headers("bearer s3cret"), &READ).unwrap();
        assert_eq!(ann.name(), Some("ann"));
        assert!(ann.sees_workspace("team") && !ann.sees_workspace("default"));
        assert_eq!(
            authenticator.admit(&headers("Bearer s3cret"), &WRITE),
            Err(Refusal::RoleRequired(&[Role::Author]))
        );
    }

    #[test]
    fn every_refusal_is_in_the_reason_table() {
        for refusal in [
            Refusal::CredentialsRequired,
            Refusal::CredentialsInvalid,
            Refusal::RoleRequired(&[Role::Author]),
        ] {
            let verdict = refusal.verdict();
            let row = REASONS.iter().find(|row| row.reason == verdict.reason()).unwrap();
            assert_eq!(row.code, verdict.code());
        }
    }
}
