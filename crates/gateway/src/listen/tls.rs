//! TLS, with certificates that can be replaced while the server runs.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use promethean_model::IgnorePoison;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;
use tracing::{info, warn};

use crate::app::App;

/// The permission of all users to write a file.
const WRITABLE_BY_ALL: u32 = 0o002;
/// Bytes that are read of a file, at most.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The files of certificate and key.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate, followed by the intermediate certificates, as PEM.
    pub certificate: PathBuf,
    /// Its private key, as PEM.
    pub key: PathBuf,
    /// How often the files are read to see whether they changed. Default: 5 s.
    pub check_every_ms: u64,
}

impl TlsFiles {
    /// With the default interval.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { certificate: certificate.into(), key: key.into(), check_every_ms: 5_000 }
    }
}

/// Why the files cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read `{path}`: {error}; check the path and who may read it", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// Every user of the machine can write a file.
    #[error("every user of this machine can write `{path}`; take that right away with `chmod o-w {path}`", path = .0.display())]
    Writable(PathBuf),
    /// A file has no certificate or no key in it.
    #[error("`{path}` has no {what} as PEM; check that the files are not swapped", path = path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
    },
    /// Certificate and key do not belong together, or their kind is not supported.
    #[error("the certificate and the key cannot be used: {0}; make both anew, at the same time")]
    Unusable(tokio_rustls::rustls::Error),
}

/// Does TLS handshakes with the latest certificate that can be used.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
}

/// The contents of both files.
#[derive(PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Tls {
    /// Reads the files, and watches them for changes until the gateway stops.
    pub(crate) fn start(app: &App, files: &TlsFiles) -> Result<Arc<Self>, TlsError> {
        let contents = Contents::read(files)?;
        let config = RwLock::new(contents.config(files)?);
        let tls = Arc::new(Self { files: files.clone(), config });
        app.tasks.spawn(watch(app.clone(), Arc::clone(&tls), contents));
        Ok(tls)
    }

    /// Does the TLS handshake.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        timeout: Duration,
    ) -> io::Result<TlsStream<TcpStream>> {
        let config = Arc::clone(&self.config.read().ignore_poison());
        tokio::time::timeout(timeout, TlsAcceptor::from(config).accept(stream)).await?
    }

    fn replace(&self, config: Arc<ServerConfig>) {
        *self.config.write().ignore_poison() = config;
    }
}

async fn watch(app: App, tls: Arc<Tls>, mut last: Contents) {
    let mut unreadable = false;
    let mut ticks = tokio::time::interval(Duration::from_millis(tls.files.check_every_ms.max(10)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = app.stopping.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let files = tls.files.clone();
        // Compared by content: file times are too coarse, and a link to another directory keeps its time.
        let Ok(read) = app.tasks.spawn_blocking(move || Contents::read(&files)).await else { continue };
        let contents = match read {
            Ok(contents) => contents,
            Err(error) => {
                if !unreadable {
                    warn!(%error, "cannot read the certificate files; the old certificate stays");
                }
                unreadable = true;
                continue;
            }
        };
        unreadable = false;
        if contents == last {
            continue;
        }
        match contents.config(&tls.files) {
            Ok(config) => {
                tls.replace(config);
                info!("using a new certificate");
            }
            // Perhaps only one of the two files is written yet; both are read again at the next interval.
            Err(error) => warn!(%error, "the new certificate cannot be used; the old one stays"),
        }
        last = contents;
    }
}

impl Contents {
    fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        Ok(Self { certificate: read(&files.certificate)?, key: read(&files.key)? })
    }

    fn config(&self, files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.certificate).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty());
        let chain =
            chain.ok_or_else(|| TlsError::Empty { path: files.certificate.clone(), what: "certificate" })?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|_| TlsError::Empty { path: files.key.clone(), what: "private key" })?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(TlsError::Unusable)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn read(path: &PathBuf) -> Result<Vec<u8>, TlsError> {
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(path).and_then(|file| Ok((file.metadata()?, file)));
    let read = opened.and_then(|(metadata, file)| {
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(metadata)
    });
    let metadata = read.map_err(|error| TlsError::Read { path: path.clone(), error })?;
    if metadata.is_file() && metadata.mode() & WRITABLE_BY_ALL != 0 {
        return Err(TlsError::Writable(path.clone()));
    }
    Ok(bytes)
}
