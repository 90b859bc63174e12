//! DynamoDB servers for tests, and clients of them.

use std::fmt;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{
    BehaviorVersion, Builder, ConfigBag, Credentials, Intercept, Region, RuntimeComponents,
};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::port::free_port;
use crate::proxy::{Proxy, Wire};
use crate::tools::process::Process;
use crate::tools::tool;

/// A DynamoDB server. A drop stops the server, unless the server ran before the test.
pub struct Server {
    /// The server's name, for messages.
    pub name: &'static str,
    address: Option<SocketAddr>,
    /// The table that all tests share, on a server that ran before the tests.
    table: Option<String>,
    database: Option<dynoxide::Database>,
    _running: Running,
}

#[derive(Debug)]
#[expect(dead_code, reason = "dropping it stops the server")]
enum Running {
    Elsewhere,
    InProcess(oneshot::Sender<()>),
    Process(Process),
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.name)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Starts dynoxide, a DynamoDB in this process, on a free port.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub async fn dynoxide() -> Self {
        let database = dynoxide::Database::memory().expect("a database in memory");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(dynoxide::server::serve_with_shutdown(listener, database.clone(), async {
            // An error means that the sender was dropped with the server.
            let _ = stopped.await;
        }));
        Self {
            name: "dynoxide",
            address: Some(address),
            table: None,
            database: Some(database),
            _running: Running::InProcess(stop),
        }
    }

    /// Starts dynoxide and, if they are installed, `ministack` and `dynalite`. If
    /// `LEASE_DYNAMODB_ENDPOINT` is set, returns only the server of this variable.
    ///
    /// # Panics
    ///
    /// Panics if a server does not start, or is missing while `LEASE_TEST_REQUIRE_ALL` is set.
    pub async fn all() -> Vec<Self> {
        if let Some(elsewhere) = Self::from_environment() {
            return vec![elsewhere];
        }
        let mut servers = vec![Self::dynoxide().await];
        servers.extend(Self::others().await);
        servers
    }

    /// Starts all servers except dynoxide, as [`all`](Self::all) does.
    ///
    /// # Panics
    ///
    /// Panics as [`all`](Self::all) does.
    pub async fn others() -> Vec<Self> {
        if let Some(elsewhere) = Self::from_environment() {
            return vec![elsewhere];
        }
        let ministack = Self::ministack().await;
        let dynalite = Self::dynalite().await;
        ministack.into_iter().chain(dynalite).collect()
    }

    /// Starts ministack. Its writes are atomic, and its refusals contain the item.
    ///
    /// # Panics
    ///
    /// Panics as [`all`](Self::all) does.
    pub async fn ministack() -> Option<Self> {
        let program = tool("ministack", &["bin/ministack"])?;
        let port = free_port();
        let mut command = Command::new(program);
        command.envs([
            ("BIND_HOST", "127.0.0.1"),
            ("SERVICES", "dynamodb"),
            ("SFTP_ENABLED", "0"),
            ("IOT_MTLS_ENABLED", "0"),
        ]);
        command.env("GATEWAY_PORT", port.to_string());
        Some(Self::process("ministack", command, port).await)
    }

    /// Starts dynalite. Its refusals never contain the item, and it has no TTL.
    ///
    /// # Panics
    ///
    /// Panics as [`all`](Self::all) does.
    pub async fn dynalite() -> Option<Self> {
        let program = tool("dynalite", &["node_modules/.bin/dynalite"])?;
        let port = free_port();
        let mut command = Command::new(program);
        command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["--createTableMs", "0", "--deleteTableMs", "0"]);
        Some(Self::process("dynalite", command, port).await)
    }

    async fn process(name: &'static str, command: Command, port: u16) -> Self {
        let process = Process::listening(command, port).await;
        Self {
            name,
            address: Some(SocketAddr::from(([127, 0, 0, 1], port))),
            table: None,
            database: None,
            _running: Running::Process(process),
        }
    }

    /// The variable is `aws`, or the address of a running server, such as `127.0.0.1:8000`.
    fn from_environment() -> Option<Self> {
        let endpoint = std::env::var("LEASE_DYNAMODB_ENDPOINT").ok()?;
        let table = std::env::var("LEASE_DYNAMODB_TABLE").ok();
        let address = match endpoint.as_str() {
            "aws" => {
                assert!(table.is_some(), "LEASE_DYNAMODB_TABLE names the table to use");
                None
            }
            address => Some(address.parse().expect("an address and port, or aws")),
        };
        Some(Self {
            name: "the server of LEASE_DYNAMODB_ENDPOINT",
            address,
            table,
            database: None,
            _running: Running::Elsewhere,
        })
    }

    /// The server's address.
    ///
    /// # Panics
    ///
    /// Panics if the server is AWS.
    pub fn address(&self) -> SocketAddr {
        self.address.expect("AWS has no address")
    }

    /// The table that tests share, if the server ran before the tests. Otherwise `own`.
    pub fn table<'a>(&'a self, own: &'a str) -> &'a str {
        self.table.as_deref().unwrap_or(own)
    }

    /// Whether the server answers `UpdateTimeToLive`.
    pub fn knows_ttl(&self) -> bool {
        self.name != "dynalite"
    }

    /// Whether lists and maps compare by value, as in DynamoDB.
    pub fn compares_documents(&self) -> bool {
        self.name != "dynalite"
    }

    /// A client without retries, so that a test sees every failure.
    pub fn client(&self) -> Client {
        Client::from_conf(self.config().retry_config(RetryConfig::disabled()).build())
    }

    /// The configuration of clients.
    pub fn config(&self) -> Builder {
        match self.address {
            Some(address) => config_of(address),
            None => config_of_aws(),
        }
    }

    /// Starts a proxy in front of the server.
    ///
    /// # Panics
    ///
    /// Panics if no port is free, or the server is AWS.
    pub async fn proxy(&self) -> Proxy {
        let address = self.address();
        Proxy::start(address, Wire::Http).await.expect("a free port")
    }

    /// Starts a proxy that changes the dates of the server's replies.
    ///
    /// # Panics
    ///
    /// Panics if no port is free, or the server is AWS.
    pub async fn at_another_time(&self) -> (Proxy, ServerClock) {
        let address = self.address();
        let clock = ServerClock::default();
        let dates = clock.clone();
        let proxy = Proxy::start_rewriting(address, Wire::Http, move |reply| dates.rewrite(reply))
            .await
            .expect("a free port");
        (proxy, clock)
    }

    /// The database of the server, for writes between two requests of a client.
    ///
    /// # Panics
    ///
    /// Panics if the server is not dynoxide.
    pub fn database(&self) -> dynoxide::Database {
        self.database.clone().expect("dynoxide")
    }

    /// Deletes the items whose TTL has passed, as DynamoDB does in the background. Returns their
    /// number.
    ///
    /// # Panics
    ///
    /// Panics if the server is not dynoxide.
    pub fn sweep(&self) -> usize {
        self.database().sweep_ttl().expect("a sweep")
    }
}

/// Makes a client of the server at `address`, without retries.
pub fn client_of(address: SocketAddr) -> Client {
    Client::from_conf(config_of(address).retry_config(RetryConfig::disabled()).build())
}

/// The configuration of clients of `address`.
pub fn config_of(address: SocketAddr) -> Builder {
    aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .endpoint_url(format!("http://{address}"))
        .http_client(crate::aws::http())
}

#[cfg(feature = "aws")]
fn config_of_aws() -> Builder {
    use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

    let variable = |name: &str| std::env::var(name).ok();
    let key = variable("AWS_ACCESS_KEY_ID").expect("AWS_ACCESS_KEY_ID is set");
    let secret = variable("AWS_SECRET_ACCESS_KEY").expect("AWS_SECRET_ACCESS_KEY is set");
    let session = variable("AWS_SESSION_TOKEN");
    let region = variable("AWS_REGION").expect("AWS_REGION is set");
    aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(region))
        .credentials_provider(Credentials::new(key, secret, session, None, "environment"))
        .http_client(
            aws_smithy_http_client::Builder::new()
                .tls_provider(Provider::Rustls(CryptoMode::Ring))
                .build_https(),
        )
}

#[cfg(not(feature = "aws"))]
fn config_of_aws() -> Builder {
    panic!("AWS speaks TLS: run with `--features lease-test-servers/aws`")
}

/// Counts the requests of a client, the SDK's retries included.
#[derive(Debug, Clone, Default)]
pub struct Count {
    requests: Arc<AtomicUsize>,
}

impl Count {
    /// Counts the requests of clients that `config` makes.
    pub fn of(config: Builder) -> (Self, Builder) {
        let count = Self::default();
        let config = config.interceptor(count.clone());
        (count, config)
    }

    /// Returns the number of requests since the last call of this method.
    pub fn take(&self) -> usize {
        self.requests.swap(0, Ordering::SeqCst)
    }
}

impl Intercept for Count {
    fn name(&self) -> &'static str {
        "count of requests"
    }

    fn read_before_transmit(
        &self,
        _context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// The offset of a server's dates from the true time, as clients see the dates.
#[derive(Debug, Clone, Default)]
pub struct ServerClock {
    seconds: Arc<AtomicI64>,
}

impl ServerClock {
    /// Sets the dates of all later replies to the true time plus `seconds`, which may be negative.
    pub fn set(&self, seconds: i64) {
        self.seconds.store(seconds, Ordering::SeqCst);
    }

    fn rewrite(&self, reply: Vec<u8>) -> Vec<u8> {
        let seconds = self.seconds.load(Ordering::SeqCst);
        if seconds == 0 {
            return reply;
        }
        let Some(end) = reply.windows(4).position(|four| four == b"\r\n\r\n") else {
            return reply;
        };
        let (head, body) = reply.split_at(end);
        let head = String::from_utf8_lossy(head);
        let lines: Vec<String> = head
            .lines()
            .map(|line| shifted(line, seconds).unwrap_or_else(|| line.to_owned()))
            .collect();
        let mut reply = lines.join("\r\n").into_bytes();
        reply.extend_from_slice(body);
        reply
    }
}

/// `None` for any line except a `Date` line.
fn shifted(line: &str, seconds: i64) -> Option<String> {
    let (name, date) = line.split_once(':')?;
    if !name.eq_ignore_ascii_case("date") {
        return None;
    }
    let date = DateTime::from_str(date.trim(), DateTimeFormat::HttpDate).ok()?;
    let date = DateTime::from_secs(date.secs() + seconds);
    Some(format!("date: {}", date.fmt(DateTimeFormat::HttpDate).ok()?))
}
