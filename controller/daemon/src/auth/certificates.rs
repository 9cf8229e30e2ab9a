//! The controller's certificate and the CA of its callers, read anew when their files change.
//!
//! Invariant: there is always a certificate to serve with. Files that cannot be used, for they are
//! being replaced, leave the one before in place; every connection is judged by what holds when it
//! is made, and goes on when that changes.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use weft_rpc::tls::{DialError, TlsFiles, TlsPem};

/// A certificate that follows its files.
#[derive(Debug)]
pub struct Certificates {
    files: TlsFiles,
    used: Mutex<Used>,
}

#[derive(Debug)]
struct Used {
    config: Arc<ServerConfig>,
    /// The files that were last looked into, good or not.
    stamp: Stamp,
}

/// Which files these are: inode, size and time of change, as replacing a file changes all three.
type Stamp = Vec<Option<(u64, u64, i64, i64)>>;

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// One cannot be read, or they do not fit together.
    pub fn load(files: TlsFiles) -> Result<Self, DialError> {
        let stamp = stamp(&files);
        let config = configure(&files)?;
        Ok(Self { files, used: Mutex::new(Used { config, stamp }) })
    }

    /// What the next connection is served with.
    pub fn current(&self) -> Arc<ServerConfig> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = stamp(&self.files);
        if stamp != used.stamp {
            used.stamp = stamp;
            match configure(&self.files) {
                Ok(config) => {
                    used.config = config;
                    weft_process::say!("weft-controller: the certificate was read anew");
                }
                Err(error) => {
                    weft_process::say!(
                        "weft-controller: {error}; the certificate before stays in use"
                    );
                }
            }
        }
        Arc::clone(&used.config)
    }
}

fn stamp(files: &TlsFiles) -> Stamp {
    let of = |path: &Path| {
        let data = std::fs::metadata(path).ok()?;
        Some((data.ino(), data.size(), data.mtime(), data.mtime_nsec()))
    };
    [&files.ca, &files.cert, &files.key].map(|path| of(path)).to_vec()
}

fn configure(files: &TlsFiles) -> Result<Arc<ServerConfig>, DialError> {
    let TlsPem { ca, cert, key } = files.read()?;
    let unusable = |path: &Path, problem: &dyn ToString| DialError::Certificate {
        path: path.to_owned(),
        problem: problem.to_string(),
    };
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(&ca) {
        let root = root.map_err(|error| unusable(&files.ca, &error))?;
        roots.add(root).map_err(|error| unusable(&files.ca, &error))?;
    }
    let provider = Arc::new(default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| unusable(&files.ca, &error))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&cert).collect();
    let chain = chain.map_err(|error| unusable(&files.cert, &error))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| unusable(&files.key, &error))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| unusable(&files.cert, &error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|error| unusable(&files.cert, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A session that is resumed would be judged by the certificate of long ago.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
