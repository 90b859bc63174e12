//! Kinesis servers for tests, and clients of them.

use std::fmt;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::retry::RetryConfig;
use aws_sdk_kinesis::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_kinesis::types::StreamStatus;
use axum::extract::DefaultBodyLimit;
use ferrokinesis::store::StoreOptions;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::port::free_port;
use crate::tools::process::Process;
use crate::tools::tool;

/// A Kinesis server. A drop stops the server.
pub struct Server {
    /// The server's name, for messages.
    pub name: &'static str,
    address: SocketAddr,
    _running: Running,
}

#[expect(dead_code, reason = "dropping it stops the server")]
enum Running {
    InProcess(Task),
    Process(Process),
}

struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
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
    /// Starts ferrokinesis, a Kinesis in this process, on a free port. Iterators expire after [ten
    /// seconds](Self::ITERATORS_LIVE), longer than a test pauses on a busy machine.
    ///
    /// The server reports a shard's children only to subscribers, finds streams only by name, and
    /// lists all shards on one page.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub async fn ferrokinesis() -> Self {
        let options = StoreOptions {
            create_stream_ms: 5,
            update_stream_ms: 5,
            shard_limit: 1_000,
            iterator_ttl_seconds: Self::ITERATORS_LIVE.as_secs(),
            ..StoreOptions::default()
        };
        let (app, _store) = ferrokinesis::create_app(options);
        // The largest request, in base64, as in ferrokinesis' own program.
        let app = app.layer(DefaultBodyLimit::max(7 * 1024 * 1024));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let task = tokio::spawn(async {
            axum::serve(listener, app).await.expect("the server runs");
        });
        Self { name: "ferrokinesis", address, _running: Running::InProcess(Task(task)) }
    }

    /// The lifetime of [ferrokinesis](Self::ferrokinesis)' iterators.
    pub const ITERATORS_LIVE: Duration = Duration::from_secs(10);

    /// Starts kinesis-local, which reports a shard's children with the shard's last records. The
    /// SDK cannot parse the events that kinesis-local pushes.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start, or is missing while `LEASE_TEST_REQUIRE_ALL` is set.
    pub async fn kinesis_local() -> Option<Self> {
        let node = tool("node", &[])?;
        let program = tool("kinesis-local", &["node_modules/kinesis-local/main.js"])?;
        let port = free_port();
        let mut command = Command::new(node);
        command.args(["--import", LOOPBACK_ALONE]).arg(&program);
        command.current_dir(program.parent().expect("a folder"));
        command.envs([("SHARD_LIMIT", "1000"), ("LOG_LEVEL", "ERROR")]);
        for change in ["CREATE_STREAM", "DELETE_STREAM", "SPLIT_SHARD", "MERGE_SHARDS"] {
            command.env(format!("{change}_DURATION"), "5ms");
        }
        command.env("KINESIS_MOCK_PLAIN_PORT", port.to_string());
        command.env("KINESIS_MOCK_TLS_PORT", free_port().to_string());
        let process = Process::listening(command, port).await;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        Some(Self { name: "kinesis-local", address, _running: Running::Process(process) })
    }

    /// The server's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A client without retries, so that a test sees every failure.
    pub fn client(&self) -> Client {
        client_of(self.address)
    }

    /// Creates a stream, and waits until it is active.
    ///
    /// # Panics
    ///
    /// Panics if the stream cannot be created.
    pub async fn create_stream(&self, name: &str, shards: i32) {
        let client = self.client();
        let request = client.create_stream().stream_name(name).shard_count(shards);
        request.send().await.expect("a stream");
        self.settled(name).await;
    }

    /// Waits until the last change of a stream is complete.
    ///
    /// # Panics
    ///
    /// Panics if the stream does not exist, or is not active within half a minute.
    pub async fn settled(&self, stream: &str) {
        let client = self.client();
        for _ in 0..3_000 {
            let request = client.describe_stream_summary().stream_name(stream);
            let summary = request.send().await.expect("a stream").stream_description_summary;
            if summary.expect("a description").stream_status == StreamStatus::Active {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("stream {stream} on {} is not ready", self.name);
    }
}

/// Makes a client of the server at `address`, without retries.
pub fn client_of(address: SocketAddr) -> Client {
    let config = aws_sdk_kinesis::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .endpoint_url(format!("http://{address}"))
        .http_client(crate::aws::http())
        .retry_config(RetryConfig::disabled());
    Client::from_conf(config.build())
}

/// kinesis-local has no option to listen only on the loopback interface. The program calls
/// `listen(port, callback)`.
const LOOPBACK_ALONE: &str = "data:text/javascript,\
    import net from 'node:net';\
    const listen = net.Server.prototype.listen;\
    net.Server.prototype.listen = function (port, ...rest) {\
        return listen.call(this, port, '127.0.0.1', ...rest);\
    };";
