//! Free ports for servers.

use std::net::{TcpListener, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::sync::lock;

/// Returns a free port below the range of ephemeral ports. The port 10,000 above is free, too: a node
/// of a Cluster listens there.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    static TAKEN: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());
    // Test programs run side by side: each begins its search somewhere else.
    let start = u16::try_from(std::process::id() % 200).unwrap_or(0) * 100;
    loop {
        let port = 11_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        // The server listens only a moment later, and another program may choose the port meanwhile:
        // both would use the same server. So a process reserves the number by binding the UDP port,
        // which no server uses, until the process ends.
        let Ok(taken) = UdpSocket::bind(("127.0.0.1", port)) else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok()
            && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok()
        {
            lock(&TAKEN).push(taken);
            return port;
        }
    }
}
