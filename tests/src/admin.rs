//! What a service says on its admin port.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// The whole answer to a GET, its head included.
pub async fn get(admin: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(admin).await.expect("the admin port answers");
    let request = format!("GET {path} HTTP/1.1\r\nHost: roster\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("the admin port answers");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("the admin port answers");
    response
}

/// One value of `/metrics`; nothing where nobody has measured it yet.
pub async fn metric(admin: SocketAddr, name: &str) -> Option<f64> {
    let metrics = get(admin, "/metrics").await;
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(value.parse().expect("a number"))
}
