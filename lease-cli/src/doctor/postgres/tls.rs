//! Encrypts connections, as `lease-postgres` does, if the URL or the server asks for it.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore, crypto};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Trusts the certificates of the system.
pub(super) fn connector() -> MakeRustlsConnect {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    let (_added, _ignored) = roots.add_parsable_certificates(native.certs);
    let provider = Arc::new(crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    #[expect(clippy::expect_used, reason = "ring has suites of all default versions")]
    let builder = builder.expect("the versions of TLS");
    MakeRustlsConnect::new(builder.with_root_certificates(roots).with_no_client_auth())
}
