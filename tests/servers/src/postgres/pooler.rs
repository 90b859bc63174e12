//! A pooler in front of a PostgreSQL server.

use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use super::{Folder, PostgresServer, unprivileged};
use crate::port::free_port;
use crate::tools::signal::signal;
use crate::tools::tool;

/// A PgBouncer on a free port, which runs each transaction on any connection of its pool. A drop
/// stops the pooler.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    process: Child,
    _folder: Folder,
}

impl PgBouncer {
    /// Starts a pooler in transaction mode. Returns `None`, and prints a line, if PgBouncer is not
    /// installed.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start, or is missing and `LEASE_TEST_REQUIRE_ALL` is set.
    pub fn in_front_of(server: &PostgresServer) -> Option<Self> {
        Self::start(server, "")
    }

    /// Like [`in_front_of`](Self::in_front_of). The pooler accepts the parameter `options` of a connection, and ignores
    /// it. By default, it refuses connections with this parameter.
    pub fn ignoring_options(server: &PostgresServer) -> Option<Self> {
        Self::start(server, "ignore_startup_parameters = options\n")
    }

    fn start(server: &PostgresServer, more: &str) -> Option<Self> {
        // Debian installs PgBouncer in a folder that is not on the path of a user.
        let debian = Some(std::path::PathBuf::from("/usr/sbin/pgbouncer"));
        let program = debian.filter(|program| program.is_file());
        let program = program.or_else(|| tool("pgbouncer", &[]))?;
        let port = free_port();
        let folder = Folder::new("pgbouncer", port);
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = any\npool_mode = transaction\ndefault_pool_size = 20\n\
             max_client_conn = 500\n{more}",
            server.port()
        );
        let file = folder.path().join("pgbouncer.ini");
        std::fs::write(&file, settings).expect("its settings");
        let mut command = unprivileged(&program);
        command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("PgBouncer");
        let pooler = Self { port, process, _folder: folder };
        for _ in 0..2_400 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(pooler);
            }
            thread::sleep(Duration::from_millis(25));
        }
        panic!("PgBouncer on port {port} does not answer");
    }

    /// The pooler's port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of the database `postgres` through the pooler, as superuser.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres?sslmode=disable", self.port)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        // PgBouncer has no data to save, so the signal may end the process at once.
        signal(self.process.id(), "-KILL");
        drop(self.process.wait());
    }
}
