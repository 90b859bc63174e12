//! Serves connections, and ends those whose client sends or takes nothing.
//!
//! `axum::serve` has no time limits, and no limit of connections.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;

/// Accepts connections until the caller drops this. Never completes otherwise.
pub(super) async fn serve(mut listener: TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    // Nothing closes the semaphore.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let (stream, _from) = Listener::accept(&mut listener).await;
        let router = router.clone();
        tokio::spawn(async move {
            connection(stream, router).await;
            drop(place);
        });
    }
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Send + 'static, router: Router) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(NOT_TAKEN));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(NO_HEAD)
        .serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router));
    // A client that leaves is no fault of this program.
    drop(served.await);
}

/// Far more than [`site`](super::site) has streams, so that other requests find places.
const CONNECTIONS: usize = 256;
/// How long a client may take for the head of a request, also of the next one on the same connection.
const NO_HEAD: Duration = Duration::from_secs(30);
/// How long a client may take nothing of an answer.
const NOT_TAKEN: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use axum::body::{Body, Bytes};
    use axum::routing::get;
    use futures_util::stream;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::task::JoinHandle;
    use tokio::time::{sleep, timeout};

    use super::*;

    /// An answer without an end.
    fn endless() -> Router {
        let parts =
            || stream::repeat(Ok::<_, std::convert::Infallible>(Bytes::from_static(&[0; 1000])));
        Router::new().route("/", get(async move || Body::from_stream(parts())))
    }

    fn connected() -> (tokio::io::DuplexStream, JoinHandle<()>) {
        let (client, server) = duplex(10_000);
        (client, tokio::spawn(connection(server, endless())))
    }

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    #[tokio::test(start_paused = true)]
    async fn client_that_takes_nothing_is_disconnected() {
        let (mut client, ends) = connected();
        client.write_all(REQUEST).await.unwrap();

        timeout(2 * NOT_TAKEN, ends).await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn slow_client_stays_connected() {
        let (mut client, ends) = connected();
        client.write_all(REQUEST).await.unwrap();

        for _ in 0..20 {
            sleep(NOT_TAKEN / 2).await;
            client.read_exact(&mut [0; 10_000]).await.unwrap();
        }

        assert!(!ends.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn client_without_a_whole_request_is_disconnected() {
        let (mut client, ends) = connected();
        client.write_all(&REQUEST[..10]).await.unwrap();

        timeout(2 * NO_HEAD, ends).await.unwrap().unwrap();
    }
}
