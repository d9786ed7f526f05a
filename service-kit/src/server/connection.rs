//! One HTTP/2 connection: its limits, its polite end and its cut.

use std::{
    convert::Infallible,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hyper::{server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
    time::{Sleep, sleep},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::body::Body;
use tracing::debug;

use super::{HEADER_BYTES_MAX, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, STREAMS_MAX, call::Edge, stall};

/// The 24 bytes every HTTP/2 client begins with.
const PREFACE_BYTES: usize = 24;

/// Time a peer has to send them. HTTP/2's own keep-alive begins only after them.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves connections as tasks that are all known.
pub(super) struct Connections {
    edge: Arc<Edge>,
    tasks: Tasks,
    alive: TaskTracker,
    closing: CancellationToken,
    cut: CancellationToken,
}

/// Runs what hyper starts, one task a stream. They end with their connection, or where nobody reads them.
#[derive(Clone)]
struct Tasks(TaskTracker);

/// A socket whose peer must begin to speak HTTP/2 in time.
struct Patient<S> {
    stream: S,
    missing: usize,
    patience: Pin<Box<Sleep>>,
}

impl Connections {
    pub(super) fn new(
        edge: Arc<Edge>,
        tasks: TaskTracker,
        closing: CancellationToken,
        cut: CancellationToken,
    ) -> Self {
        Self { edge, tasks: Tasks(tasks), alive: TaskTracker::new(), closing, cut }
    }

    /// Resolves when no connection is left. None may be added afterwards.
    pub(super) async fn finished(&self) {
        self.alive.close();
        self.alive.wait().await;
    }

    pub(super) fn serve(&self, stream: TcpStream, permit: OwnedSemaphorePermit) {
        let (closing, cut) = (self.closing.clone(), self.cut.clone());
        let edge = Arc::clone(&self.edge);
        let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let edge = Arc::clone(&edge);
            async move { Ok::<_, Infallible>(edge.call(request.map(Body::new)).await) }
        });
        let connection =
            builder(self.tasks.clone()).serve_connection(TokioIo::new(Patient::new(stream)), service);
        let alive = self.alive.token();
        self.tasks.0.spawn(async move {
            let _held = (permit, alive);
            let mut connection = std::pin::pin!(connection);
            let result = tokio::select! {
                result = &mut connection => result,
                () = cut.cancelled() => return,
                () = closing.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    tokio::select! {
                        result = &mut connection => result,
                        () = cut.cancelled() => return,
                    }
                }
            };
            if let Err(error) = result {
                debug!(%error, "connection failed");
            }
        });
    }
}

fn builder(tasks: Tasks) -> http2::Builder<Tasks> {
    let mut builder = http2::Builder::new(tasks);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    builder
}

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(stall::watched(future));
    }
}

impl<S> Patient<S> {
    fn new(stream: S) -> Self {
        Self { stream, missing: PREFACE_BYTES, patience: Box::pin(sleep(PREFACE_TIMEOUT)) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.missing > 0 {
            self.missing = self.missing.saturating_sub(buffer.filled().len() - before);
            if polled.is_pending() && self.patience.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_finish_its_preface_is_given_up() {
        for sent in [0, 1, PREFACE_BYTES - 1] {
            let (mut peer, socket) = duplex(64);
            let mut patient = Patient::new(socket);
            peer.write_all(&vec![b'P'; sent]).await.unwrap();

            let mut bytes = vec![0; PREFACE_BYTES];
            let error = patient.read_exact(&mut bytes).await.unwrap_err();

            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{sent} bytes");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_has_begun_may_be_silent() {
        let (mut peer, socket) = duplex(64);
        let mut patient = Patient::new(socket);
        peer.write_all(&[b'P'; PREFACE_BYTES]).await.unwrap();
        patient.read_exact(&mut [0; PREFACE_BYTES]).await.unwrap();

        let (_, read) = tokio::join!(
            async {
                tokio::time::advance(PREFACE_TIMEOUT * 10).await;
                peer.write_all(b"later").await.unwrap();
            },
            async {
                let mut bytes = [0; 5];
                patient.read_exact(&mut bytes).await.unwrap();
                bytes
            }
        );

        assert_eq!(&read, b"later");
    }
}
