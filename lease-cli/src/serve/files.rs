//! The files that a browser loads. They are part of the program, and load nothing else.

use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;

use super::site::Site;

pub(super) fn router() -> Router<Arc<Site>> {
    FILES.into_iter().fold(Router::new(), |router, (path, kind, text)| {
        router.route(path, get(async move || ([(CONTENT_TYPE, kind)], text)))
    })
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const FILES: [(&str, &str, &str); 10] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/page.css", CSS, include_str!("page/page.css")),
    ("/main.js", SCRIPT, include_str!("page/main.js")),
    ("/table.js", SCRIPT, include_str!("page/table.js")),
    ("/change.js", SCRIPT, include_str!("page/change.js")),
    ("/time.js", SCRIPT, include_str!("page/time.js")),
    ("/leases.js", SCRIPT, include_str!("page/leases.js")),
    ("/jobs.js", SCRIPT, include_str!("page/jobs.js")),
    ("/shards.js", SCRIPT, include_str!("page/shards.js")),
    ("/switches.js", SCRIPT, include_str!("page/switches.js")),
];
