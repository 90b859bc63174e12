//! Sends the changes of a view to a browser, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;

use super::feed::{Feed, Reading};
use super::rows::Rows;

/// All rows first, and then what has changed. A slow browser skips readings, not changes. `place` is free again when
/// the browser leaves.
pub(super) fn of(feed: &Feed, place: OwnedSemaphorePermit) -> Response {
    let events = events(feed.subscribe()).flat_map(stream::iter).map(move |part| {
        let _place = &place;
        Ok::<_, Infallible>(part)
    });
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
}

/// Parts, so that all browsers share the data. `Sse` of axum copies it for each.
type Event = [Bytes; 3];

fn event(start: &'static str, data: impl Into<Bytes>) -> Event {
    [Bytes::from_static(start.as_bytes()), data.into(), Bytes::from_static(b"\n\n")]
}

fn events(readings: watch::Receiver<Option<Reading>>) -> impl Stream<Item = Event> {
    stream::unfold((readings, None::<Arc<Rows>>), async |(mut readings, mut sent)| {
        loop {
            match timeout(QUIET, readings.changed()).await {
                Ok(Ok(())) => {}
                // At the end of the program.
                Ok(Err(_closed)) => return None,
                Err(_elapsed) => return Some((event(":", ""), (readings, sent))),
            }
            let reading = readings.borrow_and_update().clone();
            let event = match reading {
                None => continue,
                // An empty line would end the event.
                Some(Err(fault)) => event("event: fault\ndata: ", fault.replace(['\n', '\r'], " ")),
                Some(Ok(rows)) => {
                    let data = match &sent {
                        None => Some(rows.whole()),
                        Some(sent) => rows.since(sent).map(Bytes::from),
                    };
                    let at = rows.at();
                    sent = Some(rows);
                    match data {
                        Some(data) => event("event: rows\ndata: ", data),
                        // The page shows that its rows are of now, also if none has changed.
                        None => event("event: same\ndata: ", at.to_string()),
                    }
                }
            };
            return Some((event, (readings, sent)));
        }
    })
}

/// Proxies close a connection without traffic, often after a minute.
const QUIET: Duration = Duration::from_secs(15);
