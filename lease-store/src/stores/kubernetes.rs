//! `k8s://namespace?server=http://127.0.0.1:8001`. kube finds the API server and the credentials.

use lease_core::StoreError;
use lease_kubernetes::{KubernetesRegister, KubernetesStore};

use crate::any_store::AnyStore;
use crate::url::StoreUrl;

pub(crate) async fn open(mut url: StoreUrl) -> Result<AnyStore, StoreError> {
    let is_plain =
        url.has_authority && url.login.is_none() && url.path.trim_matches('/').is_empty();
    let [namespace] = url.hosts.as_slice() else { return Err(url.refuse(WRONG)) };
    if !is_plain {
        return Err(url.refuse(WRONG));
    }
    let mut builder = KubernetesRegister::builder();
    if !namespace.is_empty() {
        builder = builder.with_namespace(namespace);
    }
    if let Some(server) = url.take("server") {
        builder = builder.with_server(server);
    }
    if let Some(timeout) = url.take_duration("timeout")? {
        builder = builder.with_timeout(timeout);
    }
    url.refuse_others(&["server", "timeout"])?;
    Ok(AnyStore::of_table(KubernetesStore::new(builder.connect().await?)))
}

const WRONG: &str = "is not k8s://NAMESPACE: the kubeconfig file or the service account names the server and the user";
