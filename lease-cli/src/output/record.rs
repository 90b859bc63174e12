//! One line of output.

use std::time::Duration;

use lease_core::{FencingToken, GrantId, Holder};
use serde_json::{Map, Value};

use crate::started::start_of;

/// Named values, in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Record {
    fields: Vec<Field>,
}

#[derive(Debug, Clone)]
struct Field {
    name: &'static str,
    value: Value,
    text: String,
}

impl Record {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a field. Its text is the value, or `–` for null.
    pub(crate) fn with(self, name: &'static str, value: impl Into<Value>) -> Self {
        let value = value.into();
        let text = match &value {
            Value::Null => "–".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.with_text(name, value, text)
    }

    /// Adds a field whose text is not its JSON value.
    pub(crate) fn with_text(
        mut self,
        name: &'static str,
        value: impl Into<Value>,
        text: impl Into<String>,
    ) -> Self {
        self.fields.push(Field { name, value: value.into(), text: text.into() });
        self
    }

    /// Adds a length of time: seconds in JSON.
    pub(crate) fn with_time(self, name: &'static str, time: Option<Duration>) -> Self {
        let Some(time) = time else { return self.with(name, Value::Null) };
        // Whole tenths, since nobody needs more.
        let tenths = time.as_millis().div_ceil(100);
        let seconds = f64::from(u32::try_from(tenths).unwrap_or(u32::MAX)) / 10.0;
        self.with_text(name, seconds, format!("{seconds}s"))
    }

    /// Adds the holder of a key, or its absence: lessee, grant, token, remaining time, start.
    pub(crate) fn with_holder(self, holder: Option<&Holder>) -> Self {
        let token = holder.and_then(|holder| holder.token).map(FencingToken::get);
        let grant = holder.and_then(|holder| holder.grant.as_ref()).map(GrantId::as_str);
        self.with("holder", holder.map(|holder| holder.lessee.as_str()))
            .with("grant", grant)
            .with("token", token)
            .with_time("expires_in", holder.and_then(|holder| holder.expires_in))
            .with("started", holder.and_then(|holder| start_of(&holder.lessee)))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| field.name)
    }

    /// The texts of the fields. A tab or a line break within a text becomes a space.
    pub(super) fn texts(&self) -> Vec<String> {
        self.fields.iter().map(|field| field.text.replace(['\t', '\n', '\r'], " ")).collect()
    }

    pub(crate) fn json(&self) -> String {
        let fields = self.fields.iter().map(|field| (field.name.to_owned(), field.value.clone()));
        Value::Object(fields.collect::<Map<_, _>>()).to_string()
    }
}
