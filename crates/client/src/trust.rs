//! Which servers a client trusts.

use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::error::ClientError;

/// A connector that accepts servers whose certificate comes from one of these authorities (PEM), or is one of the
/// certificates itself. Without authorities it accepts the servers that this machine trusts.
pub(crate) fn connector(authorities: Option<&[u8]>) -> Result<TlsConnector, ClientError> {
    let untrusted = |why: &str| ClientError::new("bad_use", format!("no server can be trusted: {why}"));
    let mut roots = RootCertStore::empty();
    let mut given = Vec::new();
    match authorities {
        Some(text) => {
            for certificate in CertificateDer::pem_slice_iter(text) {
                let certificate = certificate.map_err(|_| untrusted("the authorities are not PEM"))?;
                let added = roots.add(certificate.clone());
                added.map_err(|_| untrusted("an authority is not a certificate"))?;
                given.push(certificate);
            }
        }
        None => {
            // A machine often lists some certificates that cannot be parsed; the others are enough.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(untrusted(
            "there are no certificate authorities; install `ca-certificates`, or give `authorities`",
        ));
    }
    let provider = Arc::new(default_provider());
    let issued = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let issued = issued.map_err(|_| untrusted("TLS is not available"))?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| untrusted("TLS is not available"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(GivenOrIssued { given, issued }))
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Accepts the given certificates, and certificates that a given authority issued for the server's name.
///
/// A certificate that a server made for itself (`openssl req -x509`) says that it is an authority, and as the
/// certificate of a server such a one is refused. A user who gives exactly that certificate has said which server is
/// meant; the handshake shows that the server has its key.
#[derive(Debug)]
struct GivenOrIssued {
    given: Vec<CertificateDer<'static>>,
    issued: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for GivenOrIssued {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.given.iter().any(|given| given.as_ref() == certificate.as_ref()) {
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
