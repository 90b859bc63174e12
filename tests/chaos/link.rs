//! The network between one worker and one server: cut, slow, or keeping back what it was given.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::select;
use tokio::sync::watch;
use tokio::time::sleep;

/// A port of its own that leads to a server, as long as the process lasts.
///
/// Knows bytes only: a fault may hit in the middle of a request.
#[derive(Debug)]
pub(crate) struct Link {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
}

/// How one direction flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Free,
    Slow(Duration),
    /// Kept until it flows again: the client may long have given up, and what it sent arrives
    /// all the same.
    Held,
}

#[derive(Debug, Clone, Copy)]
struct Weather {
    requests: Flow,
    replies: Flow,
    /// Connections are refused.
    down: bool,
    /// How often all connections were cut.
    cuts: u64,
}

impl Link {
    /// # Errors
    ///
    /// Where no port is free.
    pub(crate) async fn to(server: SocketAddr) -> io::Result<Arc<Self>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let fair = Weather { requests: Flow::Free, replies: Flow::Free, down: false, cuts: 0 };
        let weather = watch::Sender::new(fair);
        let link = Self { address: listener.local_addr()?, weather: weather.clone() };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let weather = weather.subscribe();
                if !weather.borrow().down {
                    // A connection that fails is what a link is for.
                    tokio::spawn(async move { drop(pass(client, server, weather).await) });
                }
            }
        });
        Ok(Arc::new(link))
    }

    /// Where a worker connects to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks all connections, and refuses new ones until [`heal`](Self::heal).
    pub(crate) fn cut(&self) {
        self.weather.send_modify(|weather| {
            weather.down = true;
            weather.cuts += 1;
        });
    }

    pub(crate) fn set_requests(&self, flow: Flow) {
        self.weather.send_modify(|weather| weather.requests = flow);
    }

    pub(crate) fn set_replies(&self, flow: Flow) {
        self.weather.send_modify(|weather| weather.replies = flow);
    }

    /// Everything flows again, what was held first.
    pub(crate) fn heal(&self) {
        self.weather.send_modify(|weather| {
            weather.requests = Flow::Free;
            weather.replies = Flow::Free;
            weather.down = false;
        });
    }

    /// Everything flows again, but what was held is lost, with its connection.
    pub(crate) fn heal_with_loss(&self) {
        self.weather.send_modify(|weather| weather.cuts += 1);
        self.heal();
    }
}

async fn pass(
    client: TcpStream,
    server: SocketAddr,
    weather: watch::Receiver<Weather>,
) -> io::Result<()> {
    let cuts = weather.borrow().cuts;
    let mut cut = weather.clone();
    client.set_nodelay(true)?;
    let server = TcpStream::connect(server).await?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let requests = pump(from_client, to_server, weather.clone(), |weather| weather.requests);
    let replies = pump(from_server, to_client, weather, |weather| weather.replies);
    select! {
        // A cut comes first: nothing passes after it.
        biased;
        _ = cut.wait_for(|weather| weather.cuts != cuts) => Ok(()),
        // Both, not either: a client that hangs up has not taken back what it sent.
        (requests, replies) = async { tokio::join!(requests, replies) } => requests.and(replies),
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin + Send,
    mut to: impl AsyncWrite + Unpin + Send,
    mut weather: watch::Receiver<Weather>,
    flow: impl Fn(&Weather) -> Flow + Send + Sync,
) -> io::Result<()> {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let count = from.read(&mut bytes).await?;
        let now = flow(&weather.borrow());
        match now {
            Flow::Free => (),
            Flow::Slow(delay) => sleep(delay).await,
            Flow::Held => {
                // The sender lives as long as the process.
                drop(weather.wait_for(|weather| flow(weather) != Flow::Held).await);
            }
        }
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(bytes.get(..count).unwrap_or_default()).await?;
    }
}
