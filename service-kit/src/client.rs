//! What a command line needs to call a running service.

use std::{path::Path, time::Duration};

use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;

use crate::{auth::read_token, console::escape};

/// A person waits for this; a service on the same machine answers in a millisecond or not at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What a service answers to a token that is not its own, most often that of another data directory.
const CREDENTIALS_INVALID: &str = "CREDENTIALS_INVALID";

/// Puts the token of a data directory on every call, where there is one.
#[derive(Clone, Debug)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

/// A connection that carries credentials.
pub type Connection = InterceptedService<Channel, Bearer>;

/// Why a service cannot be called.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{0}` is not an address such as `127.0.0.1:7401`")]
    Address(String),
    #[error("failed to reach `{address}`")]
    Unreachable { address: String, source: tonic::transport::Error },
}

/// Connects to `host:port` or a URL, with the token of `data` if it can be read.
///
/// # Errors
///
/// Fails where the address is none, or where nobody answers within five seconds.
pub async fn connect(address: &str, data: &Path) -> Result<Connection, Error> {
    let url = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    let endpoint = Endpoint::from_shared(url).map_err(|_| Error::Address(address.to_owned()))?;
    let channel = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .connect()
        .await
        .map_err(|source| Error::Unreachable { address: address.to_owned(), source })?;
    Ok(InterceptedService::new(channel, Bearer::of(data)))
}

/// A status as a person reads it: the text, then the reason and the fields that are wrong.
pub fn explain(status: &Status) -> String {
    let details = status.get_error_details();
    let mut text = escape(status.message()).into_owned();
    if let Some(info) = details.error_info() {
        text.push_str(&format!(" ({})", info.reason));
        if info.reason == CREDENTIALS_INVALID {
            text.push_str(
                "\n  the token was read from the data directory; name that of the service with `--data`",
            );
        }
    }
    for violation in details.bad_request().into_iter().flat_map(|bad| &bad.field_violations) {
        text.push_str(&format!("\n  {}: {}", escape(&violation.field), escape(&violation.description)));
    }
    text
}

impl Bearer {
    /// Without a readable token calls go out as they are; the service then says what it needs.
    fn of(data: &Path) -> Self {
        let token = read_token(data).ok();
        Self(token.and_then(|token| format!("Bearer {}", token.expose()).parse().ok()))
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}
