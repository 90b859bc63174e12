//! A network that fails on demand: a proxy between a client and a server.
//!
//! Each fault is for one request, the next one that is sent, or the next one that contains
//! given bytes. Everything else passes as it is.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// How bytes on the wire become messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wire {
    /// HTTP/1.1: a head, and a body of its length.
    Http,
    /// Redis' own: one value, in RESP 2 or 3.
    Redis,
}

/// What happens to one request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault {
    /// It arrives, and is answered, only after this long.
    Delay(Duration),
    /// It never arrives, and the client hears nothing.
    LoseRequest,
    /// It is applied, and the client hears nothing.
    LoseReply,
    /// It never arrives, and the connection breaks.
    CutBefore,
    /// It is applied, and the connection breaks.
    CutAfter,
    /// It arrives twice, one after the other; the client hears the first answer.
    Double,
    #[doc(hidden)]
    Hold(Holding),
}

/// A request that is kept back, until the test lets it go.
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

/// A proxy on a port of its own, until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    upstream: SocketAddr,
    wire: Wire,
    rewrite: Rewrite,
    faults: Mutex<VecDeque<(Vec<u8>, Fault)>>,
    delay: Mutex<Duration>,
    requests: Mutex<Vec<Vec<u8>>>,
    closed: watch::Sender<bool>,
}

impl Proxy {
    /// Passes everything on to `upstream`.
    ///
    /// # Errors
    ///
    /// Where no port is free.
    pub async fn start(upstream: SocketAddr, wire: Wire) -> io::Result<Self> {
        Self::start_rewriting(upstream, wire, |reply| reply).await
    }

    /// Passes everything on to `upstream`, and each answer through `rewrite`.
    ///
    /// # Errors
    ///
    /// Where no port is free.
    pub async fn start_rewriting(
        upstream: SocketAddr,
        wire: Wire,
        rewrite: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream,
            wire,
            rewrite: Box::new(rewrite),
            faults: Mutex::default(),
            delay: Mutex::default(),
            requests: Mutex::default(),
            closed: watch::Sender::new(false),
        });
        let serving = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                tokio::spawn(async move {
                    let mut closed = shared.closed.subscribe();
                    tokio::select! {
                        biased;
                        _ = closed.wait_for(|closed| *closed) => (),
                        // A connection that fails is what a proxy is for.
                        _ = shared.serve(client) => (),
                    }
                });
            }
        });
        Ok(Self { address, shared, accepting })
    }

    /// Where to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Does `fault` to the next request.
    pub fn next(&self, fault: Fault) {
        self.next_with("", fault);
    }

    /// Does `fault` to the next request that contains `text`.
    pub fn next_with(&self, text: &str, fault: Fault) {
        self.shared.faults().push_back((text.as_bytes().to_owned(), fault));
    }

    /// Keeps the next request back that contains `text`. It is delivered when the test says
    /// so, also if the client has long given up.
    pub fn hold_next_with(&self, text: &str) -> Held {
        let (arrived, has_arrived) = oneshot::channel();
        let (let_go, deliver) = oneshot::channel();
        let (delivered, was_delivered) = oneshot::channel();
        self.next_with(text, Fault::Hold(Holding { arrived, deliver, delivered }));
        Held { arrived: has_arrived, deliver: let_go, delivered: was_delivered }
    }

    /// Delays every request by `delay` from now on.
    pub fn set_delay(&self, delay: Duration) {
        *self.shared.delay.lock().unwrap_or_else(PoisonError::into_inner) = delay;
    }

    /// How many requests that contain `text` were sent so far, lost ones included.
    pub fn requests_with(&self, text: &str) -> usize {
        let requests = self.shared.requests();
        let with = requests.iter().filter(|one| contains(one, text.as_bytes()));
        with.count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.shared.closed.send_replace(true);
    }
}

impl Held {
    /// Completes once the request is in the proxy's hands.
    ///
    /// # Panics
    ///
    /// Where no such request came and the proxy is gone.
    pub async fn arrived(&mut self) {
        (&mut self.arrived).await.expect("a request to hold");
    }

    /// Delivers the request, and completes once the server has answered it.
    ///
    /// # Panics
    ///
    /// Where the server did not answer.
    pub async fn deliver(self) {
        self.deliver.send(()).expect("the request is still held");
        self.delivered.await.expect("the server's answer");
    }
}

impl Shared {
    async fn serve(self: &Arc<Self>, mut client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let mut server = Connection::open(self.upstream, self.wire).await?;
        let mut from_client = Vec::new();
        loop {
            let request = self.wire.read(&mut client, &mut from_client).await?;
            self.requests().push(request.clone());
            let delay = *self.delay.lock().unwrap_or_else(PoisonError::into_inner);
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            let reply = match self.fault_for(&request) {
                None => server.exchange(&request).await?,
                Some(Fault::Delay(delay)) => {
                    tokio::time::sleep(delay).await;
                    server.exchange(&request).await?
                }
                Some(Fault::LoseRequest) => return silence(&mut client).await,
                Some(Fault::LoseReply) => {
                    server.exchange(&request).await?;
                    return silence(&mut client).await;
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
            client.write_all(&(self.rewrite)(reply)).await?;
        }
    }

    /// Delivers on a connection and a task of its own: the client may hang up meanwhile.
    async fn hold(&self, request: Vec<u8>, holding: Holding) -> io::Result<Vec<u8>> {
        let (upstream, wire) = (self.upstream, self.wire);
        let delivery = tokio::spawn(async move {
            // Who does not wait for it need not hear of it.
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
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn faults(&self) -> MutexGuard<'_, VecDeque<(Vec<u8>, Fault)>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Says nothing until the client hangs up.
async fn silence(client: &mut TcpStream) -> io::Result<()> {
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

    async fn exchange(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.stream.write_all(request).await?;
        self.wire.read(&mut self.stream, &mut self.read).await
    }
}

impl Wire {
    /// The next whole message; what was read beyond it stays in `read`.
    async fn read(self, stream: &mut TcpStream, read: &mut Vec<u8>) -> io::Result<Vec<u8>> {
        loop {
            let length = match self {
                Self::Redis => redis_value(read),
                Self::Http => http_message(read),
            };
            if let Some(length) = length {
                let rest = read.split_off(length);
                return Ok(std::mem::replace(read, rest));
            }
            if stream.read_buf(read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// The length of the message at the start of `read`, once all of it is there.
fn http_message(read: &[u8]) -> Option<usize> {
    let head = find(read, b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(read.get(..head)?).to_ascii_lowercase();
    let header = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    if header("transfer-encoding") == Some("chunked") {
        return find(read.get(head..)?, b"0\r\n\r\n").map(|end| head + end + 5);
    }
    let body: usize = header("content-length").map_or(Some(0), |length| length.parse().ok())?;
    (read.len() >= head + body).then_some(head + body)
}

/// The length of the value at the start of `read`, once all of it is there.
fn redis_value(read: &[u8]) -> Option<usize> {
    let head = find(read, b"\r\n")? + 2;
    let (kind, count) = read.get(..head - 2)?.split_first()?;
    let count: usize = match kind {
        b'$' | b'!' | b'=' | b'*' | b'~' | b'>' | b'%' => {
            // Below zero: there is none.
            let count = String::from_utf8_lossy(count).parse::<i64>().ok()?;
            let Ok(count) = count.try_into() else { return Some(head) };
            count
        }
        _ => return Some(head),
    };
    let items = match kind {
        b'$' | b'!' | b'=' => {
            let whole = head + count + 2;
            return (read.len() >= whole).then_some(whole);
        }
        b'%' => 2 * count,
        _ => count,
    };
    (0..items).try_fold(head, |at, _| Some(at + redis_value(read.get(at..)?)?))
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    find(bytes, text).is_some()
}

fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    if text.is_empty() {
        return Some(0);
    }
    bytes.windows(text.len()).position(|window| window == text)
}
