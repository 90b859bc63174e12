//! Redis servers with TLS, and the certificate authority of servers and clients.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::redis::{RedisCluster, RedisSentinel, RedisServer, free_port};

/// A certificate authority, and certificates for a client and for servers on this machine. A drop
/// removes their files.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
}

/// The clients that a server accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a server asks for a certificate or does not")]
pub enum Admits {
    /// All clients.
    All,
    /// Clients with a certificate of the authority.
    Certified,
}

/// A server with TLS on one port. The test's own commands use plain TCP on another port.
#[derive(Debug)]
#[non_exhaustive]
pub struct TlsServer {
    /// The server.
    pub server: RedisServer,
    port: u16,
}

impl Authority {
    /// Makes an authority and its certificates.
    ///
    /// # Panics
    ///
    /// Panics if `openssl` is not installed.
    #[expect(clippy::new_without_default, reason = "it runs programs and writes files")]
    pub fn new() -> Self {
        static AUTHORITIES: AtomicU64 = AtomicU64::new(0);
        let number = AUTHORITIES.fetch_add(1, Ordering::Relaxed);
        let name = format!("lease-authority-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder for its files");
        let authority = Self { folder };
        authority.openssl("req -x509 -subj /CN=authority -keyout root.key -out root.pem");
        for name in ["server", "client"] {
            authority.openssl(&format!(
                "req -subj /CN={name} -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout \
                 {name}.key -out {name}.request"
            ));
            authority.openssl(&format!(
                "x509 -req -in {name}.request -CA root.pem -CAkey root.key -copy_extensions \
                 copyall -out {name}.pem"
            ));
        }
        authority
    }

    fn openssl(&self, words: &str) {
        let mut command = Command::new("openssl");
        command.args(words.split_whitespace()).current_dir(&self.folder);
        if words.starts_with("req") {
            command.args("-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes".split(' '));
        }
        let made = command.args(["-days", "2"]).output().expect("openssl");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    /// The path of the authority's own certificate.
    pub fn root(&self) -> PathBuf {
        self.folder.join("root.pem")
    }

    /// Reads one of the files: `root.pem`, `client.pem`, `client.key`.
    ///
    /// # Panics
    ///
    /// Panics if the file does not exist.
    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder.join(name)).expect("a file of the authority")
    }

    /// Starts a server with the authority's certificate and further options.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub fn server(&self, admits: Admits, further: &[&str]) -> TlsServer {
        let port = free_port();
        let options = self.options(port, admits).map(|(name, value)| [format!("--{name}"), value]);
        let options: Vec<_> = options.into_iter().flatten().collect();
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        TlsServer { server: RedisServer::with(&[&options, further].concat()), port }
    }

    /// Starts a Cluster of three masters. Returns the Cluster and its URLs for TLS.
    ///
    /// # Panics
    ///
    /// Panics if the Cluster does not form.
    pub fn cluster(&self) -> (RedisCluster, Vec<String>) {
        // The nodes announce their TLS ports, and use TLS among themselves.
        let options = [&RedisCluster::options(0)[..], &["--tls-cluster", "yes"]].concat();
        let start = |_| self.server(Admits::All, &options);
        let nodes: Vec<_> = (0..3).map(start).collect();
        let ports: Vec<_> = nodes.iter().map(|node| node.port).collect();
        let urls = ports.iter().map(|port| format!("rediss://127.0.0.1:{port}")).collect();
        let nodes = nodes.into_iter().map(|node| node.server).collect();
        let root = self.root();
        let by_tls = ["--tls", "--cacert", &root.to_string_lossy()];
        (RedisCluster::of(nodes, &ports, &by_tls), urls)
    }

    /// Starts a master, and a Sentinel that connects to the master only by TLS. Returns both, and
    /// the Sentinel's URL for TLS.
    ///
    /// # Panics
    ///
    /// Panics if the servers do not start.
    pub fn sentinel(&self) -> (Vec<RedisServer>, String) {
        let master = self.server(Admits::All, &["--tls-replication", "yes"]);
        let (port, tls) = (free_port(), free_port());
        let mut sentinel = RedisServer::stopped("redis-sentinel", port, Vec::new());
        let name = RedisSentinel::MASTER;
        let options = self.options(tls, Admits::All);
        let options = options.map(|(name, value)| format!("{name} {value}\n")).concat();
        let configuration = format!(
            "port {port}\nbind 127.0.0.1\n{options}tls-replication yes\nsentinel monitor {name} \
             127.0.0.1 {} 1\n",
            master.port
        );
        let file = sentinel.folder().join("sentinel.conf");
        std::fs::write(&file, configuration).expect("the Sentinel's configuration");
        sentinel.options = vec![file.to_string_lossy().into_owned()];
        sentinel.start_again();
        (vec![master.server, sentinel], format!("rediss://127.0.0.1:{tls}"))
    }

    fn options(&self, port: u16, admits: Admits) -> [(&'static str, String); 5] {
        let path = |name: &str| self.folder.join(name).to_string_lossy().into_owned();
        let asks = if admits == Admits::Certified { "yes" } else { "no" };
        [
            ("tls-port", port.to_string()),
            ("tls-cert-file", path("server.pem")),
            ("tls-key-file", path("server.key")),
            ("tls-ca-cert-file", path("root.pem")),
            ("tls-auth-clients", asks.to_owned()),
        ]
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

impl TlsServer {
    /// The server's URL for TLS.
    pub fn url(&self) -> String {
        format!("rediss://localhost:{}", self.port)
    }
}
