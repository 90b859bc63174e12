//! The start of a daemon before its table can be reached.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::place::Place;

#[tokio::test(flavor = "multi_thread")]
async fn daemon_starts_when_dynamodb_is_reached() {
    let place = Place::of_shards(1, "sh").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let place = place.with(&format!("dynamoDBEndpoint = http://{address}"));
    let daemon = place.start("one");
    daemon.until_logged("daemon not started, retrying").await;
    assert!(daemon.log().contains("not reached"), "{}", daemon.log());

    let listener = TcpListener::bind(address).await.unwrap();
    let table = place.dynamodb_address();
    let forwarding = tokio::spawn(async move {
        while let Ok((mut daemon, _)) = listener.accept().await {
            let mut server = TcpStream::connect(&table).await.unwrap();
            tokio::spawn(async move { drop(copy_bidirectional(&mut daemon, &mut server).await) });
        }
    });

    daemon.until_logged("daemon started").await;
    daemon.stop().await;
    forwarding.abort();
}
