//! Notes the spans that begin.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// Notes each span as `parent > span field=value`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spans(Arc<Mutex<BTreeSet<String>>>);

impl Spans {
    pub(crate) fn has(&self, span: &str) -> bool {
        self.0.lock().unwrap().contains(span)
    }
}

#[derive(Default)]
struct Fields(Vec<String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if ["call", "attempt", "key"].contains(&field.name()) {
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
