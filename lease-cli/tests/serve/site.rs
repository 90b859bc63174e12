//! The program on a store of its own, and leases on this store.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use lease_core::store::{Beat, Heartbeat, LockStore};
use lease_core::{Lease, LeaseKey, LeaseOptions, Locker};
use lease_store::AnyStore;
use lease_test_servers::tools::memory_folder;
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A running `lease serve`. A drop ends it.
#[derive(Debug)]
pub(crate) struct Site {
    folder: TempDir,
    program: Child,
    /// What the program has printed.
    pub(crate) url: String,
    /// `HOST:PORT`.
    pub(crate) host: String,
    /// The token of the printed URL.
    pub(crate) token: Option<String>,
    store: String,
    /// Runs the lockers of the test.
    pub(crate) runtime: Runtime,
}

impl Site {
    pub(crate) fn start(options: &[&str]) -> Self {
        let folder = tempfile::tempdir_in(memory_folder()).unwrap();
        fs::write(folder.path().join("token"), format!("{TOKEN}\n")).unwrap();
        let command = command(folder.path(), options);
        Self::run(folder, command)
    }

    /// A site whose environment has [`TOKEN`].
    pub(crate) fn with_token_in_environment() -> Self {
        let folder = tempfile::tempdir_in(memory_folder()).unwrap();
        let mut command = command(folder.path(), &["--allow-changes"]);
        command.env("LEASE_SERVE_TOKEN", TOKEN);
        Self::run(folder, command)
    }

    /// A site on the store of another server.
    pub(crate) fn on_store(url: &str) -> Self {
        let folder = tempfile::tempdir_in(memory_folder()).unwrap();
        let mut command = command(folder.path(), &[]);
        command.env("LEASE_STORE", url);
        let mut site = Self::run(folder, command);
        url.clone_into(&mut site.store);
        site
    }

    fn run(folder: TempDir, mut command: Command) -> Self {
        let store = format!("sqlite:{}", folder.path().join("leases.db").display());
        let log = File::create(folder.path().join("log")).unwrap();
        command.stdout(Stdio::piped()).stderr(log);
        let mut program = command.spawn().unwrap();
        let line = first_line(program.stdout.take().unwrap());
        let printed: serde_json::Value = serde_json::from_str(&line).unwrap();
        let url = printed["url"].as_str().unwrap().to_owned();
        let (base, token) = match url.split_once("#token=") {
            Some((base, token)) => (base, Some(token.to_owned())),
            None => (url.as_str(), None),
        };
        let host = base.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
        Self { folder, program, host, token, store, runtime: Runtime::new().unwrap(), url }
    }

    /// A site that a test can change with [`TOKEN`].
    pub(crate) fn with_token() -> Self {
        Self::start(&["--allow-changes", "--token-file", "token"])
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What the program has written to stderr.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    pub(crate) fn store(&self) -> AnyStore {
        self.runtime.block_on(lease_store::connect(&self.store)).unwrap()
    }

    pub(crate) fn locker(&self, ttl: Duration) -> Locker {
        let _context = self.runtime.enter();
        Locker::new(self.store()).with_options(LeaseOptions::new(ttl).unwrap())
    }

    pub(crate) fn obtain(&self, locker: &Locker, key: &str) -> Lease {
        let key: LeaseKey = key.parse().unwrap();
        self.runtime.block_on(locker.obtain(&key)).unwrap().into_lease().unwrap()
    }

    /// Whether the store still extends `lease`: not after an eviction.
    pub(crate) fn extends(&self, lease: &Lease) -> bool {
        let last = Beat::new(1_000_000);
        let answer = self.runtime.block_on(self.store().heartbeat(lease.grant(), last));
        answer.unwrap() == Heartbeat::Extended
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.program), signal).unwrap();
    }

    /// Waits until the program has written `text` to stderr.
    pub(crate) fn wait_for_log(&self, text: &str) {
        let pause = Duration::from_millis(10);
        for _ in 0..PATIENT.as_millis() / pause.as_millis() {
            if self.log().contains(text) {
                return;
            }
            thread::sleep(pause);
        }
        panic!("the log does not have {text}: {}", self.log());
    }

    /// Locks the store, so that no write ends before the drop of this connection.
    pub(crate) fn lock_store(&self) -> Connection {
        let connection = Connection::open(self.path("leases.db")).unwrap();
        connection.busy_timeout(PATIENT).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        connection
    }

    /// Waits for the exit code of the program.
    pub(crate) fn exit_code(&mut self) -> i32 {
        ended(&mut self.program).code().unwrap()
    }

    /// Ends the program with SIGTERM, and returns its exit code.
    pub(crate) fn terminate(&mut self) -> i32 {
        self.signal(Signal::TERM);
        ended(&mut self.program).code().unwrap()
    }
}

/// Waits for the first line, in a thread, since a pipe has no time limit.
fn first_line(stdout: ChildStdout) -> String {
    let (send, line) = channel();
    thread::spawn(move || drop(send.send(BufReader::new(stdout).lines().next())));
    line.recv_timeout(PATIENT).unwrap().unwrap().unwrap()
}

/// Waits until a program ends, and kills it if it does not.
pub(crate) fn ended(program: &mut Child) -> ExitStatus {
    let pause = Duration::from_millis(10);
    for _ in 0..PATIENT.as_millis() / pause.as_millis() {
        if let Some(status) = program.try_wait().unwrap() {
            return status;
        }
        thread::sleep(pause);
    }
    program.kill().unwrap();
    panic!("the program does not end: {}", program.wait().unwrap());
}

/// A command whose program ends with the thread of the test, also if the test is killed.
pub(crate) fn dependent(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

/// `lease serve` on the store in `folder`.
pub(crate) fn command(folder: &Path, options: &[&str]) -> Command {
    // For figures of another build.
    let program = std::env::var("LEASE_PROGRAM");
    let program = program.unwrap_or_else(|_| env!("CARGO_BIN_EXE_lease").to_owned());
    let mut command = dependent("env");
    // Test runners may ignore these signals, and so would every child.
    command.arg("--default-signal=INT,QUIT,HUP,TERM").arg(program);
    command.args(["--json", "serve"]).args(options);
    if !options.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    command.env("LEASE_STORE", "sqlite:leases.db").env_remove("LEASE_SERVE_TOKEN");
    command.env("AWS_EC2_METADATA_DISABLED", "true");
    command.current_dir(folder).stdin(Stdio::null());
    command
}

impl Drop for Site {
    fn drop(&mut self) {
        // The program may have ended.
        drop(self.program.kill());
        drop(self.program.wait());
    }
}

/// The token of [`Site::with_token`].
pub(crate) const TOKEN: &str = "a-token-of-this-test";

/// How long a test waits for an event that must come.
pub(crate) const PATIENT: Duration = Duration::from_secs(60);
