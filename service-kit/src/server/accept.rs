//! Taking connections: never more than a limit, and with a pause instead of a spin when the system has none to give.

use std::{io, sync::Arc, time::Duration};

use rustix::io::Errno;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// Long enough to burn no processor, short enough that nobody notices once descriptors are free again.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts until `stop`; then the port is closed. `serve` takes over a connection and the permit it holds while it lives.
pub(super) async fn run(
    listener: TcpListener,
    connections_max: usize,
    stop: &CancellationToken,
    serve: impl Fn(TcpStream, OwnedSemaphorePermit),
) {
    let permits = Arc::new(Semaphore::new(connections_max));
    let accept = async {
        loop {
            let permit = Arc::clone(&permits).acquire_owned().await.expect("the semaphore is never closed");
            match listener.accept().await {
                Ok((stream, _)) => {
                    // Answers are small and complete; waiting to fill a segment only delays them.
                    if let Err(error) = stream.set_nodelay(true) {
                        debug!(%error, "connection was gone before it was served");
                        continue;
                    }
                    serve(stream, permit);
                }
                Err(error) if is_exhaustion(&error) => {
                    warn!(%error, "accepting pauses");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => debug!(%error, "a connection failed while it was accepted"),
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = accept => {}
    }
}

/// True where the next attempt fails too until something is freed.
fn is_exhaustion(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::{io::AsyncReadExt as _, sync::mpsc};

    use super::*;

    #[tokio::test]
    async fn a_connection_beyond_the_limit_waits_until_another_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let (accepted, mut seen) = mpsc::channel(8);
        let served = RefCell::new(Vec::new());
        let test = async {
            let mut first = TcpStream::connect(address).await.unwrap();
            let _second = TcpStream::connect(address).await.unwrap();
            seen.recv().await.unwrap();
            assert!(seen.try_recv().is_err(), "the second has to wait");

            served.borrow_mut().clear();
            seen.recv().await.unwrap();
            assert_eq!(first.read(&mut [0]).await.unwrap(), 0, "the first has ended");
            stop.cancel();
        };

        tokio::join!(
            run(listener, 1, &stop, |stream, permit| {
                served.borrow_mut().push((stream, permit));
                accepted.try_send(()).unwrap();
            }),
            test
        );
    }

    #[test]
    fn running_out_of_descriptors_is_told_from_a_failed_connection() {
        assert!(is_exhaustion(&io::Error::from_raw_os_error(Errno::MFILE.raw_os_error())));
        assert!(!is_exhaustion(&io::Error::from_raw_os_error(Errno::CONNABORTED.raw_os_error())));
        assert!(!is_exhaustion(&io::Error::other("nothing of the system")));
    }
}
