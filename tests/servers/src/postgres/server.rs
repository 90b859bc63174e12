//! One PostgreSQL server.

use std::fmt;
use std::net::SocketAddr;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use super::{Folder, give, unprivileged};
use crate::port::free_port;
use crate::tools::signal::{signal, signal_if_running, suspend, wait_until_suspended};
use crate::tools::{find, tool};

/// A PostgreSQL server on a free port, with the superuser `postgres` without a password. A drop
/// stops the server.
pub struct PostgresServer {
    port: u16,
    programs: PathBuf,
    folder: Folder,
    options: Vec<String>,
    process: Option<Child>,
}

impl PostgresServer {
    /// Starts a server. Returns `None`, and prints a line, if PostgreSQL is not installed.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start, or is missing and `LEASE_TEST_REQUIRE_ALL` is set.
    pub fn start() -> Option<Self> {
        Self::with(&[])
    }

    /// Starts a server with further settings, such as `wal_level=minimal`.
    ///
    /// # Panics
    ///
    /// Panics as [`start`](Self::start) does.
    pub fn with(settings: &[&str]) -> Option<Self> {
        let mut server = Self::stopped(settings)?;
        server.create_data();
        server.start_again();
        Some(server)
    }

    /// Copies the data of a new server, because `initdb` takes a second of processor time.
    fn create_data(&self) {
        static TEMPLATE: OnceLock<Option<PathBuf>> = OnceLock::new();

        let template = TEMPLATE.get_or_init(|| self.template());
        let copied = template.as_ref().is_some_and(|template| copy(template, &self.data()));
        if !copied {
            drop(std::fs::remove_dir_all(self.data()));
            self.initdb();
        }
    }

    /// Returns the data of a new server, which the folder of tools keeps for later runs.
    fn template(&self) -> Option<PathBuf> {
        let tools = PathBuf::from(std::env::var_os("LEASE_TEST_TOOLS")?);
        let version = Self::version().replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        let template = tools.join(format!("data-{version}"));
        if !template.is_dir() {
            self.initdb();
            let incomplete = tools.join(format!("data-{version}-{}", std::process::id()));
            // Another program may have been faster. Then its template is used.
            if !copy(&self.data(), &incomplete) || std::fs::rename(&incomplete, &template).is_err()
            {
                drop(std::fs::remove_dir_all(&incomplete));
            }
            drop(std::fs::remove_dir_all(self.data()));
        }
        Some(template)
    }

    fn initdb(&self) {
        // With --no-sync and fsync=off, only a power cut would lose data.
        let arguments = ["--username", "postgres", "--auth", "trust", "--encoding", "UTF8"];
        let mut initdb = unprivileged(&self.programs.join("initdb"));
        initdb.args(arguments).args(["--locale", "C", "--no-sync", "--pgdata"]);
        self.run(initdb.arg(self.data()));
    }

    /// Starts a standby that follows this server, asynchronously.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    #[must_use]
    pub fn standby(&self) -> Self {
        let standby = Self::stopped(&[]);
        let mut standby = standby.expect("PostgreSQL, as for the primary");
        let mut copy = unprivileged(&standby.programs.join("pg_basebackup"));
        copy.args([
            "--username",
            "postgres",
            "--host",
            "127.0.0.1",
            "--port",
            &self.port.to_string(),
        ]);
        copy.args(["--write-recovery-conf", "--wal-method", "stream", "--checkpoint", "fast"]);
        standby.run(copy.args(["--no-sync", "--pgdata"]).arg(standby.data()));
        standby.start_again();
        standby
    }

    /// Makes a standby accept writes.
    ///
    /// # Panics
    ///
    /// Panics if the server is no standby.
    pub fn promote(&self) {
        // A query for the promotion could be cancelled by what the standby replays.
        let mut promote = unprivileged(&self.programs.join("pg_ctl"));
        promote.args(["promote", "--wait", "--timeout", "60", "--pgdata"]).arg(self.data());
        self.run(&mut promote);
    }

    /// Returns the version of the servers, as a sentence. Returns an empty string, and prints a
    /// line, if PostgreSQL is not installed.
    ///
    /// # Panics
    ///
    /// Panics if the program is missing and `LEASE_TEST_REQUIRE_ALL` is set.
    pub fn version() -> String {
        let Some(programs) = programs() else { return String::new() };
        let answer = Command::new(programs.join("postgres")).arg("--version").output();
        answer
            .map(|answer| String::from_utf8_lossy(&answer.stdout).trim().to_owned())
            .unwrap_or_default()
    }

    /// Starts this stopped standby on the port of `primary`, which has ended, and makes the standby
    /// accept writes.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub fn take_over(&mut self, primary: &Self) {
        self.port = primary.port;
        self.start_again();
        self.promote();
    }

    fn stopped(settings: &[&str]) -> Option<Self> {
        let programs = programs()?;
        let port = free_port();
        let folder = Folder::new("postgres", port);
        let settings = DEFAULTS.iter().chain(settings);
        let options = settings.flat_map(|setting| ["-c".to_owned(), (*setting).to_owned()]);
        Some(Self { port, programs, folder, options: options.collect(), process: None })
    }

    /// Starts the server again, on the same port and with its data.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub fn start_again(&mut self) {
        let log = std::fs::File::create(self.folder.path().join("log")).expect("a log");
        let mut command = unprivileged(&self.programs.join("postgres"));
        command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
        command.args(&self.options).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().expect("a PostgreSQL server"));
        // Two minutes, since many servers may start at once on a busy machine.
        for _ in 0..2_400 {
            if self.answers() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("PostgreSQL on port {} does not answer: {}", self.port, self.log());
    }

    /// Ends the server's processes without a checkpoint. The next start recovers from its log.
    pub fn crash(&mut self) {
        if let Some(mut process) = self.process.take() {
            Self::resume_all(&process);
            signal(process.id(), "-QUIT");
            drop(process.wait());
        }
    }

    /// Ends the server's processes with SIGKILL. The next start recovers from its log.
    pub fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        // A stopped postmaster starts no further process.
        suspend(process.id());
        let children = children(process.id());
        for id in &children {
            signal_if_running(*id, "-KILL");
        }
        signal(process.id(), "-KILL");
        drop(process.wait());
        // The next server does not start while a process uses the shared memory.
        while children.iter().any(|id| is_running(*id)) {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops all processes of the server. Its connections stay open, but the server sends no
    /// answers.
    pub fn hang(&self) {
        if let Some(process) = &self.process {
            // A stopped postmaster starts no further process.
            suspend(process.id());
            let children = children(process.id());
            for id in &children {
                signal_if_running(*id, "-STOP");
            }
            for id in children {
                wait_until_suspended(id);
            }
        }
    }

    /// Lets a stopped server continue.
    pub fn resume(&self) {
        if let Some(process) = &self.process {
            Self::resume_all(process);
        }
    }

    fn resume_all(postmaster: &Child) {
        signal(postmaster.id(), "-CONT");
        for id in children(postmaster.id()) {
            signal_if_running(id, "-CONT");
        }
    }

    /// The server's port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of the database `postgres`, as superuser.
    pub fn url(&self) -> String {
        self.url_of("postgres", "postgres")
    }

    /// The URL of a database, as `login`, which is `NAME` or `NAME:PASSWORD`.
    pub fn url_of(&self, login: &str, database: &str) -> String {
        format!("postgres://{login}@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    /// The address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The folder of the server's data.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Runs SQL as superuser. Returns the rows as text, one per line, with `|` between columns.
    ///
    /// # Panics
    ///
    /// Panics if the server reports an error.
    pub fn command(&self, sql: &str) -> String {
        let mut psql = self.psql();
        psql.args(["-v", "ON_ERROR_STOP=1", "-c", sql]);
        self.run(&mut psql)
    }

    /// Requires a password from each role except the superuser.
    ///
    /// # Panics
    ///
    /// Panics if the server's files cannot be written.
    pub fn require_passwords(&self) {
        let lines = "host all postgres 127.0.0.1/32 trust\n\
            host replication postgres 127.0.0.1/32 trust\n\
            host all all 127.0.0.1/32 scram-sha-256\n";
        std::fs::write(self.data().join("pg_hba.conf"), lines).expect("its file of logins");
        self.command("SELECT pg_reload_conf()");
        // The postmaster reads the file when the signal arrives.
        for _ in 0..1200 {
            let refused = self.psql().args(["-w", "-U", "nobody", "-c", "SELECT 1"]).output();
            let refused = refused.expect("psql").stderr;
            if String::from_utf8_lossy(&refused).contains("password") {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("PostgreSQL on port {} asks for no password", self.port);
    }

    /// Offers TLS, with a certificate and its key in the PEM format.
    ///
    /// # Panics
    ///
    /// Panics if the server's files cannot be written, or the server does not offer TLS within a minute.
    pub fn offer_tls(&self, certificate: &[u8], key: &[u8]) {
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let file = self.data().join(name);
            std::fs::write(&file, text).expect("its certificate");
            give(&file);
            let mode = Command::new("chmod").arg("600").arg(&file).status();
            assert!(mode.is_ok_and(|status| status.success()), "the server refuses a readable key");
        }
        self.command("ALTER SYSTEM SET ssl = on");
        self.command("SELECT pg_reload_conf()");
        for _ in 0..1200 {
            if self.command("SHOW ssl") == "on" {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("PostgreSQL on port {} offers no TLS: {}", self.port, self.log());
    }

    fn psql(&self) -> Command {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-XqAt", "-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "postgres"]);
        psql.stdin(Stdio::null());
        psql
    }

    fn answers(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.port)).is_ok()
            && self
                .psql()
                .args(["-c", "SELECT 1"])
                .output()
                .is_ok_and(|answer| answer.status.success())
    }

    fn run(&self, command: &mut Command) -> String {
        let output =
            command.current_dir(self.folder.path()).output().expect("a program of PostgreSQL");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {errors}{}", self.log());
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.crash();
    }
}

impl fmt::Debug for PostgresServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresServer").field("port", &self.port).finish_non_exhaustive()
    }
}

/// Also copies the owners of the files, if the tests run as root. Returns whether the copy is complete.
fn copy(from: &Path, to: &Path) -> bool {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).stderr(Stdio::null()).status();
    copied.is_ok_and(|status| status.success())
}

fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders = versions.map(|version| version.path().join("bin"));
    let version = |folder: &PathBuf| {
        let name = folder.parent().and_then(Path::file_name).and_then(std::ffi::OsStr::to_str);
        name.and_then(|name| name.parse::<u32>().ok())
    };
    let debian = folders.filter(|folder| folder.join("initdb").is_file()).max_by_key(version);
    debian.or_else(|| {
        let initdb = find("initdb", &[]).or_else(|| tool("initdb", &[]))?;
        initdb.parent().map(Path::to_owned)
    })
}

fn children(process: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    list.unwrap_or_default().split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// A zombie has no memory.
fn is_running(process: u32) -> bool {
    let command = std::fs::read(format!("/proc/{process}/cmdline"));
    command.is_ok_and(|command| !command.is_empty())
}

const DEFAULTS: [&str; 5] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=300",
    "shared_buffers=32MB",
    "fsync=off",
];
