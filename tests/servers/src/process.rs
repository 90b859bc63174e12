//! Servers in child processes.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// A process that is killed when this is dropped, also when the test fails.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Runs `command`, and waits until it listens at `port` of this machine.
    ///
    /// # Panics
    ///
    /// If it does not listen within five minutes.
    pub(crate) async fn listening(mut command: Command, port: u16) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        let process = Self(child);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let listening = async {
            while TcpStream::connect(address).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(5), listening)
            .await
            .expect("the server listens within five minutes");
        process
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

pub(crate) async fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    listener.local_addr().expect("its address").port()
}
