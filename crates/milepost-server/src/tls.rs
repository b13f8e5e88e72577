//! TLS by certificate files, which may be replaced while the server runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, version};
use tokio_rustls::TlsAcceptor;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read the {what} {}", path.display())]
    Unreadable { what: &'static str, path: PathBuf, source: pem::Error },
    #[error("{} holds no {what} in PEM form", path.display())]
    Empty { what: &'static str, path: PathBuf },
    #[error("the certificate {} and the key {} do not work together", certificate.display(), key.display())]
    Unusable { certificate: PathBuf, key: PathBuf, source: rustls::Error },
}

/// A certificate and its key. Clones are handles to the same pair.
#[derive(Debug, Clone)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    config: Arc<RwLock<Arc<ServerConfig>>>,
}

impl Tls {
    /// Both in PEM form; the certificate's file holds its chain as well.
    pub fn load(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, TlsError> {
        let (certificate, key) = (certificate.into(), key.into());
        let config = read(&certificate, &key)?;
        Ok(Self { certificate, key, config: Arc::new(RwLock::new(Arc::new(config))) })
    }

    /// Reads the files again. New connections use what they hold; if they are no good, everything stays as it was.
    pub fn reload(&self) -> Result<(), TlsError> {
        let config = Arc::new(read(&self.certificate, &self.key)?);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone().into()
    }
}

fn read(certificate: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let chain = certificates(certificate)?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|source| failed("private key", key, source))?;
    let unusable = |source| TlsError::Unusable { certificate: certificate.to_owned(), key: key.to_owned(), source };
    // Named, not taken from the process: whoever embeds this may have chosen another for itself.
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| failed("certificate", path, source);
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(failed)?.collect();
    let chain = chain.map_err(failed)?;
    if chain.is_empty() {
        return Err(TlsError::Empty { what: "certificate", path: path.to_owned() });
    }
    Ok(chain)
}

fn failed(what: &'static str, path: &Path, source: pem::Error) -> TlsError {
    match source {
        pem::Error::NoItemsFound => TlsError::Empty { what, path: path.to_owned() },
        source => TlsError::Unreadable { what, path: path.to_owned(), source },
    }
}
