//! Which servers the gateway trusts when it is the client.

use std::sync::Arc;

use thiserror::Error;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

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
            Self::NotPem => "cannot be trusted, because the file of certificates is not PEM",
            Self::NotACertificate => {
                "cannot be trusted, because the file holds something that is not a certificate"
            }
            Self::NoAuthorities => {
                "is https, but this machine lists no certificate authorities; install `ca-certificates`, or give a \
                 file of them"
            }
            Self::Unavailable => "is https, which is not available",
        }
    }
}

/// A connector that accepts servers whose certificate comes from one of these authorities (PEM), or is one of the
/// certificates itself. Without authorities it accepts the servers that this machine trusts.
pub fn connector(authorities: Option<&[u8]>) -> Result<TlsConnector, TrustError> {
    let mut roots = RootCertStore::empty();
    let mut listed = Vec::new();
    match authorities {
        Some(text) => {
            for certificate in CertificateDer::pem_slice_iter(text) {
                let certificate = certificate.map_err(|_| TrustError::NotPem)?;
                roots.add(certificate.clone()).map_err(|_| TrustError::NotACertificate)?;
                listed.push(certificate);
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
    let provider = Arc::new(default_provider());
    let issued = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let issued = issued.map_err(|_| TrustError::Unavailable)?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| TrustError::Unavailable)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ListedOrIssued { listed, issued }))
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Accepts the listed certificates, and certificates that a listed authority issued for the server's name.
///
/// A certificate that a server made for itself (`openssl req -x509`) says that it is an authority, and as the
/// certificate of a server such a one is refused. If the user lists exactly that certificate, the user has said which server
/// is meant; the handshake shows that the server has its key.
#[derive(Debug)]
struct ListedOrIssued {
    listed: Vec<CertificateDer<'static>>,
    issued: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for ListedOrIssued {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.listed.iter().any(|listed| listed.as_ref() == certificate.as_ref()) {
            return Ok(ServerCertVerified::assertion());
        }
        self.issued.verify_server_cert(certificate, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issued.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issued.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.issued.supported_verify_schemes()
    }
}
