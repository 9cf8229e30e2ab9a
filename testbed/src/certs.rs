//! A folder of certificates: a CA of one's own and what it signed. `weft certs` keeps one for a
//! cluster, every live run makes one for itself.
//!
//! ```text
//! ca.pem ca.key                 the CA; the key stays where certificates are made
//! controller.pem controller.key
//! node-a0.pem node-a0.key       and so on: the name of a file is its owner's
//! ```
//!
//! Invariant: whatever instant the machine stops at, a file is a whole old one or a whole new one,
//! and only its owner can read it. A renewed certificate keeps its key, so the two always fit.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use weft_rpc::certs::{Authority, CertError, Described, Issued, Validity, describe};
use weft_rpc::identity::Identity;
use weft_rpc::tls::TlsFiles;

/// A folder of certificates.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

/// A certificate of a folder.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its files' name.
    pub name: String,
    /// What it says.
    pub described: Described,
}

/// Why a certificate was not made, renewed or read.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file.
    #[error("cannot {what} {path}: {source}", path = .path.display())]
    Io {
        /// What was attempted.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is one already.
    #[error("{path} exists already: renew it, or choose another folder", path = .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be made, or is none.
    #[error("{path}: {source}", path = .path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: CertError,
    },
    /// The folder has several, and none without a name.
    #[error(
        "{path} has the certificates of several operators: give --certs one of {named}",
        path = .path.display()
    )]
    Several {
        /// The folder.
        path: PathBuf,
        /// Them.
        named: String,
    },
    /// It is not one that a CA of this folder signed for a role.
    #[error("{path} is no certificate of this folder's CA: issue a new one", path = .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
}

/// The files of an operator: those of a certificate that is named, or of a folder `operator.pem`,
/// else the one `operator-NAME.pem` that is there.
///
/// # Errors
/// The folder has several of these, and none is meant by itself.
pub fn of_operator(path: &Path) -> Result<TlsFiles, FolderError> {
    let stem = |path: &Path| Some(path.file_stem()?.to_str()?.to_owned());
    if let (true, Some(folder), Some(name)) = (path.is_file(), path.parent(), stem(path)) {
        return Ok(TlsFiles::in_folder(folder, &name));
    }
    let plain = TlsFiles::in_folder(path, "operator");
    if plain.cert.exists() {
        return Ok(plain);
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let named = entries.filter(|path| path.extension().is_some_and(|end| end == "pem"));
    let named = named.filter(|path| stem(path).is_some_and(|name| name.starts_with("operator-")));
    let mut named: Vec<PathBuf> = named.collect();
    named.sort();
    match named.as_slice() {
        [] => Ok(plain),
        [one] => of_operator(one),
        _ => {
            let named: Vec<String> = named.iter().map(|path| path.display().to_string()).collect();
            Err(FolderError::Several { path: path.to_owned(), named: named.join(", ") })
        }
    }
}

impl Folder {
    /// The folder at `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The files of a certificate, for a configuration.
    #[must_use]
    pub fn files(&self, name: &str) -> TlsFiles {
        TlsFiles::in_folder(&self.path, name)
    }

    /// Makes the folder and its CA.
    ///
    /// # Errors
    /// There is a CA already, or the folder cannot be written to.
    pub fn init(&self, validity: Validity) -> Result<(), FolderError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)
            .map_err(self.io("make the folder", &self.path))?;
        self.must_be_new(CA)?;
        let (_, ca) = Authority::create("Weft CA", validity).map_err(self.cert(CA))?;
        self.write(CA, &ca)
    }

    /// Signs a new certificate; returns its files' name.
    ///
    /// # Errors
    /// There is one of that name already, or no CA.
    pub fn issue(
        &self,
        identity: &Identity,
        hosts: &[String],
        validity: Validity,
    ) -> Result<String, FolderError> {
        let name = file_name(identity);
        self.must_be_new(&name)?;
        let (authority, ca) = self.authority()?;
        let validity = within(validity, &ca);
        let issued = authority.issue(identity, hosts, validity, None).map_err(self.cert(&name))?;
        self.write(&name, &issued)?;
        Ok(name)
    }

    /// Signs a certificate anew, for the same owner and hosts and with the same key.
    ///
    /// # Errors
    /// It is not of this folder's CA, or a file cannot be read or written.
    pub fn renew(&self, name: &str, validity: Validity) -> Result<(), FolderError> {
        let (authority, ca) = self.authority()?;
        let entry = self.read(name)?;
        let foreign = || FolderError::Foreign { path: self.files(name).cert };
        if !entry.described.is_of_ca {
            return Err(foreign());
        }
        let identity = entry.described.identity.ok_or_else(foreign)?;
        let key = self.text(&self.files(name).key)?;
        let hosts = &entry.described.hosts;
        let issued = authority
            .issue(&identity, hosts, within(validity, &ca), Some(&key))
            .map_err(self.cert(name))?;
        self.replace(&self.files(name).cert, &issued.cert)
    }

    /// All certificates by name, the CA's first.
    ///
    /// # Errors
    /// The folder has no CA, or a file in it is no certificate.
    pub fn list(&self) -> Result<Vec<Entry>, FolderError> {
        let ca = self.read(CA)?;
        let listed = fs::read_dir(&self.path).map_err(self.io("read the folder", &self.path))?;
        let mut names: Vec<String> = listed
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|name| name.strip_suffix(".pem").map(str::to_owned))
            .filter(|name| name != CA)
            .collect();
        names.sort_unstable();
        let rest: Result<Vec<Entry>, FolderError> =
            names.iter().map(|name| self.read(name)).collect();
        Ok([vec![ca], rest?].concat())
    }

    fn read(&self, name: &str) -> Result<Entry, FolderError> {
        let cert = self.text(&self.files(name).cert)?;
        let ca = self.text(&self.files(name).ca)?;
        let described = describe(&cert, &ca).map_err(self.cert(name))?;
        Ok(Entry { name: name.to_owned(), described })
    }

    fn authority(&self) -> Result<(Authority, Entry), FolderError> {
        let files = self.files(CA);
        let ca = Issued { cert: self.text(&files.cert)?, key: self.text(&files.key)? };
        Ok((Authority::from_pem(&ca).map_err(self.cert(CA))?, self.read(CA)?))
    }

    fn must_be_new(&self, name: &str) -> Result<(), FolderError> {
        let TlsFiles { cert, key, .. } = self.files(name);
        match [cert, key].into_iter().find(|path| path.exists()) {
            Some(path) => Err(FolderError::Exists { path }),
            None => Ok(()),
        }
    }

    fn write(&self, name: &str, issued: &Issued) -> Result<(), FolderError> {
        let files = self.files(name);
        self.replace(&files.key, &issued.key)?;
        self.replace(&files.cert, &issued.cert)
    }

    /// Puts a file in the place of another, at once.
    fn replace(&self, path: &Path, text: &str) -> Result<(), FolderError> {
        let beside = path.with_extension("new");
        let write = || {
            // One that was left half-written may be readable by others.
            match fs::remove_file(&beside) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, path)?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(self.io("write", path))
    }

    fn text(&self, path: &Path) -> Result<String, FolderError> {
        fs::read_to_string(path).map_err(self.io("read", path))
    }

    fn io(&self, what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FolderError + use<> {
        let path = path.to_owned();
        move |source| FolderError::Io { what, path, source }
    }

    fn cert(&self, name: &str) -> impl FnOnce(CertError) -> FolderError + use<> {
        let path = self.files(name).cert;
        move |source| FolderError::Certificate { path, source }
    }
}

/// The name of a certificate's files.
#[must_use]
pub fn file_name(identity: &Identity) -> String {
    let mut name = identity.role().to_owned();
    match identity {
        Identity::Operator { name: Some(of) } | Identity::Node { name: Some(of) } => {
            name = format!("{name}-{of}");
        }
        Identity::Worker { job: Some(job), rank } => {
            name = format!("{name}-{job}");
            name.extend(rank.map(|rank| format!("-{rank}")));
        }
        _ => {}
    }
    name
}

/// No certificate outlives the CA's.
fn within(validity: Validity, ca: &Entry) -> Validity {
    let until_unix_s = validity.until_unix_s.min(ca.described.validity.until_unix_s);
    Validity { until_unix_s, ..validity }
}

/// Name of the CA's files.
pub const CA: &str = "ca";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    #[test]
    fn files_are_their_owners_alone_and_none_is_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::at(directory.path().join("certs"));
        folder.init(Validity::days(NOW, 100)).unwrap();
        let identity = Identity::Node { name: Some("a0".into()) };
        assert_eq!(folder.issue(&identity, &[], Validity::days(NOW, 10)).unwrap(), "node-a0");
        let mut names = Vec::new();
        for entry in fs::read_dir(directory.path().join("certs")).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            names.push(entry.file_name().into_string().unwrap());
        }
        names.sort_unstable();
        assert_eq!(names, ["ca.key", "ca.pem", "node-a0.key", "node-a0.pem"]);
        let again = folder.issue(&identity, &[], Validity::days(NOW, 10)).unwrap_err();
        assert!(matches!(again, FolderError::Exists { .. }), "{again}");
        let again = folder.init(Validity::days(NOW, 100)).unwrap_err();
        assert!(matches!(again, FolderError::Exists { .. }), "{again}");
    }

    #[test]
    fn a_renewed_certificate_has_its_owner_its_hosts_and_its_key() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::at(directory.path());
        folder.init(Validity::days(NOW, 100)).unwrap();
        let hosts = ["10.0.0.1".to_owned()];
        let name = folder.issue(&Identity::Controller, &hosts, Validity::days(NOW, 10)).unwrap();
        let key = fs::read(folder.files(&name).key).unwrap();
        folder.renew(&name, Validity::days(NOW + 86_400 * 9, 1000)).unwrap();
        assert_eq!(fs::read(folder.files(&name).key).unwrap(), key);
        let listed = folder.list().unwrap();
        assert_eq!(listed.iter().map(|entry| &*entry.name).collect::<Vec<_>>(), [CA, &name]);
        let renewed = &listed[1].described;
        assert_eq!(renewed.identity, Some(Identity::Controller));
        assert_eq!(renewed.hosts, hosts);
        // Not beyond the CA.
        assert_eq!(renewed.validity.until_unix_s, listed[0].described.validity.until_unix_s);
    }

    #[test]
    fn what_another_ca_signed_is_not_renewed() {
        let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (folder, other) = (Folder::at(ours.path()), Folder::at(theirs.path()));
        for folder in [&folder, &other] {
            folder.init(Validity::days(NOW, 100)).unwrap();
        }
        let operator = Identity::Operator { name: None };
        let name = other.issue(&operator, &[], Validity::days(NOW, 10)).unwrap();
        for file in ["operator.pem", "operator.key"] {
            fs::copy(theirs.path().join(file), ours.path().join(file)).unwrap();
        }
        let refused = folder.renew(&name, Validity::days(NOW, 10)).unwrap_err();
        assert!(matches!(refused, FolderError::Foreign { .. }), "{refused}");
    }
}
