//! etcd servers for tests: real processes on their own data, stopped when their guard is dropped.
//!
//! Start at [`EtcdServer`].

use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::port::free_port;
use crate::tools::signal::{signal, suspend};
use crate::tools::{memory_folder, tool};

/// The time-out of stores in most tests. A busy machine may stop a server for seconds.
pub const PATIENT: Duration = Duration::from_secs(20);

/// A member of etcd on a free port. A drop kills the process, and removes its data.
pub struct EtcdServer {
    port: u16,
    scheme: &'static str,
    program: PathBuf,
    folder: PathBuf,
    certificates: Option<PathBuf>,
    options: Vec<String>,
    process: Option<Child>,
}

impl EtcdServer {
    /// Starts a cluster of one member. Returns `None`, and prints a line, if etcd is not installed.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start, or is missing and `LEASE_TEST_REQUIRE_ALL` is set.
    pub fn start() -> Option<Self> {
        Self::with(&[])
    }

    /// Starts a cluster of one member with further options, such as `--quota-backend-bytes=16777216`.
    ///
    /// # Panics
    ///
    /// Panics as [`start`](Self::start) does.
    pub fn with(options: &[&str]) -> Option<Self> {
        let server = Self::members(1, "http", options)?.pop();
        server.inspect(Self::wait_until_ready)
    }

    /// Starts a cluster of one member that serves its clients by TLS, with a certificate and its key in the PEM
    /// format.
    ///
    /// # Panics
    ///
    /// Panics as [`start`](Self::start) does.
    pub fn with_tls(certificate: &[u8], key: &[u8], options: &[&str]) -> Option<Self> {
        let folder =
            memory_folder().join(format!("lease-etcd-tls-{}-{}", std::process::id(), free_port()));
        std::fs::create_dir_all(&folder).expect("a folder for the certificate");
        let files = [("cert", certificate), ("key", key)].map(|(name, text)| {
            let file = folder.join(name);
            std::fs::write(&file, text).expect("the certificate");
            format!("--{name}-file={}", file.display())
        });
        let files: Vec<_> =
            files.iter().map(String::as_str).chain(options.iter().copied()).collect();
        let mut server = Self::members(1, "https", &files)?.pop()?;
        server.certificates = Some(folder);
        Some(server)
    }

    /// Starts a cluster of `count` members, with further options.
    ///
    /// # Panics
    ///
    /// Panics as [`start`](Self::start) does.
    pub fn cluster(count: usize, options: &[&str]) -> Option<Vec<Self>> {
        let members = Self::members(count, "http", options)?;
        members.iter().for_each(Self::wait_until_ready);
        Some(members)
    }

    /// Returns the version of the servers, as a sentence. Returns an empty string, and prints a line, if etcd is not
    /// installed.
    ///
    /// # Panics
    ///
    /// Panics if the program is missing and `LEASE_TEST_REQUIRE_ALL` is set.
    pub fn version() -> String {
        let Some(program) = tool("etcd", &[]) else { return String::new() };
        let answer = Command::new(program).arg("--version").output();
        let text = answer.map(|answer| String::from_utf8_lossy(&answer.stdout).into_owned());
        let text = text.unwrap_or_default();
        text.lines().next().unwrap_or_default().replace(" Version:", "")
    }

    fn members(count: usize, scheme: &'static str, options: &[&str]) -> Option<Vec<Self>> {
        let program = tool("etcd", &[])?;
        let ports: Vec<_> = (0..count).map(|_| free_port()).collect();
        let peers: Vec<_> =
            ports.iter().map(|port| format!("{port}=http://127.0.0.1:{}", port + 10_000)).collect();
        let mut members: Vec<_> = ports
            .iter()
            .map(|port| {
                let folder =
                    memory_folder().join(format!("lease-etcd-{}-{port}", std::process::id()));
                std::fs::create_dir_all(&folder).expect("a folder for the server");
                let (client, peer) = (
                    format!("{scheme}://127.0.0.1:{port}"),
                    format!("http://127.0.0.1:{}", port + 10_000),
                );
                let own = [
                    format!("--name={port}"),
                    format!("--data-dir={}", folder.join("data").display()),
                    format!("--listen-client-urls={client}"),
                    format!("--advertise-client-urls={client}"),
                    format!("--listen-peer-urls={peer}"),
                    format!("--initial-advertise-peer-urls={peer}"),
                    format!("--initial-cluster={}", peers.join(",")),
                ];
                let further = options.iter().map(|option| (*option).to_owned());
                let options = own.into_iter().chain(further).collect();
                Self {
                    port: *port,
                    scheme,
                    program: program.clone(),
                    folder,
                    certificates: None,
                    options,
                    process: None,
                }
            })
            .collect();
        members.iter_mut().for_each(Self::start_again);
        Some(members)
    }

    /// Starts the process again, on the same port and with its data. Does not wait until it has a leader.
    ///
    /// # Panics
    ///
    /// Panics if the process does not start.
    pub fn start_again(&mut self) {
        let log = std::fs::File::create(self.folder.join("log")).expect("a log");
        let mut command = Command::new(&self.program);
        command.args(&self.options).env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().expect("an etcd server"));
    }

    /// Waits until the member answers, and its cluster has a leader.
    ///
    /// # Panics
    ///
    /// Panics if this takes longer than two minutes.
    pub fn wait_until_ready(&self) {
        for _ in 0..2_400 {
            if self.get("/health").is_some_and(|health| health.contains(r#""health":"true""#)) {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        panic!("etcd on port {} does not answer: {log}", self.port);
    }

    /// Ends the process with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.kill());
            drop(process.wait());
        }
    }

    /// Stops the process. Its connections stay open, but it sends no answers.
    pub fn hang(&self) {
        if let Some(process) = &self.process {
            suspend(process.id());
        }
    }

    /// Lets a stopped process continue.
    pub fn resume(&self) {
        if let Some(process) = &self.process {
            signal(process.id(), "-CONT");
        }
    }

    /// The member's port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of the member, for its clients.
    pub fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    /// Runs `etcdctl` with `arguments`, and returns its output.
    ///
    /// # Panics
    ///
    /// Panics if etcdctl is not installed, or reports an error.
    pub fn etcdctl(&self, arguments: &[&str]) -> String {
        self.etcdctl_with(arguments, "")
    }

    /// Runs `etcdctl` as [`etcdctl`](Self::etcdctl) does, with `input` on its standard input.
    ///
    /// # Panics
    ///
    /// Panics as [`etcdctl`](Self::etcdctl) does.
    pub fn etcdctl_with(&self, arguments: &[&str], input: &str) -> String {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.endpoint()]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("etcdctl");
        let mut stdin = process.stdin.take().expect("its standard input");
        stdin.write_all(input.as_bytes()).expect("its standard input");
        drop(stdin);
        let output = process.wait_with_output().expect("its output");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "etcdctl {arguments:?}: {errors}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// The number of requests of clients that the member has received, by the method of gRPC: `Range`, `Txn`.
    ///
    /// # Panics
    ///
    /// Panics if the member does not answer.
    pub fn requests(&self, method: &str) -> u64 {
        let metrics = self.get("/metrics").expect("the metrics of etcd");
        let label = format!("grpc_method=\"{method}\"");
        let of_method =
            |line: &&str| line.starts_with("grpc_server_started_total") && line.contains(&label);
        let line = metrics.lines().find(of_method);
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).map_or(0, |count| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            let count = count as u64;
            count
        })
    }

    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.kill();
        drop(std::fs::remove_dir_all(&self.folder));
        if let Some(certificates) = &self.certificates {
            drop(std::fs::remove_dir_all(certificates));
        }
    }
}

impl fmt::Debug for EtcdServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdServer").field("port", &self.port).finish_non_exhaustive()
    }
}
