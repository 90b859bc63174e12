//! The Role of the README suffices, and each of its verbs is needed.

use futures_util::StreamExt;
use lease_core::store::{Beat, Heartbeat, LeaseTable, LockStore};
use lease_core::{Attributes, StoreError, StoreErrorKind};
use lease_register::Register;
use lease_test_servers::claims::{claim, granted};
use lease_test_servers::kubernetes::ApiServer;

use crate::answers::assert_refused;
use crate::{TTL, builder, key, store};

const README: &str = include_str!("../../README.md");

/// The verbs of the Role in the README.
fn verbs() -> Vec<&'static str> {
    let (_, list) = README.split_once("verbs: [").unwrap();
    list.split_once(']').unwrap().0.split(", ").collect()
}

/// Makes a request of each kind.
async fn use_all(server: &ApiServer) -> Result<(), StoreError> {
    let store = lease_kubernetes::KubernetesStore::new(builder(server).connect().await?);
    let (grant, _) = granted(store.obtain(&claim(&key(), "a", TTL)).await?);
    assert_eq!(store.heartbeat(&grant, Beat::new(1)).await?, Heartbeat::Extended);
    drop(store.register().changed(&key(), None).await?);
    assert_eq!(LeaseTable::list(&store, "").collect::<Vec<_>>().await.len(), 1);
    store.release(&grant, None).await?;
    let (grant, _) = granted(store.obtain(&claim(&key(), "a", TTL)).await?);
    let _transferred = store.transfer(&grant, &"b".parse().unwrap(), TTL).await?;
    let (grant, _) = granted(store.obtain(&claim(&key(), "b", TTL)).await?);
    let _deleted = LeaseTable::delete(&store, &grant).await?;
    assert!(store.create(&key(), &Attributes::new()).await?);
    Ok(())
}

#[tokio::test]
async fn role_of_the_readme_suffices() {
    let server = ApiServer::start();
    server.permit(&verbs());

    use_all(&server).await.unwrap();

    let mut used = server.take_requests();
    used.sort_unstable();
    used.dedup();
    let mut role = verbs();
    role.sort_unstable();
    assert_eq!(used, role, "each verb of the Role is used");
}

#[tokio::test]
async fn missing_verb_is_named_by_the_error() {
    for missing in verbs() {
        let server = ApiServer::start();
        server.permit(&verbs().into_iter().filter(|verb| *verb != missing).collect::<Vec<_>>());

        let refused = use_all(&server).await;

        assert_refused(refused, StoreErrorKind::Denied, &format!("cannot {missing} resource"));
    }
}

/// A right that is taken away does not end a lease before its deadline.
#[tokio::test]
async fn error_of_a_missing_right_names_the_role() {
    let server = ApiServer::start();
    let store = store(&server).await;
    let (grant, _) = granted(store.obtain(&claim(&key(), "a", TTL)).await.unwrap());

    server.permit(&["get", "list"]);

    let refused = store.heartbeat(&grant, Beat::new(1)).await;
    assert_refused(refused, StoreErrorKind::Denied, "the Role of the section \"Access rights\"");
    server.permit(&verbs());
    assert_eq!(store.heartbeat(&grant, Beat::new(2)).await.unwrap(), Heartbeat::Extended);
}
