//! Connections to every address behind the registry's name. A dead one is dropped, and the name is asked again.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use http::Uri;
use parking_lot::Mutex;
use tokio::{net::lookup_host, time::Instant};
use tonic::transport::{Channel, Endpoint};

/// How long a connection may take. A registry on the same network answers in milliseconds.
const CONNECT_TIME_MAX: Duration = Duration::from_millis(900);

/// A dead connection is noticed after this long without an answer to a ping.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// How long the addresses of a name are believed: new replicas are seen after it, and dead ones are dropped when they fail.
const ADDRESSES_KEPT: Duration = Duration::from_secs(30);

/// Most addresses used of one name.
const ADDRESSES_MAX: usize = 32;

/// Connections to one registry, by address. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    uri: Uri,
    port: u16,
    members: Arc<Mutex<Members>>,
}

/// One connection, and the address it leads to.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) address: SocketAddr,
    pub(super) channel: Channel,
}

#[derive(Debug, Default)]
struct Members {
    list: Vec<Member>,
    next: usize,
    resolved: Option<Instant>,
}

impl Pool {
    /// `None` where the text is no `http` URL with a host.
    pub(super) fn new(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let is_plain = uri.scheme_str() == Some("http") && uri.host().is_some();
        let port = uri.port_u16().unwrap_or(80);
        is_plain.then(|| Self { uri, port, members: Arc::default() })
    }

    /// The next connection in turn.
    pub(super) async fn next(&self) -> io::Result<Member> {
        let is_fresh = {
            let members = self.members.lock();
            !members.list.is_empty() && members.resolved.is_some_and(|at| at.elapsed() < ADDRESSES_KEPT)
        };
        if !is_fresh {
            self.resolve().await?;
        }
        let mut members = self.members.lock();
        members.next = members.next.wrapping_add(1);
        let count = members.list.len();
        let index = members.next.checked_rem(count);
        index
            .and_then(|index| members.list.get(index).cloned())
            .ok_or_else(|| io::Error::other("the registry's name has no address"))
    }

    /// Forgets a connection that failed. The name is asked again when none is left.
    pub(super) fn drop_member(&self, address: SocketAddr) {
        self.members.lock().list.retain(|member| member.address != address);
    }

    /// Asks the name. Connections to addresses that are still there stay.
    async fn resolve(&self) -> io::Result<()> {
        let host = self.uri.host().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let addresses: Vec<SocketAddr> = lookup_host((bare, self.port)).await?.take(ADDRESSES_MAX).collect();
        let mut members = self.members.lock();
        members.list.retain(|member| addresses.contains(&member.address));
        for address in addresses {
            if members.list.iter().all(|member| member.address != address) {
                let channel = self.connect(address)?;
                members.list.push(Member { address, channel });
            }
        }
        members.resolved = Some(Instant::now());
        Ok(())
    }

    /// A connection that is made when it is first used.
    fn connect(&self, address: SocketAddr) -> io::Result<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(io::Error::other)?;
        Ok(endpoint
            // The name that was configured, whatever the address behind it.
            .origin(self.uri.clone())
            .connect_timeout(CONNECT_TIME_MAX)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .tcp_nodelay(true)
            .connect_lazy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_host_and_a_port() {
        for (url, is_usable) in [
            ("http://127.0.0.1:7401", true),
            ("http://registry", true),
            ("http://[::1]:7401", true),
            ("registry:7401", false),
            ("/registry", false),
            ("", false),
        ] {
            assert_eq!(Pool::new(url).is_some(), is_usable, "{url}");
        }
    }

    #[tokio::test]
    async fn a_dropped_connection_is_made_anew() {
        let pool = Pool::new("http://127.0.0.1:1").unwrap();
        let member = pool.next().await.unwrap();

        pool.drop_member(member.address);

        assert!(pool.members.lock().list.is_empty());
        assert_eq!(pool.next().await.unwrap().address, member.address);
    }
}
