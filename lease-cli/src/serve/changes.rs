//! What a browser may change: it evicts holders, pauses, resumes and triggers jobs, and turns switches on and off.
//!
//! [`require`](super::token::require) has checked the token.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lease_core::store::LockStore;
use lease_core::{GrantId, LeaseKey, StoreError, StoreErrorKind, Switch, TableSwitch};
use lease_scheduler::{JobControl, Trigger, Triggered};
use serde::Deserialize;

use super::operator::{self, Operator};
use super::site::Site;
use crate::exit::sentence;

/// The grant is the one that the page has shown, so that no later holder is evicted.
#[derive(Debug, Deserialize)]
pub(super) struct Eviction {
    key: String,
    grant: String,
    #[serde(flatten)]
    operator: Operator,
}

#[derive(Debug, Deserialize)]
pub(super) struct OfJob {
    job: String,
    #[serde(flatten)]
    operator: Operator,
}

/// A trigger with the id of an earlier one starts no second run.
#[derive(Debug, Deserialize)]
pub(super) struct TriggerOfJob {
    job: String,
    id: String,
    #[serde(default)]
    arguments: BTreeMap<String, String>,
    #[serde(flatten)]
    operator: Operator,
}

#[derive(Debug, Deserialize)]
pub(super) struct OfSwitch {
    key: String,
    #[serde(flatten)]
    operator: Operator,
}

/// The status of the answer, and a sentence for the operator and the log.
type Answer = (StatusCode, String);

pub(super) async fn evict(
    State(site): State<Arc<Site>>,
    Json(Eviction { key, grant, operator }): Json<Eviction>,
) -> Response {
    let change = format!("evict {key}, grant {grant}");
    perform(site, key, change, &operator, |site, key| async move {
        let key = LeaseKey::new(key).map_err(refused)?;
        if !site.store.evict(&key, &GrantId::new(grant)).await? {
            return Ok((StatusCode::CONFLICT, format!("this grant does not hold {key}")));
        }
        // The holder is evicted, also if this read fails.
        let holder = site.store.holder(&key).await.unwrap_or_default();
        let left = holder.and_then(|holder| holder.expires_in);
        let within = left.map_or_else(
            || "when its ttl has passed".to_owned(),
            |left| format!("within {} s", left.as_secs() + 1),
        );
        let text = "evicted: the holder stops at its next heartbeat";
        Ok((StatusCode::OK, format!("{text}. If it is dead, {key} is free {within}")))
    })
    .await
}

pub(super) async fn pause(
    State(site): State<Arc<Site>>,
    Json(OfJob { job, operator }): Json<OfJob>,
) -> Response {
    let why = operator.line().unwrap_or_default();
    let change = format!("pause {job}");
    perform(site, job, change, &operator, |site, job| async move {
        control(&site)?.pause(&job, &why).await?;
        Ok((StatusCode::OK, format!("paused: no tick of {job} starts until it is resumed")))
    })
    .await
}

pub(super) async fn resume(
    State(site): State<Arc<Site>>,
    Json(OfJob { job, operator }): Json<OfJob>,
) -> Response {
    let change = format!("resume {job}");
    perform(site, job, change, &operator, |site, job| async move {
        control(&site)?.resume(&job).await?;
        Ok((StatusCode::OK, format!("resumed: ticks of {job} start again")))
    })
    .await
}

pub(super) async fn trigger(
    State(site): State<Arc<Site>>,
    Json(TriggerOfJob { job, id, arguments, operator }): Json<TriggerOfJob>,
) -> Response {
    let change = format!("trigger {job}");
    perform(site, job, change, &operator, |site, job| async move {
        let trigger = arguments
            .into_iter()
            .fold(Trigger::new().with_id(id), |all, (name, value)| all.with_argument(name, value));
        Ok(match control(&site)?.trigger(&job, &trigger).await? {
            Triggered::Accepted(number) => {
                (StatusCode::OK, format!("trigger {number} of {job} waits for a scheduler"))
            }
            Triggered::Repeated(number) => {
                (StatusCode::OK, format!("trigger {number} of {job} was sent before"))
            }
            Triggered::OtherWaits(number) => {
                (StatusCode::CONFLICT, format!("trigger {number} of {job} waits already"))
            }
            other => (StatusCode::INTERNAL_SERVER_ERROR, format!("unknown result: {other:?}")),
        })
    })
    .await
}

pub(super) async fn turn_on(
    State(site): State<Arc<Site>>,
    Json(OfSwitch { key, operator }): Json<OfSwitch>,
) -> Response {
    let change = format!("turn on {key}");
    perform(site, key, change, &operator, |site, key| async move {
        switch(&site, &key)?.turn_on().await?;
        Ok((StatusCode::OK, format!("turned on: the work of {key} may run")))
    })
    .await
}

pub(super) async fn turn_off(
    State(site): State<Arc<Site>>,
    Json(OfSwitch { key, operator }): Json<OfSwitch>,
) -> Response {
    let change = format!("turn off {key}");
    perform(site, key, change, &operator, |site, key| async move {
        switch(&site, &key)?.turn_off().await?;
        Ok((StatusCode::OK, format!("turned off: no work of {key} starts until it is turned on")))
    })
    .await
}

/// Changes the key or job `name`, and writes the change and its result to the log.
async fn perform<W>(
    site: Arc<Site>,
    name: String,
    change: String,
    operator: &Operator,
    work: impl FnOnce(Arc<Site>, String) -> W,
) -> Response
where
    W: Future<Output = Result<Answer, StoreError>> + Send + 'static,
{
    let by = match operator.line() {
        Ok(by) => by,
        Err(missing) => return (StatusCode::BAD_REQUEST, missing).into_response(),
    };
    if !name.starts_with(&site.prefix) {
        let text =
            format!("{name} does not start with {}, which this page is limited to", site.prefix);
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    // Before the work, so that the log has the change also if this process is killed meanwhile.
    operator::record(&change, &by, "asked");
    let work = work(Arc::clone(&site), name);
    // A browser that leaves drops this future. The change continues, and the log gets its result.
    let task = site.changes.spawn(async move {
        let (status, text) = work.await.unwrap_or_else(|error| failed(&error));
        operator::record(&change, &by, &text);
        (status, text)
    });
    let failure = |_panic| (StatusCode::INTERNAL_SERVER_ERROR, "the change failed".to_owned());
    task.await.unwrap_or_else(failure).into_response()
}

fn failed(error: &StoreError) -> Answer {
    match error.kind() {
        StoreErrorKind::Refused => (StatusCode::BAD_REQUEST, sentence(error)),
        StoreErrorKind::Unsupported => (StatusCode::NOT_IMPLEMENTED, sentence(error)),
        _ => {
            let text = format!("it is not known whether this was done: {}", sentence(error));
            (StatusCode::SERVICE_UNAVAILABLE, text)
        }
    }
}

fn control(site: &Site) -> Result<&JobControl, StoreError> {
    let none = || StoreError::new(StoreErrorKind::Unsupported, "this store keeps no records");
    site.control.as_ref().ok_or_else(none)
}

/// Only the switches of the command line, so that the page writes to no other record.
fn switch<'a>(site: &'a Site, key: &str) -> Result<&'a TableSwitch, StoreError> {
    let none = || StoreError::new(StoreErrorKind::Refused, "this page does not have this switch");
    site.switches.get(key).ok_or_else(none)
}

fn refused(error: lease_core::InvalidInput) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, error)
}
