//! The start of a daemon before the services that it needs can be reached.

use std::io::{Read, Write};
use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::place::Place;
use crate::usage::{without_credentials, written};

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

/// Nothing listens at port 9.
const CLOSED: &str = "http://127.0.0.1:9";

#[test]
fn daemon_waits_for_metadata_of_its_instance() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    for address in [CLOSED, &silent] {
        let (output, stderr) = without_credentials(
            "InstanceProfileCredentialsProvider",
            &[
                ("AWS_EC2_METADATA_DISABLED", "false"),
                ("AWS_EC2_METADATA_SERVICE_ENDPOINT", address),
            ],
        );

        assert_eq!(output.status.code(), Some(0), "{address}: {stderr}");
        assert!(stderr.contains("stopping, nothing was started"), "{stderr}");
        assert!(stderr.contains("could not communicate with IMDS"), "{stderr}");
    }
}

fn with_web_identity(address: &str) -> (std::process::Output, String) {
    let token = written("a token");
    let variables = [
        ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/orders"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", &token),
        ("AWS_ENDPOINT_URL_STS", address),
    ];
    without_credentials("DefaultCredentialsProvider", &variables)
}

#[test]
fn daemon_waits_for_the_service_that_issues_its_credentials() {
    let (output, stderr) = with_web_identity(CLOSED);

    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("stopping, nothing was started"), "{stderr}");
}

#[test]
fn refused_credentials_end_the_daemon_at_once() {
    let address = refusing_service();

    let (output, stderr) = with_web_identity(&format!("http://{address}"));

    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("AccessDenied") && !stderr.contains("retrying"), "{stderr}");
}

/// Answers each request with an error of the Security Token Service.
fn refusing_service() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut connection, _)) = listener.accept() {
            // The request is small, and the test never reads it.
            let _length = connection.read(&mut [0; 8192]).unwrap();
            let body = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>\
                 <Message>not yours</Message></Error></ErrorResponse>";
            let length = body.len();
            let head = format!(
                "HTTP/1.1 403 Forbidden\r\nContent-Type: text/xml\r\nConnection: close\r\n\
                 Content-Length: {length}\r\n\r\n"
            );
            connection.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
    });
    address
}
