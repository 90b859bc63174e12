//! Servers in child processes.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;

/// A child process. A drop kills the process, also when the test fails.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Runs `command`, and waits until the process listens at `port` of this machine.
    ///
    /// # Panics
    ///
    /// Panics if the process ends, or does not listen within five minutes.
    pub(crate) async fn listening(mut command: Command, port: u16) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        let mut process = Self(child);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let listening = async {
            while TcpStream::connect(address).await.is_err() {
                let ended = process.0.try_wait().expect("the server's state");
                assert!(ended.is_none(), "the server has ended: {command:?}, {ended:?}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(5), listening)
            .await
            .expect("the server listens within five minutes");
        process
    }

    /// Whether the process has ended by itself.
    #[cfg(feature = "prometheus")]
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("the server's state").is_some()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
