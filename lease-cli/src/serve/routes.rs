//! The paths of the page.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::feed::Feed;
use super::guard::{self, OwnHosts};
use super::site::{STREAMS, Site};
use super::{changes, events, files, token};

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
        .route_layer(from_fn_with_state(site.token.clone(), token::require));
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

/// Far more than the longest change, a trigger with its arguments.
const LONGEST_BODY: usize = 64 * 1024;
