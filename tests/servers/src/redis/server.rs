//! One Redis server.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::VALKEY;
use crate::port::free_port;
use crate::tools::signal::{signal, suspend};
use crate::tools::{libfaketime, tool};

/// A redis-server on a free port. A drop kills the server.
pub struct RedisServer {
    port: u16,
    pub(crate) folder: PathBuf,
    pub(crate) options: Vec<String>,
    program: PathBuf,
    environment: Vec<(&'static str, PathBuf)>,
    process: Option<Child>,
}

/// The length of an append-only file at an earlier time.
#[derive(Debug)]
pub struct Written {
    file: PathBuf,
    length: u64,
}

impl RedisServer {
    /// Starts a server without persistence.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server that writes every command to a file before its reply. A kill loses nothing.
    pub fn with_append_only_file() -> Self {
        Self::with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// Starts a server with further options, as on its command line.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub fn with(options: &[&str]) -> Self {
        Self::on_port(free_port(), options)
    }

    /// Starts a server on `port`, with further options.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub fn on_port(port: u16, options: &[&str]) -> Self {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut server = Self::stopped("redis-server", port, options);
        server.start_again();
        server
    }

    /// Starts a Valkey. Returns `None`, and prints a line, if Valkey is not installed.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub fn valkey() -> Option<Self> {
        let mut server = Self::stopped("redis-server", free_port(), Vec::new());
        server.program = tool("valkey-server", &VALKEY)?;
        server.start_again();
        Some(server)
    }

    /// Starts a server whose clock [`set_clock`](Self::set_clock) sets. Returns `None`, and prints
    /// a line, if Valkey or libfaketime is not installed. The server is a Valkey, since Debian's
    /// Redis hangs under libfaketime.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub fn with_clock() -> Option<Self> {
        Self::with_clock_and(&[])
    }

    /// Starts a server as [`with_clock`](Self::with_clock) does, with further options.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub fn with_clock_and(options: &[&str]) -> Option<Self> {
        let (program, library) = (tool("valkey-server", &VALKEY)?, libfaketime()?);
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut server = Self::stopped("redis-server", free_port(), options);
        server.program = program;
        server.environment = vec![
            ("LD_PRELOAD", library),
            ("FAKETIME_TIMESTAMP_FILE", server.folder.join("clock")),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("DONT_FAKE_MONOTONIC", "1".into()),
        ];
        server.set_clock("+0");
        server.start_again();
        Some(server)
    }

    /// Sets the offset of the server's clock from this machine's clock, in seconds: `+120` or
    /// `-300`.
    ///
    /// # Panics
    ///
    /// Panics if the server's folder cannot be written to.
    pub fn set_clock(&self, offset: &str) {
        // A rename replaces the file, so that the server never reads a half-written file.
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

    /// Starts the server again, on the same port and with the data on its disk.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
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
        // One minute, since many servers may start at once on a busy machine.
        for _ in 0..6_000 {
            if self.answers() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        panic!("{} on port {} does not answer: {log}", self.program.display(), self.port);
    }

    /// Kills the server, and starts it again with an empty memory.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub fn restart_empty(&mut self) {
        self.kill();
        for folder in ["appendonlydir", "dump.rdb"] {
            let path = self.folder.join(folder);
            drop(std::fs::remove_dir_all(&path));
            drop(std::fs::remove_file(&path));
        }
        self.start_again();
    }

    /// Returns the current length of the server's append-only file.
    ///
    /// # Panics
    ///
    /// Panics if the server has no append-only file.
    pub fn written(&self) -> Written {
        let folder = std::fs::read_dir(self.folder.join("appendonlydir")).expect("its folder");
        let mut files = folder.flatten().map(|file| file.path());
        let file = files.find(|file| file.to_string_lossy().ends_with(".incr.aof"));
        let file = file.expect("an append-only file");
        let length = file.metadata().expect("the file").len();
        Written { file, length }
    }

    /// Kills the server, truncates its append-only file to `written`, and starts the server again.
    /// This simulates a power cut, in which `appendfsync everysec` may lose a second. A kill of the
    /// process alone loses no write, even without a sync.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub fn restart_with(&mut self, written: &Written) {
        self.kill();
        let file = std::fs::OpenOptions::new().write(true).open(&written.file);
        file.expect("the file").set_len(written.length).expect("the file is cut");
        self.start_again();
    }

    /// Kills the server, and starts the server again with the data that it wrote.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub fn restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.kill());
            drop(process.wait());
        }
    }

    /// Stops the process. Its connections stay open, but the process sends no replies.
    pub fn hang(&self) {
        if let Some(process) = &self.process {
            suspend(process.id());
        }
    }

    /// Lets a stopped process continue.
    pub fn go_on(&self) {
        if let Some(process) = &self.process {
            signal(process.id(), "-CONT");
        }
    }

    /// The server's port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's address.
    pub fn address(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// The server's URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The server's folder, which a drop of the server removes.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sends one command. Returns the first line of the reply, or a whole bulk string.
    ///
    /// # Panics
    ///
    /// Panics if the server does not reply within a minute.
    pub fn command(&self, words: &str) -> String {
        self.ask(words).expect("an answer of the server")
    }

    /// Returns the remaining ttl of the lease on `key`, under the stores' default prefix. `None` if
    /// the key is free.
    pub fn lease_left(&self, key: &str) -> Option<Duration> {
        // A lock is a string with an expiry. On a node of a quorum, the string has the lock's end.
        // A record is a hash.
        let script = "local time, ends = redis.call('TIME'), 0 \
            if redis.call('TYPE', KEYS[1]).ok == 'string' then \
            local text = redis.call('GET', KEYS[1]) \
            if string.find(text, '^%d+ ?%d*$') then return 0 end \
            if not string.find(text, '^[hxr][w-]') then \
            return math.max(redis.call('PTTL', KEYS[1]), 0) * 1000 end \
            ends = tonumber(string.sub(text, -16)) \
            else ends = tonumber(redis.call('HGET', KEYS[1], 'ends')) or 0 end \
            return math.max(ends - time[1] * 1000000 - time[2], 0)";
        let left = self.command(&format!("EVAL \"{script}\" 1 lease:{{{key}}}"));
        let left = left.parse().ok().filter(|left| *left > 0);
        left.map(Duration::from_micros)
    }

    /// Lets the lease on `key` end after `left`.
    pub fn set_lease_left(&self, key: &str, left: Duration) {
        let script = "local left, time = tonumber(ARGV[1]), redis.call('TIME') \
            local ends = string.format('%016.0f', time[1] * 1000000 + time[2] + left * 1000 - 1) \
            if redis.call('TYPE', KEYS[1]).ok == 'hash' then \
            return redis.call('HSET', KEYS[1], 'ends', ends) end \
            local text = redis.call('GET', KEYS[1]) \
            if not string.find(text, '^[hxr][w-]') then \
            return redis.call('PEXPIRE', KEYS[1], left) end \
            return redis.call('SETRANGE', KEYS[1], #text - 16, ends)";
        self.command(&format!("EVAL \"{script}\" 1 lease:{{{key}}} {}", left.as_millis()));
    }

    /// Returns the number of the last heartbeat of the lease on `key`, or 0 if the key is free.
    pub fn last_beat(&self, key: &str) -> u64 {
        let script = "if redis.call('TYPE', KEYS[1]).ok ~= 'string' then \
            return redis.call('HGET', KEYS[1], 'sequence') end \
            local text = redis.call('GET', KEYS[1]) \
            return string.match(text, '^%d+ (%d+)', 35) or string.match(text, '^%d+', 83)";
        self.command(&format!("EVAL \"{script}\" 1 lease:{{{key}}}")).parse().unwrap_or(0)
    }

    /// Whether the server reports that it is a master.
    pub fn is_master(&self) -> bool {
        self.reports_replication("role:master")
    }

    /// Whether `INFO replication` contains `text`. False without a reply: a promotion or demotion
    /// closes the server's connections.
    pub fn reports_replication(&self, text: &str) -> bool {
        self.ask("INFO replication").is_ok_and(|answer| answer.contains(text))
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
