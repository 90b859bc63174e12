//! Lease objects, their versions and their changes.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::{Value, json};
use tokio::sync::watch;
use uuid::Uuid;

use crate::sync::lock;

/// A refusal, as the API server answers it.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// A change of an object, for watches.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) namespace: String,
    pub(super) name: String,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub(super) kind: &'static str,
    pub(super) object: Value,
}

#[derive(Debug)]
pub(super) struct Objects {
    state: Mutex<State>,
    version: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// Numbers all writes and deletions, as etcd does.
    version: u64,
    by_name: BTreeMap<(String, String), Value>,
    changes: Vec<Change>,
    /// Changes up to this version are forgotten.
    compacted: u64,
    refusal: Option<(u16, &'static str)>,
    /// The verbs that a Role has; `None` if the account may do everything.
    permitted: Option<Vec<String>>,
    /// The verbs of the requests since the last call of `take_requests`.
    requests: Vec<&'static str>,
    /// Whether replacements are treated as if they had no uid.
    ignores_uids: bool,
}

type Answer = Result<Value, Failure>;

impl Default for Objects {
    fn default() -> Self {
        let state = State { version: 1, ..State::default() };
        Self { state: Mutex::new(state), version: watch::Sender::new(1) }
    }
}

impl Objects {
    /// Notes a request. Fails if all requests are refused, or if the account lacks the verb.
    pub(super) fn admit(&self, verb: &'static str, namespace: &str) -> Result<(), Failure> {
        let mut state = lock(&self.state);
        state.requests.push(verb);
        if let Some((code, reason)) = state.refusal {
            return Err(Failure::new(code, reason, "the test refuses all requests"));
        }
        if state.permitted.as_ref().is_some_and(|verbs| !verbs.iter().any(|found| found == verb)) {
            let message = format!(
                "leases.coordination.k8s.io is forbidden: User \"system:serviceaccount:{namespace}:default\" \
                 cannot {verb} resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \
                 \"{namespace}\""
            );
            return Err(Failure::new(403, "Forbidden", message));
        }
        Ok(())
    }

    pub(super) fn take_requests(&self) -> Vec<&'static str> {
        std::mem::take(&mut lock(&self.state).requests)
    }

    pub(super) fn refuse(&self, refusal: Option<(u16, &'static str)>) {
        lock(&self.state).refusal = refusal;
    }

    pub(super) fn permit(&self, verbs: &[&str]) {
        lock(&self.state).permitted = Some(verbs.iter().map(ToString::to_string).collect());
    }

    pub(super) fn ignore_uids(&self) {
        lock(&self.state).ignores_uids = true;
    }

    /// All objects of a namespace.
    pub(super) fn all(&self, namespace: &str) -> Vec<Value> {
        self.list(namespace, None, "", usize::MAX - 1).0
    }

    pub(super) fn compact(&self) {
        let mut state = lock(&self.state);
        state.compacted = state.version;
        state.changes.clear();
        // Watches find out that their versions are forgotten.
        self.version.send_modify(|_| ());
    }

    pub(super) fn get(&self, namespace: &str, name: &str) -> Answer {
        let found = lock(&self.state).by_name.get(&at(namespace, name)).cloned();
        found.ok_or_else(|| not_found("leases.coordination.k8s.io", name))
    }

    pub(super) fn create(&self, namespace: &str, object: Value) -> Answer {
        if namespace == "absent" {
            return Err(not_found("namespaces", namespace));
        }
        let name = text(&object, "/metadata/name");
        if !text(&object, "/metadata/resourceVersion").is_empty() {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Failure::new(400, "BadRequest", message));
        }
        let mut state = lock(&self.state);
        if state.by_name.contains_key(&at(namespace, &name)) {
            let message = format!("leases.coordination.k8s.io {name:?} already exists");
            return Err(Failure::new(409, "AlreadyExists", message));
        }
        self.write(&mut state, namespace, object, None)
    }

    /// A Lease object may be created by a replacement: then its version is not compared, but its uid is.
    pub(super) fn replace(&self, namespace: &str, name: &str, object: Value) -> Answer {
        let (version, uid) =
            (text(&object, "/metadata/resourceVersion"), text(&object, "/metadata/uid"));
        let mut state = lock(&self.state);
        let Some(found) = state.by_name.get(&at(namespace, name)).cloned() else {
            if !uid.is_empty() && !state.ignores_uids {
                return Err(conflict(
                    name,
                    "the UID in the precondition is not that of the object",
                ));
            }
            return self.write(&mut state, namespace, object, None);
        };
        if version.is_empty() {
            let message = "metadata.resourceVersion: must be specified for an update";
            return Err(Failure::new(422, "Invalid", message));
        }
        let is_of_this = uid.is_empty() || uid == text(&found, "/metadata/uid");
        if version != text(&found, "/metadata/resourceVersion") || !is_of_this {
            return Err(conflict(name, "the object has been modified"));
        }
        self.write(&mut state, namespace, object, Some(&found))
    }

    pub(super) fn delete(&self, namespace: &str, name: &str) -> Answer {
        let mut state = lock(&self.state);
        let removed = state.by_name.remove(&at(namespace, name));
        let mut object = removed.ok_or_else(|| not_found("leases.coordination.k8s.io", name))?;
        state.version += 1;
        set(&mut object, "resourceVersion", &state.version.to_string());
        self.publish(&mut state, namespace, name, "DELETED", &object);
        Ok(json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }))
    }

    /// Up to `limit` objects after the name `after` that have the label, and whether there are more.
    pub(super) fn list(
        &self,
        namespace: &str,
        label: Option<&str>,
        after: &str,
        limit: usize,
    ) -> (Vec<Value>, bool) {
        let has_label = |object: &Value| {
            label.is_none_or(|label| !object["metadata"]["labels"][label].is_null())
        };
        let state = lock(&self.state);
        let all = state
            .by_name
            .iter()
            .filter(|((found, name), _)| found == namespace && name.as_str() > after);
        let mut found: Vec<_> =
            all.map(|(_, object)| object.clone()).filter(has_label).take(limit + 1).collect();
        let has_more = found.len() > limit;
        found.truncate(limit);
        (found, has_more)
    }

    /// Returns the version of the last change, for a list or a watch from now on.
    pub(super) fn version(&self) -> u64 {
        lock(&self.state).version
    }

    /// Fails if the changes after `seen` are forgotten.
    pub(super) fn check_version(&self, seen: u64) -> Result<(), Failure> {
        let compacted = lock(&self.state).compacted;
        if seen >= compacted {
            return Ok(());
        }
        Err(Failure::new(410, "Expired", format!("too old resource version: {seen} ({compacted})")))
    }

    /// The changes of an object after `seen`. Fails if they are forgotten.
    pub(super) fn changes(
        &self,
        namespace: &str,
        name: Option<&str>,
        seen: u64,
    ) -> Result<Vec<Change>, Failure> {
        self.check_version(seen)?;
        let state = lock(&self.state);
        let is_asked = |change: &&Change| {
            let is_name = name.is_none_or(|name| change.name == name);
            change.version > seen && change.namespace == namespace && is_name
        };
        Ok(state.changes.iter().filter(is_asked).cloned().collect())
    }

    /// Receives the version of each change.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    fn write(
        &self,
        state: &mut State,
        namespace: &str,
        mut object: Value,
        before: Option<&Value>,
    ) -> Answer {
        validate(&object)?;
        let name = text(&object, "/metadata/name");
        let (uid, kind) = match before {
            Some(before) => (text(before, "/metadata/uid"), "MODIFIED"),
            None => (Uuid::from_u64_pair(UID, state.version).to_string(), "ADDED"),
        };
        object["kind"] = "Lease".into();
        object["apiVersion"] = "coordination.k8s.io/v1".into();
        set(&mut object, "namespace", namespace);
        set(&mut object, "uid", &uid);
        if before == Some(&object) {
            // A replacement that changes nothing keeps the version.
            return Ok(object);
        }
        state.version += 1;
        set(&mut object, "resourceVersion", &state.version.to_string());
        state.by_name.insert(at(namespace, &name), object.clone());
        self.publish(state, namespace, &name, kind, &object);
        Ok(object)
    }

    fn publish(
        &self,
        state: &mut State,
        namespace: &str,
        name: &str,
        kind: &'static str,
        object: &Value,
    ) {
        let (namespace, name) = at(namespace, name);
        let (version, object) = (state.version, object.clone());
        state.changes.push(Change { version, namespace, name, kind, object });
        self.version.send_replace(version);
    }
}

impl Failure {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into() }
    }

    /// The body of the answer.
    pub(super) fn status(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        })
    }
}

/// The rules of Kubernetes for Lease objects.
fn validate(object: &Value) -> Result<(), Failure> {
    let invalid = |message: String| Err(Failure::new(422, "Invalid", message));
    let name = text(object, "/metadata/name");
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        let is_allowed = label.chars().all(|c| is_plain(c) || c == '-');
        label.starts_with(is_plain) && label.ends_with(is_plain) && is_allowed
    };
    if name.len() > 253 || !name.split('.').all(is_label) {
        return invalid(format!("metadata.name: Invalid value: {name:?}"));
    }
    let duration = object.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64);
    if duration.is_some_and(|duration| duration <= 0) {
        return invalid("spec.leaseDurationSeconds: must be greater than 0".to_owned());
    }
    let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
    let size = annotations
        .into_iter()
        .flatten()
        .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len));
    if size.sum::<usize>() > 256 * 1024 {
        return invalid(
            "metadata.annotations: Too long: may not be more than 262144 bytes".to_owned(),
        );
    }
    Ok(())
}

fn conflict(name: &str, why: &str) -> Failure {
    let message =
        format!("Operation cannot be fulfilled on leases.coordination.k8s.io {name:?}: {why}");
    Failure::new(409, "Conflict", message)
}

fn not_found(what: &str, name: &str) -> Failure {
    Failure::new(404, "NotFound", format!("{what} {name:?} not found"))
}

fn at(namespace: &str, name: &str) -> (String, String) {
    (namespace.to_owned(), name.to_owned())
}

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn set(object: &mut Value, field: &str, value: &str) {
    object["metadata"][field] = value.into();
}

/// The uid of an object is this number and the version before its creation.
const UID: u64 = 0x6b38_7300_0000_4000;
