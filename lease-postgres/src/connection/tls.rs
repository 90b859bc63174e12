//! Encrypts connections, with the feature `tls`.

use crate::error::ServerFault;

#[cfg(feature = "tls")]
pub(crate) type Tls = tokio_postgres_rustls::MakeRustlsConnect;

#[cfg(not(feature = "tls"))]
pub(crate) type Tls = tokio_postgres::NoTls;

/// If `roots` is `None`, trusts the system's certificates.
#[cfg(feature = "tls")]
pub(crate) fn tls(roots: Option<&[u8]>) -> Result<Tls, ServerFault> {
    use std::sync::Arc;

    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    let mut store = rustls::RootCertStore::empty();
    if let Some(pem) = roots {
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| not_pem(&error))?;
            store.add(certificate).map_err(|error| not_pem(&error))?;
        }
        if store.is_empty() {
            return Err(not_pem(&"no certificate"));
        }
    } else {
        // If the system has no certificates, a connection with TLS fails with an error about the certificate.
        let native = rustls_native_certs::load_native_certs();
        let (_added, _ignored) = store.add_parsable_certificates(native.certs);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ServerFault::misconfigured(format!("TLS cannot be set up: {error}")))?;
    let config = config.with_root_certificates(store).with_no_client_auth();
    Ok(tokio_postgres_rustls::MakeRustlsConnect::new(config))
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unnecessary_wraps, reason = "the variant with the feature `tls` can fail")]
pub(crate) fn tls(_roots: Option<&[u8]>) -> Result<Tls, ServerFault> {
    Ok(tokio_postgres::NoTls)
}

#[cfg(feature = "tls")]
fn not_pem(error: &dyn std::fmt::Display) -> ServerFault {
    ServerFault::misconfigured(format!(
        "the root certificates are not valid: {error}: give them in the PEM format"
    ))
}
