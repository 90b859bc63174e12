//! Serves Lease objects over HTTP, by the paths and parameters of Kubernetes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::kubernetes::objects::{Failure, Objects};

/// Answers one request.
pub(super) async fn serve(State(objects): State<Arc<Objects>>, request: Request) -> Response {
    match answer(&objects, request).await {
        Ok(response) => response,
        Err(failure) => {
            let code = StatusCode::from_u16(failure.code).expect("a status code");
            of_json(code, &failure.status())
        }
    }
}

async fn answer(objects: &Arc<Objects>, request: Request) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let unknown = || Failure::new(404, "NotFound", "the server could not find the resource");
    let path = parts.uri.path().strip_prefix(PATH).ok_or_else(unknown)?;
    let (namespace, rest) = path.split_once('/').ok_or_else(unknown)?;
    let name = rest.strip_prefix("leases").ok_or_else(unknown)?.strip_prefix('/');
    let verb = match (&parts.method, name) {
        (&Method::GET, None) if parameter(&parts.uri, "watch").is_some() => "watch",
        (&Method::GET, None) => "list",
        (&Method::GET, Some(_)) => "get",
        (&Method::POST, None) => "create",
        (&Method::PUT, Some(_)) => "update",
        (&Method::DELETE, Some(_)) => "delete",
        _ => return Err(Failure::new(405, "MethodNotAllowed", "the method is not supported")),
    };
    objects.admit(verb, namespace)?;
    let name = name.unwrap_or_default();
    let value = match verb {
        "watch" => return Ok(watch(Arc::clone(objects), namespace, &parts.uri)),
        "list" => list(objects, namespace, &parts.uri)?,
        "get" => objects.get(namespace, name)?,
        "create" => objects.create(namespace, read(body).await?)?,
        "update" => objects.replace(namespace, name, read(body).await?)?,
        _ => objects.delete(namespace, name)?,
    };
    let code = if parts.method == Method::POST { StatusCode::CREATED } else { StatusCode::OK };
    Ok(of_json(code, &value))
}

async fn read(body: Body) -> Result<Value, Failure> {
    let too_large = |_| Failure::new(413, "RequestEntityTooLarge", "limit is 3145728");
    let bytes = to_bytes(body, 3 * 1024 * 1024).await.map_err(too_large)?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Failure::new(400, "BadRequest", error.to_string()))
}

/// A selector is the name of a label, without a value. The token of the next page is the version of the first page and
/// the last name of this one.
fn list(objects: &Objects, namespace: &str, uri: &Uri) -> Result<Value, Failure> {
    let label = parameter(uri, "labelSelector");
    let limit = parameter(uri, "limit").and_then(|limit| limit.parse().ok());
    let token = parameter(uri, "continue").unwrap_or_default();
    let (version, after) = match token.split_once('/') {
        Some((version, after)) => (version.parse().unwrap_or(0), after),
        None => (objects.version(), ""),
    };
    objects.check_version(version)?;
    let limit = limit.unwrap_or(usize::MAX - 1);
    let (items, has_more) = objects.list(namespace, label.as_deref(), after, limit);
    let last = items.last().filter(|_| has_more).and_then(|last| last["metadata"]["name"].as_str());
    let next = last.map_or_else(String::new, |last| format!("{version}/{last}"));
    Ok(json!({
        "kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "items": items,
        "metadata": { "resourceVersion": version.to_string(), "continue": next },
    }))
}

/// Without a version, begins with the objects that exist. If the version is forgotten, the answer is 200 all the same, and
/// an event has the error. Ends if the server has had no change for `timeoutSeconds`.
fn watch(objects: Arc<Objects>, namespace: &str, uri: &Uri) -> Response {
    let namespace = namespace.to_owned();
    let selector = parameter(uri, "fieldSelector");
    let name = selector.and_then(|text| text.strip_prefix("metadata.name=").map(str::to_owned));
    let seconds = parameter(uri, "timeoutSeconds").and_then(|seconds| seconds.parse().ok());
    let limit = Duration::from_secs(seconds.unwrap_or(300));
    let seen = parameter(uri, "resourceVersion").and_then(|version| version.parse::<u64>().ok());
    // Subscribes before the first read, so that no change is missed.
    let changed = objects.subscribe();
    let is_asked =
        |object: &Value| name.as_deref().is_none_or(|name| object["metadata"]["name"] == name);
    let (seen, first) = if let Some(seen) = seen.filter(|seen| *seen > 0) {
        (seen, Vec::new())
    } else {
        let seen = objects.version();
        let found = objects.all(&namespace).into_iter().filter(is_asked);
        (seen, found.map(|object| line("ADDED", &object)).collect())
    };
    let state = (objects, changed, seen, first);
    let lines = stream::unfold(state, move |(objects, mut changed, mut seen, mut waiting)| {
        let (namespace, name) = (namespace.clone(), name.clone());
        async move {
            while waiting.is_empty() {
                let changes = match objects.changes(&namespace, name.as_deref(), seen) {
                    Ok(changes) => changes,
                    Err(failure) => {
                        // Nothing follows.
                        seen = u64::MAX;
                        waiting.push(line("ERROR", &failure.status()));
                        continue;
                    }
                };
                for change in changes {
                    seen = change.version;
                    waiting.push(line(change.kind, &change.object));
                }
                if waiting.is_empty()
                    && !matches!(timeout(limit, changed.changed()).await, Ok(Ok(())))
                {
                    return None;
                }
            }
            let lines = waiting.concat();
            Some((Ok::<_, Infallible>(lines), (objects, changed, seen, Vec::new())))
        }
    });
    let body = Body::from_stream(lines);
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn line(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({ "type": kind, "object": object }))
}

fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.into_iter().find(|(found, _)| *found == name)?;
    Some(percent_decode_str(&value.replace('+', " ")).decode_utf8_lossy().into_owned())
}

fn of_json(code: StatusCode, value: &Value) -> Response {
    (code, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/";
