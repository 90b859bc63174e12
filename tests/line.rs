//! A line to a server that can be held, and cut: a network that is partitioned, and heals.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// A line to a server, until it is dropped; then connecting to it is refused.
#[derive(Debug)]
pub struct Line {
    address: SocketAddr,
    state: watch::Sender<State>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Whole,
    Held,
    Cut,
}

impl Line {
    /// Passes everything on to `server`.
    ///
    /// # Errors
    ///
    /// Where no port is free.
    pub async fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (state, states) = watch::channel(State::Whole);
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(connect(client, server, states.clone()));
            }
        });
        Ok(Self { address, state, accepting })
    }

    /// Its URL for Redis.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Keeps back what is sent either way, and new connections, until it is [mended](Self::mend).
    pub fn hold(&self) {
        self.state.send_replace(State::Held);
    }

    /// Breaks every connection, with what is on its way, and closes new ones at once.
    pub fn cut(&self) {
        self.state.send_replace(State::Cut);
    }

    /// Passes on again: what was held, and new connections.
    pub fn mend(&self) {
        self.state.send_replace(State::Whole);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn connect(client: TcpStream, server: SocketAddr, states: watch::Receiver<State>) {
    let mut cut = states.clone();
    tokio::select! {
        biased;
        _ = cut.wait_for(|state| *state == State::Cut) => (),
        () = carry(client, server, states) => (),
    }
}

async fn carry(client: TcpStream, server: SocketAddr, mut states: watch::Receiver<State>) {
    if states.wait_for(|state| *state != State::Held).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    // Either may have been closed already; then there is nothing to hurry.
    drop((client.set_nodelay(true), server.set_nodelay(true)));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        one_way(from_client, to_server, states.clone()),
        one_way(from_server, to_client, states)
    );
}

/// Ends, and closes the other side, when this side is closed.
async fn one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut states: watch::Receiver<State>,
) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        let piece = bytes.get(..length).unwrap_or_default();
        let passes = states.wait_for(|state| *state != State::Held).await.is_ok();
        if !passes || to.write_all(piece).await.is_err() {
            return;
        }
    }
    drop(to.shutdown().await);
}
