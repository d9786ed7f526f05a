//! Tool calls over streamable HTTP, whose answers are shortened while they are read. Everything else is the SDK's.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream::BoxStream};
use http::{HeaderName, HeaderValue, StatusCode, header};
use reqwest::{Client, Response};
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, ServerJsonRpcMessage},
    transport::streamable_http_client::{
        StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
    },
};
use sse_stream::{Error as SseError, Sse, SseStream};

use super::shorten::{Strings, TooLong};

/// An error body says what it has to say in its first lines.
const ERROR_BYTES_MAX: usize = 4 * 1024;

const SESSION: &str = "mcp-session-id";
const EVENTS: &str = "text/event-stream";
const DOCUMENT: &str = "application/json";

type Failure = StreamableHttpError<reqwest::Error>;

/// The SDK's client, but for the answers of tools.
#[derive(Clone)]
pub(super) struct Shortening(pub(super) Client);

impl StreamableHttpClient for Shortening {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        bearer: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session, bearer, headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        bearer: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        if !is_call(&message) {
            let inner = &self.0;
            return inner
                .post_message_with_response_limits(uri, message, session, bearer, headers, limits)
                .await;
        }
        let mut request =
            self.0.post(uri.as_ref()).header(header::ACCEPT, format!("{EVENTS}, {DOCUMENT}")).json(&message);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(bearer) = bearer {
            request = request.bearer_auth(bearer);
        }
        if let Some(session) = &session {
            request = request.header(SESSION, session.as_ref());
        }
        let response = request.send().await.map_err(StreamableHttpError::Client)?;
        match (response.status(), content_type(&response)) {
            (StatusCode::NOT_FOUND, _) if session.is_some() => Err(StreamableHttpError::SessionExpired),
            (status, kind) if status.is_success() && kind.starts_with(EVENTS) => {
                let events = SseStream::from_bytes_stream(shortened(response.bytes_stream())).boxed();
                Ok(StreamableHttpPostResponse::Sse(events, None))
            }
            (status, kind) if status.is_success() && kind.starts_with(DOCUMENT) => {
                Ok(StreamableHttpPostResponse::Json(document(response).await?, None))
            }
            (status, _) => refused(status, response).await,
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        bearer: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        self.0.delete_session(uri, session, bearer, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        bearer: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        self.0.get_stream(uri, session, last_event, bearer, headers).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        bearer: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        bytes_max: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        let inner = &self.0;
        inner.get_stream_with_max_sse_event_size(uri, session, last_event, bearer, headers, bytes_max).await
    }
}

fn is_call(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, JsonRpcMessage::Request(request) if matches!(request.request, ClientRequest::CallToolRequest(_)))
}

fn content_type(response: &Response) -> String {
    let value = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_ascii_lowercase()
}

/// The body with its long strings shortened. Both forms of an answer are JSON, in lines or as a whole.
fn shortened(
    body: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, Broken>> + Send + 'static {
    let mut strings = Strings::of_one_message();
    body.map(move |piece| Ok(Bytes::from(strings.shorten(&piece?)?)))
}

/// Why an answer cannot be read to its end.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Connection(#[from] reqwest::Error),
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

async fn document(response: Response) -> Result<ServerJsonRpcMessage, Failure> {
    let mut body = std::pin::pin!(shortened(response.bytes_stream()));
    let mut document = Vec::new();
    while let Some(piece) = body.next().await {
        match piece {
            Ok(piece) => document.extend_from_slice(&piece),
            Err(Broken::Connection(error)) => return Err(StreamableHttpError::Client(error)),
            Err(Broken::TooLong(TooLong { bytes_max })) => {
                return Err(StreamableHttpError::ResponseBodyTooLarge { max_size: bytes_max });
            }
        }
    }
    Ok(serde_json::from_slice(&document)?)
}

/// A refusal by HTTP that says in its body what the protocol would, or one that does not.
async fn refused(status: StatusCode, mut response: Response) -> Result<StreamableHttpPostResponse, Failure> {
    let mut body = Vec::new();
    while body.len() < ERROR_BYTES_MAX
        && let Some(piece) = response.chunk().await.map_err(StreamableHttpError::Client)?
    {
        body.extend_from_slice(&piece);
    }
    match serde_json::from_slice(&body) {
        Ok(error @ JsonRpcMessage::Error(_)) => Ok(StreamableHttpPostResponse::Json(error, None)),
        Ok(_) | Err(_) => {
            Err(StreamableHttpError::UnexpectedServerResponse(format!("HTTP {status} to a call").into()))
        }
    }
}
