//! A DynamoDB server in another process: in this process, its work would count as the clients' work.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use aws_sdk_dynamodb::Client;
use lease_test_servers::dynamodb::{Server, client_of};
use tokio::task::spawn_blocking;

/// A second process of this program that serves until this handle is dropped.
pub(crate) struct DynamoDb {
    process: Child,
    address: SocketAddr,
}

impl DynamoDb {
    pub(crate) fn start() -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .arg("--serve-dynamodb")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { process, address: address.trim().parse().unwrap() }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn client(&self) -> Client {
        client_of(self.address)
    }
}

impl Drop for DynamoDb {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Serves until the parent process closes standard input.
pub(crate) async fn serve() {
    let server = Server::dynoxide().await;
    println!("{}", server.address());
    let until_closed = || std::io::stdin().read_to_end(&mut Vec::new());
    // An error ends the server, too.
    drop(spawn_blocking(until_closed).await);
}
