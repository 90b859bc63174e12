//! The network between a client and a server.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_timer::Delay;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

use super::listener::Listener;

/// A port that leads to a server. A drop closes the port and its connections.
///
/// A link handles bytes, not requests. So a fault may occur within a request, and requests may be
/// pipelined.
#[derive(Debug)]
pub struct Link {
    state: watch::Sender<State>,
    listener: Listener,
}

/// The flow of bytes in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flow {
    /// Bytes arrive at once.
    Free,
    /// Bytes arrive this much later, in order.
    Delayed(Duration),
    /// Bytes wait until the flow changes. Afterwards they arrive, even if the client has
    /// disconnected.
    Held,
}

#[derive(Debug, Clone, Copy)]
struct State {
    server: SocketAddr,
    requests: Flow,
    replies: Flow,
    is_down: bool,
    cuts: u64,
}

impl Link {
    /// Starts a link that forwards all bytes to `server` at once.
    ///
    /// # Errors
    ///
    /// Fails if no port is free.
    pub async fn start(server: SocketAddr) -> io::Result<Self> {
        Self::with_flow(server, Flow::Free).await
    }

    /// Starts a link on which a round trip to `server` takes `round_trip` longer.
    ///
    /// # Errors
    ///
    /// Fails if no port is free.
    pub async fn with_latency(server: SocketAddr, round_trip: Duration) -> io::Result<Self> {
        Self::with_flow(server, Flow::Delayed(round_trip / 2)).await
    }

    async fn with_flow(server: SocketAddr, flow: Flow) -> io::Result<Self> {
        let state = State { server, requests: flow, replies: flow, is_down: false, cuts: 0 };
        let (state, states) = watch::channel(state);
        let listener = Listener::start(move |client| connect(client, states.clone()));
        Ok(Self { state, listener: listener.await? })
    }

    /// The address to which clients connect.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// The address as a URL of Redis.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Lets new connections lead to `server`, like a name whose address changes.
    pub fn lead_to(&self, server: SocketAddr) {
        self.state.send_modify(|state| state.server = server);
    }

    /// Changes how bytes flow from clients to the server.
    pub fn set_requests(&self, flow: Flow) {
        self.state.send_modify(|state| state.requests = flow);
    }

    /// Changes how bytes flow from the server to clients.
    pub fn set_replies(&self, flow: Flow) {
        self.state.send_modify(|state| state.replies = flow);
    }

    /// Holds bytes in both directions, and new connections.
    pub fn hold(&self) {
        self.state.send_modify(|state| (state.requests, state.replies) = (Flow::Held, Flow::Held));
    }

    /// Breaks all connections, drops the bytes that have not arrived, and closes new connections at
    /// once.
    pub fn cut(&self) {
        self.state.send_modify(|state| {
            state.is_down = true;
            state.cuts += 1;
        });
    }

    /// Lets bytes and new connections pass again. Held bytes arrive.
    pub fn heal(&self) {
        self.state.send_modify(|state| {
            (state.requests, state.replies) = (Flow::Free, Flow::Free);
            state.is_down = false;
        });
    }

    /// Lets new connections pass again. Held bytes are lost, with their connections.
    pub fn heal_with_loss(&self) {
        self.state.send_modify(|state| state.cuts += 1);
        self.heal();
    }
}

async fn connect(client: TcpStream, states: watch::Receiver<State>) {
    let State { server, is_down, cuts, .. } = *states.borrow();
    if is_down {
        return;
    }
    let mut cut = states.clone();
    tokio::select! {
        // Polls the cut first: after a cut, no byte passes.
        biased;
        _ = cut.wait_for(|state| state.cuts != cuts) => (),
        () = carry(client, server, states) => (),
    }
}

async fn carry(client: TcpStream, server: SocketAddr, mut states: watch::Receiver<State>) {
    if states.wait_for(|state| state.requests != Flow::Held).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    // Each call fails if its connection is already closed.
    drop((client.set_nodelay(true), server.set_nodelay(true)));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // Waits for both directions, since bytes that a client sent still arrive after a disconnect.
    tokio::join!(
        one_way(from_client, to_server, states.clone(), |state| state.requests),
        one_way(from_server, to_client, states, |state| state.replies)
    );
}

/// Closes the receiver's connection once the sender has closed its own.
async fn one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut states: watch::Receiver<State>,
    flow: fn(&State) -> Flow,
) {
    let (sent, mut on_the_way) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let changes = states.clone();
    let receive = async move {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut bytes).await {
            let delay = match flow(&changes.borrow()) {
                Flow::Delayed(delay) => delay,
                Flow::Free | Flow::Held => Duration::ZERO,
            };
            let piece = bytes.get(..length).unwrap_or_default().to_vec();
            if sent.send((now() + delay, piece)).is_err() {
                return;
            }
        }
    };
    let deliver = async move {
        while let Some((arrival, piece)) = on_the_way.recv().await {
            let rest = arrival.saturating_duration_since(now());
            if !rest.is_zero() {
                // A timer of tokio would fire up to two milliseconds later.
                Delay::new(rest).await;
            }
            let passes = states.wait_for(|state| flow(state) != Flow::Held).await.is_ok();
            if !passes || to.write_all(&piece).await.is_err() {
                return;
            }
        }
        // While bytes are held, the link also holds the end of the connection.
        drop(states.wait_for(|state| flow(state) != Flow::Held).await);
        drop(to.shutdown().await);
    };
    tokio::join!(receive, deliver);
}

#[expect(clippy::disallowed_methods, reason = "a network delays by the machine's time")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn link_to_echo() -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    drop(tokio::io::copy(&mut from, &mut to).await);
                });
            }
        });
        Link::start(address).await.unwrap()
    }

    async fn echoed(stream: &mut TcpStream, text: &[u8]) -> io::Result<Vec<u8>> {
        stream.write_all(text).await?;
        let mut answer = vec![0; text.len()];
        stream.read_exact(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn held_bytes_arrive_after_heal() {
        let link = link_to_echo().await;
        let mut client = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(echoed(&mut client, b"one").await.unwrap(), b"one");

        link.set_replies(Flow::Held);
        let waiting = tokio::spawn(async move { echoed(&mut client, b"two").await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        link.heal();

        assert_eq!(waiting.await.unwrap().unwrap(), b"two");
    }

    #[tokio::test]
    async fn cut_link_breaks_connections_until_heal() {
        let link = link_to_echo().await;
        let mut client = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(echoed(&mut client, b"one").await.unwrap(), b"one");

        link.cut();
        assert!(echoed(&mut client, b"two").await.is_err());
        let mut refused = TcpStream::connect(link.address()).await.unwrap();
        assert!(echoed(&mut refused, b"three").await.is_err());

        link.heal();
        let mut client = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(echoed(&mut client, b"four").await.unwrap(), b"four");
    }

    #[tokio::test]
    async fn held_bytes_are_lost_with_their_connection() {
        let link = link_to_echo().await;
        let mut client = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(echoed(&mut client, b"one").await.unwrap(), b"one");

        link.hold();
        client.write_all(b"lost").await.unwrap();
        link.heal_with_loss();

        assert!(echoed(&mut client, b"more").await.is_err());
    }
}
