//! Free ports for servers.

use std::net::{TcpListener, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::sync::lock;

/// Returns a free port from 11,000 to 20,999. A node of a Cluster also listens on the port 10,000
/// above, which is free, too.
///
/// Ports of outgoing connections begin at 32,768. A connection could take such a port before the
/// server listens.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    static TAKEN: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());
    // Test programs run side by side, so each program begins its search at another port.
    let start = u16::try_from(std::process::id() % 100).unwrap_or(0) * 100;
    loop {
        let port = 11_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
        // The server listens only later, and another program could choose the same port meanwhile.
        // So this process binds the UDP port, which no server uses, until the process ends.
        let Ok(taken) = UdpSocket::bind(("127.0.0.1", port)) else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok()
            && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok()
        {
            lock(&TAKEN).push(taken);
            return port;
        }
    }
}
