//! Which servers the gateway trusts when it is the client.

use std::sync::Arc;

use thiserror::Error;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Why no server can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the server {}", self.said())]
pub enum TrustError {
    /// The file of authorities is not PEM.
    NotPem,
    /// One of the authorities is not a certificate.
    NotACertificate,
    /// There are no authorities.
    NoAuthorities,
    /// TLS is not available.
    Unavailable,
}

impl TrustError {
    /// The end of a sentence that begins with the address of a server.
    pub(crate) const fn said(self) -> &'static str {
        match self {
            Self::NotPem => "has authorities that are no PEM",
            Self::NotACertificate => "has an authority that is no certificate",
            Self::NoAuthorities => {
                "is https, but this machine lists no certificate authorities; install `ca-certificates`, or give a \
                 file of them"
            }
            Self::Unavailable => "is https, which is not available",
        }
    }
}

/// A connector that accepts servers whose certificate comes from one of these authorities (PEM). Without
/// authorities it accepts the servers that this machine trusts.
pub fn connector(authorities: Option<&[u8]>) -> Result<TlsConnector, TrustError> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(text) => {
            for certificate in CertificateDer::pem_slice_iter(text) {
                let certificate = certificate.map_err(|_| TrustError::NotPem)?;
                roots.add(certificate).map_err(|_| TrustError::NotACertificate)?;
            }
        }
        None => {
            // A machine often lists some certificates that cannot be parsed; the others are enough.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(TrustError::NoAuthorities);
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|_| TrustError::Unavailable)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
