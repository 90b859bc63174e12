//! The spans of calls, of work under a lease, and of requests.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use lease_core::Locker;
use lease_memory::MemoryStore;
use lease_test_servers::warnings::listen_by;
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::obtained;

/// Notes each span as `parent > span field=value`, with the fields that have a value at its start.
#[derive(Debug, Clone, Default)]
struct Spans(Arc<Mutex<BTreeSet<String>>>);

#[derive(Default)]
struct Fields(Vec<String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if ["call", "key", "operation"].contains(&field.name()) {
            self.0.push(format!("{}={value:?}", field.name()));
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let span = context.span(id).unwrap();
        let parent = span.parent().map(|parent| format!("{} > ", parent.name()));
        let span = format!("{}{} {}", parent.unwrap_or_default(), span.name(), fields.0.join(" "));
        self.0.lock().unwrap().insert(span);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_have_spans_within_calls_and_work() {
    let spans = Spans::default();
    let _guard = listen_by(tracing_subscriber::registry().with(spans.clone()));
    let locker = Locker::new(MemoryStore::new());

    let lease = obtained(&locker, "job").await;
    lease
        .run_until_lost(async {
            drop(locker.holder(&"other".parse().unwrap()).await.unwrap());
        })
        .await
        .unwrap();
    lease.release().await.unwrap();

    let spans = spans.0.lock().unwrap();
    let has = |span: &str| assert!(spans.contains(span), "{span} is missing: {spans:#?}");
    has("lease call=\"obtain\" key=job");
    has("lease > store_request operation=\"obtain\"");
    has("lease_work key=job");
    has("lease_work > store_request operation=\"holder\"");
}
