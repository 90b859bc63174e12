//! The paths of the page.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use lease_scheduler::JobControl;
use lease_store::AnyStore;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::feed::Feed;
use super::guard::{self, OwnHosts};
use super::token::{self, Token};
use super::views::switches::ByKey;
use super::{changes, events, files};

/// What the handlers need.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) store: AnyStore,
    /// `None` if the store keeps no records, as for the two feeds.
    pub(super) control: Option<JobControl>,
    /// The switches of the command line. Empty if the store keeps no records.
    pub(super) switches: ByKey,
    pub(super) leases: Feed,
    pub(super) jobs: Option<Feed>,
    /// `None` also without the name of an application.
    pub(super) shards: Option<Feed>,
    /// `None` without switches.
    pub(super) switch_rows: Option<Feed>,
    /// All keys and jobs that the page shows and changes start with it.
    pub(super) prefix: String,
    /// How often the store is read.
    pub(super) interval: Duration,
    /// A permit for each browser that may show rows.
    pub(super) streams: Arc<Semaphore>,
    /// The changes that run.
    pub(super) changes: TaskTracker,
    /// `None` if the page changes nothing.
    pub(super) token: Option<Token>,
}

pub(super) fn router(site: Site, hosts: OwnHosts) -> Router {
    let site = Arc::new(site);
    // Each path that changes something is here, so that each needs a POST and the token.
    let changes = Router::new()
        .route("/evict", post(changes::evict))
        .route("/pause", post(changes::pause))
        .route("/resume", post(changes::resume))
        .route("/trigger", post(changes::trigger))
        .route("/turn-on", post(changes::turn_on))
        .route("/turn-off", post(changes::turn_off))
        .route_layer(from_fn_with_state(Arc::clone(&site), token::require));
    Router::new()
        .merge(files::router())
        .route("/settings", get(settings))
        .route("/events/leases", get(leases))
        .route("/events/jobs", get(jobs))
        .route("/events/shards", get(shards))
        .route("/events/switches", get(switches))
        .nest("/changes", changes)
        .layer(DefaultBodyLimit::max(LONGEST_BODY))
        // The last layer is the first that sees a request.
        .layer(from_fn_with_state(Arc::new(hosts), guard::check))
        .with_state(site)
}

/// What the page shows, and whether it may change something.
async fn settings(State(site): State<Arc<Site>>) -> Json<Value> {
    let views = [
        ("leases", true),
        ("jobs", site.jobs.is_some()),
        ("shards", site.shards.is_some()),
        ("switches", site.switch_rows.is_some()),
    ];
    let views: Vec<_> = views.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name).collect();
    let interval = u64::try_from(site.interval.as_millis()).unwrap_or(u64::MAX);
    Json(json!({ "views": views, "changes": site.token.is_some(), "interval": interval }))
}

async fn leases(State(site): State<Arc<Site>>) -> Response {
    live(&site, Some(&site.leases))
}

async fn jobs(State(site): State<Arc<Site>>) -> Response {
    live(&site, site.jobs.as_ref())
}

async fn shards(State(site): State<Arc<Site>>) -> Response {
    live(&site, site.shards.as_ref())
}

async fn switches(State(site): State<Arc<Site>>) -> Response {
    live(&site, site.switch_rows.as_ref())
}

fn live(site: &Site, feed: Option<&Feed>) -> Response {
    let Some(feed) = feed else { return StatusCode::NOT_FOUND.into_response() };
    match Arc::clone(&site.streams).try_acquire_owned() {
        Ok(place) => events::of(feed, place),
        Err(_full) => {
            let text = format!("{STREAMS} browsers show this page already\n");
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

/// Browsers that a page shows rows to. Each one may hold a copy of the rows that it has not taken yet.
pub(super) const STREAMS: usize = 32;

/// Far more than the longest change, a trigger with its arguments.
const LONGEST_BODY: usize = 64 * 1024;
