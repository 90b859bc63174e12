//! Real servers, each in a separate process.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use clap::Args;
use lease_test_servers::etcd::EtcdServer;
use lease_test_servers::redis::{RedisServer, VALKEY, free_port};
use lease_test_servers::tools::{find, find_libfaketime};
use rustix::process::{Pid, Signal, kill_process};

use crate::failure::Failure;
use crate::servers::postgres::Postgres;
use crate::servers::shared_file::SharedFile;

/// A drop kills the process.
#[derive(Debug)]
pub(crate) enum Server {
    Redis(RedisServer),
    DynamoDb(DynamoDb),
    Postgres(Box<Postgres>),
    Etcd(EtcdServer),
    File(SharedFile),
}

#[derive(Debug)]
pub(crate) struct DynamoDb {
    port: u16,
    folder: PathBuf,
    process: Option<Child>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DynamoDbArgs {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    file: PathBuf,
}

pub(crate) fn clock_library() -> Result<PathBuf, Failure> {
    find_libfaketime().ok_or_else(|| not_installed("libfaketime, which steps clocks,"))
}

pub(crate) fn not_installed(what: &str) -> Failure {
    format!(
        "{what} is not installed: ./test installs it, into target/tools unless LEASE_TEST_TOOLS \
         names another folder; set LEASE_TEST_TOOLS to it"
    )
    .into()
}

/// libfaketime adds the offset in the file `clock` to the time.
pub(crate) fn with_clock(command: &mut Command, clock: &PathBuf) -> Result<(), Failure> {
    command.env("LD_PRELOAD", clock_library()?);
    command.env("FAKETIME_TIMESTAMP_FILE", clock);
    command.env("FAKETIME_NO_CACHE", "1").env("DONT_FAKE_MONOTONIC", "1");
    Ok(())
}

impl Server {
    /// Writes each command to its disk before the reply.
    pub(crate) fn redis() -> Result<Self, Failure> {
        clock_library()?;
        find("valkey-server", &VALKEY)
            .ok_or_else(|| not_installed("valkey-server, a Redis whose clock can be stepped,"))?;
        let options = ["--appendonly", "yes", "--appendfsync", "always"];
        let server = RedisServer::with_clock_and(&options);
        Ok(Self::Redis(server.ok_or("valkey-server cannot be started")?))
    }

    pub(crate) fn postgres() -> Result<Self, Failure> {
        Ok(Self::Postgres(Box::new(Postgres::start()?)))
    }

    pub(crate) fn etcd_cluster(count: usize) -> Result<Vec<Self>, Failure> {
        let members = EtcdServer::cluster(count, &[]).ok_or_else(|| not_installed("etcd"))?;
        Ok(members.into_iter().map(Self::Etcd).collect())
    }

    pub(crate) fn file() -> Result<Self, Failure> {
        Ok(Self::File(SharedFile::new()?))
    }

    pub(crate) fn dynamodb() -> Result<Self, Failure> {
        let port = free_port();
        let name = format!("lease-chaos-dynamodb-{}-{port}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("clock"), "+0")?;
        let mut server = DynamoDb { port, folder, process: None };
        server.start_again()?;
        Ok(Self::DynamoDb(server))
    }

    /// Returns `None` for a file.
    pub(crate) fn address_for(&self, worker: usize) -> Option<SocketAddr> {
        Some(match self {
            Self::Redis(server) => server.address(),
            Self::DynamoDb(server) => server.address(),
            Self::Postgres(server) => server.address_for(worker),
            Self::Etcd(server) => ([127, 0, 0, 1], server.port()).into(),
            Self::File(_) => return None,
        })
    }

    /// Its connections stay open, but the process sends no replies.
    pub(crate) fn hang(&self) -> Result<(), Failure> {
        match self {
            Self::Redis(server) => server.hang(),
            Self::DynamoDb(server) => server.signal(Signal::STOP)?,
            Self::Postgres(server) => server.primary.hang(),
            Self::Etcd(server) => server.hang(),
            Self::File(_) => (),
        }
        Ok(())
    }

    pub(crate) fn go_on(&self) -> Result<(), Failure> {
        match self {
            Self::Redis(server) => server.go_on(),
            Self::DynamoDb(server) => server.signal(Signal::CONT)?,
            Self::Postgres(server) => server.primary.resume(),
            Self::Etcd(server) => server.resume(),
            Self::File(file) => file.unlock()?,
        }
        Ok(())
    }

    /// The disk has all acknowledged writes.
    pub(crate) fn kill(&mut self) {
        match self {
            Self::Redis(server) => server.kill(),
            Self::DynamoDb(server) => server.kill(),
            Self::Postgres(server) => server.primary.kill(),
            Self::Etcd(server) => server.kill(),
            Self::File(_) => (),
        }
    }

    pub(crate) fn start_again(&mut self) -> Result<(), Failure> {
        match self {
            Self::Redis(server) => server.start_again(),
            Self::DynamoDb(server) => server.start_again()?,
            Self::Postgres(server) => server.primary.start_again(),
            Self::Etcd(server) => server.start_again(),
            Self::File(_) => (),
        }
        Ok(())
    }

    pub(crate) fn restart_empty(&mut self) {
        // Servers that are not Redis keep their data.
        if let Self::Redis(server) = self {
            server.restart_empty();
        }
    }

    pub(crate) fn set_clock(&self, seconds: i64) -> Result<(), Failure> {
        let offset = format!("{seconds:+}");
        match self {
            Self::Redis(server) => server.set_clock(&offset),
            Self::DynamoDb(server) => std::fs::write(server.folder.join("clock"), offset)?,
            Self::Postgres(_) | Self::Etcd(_) | Self::File(_) => (),
        }
        Ok(())
    }

    /// Returns whether this call locked the file.
    pub(crate) fn lock_file(&self) -> Result<bool, Failure> {
        match self {
            Self::File(file) => file.lock(),
            _ => Ok(false),
        }
    }

    pub(crate) fn kill_connections(&self) {
        if let Self::Postgres(server) = self {
            server.kill_connections();
        }
        self.command("CLIENT KILL TYPE normal");
        self.command("CLIENT KILL TYPE pubsub");
    }

    /// The standby lacks the writes of the last `lag`.
    pub(crate) fn fail_over(&mut self, lag: Duration) {
        if let Self::Postgres(server) = self {
            server.fail_over(lag);
        }
    }

    pub(crate) fn follow_again(&mut self) {
        if let Self::Postgres(server) = self {
            server.follow_again();
        }
    }

    pub(crate) fn command(&self, words: &str) -> String {
        match self {
            Self::Redis(server) => server.command(words),
            _ => String::new(),
        }
    }
}

impl DynamoDb {
    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    fn start_again(&mut self) -> Result<(), Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["dynamodb", "--port", &self.port.to_string(), "--file"]);
        command.arg(self.folder.join("tables")).stdin(Stdio::null());
        with_clock(&mut command, &self.folder.join("clock"))?;
        self.process = Some(command.spawn()?);
        for _ in 0..1000 {
            if TcpStream::connect(self.address()).is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err("the DynamoDB does not listen".into())
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.kill());
            drop(process.wait());
        }
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let process = self.process.as_ref().and_then(|child| i32::try_from(child.id()).ok());
        if let Some(pid) = process.and_then(Pid::from_raw) {
            kill_process(pid, signal)?;
        }
        Ok(())
    }
}

impl Drop for DynamoDb {
    fn drop(&mut self) {
        self.kill();
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

pub(crate) async fn serve_dynamodb(args: DynamoDbArgs) -> Result<(), Failure> {
    let file = args.file.to_str().ok_or("the folder for tests has a name that is not UTF-8")?;
    let database = dynoxide::Database::new(file).map_err(|error| error.to_string())?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", args.port)).await?;
    dynoxide::server::serve_on(listener, database).await;
    Ok(())
}
