//! Free ports for servers.

use std::net::{TcpListener, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::sync::lock;

/// Returns a free port from 11,000 to 20,999. The port 10,000 above it is also free: a node of a Cluster
/// listens there.
///
/// Both ports are below 32,768, where the ports of outgoing connections begin. Otherwise a connection could
/// take the port before the server listens.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    static TAKEN: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());
    // Test programs run side by side, so each program begins its search at another port.
    let start = u16::try_from(std::process::id() % 100).unwrap_or(0) * 100;
    loop {
        let port = 11_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
        // The server listens only a moment later. Another program could choose the port meanwhile, and
        // both would use the same server. So this process reserves the number until it ends: it binds
        // the UDP port, which no server uses.
        let Ok(taken) = UdpSocket::bind(("127.0.0.1", port)) else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok()
            && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok()
        {
            lock(&TAKEN).push(taken);
            return port;
        }
    }
}
