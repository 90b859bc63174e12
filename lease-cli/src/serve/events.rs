//! Sends the changes of a view to a browser, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive, KeepAliveStream};
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use tokio::sync::watch;

use super::feed::{Feed, Reading};
use super::rows::Rows;

type Events = BoxStream<'static, Result<Event, Infallible>>;

/// All rows first, and then what has changed. A slow browser skips readings, not changes.
pub(super) fn of(feed: &Feed) -> Sse<KeepAliveStream<Events>> {
    let events = events(feed.subscribe()).map(Ok).boxed();
    // Proxies close a connection without traffic, often after a minute.
    Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15)))
}

fn events(readings: watch::Receiver<Option<Reading>>) -> impl Stream<Item = Event> {
    stream::unfold((readings, None::<Arc<Rows>>), async |(mut readings, mut sent)| {
        loop {
            // At the end of the program.
            readings.changed().await.ok()?;
            let reading = readings.borrow_and_update().clone();
            let event = match reading {
                None => continue,
                Some(Err(fault)) => Event::default().event("fault").data(fault),
                Some(Ok(rows)) => {
                    let data = match &sent {
                        None => Some(rows.whole()),
                        Some(sent) => rows.since(sent),
                    };
                    sent = Some(rows);
                    // The page shows that its rows are of now, also if none has changed.
                    let Some(data) = data else {
                        return Some((Event::default().event("same").data("-"), (readings, sent)));
                    };
                    Event::default().event("rows").data(data)
                }
            };
            return Some((event, (readings, sent)));
        }
    })
}
