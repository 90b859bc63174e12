//! An API server of Kubernetes for Lease objects, in this process: get, list, create, replace, delete and watch.
//!
//! It keeps the rules that a lease depends on, and no others: versions that grow over all objects, optimistic locking,
//! creation by a replacement without a uid, names, sizes, rights. Start at [`ApiServer`]. `objects.rs` has the rules, and
//! `requests.rs` serves them over HTTP.
#![expect(clippy::indexing_slicing, reason = "a field that a JSON value lacks reads as null")]

mod objects;
mod requests;

use std::fmt;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::kubernetes::objects::Objects;
use crate::kubernetes::requests::serve;

/// The time-out of stores in most tests. A busy machine may stop a server for seconds.
pub const PATIENT: Duration = Duration::from_secs(20);

/// An API server on a free port, on a thread of its own. A drop stops it. All namespaces exist, except `absent`.
pub struct ApiServer {
    address: SocketAddr,
    objects: Arc<Objects>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ApiServer {
    /// Starts a server without objects.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a listener");
        let address = listener.local_addr().expect("its address");
        let objects = Arc::new(Objects::default());
        let app = Router::new().fallback(serve).with_state(Arc::clone(&objects));
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener");
                // The order does not matter: the server never ends by itself.
                tokio::select! {
                    biased;
                    _ = stopped => (),
                    served = axum::serve(listener, app).into_future() => served.expect("it runs"),
                }
            });
        });
        Self { address, objects, stop: Some(stop), thread: Some(thread) }
    }

    /// The server's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's URL.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns an object, as `kubectl get lease -o json` does.
    pub fn object(&self, namespace: &str, name: &str) -> Option<Value> {
        self.objects.get(namespace, name).ok()
    }

    /// Treats replacements as if they had no uid, to break a client on purpose: a replacement of a deleted object then
    /// creates it again.
    pub fn ignore_uids(&self) {
        self.objects.ignore_uids();
    }

    /// Replaces an object, as another program does; without a version, creates it. Returns the object, or the status
    /// code of a refusal.
    ///
    /// # Errors
    ///
    /// If Kubernetes would refuse the object, for example because its version is old.
    pub fn write(&self, namespace: &str, object: Value) -> Result<Value, u16> {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default().to_owned();
        let written = if metadata["resourceVersion"].is_null() {
            self.objects.create(namespace, object)
        } else {
            self.objects.replace(namespace, &name, object)
        };
        written.map_err(|failure| failure.code)
    }

    /// Changes an object, as another program with the right version does. If the object is absent, creates it.
    ///
    /// # Panics
    ///
    /// Panics if Kubernetes would refuse the new object.
    pub fn edit(&self, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let found = self.objects.get(namespace, name);
        let mut object =
            found.unwrap_or_else(|_| serde_json::json!({ "metadata": { "name": name } }));
        change(&mut object);
        self.write(namespace, object).expect("a valid object");
    }

    /// Deletes an object, as `kubectl delete lease` does. Returns whether it existed.
    pub fn delete(&self, namespace: &str, name: &str) -> bool {
        self.objects.delete(namespace, name).is_ok()
    }

    /// Makes all following requests fail with this status code and reason, without applying them. `None` ends this.
    pub fn refuse(&self, refusal: Option<(u16, &'static str)>) {
        self.objects.refuse(refusal);
    }

    /// Forgets all earlier changes, as a compaction does: a watch from an earlier version ends, and a list of several
    /// pages, too.
    pub fn compact(&self) {
        self.objects.compact();
    }

    /// Refuses requests of other verbs by 403, as for a service account whose Role has these verbs.
    pub fn permit(&self, verbs: &[&str]) {
        self.objects.permit(verbs);
    }

    /// The verbs of the requests since the last call.
    pub fn take_requests(&self) -> Vec<&'static str> {
        self.objects.take_requests()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the server has failed a request of the test already.
            drop(thread.join());
        }
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("address", &self.address).finish_non_exhaustive()
    }
}
