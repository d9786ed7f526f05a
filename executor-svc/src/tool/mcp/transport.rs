//! Streamable HTTP to a server that runs elsewhere.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use http::{HeaderName, HeaderValue};
use reqwest::{Client, Url, redirect::Policy};
use rmcp::transport::{
    StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
};
use service_kit::config::Secret;

use super::{client::Shortening, config::Server};

/// How long a connection may take.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Most bytes of one message but for the answers of tools, which are shortened.
const MESSAGE_MAX: usize = 8 * 1024 * 1024;

/// Headers that belong to the protocol.
const RESERVED: [&str; 6] =
    ["accept", "content-type", "host", "mcp-session-id", "mcp-protocol-version", "last-event-id"];

/// A transport to the server's URL.
pub(super) fn http(server: &Server, url: &str) -> reqwest::Result<StreamableHttpClientTransport<Shortening>> {
    // A redirect or a proxy from the environment would send arguments to an address that the operator did not name.
    let mut client = Client::builder()
        .redirect(Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIME)
        .user_agent(concat!("roster/", env!("CARGO_PKG_VERSION")));
    if url.starts_with("http:") {
        // A machine without certificates may still talk to a server of its own.
        client = client.tls_certs_only([]);
    }
    let headers = headers(&server.headers).unwrap_or_default();
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(headers)
        .max_sse_event_size(MESSAGE_MAX)
        .max_json_response_size(MESSAGE_MAX);
    Ok(StreamableHttpClientTransport::with_client(Shortening(client.build()?), config))
}

pub(super) fn is_url(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// Configured headers.
///
/// # Errors
///
/// The name of one that may not be set.
pub(super) fn headers(
    configured: &BTreeMap<String, Secret>,
) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let header = |(name, value): (&String, &Secret)| {
        let key = HeaderName::try_from(name).ok().filter(|key| !RESERVED.contains(&key.as_str()));
        let mut value = HeaderValue::try_from(value.expose()).map_err(|_| name.clone())?;
        value.set_sensitive(true);
        Ok((key.ok_or_else(|| name.clone())?, value))
    };
    configured.iter().map(header).collect()
}
