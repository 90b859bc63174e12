//! A proxy that parses requests, and makes single requests fail.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::select;
use tokio::sync::oneshot;

use super::listener::Listener;
use super::wire::{Wire, contains};
use crate::sync::lock;

/// The fault of one request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The request reaches the server after this delay.
    Delay(Duration),
    /// The request never reaches the server, and the client gets no reply.
    LoseRequest,
    /// The server applies the request, and the client gets no reply.
    LoseReply,
    /// The request never reaches the server, and the connection breaks.
    CutBefore,
    /// The server applies the request, and the connection breaks.
    CutAfter,
    /// The request reaches the server twice in a row. The client gets the first reply.
    Double,
    #[doc(hidden)]
    Hold(Holding),
}

/// A request that the proxy holds until the test delivers it.
#[derive(Debug)]
pub struct Held {
    arrived: oneshot::Receiver<()>,
    deliver: oneshot::Sender<()>,
    delivered: oneshot::Receiver<()>,
}

/// The proxy's end of a [`Held`].
#[derive(Debug)]
pub struct Holding {
    arrived: oneshot::Sender<()>,
    deliver: oneshot::Receiver<()>,
    delivered: oneshot::Sender<()>,
}

type Rewrite = Box<dyn Fn(Vec<u8>) -> Vec<u8> + Send + Sync>;

/// A proxy on a free port. A drop closes the port and its connections.
///
/// A fault affects only the next request, or the next request with given bytes. Other requests pass
/// unchanged, one at a time per connection. For pipelined requests, use a [`Link`](super::Link).
/// Messages that a Redis server publishes pass at once.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    listener: Listener,
}

struct Shared {
    upstream: SocketAddr,
    wire: Wire,
    rewrite: Rewrite,
    faults: Mutex<VecDeque<(Vec<u8>, Fault)>>,
    delay: Mutex<Duration>,
    requests: Mutex<Vec<Vec<u8>>>,
}

impl Proxy {
    /// Forwards all requests to `upstream`.
    ///
    /// # Errors
    ///
    /// Fails if no port is free.
    pub async fn start(upstream: SocketAddr, wire: Wire) -> io::Result<Self> {
        Self::start_rewriting(upstream, wire, |reply| reply).await
    }

    /// Forwards all requests to `upstream`, and changes each reply by `rewrite`.
    ///
    /// # Errors
    ///
    /// Fails if no port is free.
    pub async fn start_rewriting(
        upstream: SocketAddr,
        wire: Wire,
        rewrite: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            upstream,
            wire,
            rewrite: Box::new(rewrite),
            faults: Mutex::default(),
            delay: Mutex::default(),
            requests: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        let listener = Listener::start(move |client| {
            let shared = Arc::clone(&serving);
            // An error ends the connection, as without a proxy.
            async move { drop(shared.serve(client).await) }
        });
        Ok(Self { shared, listener: listener.await? })
    }

    /// The address to which clients connect.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Applies `fault` to the next request.
    pub fn next(&self, fault: Fault) {
        self.next_with("", fault);
    }

    /// Applies `fault` to the next request that contains `text`.
    pub fn next_with(&self, text: &str, fault: Fault) {
        self.shared.faults().push_back((text.as_bytes().to_owned(), fault));
    }

    /// Holds the next request that contains `text`. [`Held::deliver`] delivers the request, even if
    /// the client has disconnected.
    pub fn hold_next_with(&self, text: &str) -> Held {
        let (arrived, has_arrived) = oneshot::channel();
        let (let_go, deliver) = oneshot::channel();
        let (delivered, was_delivered) = oneshot::channel();
        self.next_with(text, Fault::Hold(Holding { arrived, deliver, delivered }));
        Held { arrived: has_arrived, deliver: let_go, delivered: was_delivered }
    }

    /// Delays every request by `delay` from now on.
    pub fn set_delay(&self, delay: Duration) {
        *lock(&self.shared.delay) = delay;
    }

    /// Returns the number of requests with `text` that clients have sent so far, including lost
    /// requests.
    pub fn requests_with(&self, text: &str) -> usize {
        let requests = self.shared.requests();
        let with = requests.iter().filter(|one| contains(one, text.as_bytes()));
        with.count()
    }
}

impl Held {
    /// Waits until the proxy has the request.
    ///
    /// # Panics
    ///
    /// Panics if the proxy is dropped before the request arrives.
    pub async fn arrived(&mut self) {
        (&mut self.arrived).await.expect("a request to hold");
    }

    /// Delivers the request, and waits for the server's reply.
    ///
    /// # Panics
    ///
    /// Panics if the server does not reply.
    pub async fn deliver(self) {
        self.deliver.send(()).expect("the proxy still has the request");
        self.delivered.await.expect("a reply of the server");
    }
}

impl Shared {
    async fn serve(self: &Arc<Self>, mut client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let (mut from, mut to) = client.split();
        let mut server = Connection::open(self.upstream, self.wire).await?;
        let mut from_client = Vec::new();
        loop {
            let request = self.wire.read_request(&mut from, &mut from_client);
            let request = server.forward_until(request, &mut to).await?;
            self.requests().push(request.clone());
            let delay = *lock(&self.delay);
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            let reply = match self.fault_for(&request) {
                None => server.exchange(&request).await?,
                Some(Fault::Delay(delay)) => {
                    tokio::time::sleep(delay).await;
                    server.exchange(&request).await?
                }
                Some(Fault::LoseRequest) => return silence(&mut from).await,
                Some(Fault::LoseReply) => {
                    server.exchange(&request).await?;
                    return silence(&mut from).await;
                }
                Some(Fault::CutBefore) => return Ok(()),
                Some(Fault::CutAfter) => {
                    server.exchange(&request).await?;
                    return Ok(());
                }
                Some(Fault::Double) => {
                    let first = server.exchange(&request).await?;
                    server.exchange(&request).await?;
                    first
                }
                Some(Fault::Hold(holding)) => self.hold(request, holding).await?,
            };
            to.write_all(&(self.rewrite)(reply)).await?;
        }
    }

    /// The client may disconnect earlier, so a separate connection and task deliver the request.
    async fn hold(&self, request: Vec<u8>, holding: Holding) -> io::Result<Vec<u8>> {
        let (upstream, wire) = (self.upstream, self.wire);
        let delivery = tokio::spawn(async move {
            // An error means that the test does not wait for the request.
            let _ = holding.arrived.send(());
            if holding.deliver.await.is_err() {
                return Err(io::Error::other("the test dropped the request"));
            }
            let reply = Connection::open(upstream, wire).await?.exchange(&request).await?;
            let _ = holding.delivered.send(());
            Ok(reply)
        });
        delivery.await.map_err(io::Error::other)?
    }

    fn fault_for(&self, request: &[u8]) -> Option<Fault> {
        let mut faults = self.faults();
        let place = faults.iter().position(|(text, _)| contains(request, text))?;
        faults.remove(place).map(|(_, fault)| fault)
    }

    fn requests(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        lock(&self.requests)
    }

    fn faults(&self) -> MutexGuard<'_, VecDeque<(Vec<u8>, Fault)>> {
        lock(&self.faults)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("upstream", &self.upstream)
            .field("faults", &self.faults())
            .finish_non_exhaustive()
    }
}

async fn silence(client: &mut ReadHalf<'_>) -> io::Result<()> {
    let mut ignored = [0; 1024];
    while client.read(&mut ignored).await? > 0 {}
    Ok(())
}

struct Connection {
    stream: TcpStream,
    wire: Wire,
    read: Vec<u8>,
}

impl Connection {
    async fn open(server: SocketAddr, wire: Wire) -> io::Result<Self> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, wire, read: Vec::new() })
    }

    /// Forwards the messages that the server publishes, until the client sends a request.
    async fn forward_until(
        &mut self,
        request: impl Future<Output = io::Result<Vec<u8>>>,
        client: &mut WriteHalf<'_>,
    ) -> io::Result<Vec<u8>> {
        let mut request = pin!(request);
        let mut publishes = self.wire == Wire::Redis;
        loop {
            select! {
                // Polls the request first, since the parser may read its reply afterwards.
                biased;
                request = &mut request => return request,
                message = self.wire.read(&mut self.stream, &mut self.read), if publishes => {
                    match message {
                        Ok(message) => client.write_all(&message).await?,
                        // The next request finds the connection closed.
                        Err(_closed) => publishes = false,
                    }
                }
            }
        }
    }

    async fn exchange(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.stream.write_all(request).await?;
        self.wire.read_reply(request, &mut self.stream, &mut self.read).await
    }
}
