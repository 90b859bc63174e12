//! A network that takes its time: what is sent arrives later, in order, and nothing waits for an
//! answer. Unlike [`Proxy`](crate::proxy::Proxy), it lets requests be pipelined.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_timer::Delay;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

/// A way to a server that takes half of a round trip each way, until it is dropped.
#[derive(Debug)]
pub struct Latency {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Latency {
    /// Passes everything on to `upstream`, so that a round trip takes `round_trip` longer.
    ///
    /// # Errors
    ///
    /// Where no port is free.
    pub async fn start(upstream: SocketAddr, round_trip: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(carry(client, upstream, round_trip / 2));
            }
        });
        Ok(Self { address, accepting })
    }

    /// Where to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Latency {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn carry(client: TcpStream, upstream: SocketAddr, delay: Duration) {
    let Ok(server) = TcpStream::connect(upstream).await else { return };
    // Either may have been closed already; then there is nothing to hurry.
    drop((client.set_nodelay(true), server.set_nodelay(true)));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(one_way(from_client, to_server, delay), one_way(from_server, to_client, delay));
}

/// Ends, and closes the other side, when this side is closed.
async fn one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    delay: Duration,
) {
    let (sent, mut on_the_way) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let receive = async move {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut bytes).await {
            let piece = bytes.get(..length).unwrap_or_default().to_vec();
            if sent.send((now() + delay, piece)).is_err() {
                return;
            }
        }
    };
    let deliver = async move {
        while let Some((arrives, piece)) = on_the_way.recv().await {
            // By tokio's clock, it would come up to two milliseconds later.
            Delay::new(arrives.saturating_duration_since(now())).await;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
        drop(to.shutdown().await);
    };
    tokio::join!(receive, deliver);
}

#[expect(clippy::disallowed_methods, reason = "a network has a clock of its own")]
fn now() -> Instant {
    Instant::now()
}
