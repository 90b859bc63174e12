//! DynamoDB servers in other processes: in this process, their work would count as the clients' work.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use aws_sdk_dynamodb::Client;
use lease_test_servers::dynamodb::{Server, client_of};
use tokio::task::spawn_blocking;

use crate::canned_dynamodb::Received;

/// A second process of this program that serves until this handle is dropped.
struct ServerProcess {
    process: Child,
    lines: BufReader<ChildStdout>,
    address: SocketAddr,
}

/// An emulator of DynamoDB.
pub(crate) struct DynamoDb(ServerProcess);

/// A server that answers each request at once with a fixed reply.
pub(crate) struct CannedDynamoDb(ServerProcess);

impl ServerProcess {
    fn start(argument: &str) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .arg(argument)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        let address = line(&mut lines).parse().unwrap();
        Self { process, lines, address }
    }
}

impl DynamoDb {
    pub(crate) fn start() -> Self {
        Self(ServerProcess::start("--serve-dynamodb"))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    pub(crate) fn client(&self) -> Client {
        client_of(self.address())
    }
}

impl CannedDynamoDb {
    pub(crate) fn start() -> Self {
        Self(ServerProcess::start("--serve-canned-dynamodb"))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Returns the numbers of requests and bytes that clients have sent so far.
    pub(crate) fn received(&mut self) -> Received {
        let ServerProcess { process, lines, .. } = &mut self.0;
        writeln!(process.stdin.as_mut().unwrap()).unwrap();
        Received::parse(&line(lines))
    }
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Serves until the parent process closes the standard input of this process.
pub(crate) async fn serve() {
    let server = Server::dynoxide().await;
    println!("{}", server.address());
    let until_closed = || std::io::stdin().read_to_end(&mut Vec::new());
    // A read error ends the server, too.
    drop(spawn_blocking(until_closed).await);
}
