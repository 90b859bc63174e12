//! `lease jobs`: lists what lease-scheduler keeps in its records. `lease shards` reads records in the same way.

use std::sync::Arc;

use futures_util::TryStreamExt;
use lease_core::store::{LeaseRecord, LeaseTable};
use lease_core::{Attributes, Value};

use crate::commands::Context;
use crate::exit::{Exit, Failure};
use crate::output::Record;
use crate::store;

/// Lists the jobs of schedulers, each with its last runs.
pub(crate) async fn jobs(context: &Context, prefix: &str) -> Result<Exit, Failure> {
    let rows = records(context, prefix).await?;
    let is_job = |row: &&LeaseRecord| row.attributes.keys().any(|name| name.starts_with("job_"));
    let runs: Vec<_> = rows.iter().filter(is_job).flat_map(runs).collect();
    context.output.list(&runs)?;
    Ok(Exit::SUCCESS)
}

/// The runs of a job, the last one first. A job without a run has one line.
fn runs(row: &LeaseRecord) -> Vec<Record> {
    let running = row.attributes.get("job_running").into_iter();
    let past = match row.attributes.get("job_history") {
        Some(Value::List(past)) => past.as_slice(),
        _ => &[],
    };
    let mut runs: Vec<_> = running.chain(past.iter().rev()).map(|run| line(row, run)).collect();
    if runs.is_empty() {
        runs.push(line(row, &Value::Map(Attributes::new())));
    }
    runs
}

fn line(row: &LeaseRecord, run: &Value) -> Record {
    let fields = match run {
        Value::Map(fields) => fields.clone(),
        _ => Attributes::new(),
    };
    let text = |name: &str| text_of(&fields, name);
    // Without an end, the run lasts if its lease is held.
    let ending = match (text("ending"), text("began"), &row.holder) {
        (None, Some(_), Some(_)) => Some("running".to_owned()),
        (None, Some(_), None) => Some("died".to_owned()),
        (ending, ..) => ending,
    };
    Record::new()
        .with("job", row.key.as_str())
        .with("schedule", text_of(&row.attributes, "job_schedule"))
        .with("scheduled", text("scheduled"))
        .with("began", text("began"))
        .with("ended", text("ended"))
        .with("ending", ending)
        .with("by", text("by"))
        .with("note", text("note"))
}

/// An attribute as text. `None` if it is missing, or neither a text nor a number.
pub(super) fn text_of(attributes: &Attributes, name: &str) -> Option<String> {
    match attributes.get(name)? {
        Value::Text(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::List(items) => {
            Some(items.iter().filter_map(Value::as_text).collect::<Vec<_>>().join(","))
        }
        _ => None,
    }
}

/// Reads the records whose keys start with `prefix`, in order.
pub(super) async fn records(context: &Context, prefix: &str) -> Result<Vec<LeaseRecord>, Failure> {
    let table = table(context).await?;
    let mut records: Vec<LeaseRecord> = table.list(prefix).try_collect().await?;
    records.sort_by(|one, other| one.key.cmp(&other.key));
    Ok(records)
}

async fn table(context: &Context) -> Result<Arc<dyn LeaseTable>, Failure> {
    let none = || Failure::new(Exit::CONFIGURATION, "this store keeps no records");
    store::open(context.url.as_deref()).await?.table().ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_without_an_end_and_without_a_holder_died() {
        let run = Attributes::from([("began".to_owned(), Value::from("2026-11-25T03:00:00Z"))]);
        let history = Value::List(vec![Value::Map(run)]);
        let attributes = Attributes::from([("job_history".to_owned(), history)]);
        let row = LeaseRecord::new("nightly".parse().unwrap(), None, None, attributes);

        let found = runs(&row);

        assert_eq!(found.len(), 1);
        assert!(found[0].json().contains("\"ending\":\"died\""), "{}", found[0].json());
    }
}
