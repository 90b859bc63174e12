//! DynamoDB servers in other processes, so that their work does not count as the clients' work.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use aws_sdk_dynamodb::Client;
use lease_test_servers::dynamodb::{Server, client_of};
use tokio::task::spawn_blocking;

use crate::canned_dynamodb::Received;

struct ServerProcess {
    process: Child,
    lines: BufReader<ChildStdout>,
    address: SocketAddr,
}

pub(crate) struct DynamoDb(ServerProcess);

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
        // The process may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Ends when the parent process closes the standard input of this process.
pub(crate) async fn serve() {
    let server = Server::dynoxide().await;
    println!("{}", server.address());
    let until_closed = || std::io::stdin().read_to_end(&mut Vec::new());
    drop(spawn_blocking(until_closed).await);
}
