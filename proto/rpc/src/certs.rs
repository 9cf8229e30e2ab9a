//! Makes and reads the certificates of a CA of one's own: one for each controller, node, worker and
//! operator, with its [`Identity`] as a URI among the alternative names.
//!
//! Text in, text out; the times are arguments. Keys are ECDSA over P-256. A certificate is good
//! either for being called (controllers) or for calling (all others), never for both, so that no
//! worker can pass for the controller.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use time::OffsetDateTime;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::parse_x509_pem;

use crate::identity::{self, Identity};

/// From when until when, in seconds since 1970.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Validity {
    /// First second.
    pub from_unix_s: i64,
    /// Last second.
    pub until_unix_s: i64,
}

impl Validity {
    /// So many days from now on, and from some minutes ago: clocks differ.
    #[must_use]
    pub const fn days(now_unix_s: i64, days: u32) -> Self {
        let until_unix_s = now_unix_s + days as i64 * 86_400;
        Self { from_unix_s: now_unix_s - CLOCK_MARGIN_S, until_unix_s }
    }
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub cert: String,
    /// The key.
    pub key: String,
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").field("cert", &self.cert).finish_non_exhaustive()
    }
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertError {
    /// It could not be made.
    #[error("cannot {what}: {source}")]
    Make {
        /// What was attempted.
        what: &'static str,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// A time that a certificate cannot hold.
    #[error("a certificate cannot be valid until then: {0}")]
    Time(#[from] time::error::ComponentRange),
    /// It is none.
    #[error("is no certificate in PEM: {0}")]
    Unreadable(String),
}

/// Who signs.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes a CA.
    ///
    /// # Errors
    /// [`CertError`]
    pub fn create(name: &str, validity: Validity) -> Result<(Self, Issued), CertError> {
        let making = |source| CertError::Make { what: "make a CA", source };
        let key = KeyPair::generate().map_err(making)?;
        let mut params = params(name, validity)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let cert = params.self_signed(&key).map_err(making)?;
        let issued = Issued { cert: cert.pem(), key: key.serialize_pem() };
        Ok((Self { issuer: Issuer::new(params, key) }, issued))
    }

    /// The CA of these.
    ///
    /// # Errors
    /// They are no certificate and key.
    pub fn from_pem(ca: &Issued) -> Result<Self, CertError> {
        let reading = |source| CertError::Make { what: "read the CA", source };
        let key = KeyPair::from_pem(&ca.key).map_err(reading)?;
        Ok(Self { issuer: Issuer::from_ca_cert_pem(&ca.cert, key).map_err(reading)? })
    }

    /// Signs a certificate with a new key, or with `key`. `hosts`: addresses and names that it may
    /// be called by.
    ///
    /// # Errors
    /// [`CertError`]
    pub fn issue(
        &self,
        identity: &Identity,
        hosts: &[String],
        validity: Validity,
        key: Option<&str>,
    ) -> Result<Issued, CertError> {
        let making = |source| CertError::Make { what: "make a certificate", source };
        let key = key.map_or_else(KeyPair::generate, KeyPair::from_pem).map_err(making)?;
        let uri = identity.to_string();
        let mut params = params(uri.strip_prefix(identity::PREFIX).unwrap_or(&uri), validity)?;
        let uri = uri.try_into().map_err(making)?;
        params.subject_alt_names.push(SanType::URI(uri));
        for host in hosts {
            params.subject_alt_names.push(match host.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(host.as_str().try_into().map_err(making)?),
            });
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match identity {
            Identity::Controller => ExtendedKeyUsagePurpose::ServerAuth,
            _ => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        let cert = params.signed_by(&key, &self.issuer).map_err(making)?;
        Ok(Issued { cert: cert.pem(), key: key.serialize_pem() })
    }
}

fn params(name: &str, validity: Validity) -> Result<CertificateParams, CertError> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::OrganizationName, "Weft");
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = OffsetDateTime::from_unix_timestamp(validity.from_unix_s)?;
    params.not_after = OffsetDateTime::from_unix_timestamp(validity.until_unix_s)?;
    Ok(params)
}

/// What a certificate says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Described {
    /// Its owner; none in a CA's, or one that is not Weft's.
    pub identity: Option<Identity>,
    /// Addresses and names that it may be called by.
    pub hosts: Vec<String>,
    /// When it is valid.
    pub validity: Validity,
    /// Whether `ca` signed it.
    pub is_of_ca: bool,
}

/// Reads a certificate, and whether the CA `ca` signed it.
///
/// # Errors
/// One of them is no certificate.
pub fn describe(cert: &str, ca: &str) -> Result<Described, CertError> {
    let unreadable = |error: &dyn std::fmt::Display| CertError::Unreadable(error.to_string());
    let (_, cert) = parse_x509_pem(cert.as_bytes()).map_err(|error| unreadable(&error))?;
    let (_, ca) = parse_x509_pem(ca.as_bytes()).map_err(|error| unreadable(&error))?;
    let cert = cert.parse_x509().map_err(|error| unreadable(&error))?;
    let ca = ca.parse_x509().map_err(|error| unreadable(&error))?;
    let mut described = Described {
        identity: None,
        hosts: Vec::new(),
        validity: Validity {
            from_unix_s: cert.validity().not_before.timestamp(),
            until_unix_s: cert.validity().not_after.timestamp(),
        },
        is_of_ca: cert.verify_signature(Some(ca.public_key())).is_ok(),
    };
    let names = cert.subject_alternative_name().map_err(|error| unreadable(&error))?;
    for name in names.iter().flat_map(|names| &names.value.general_names) {
        match name {
            GeneralName::URI(uri) => described.identity = uri.parse().ok(),
            GeneralName::DNSName(host) => described.hosts.push((*host).to_owned()),
            GeneralName::IPAddress(bytes) => described.hosts.extend(address(bytes)),
            _ => {}
        }
    }
    Ok(described)
}

fn address(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(std::net::IpAddr::from);
    let address = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(std::net::IpAddr::from));
    address.ok().map(|address| address.to_string())
}

/// How far a clock may be behind the one that makes certificates.
const CLOCK_MARGIN_S: i64 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    #[test]
    fn what_is_issued_can_be_read_and_is_its_cas() {
        let (first, ca) = Authority::create("first", Validity::days(NOW, 10)).unwrap();
        let (_, other) = Authority::create("other", Validity::days(NOW, 10)).unwrap();
        let hosts = ["10.0.0.1", "fd00::1", "c.example"].map(str::to_owned);
        let validity = Validity::days(NOW, 2);
        let issued = first.issue(&Identity::Controller, &hosts, validity, None).unwrap();
        let expected = Described {
            identity: Some(Identity::Controller),
            hosts: ["10.0.0.1", "fd00::1", "c.example"].map(str::to_owned).to_vec(),
            validity,
            is_of_ca: true,
        };
        assert_eq!(describe(&issued.cert, &ca.cert).unwrap(), expected);
        assert!(!describe(&issued.cert, &other.cert).unwrap().is_of_ca);

        // From its files the CA signs as before, and with the same key when that is asked for.
        let again = Authority::from_pem(&ca).unwrap();
        let worker = Identity::Worker { job: Some(1), rank: Some(2) };
        let renewed = again.issue(&worker, &[], validity, Some(&issued.key)).unwrap();
        assert_eq!(renewed.key, issued.key);
        let described = describe(&renewed.cert, &ca.cert).unwrap();
        assert_eq!((described.identity, described.is_of_ca), (Some(worker), true));
    }
}
