//! The files that say who this client of etcd is, and whom it believes: read when it begins, and again when they have been renewed.

use super::gateway::EtcdAccess;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use types::{Error, Result};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

/// Which state of the files was read: of each when it was written, and how long it was.
pub type Stamp = Vec<Option<(SystemTime, u64)>>;

/// The present one. A file that is not there has none.
pub fn stamp(access: &EtcdAccess) -> Stamp {
    let files = [&access.ca, &access.cert, &access.key].into_iter().flatten();
    let of = |path| {
        let about = std::fs::metadata(path).ok()?;
        Some((about.modified().ok()?, about.len()))
    };
    files.map(of).collect()
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Error::io(format!("reading {}", path.display()), error))
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>> {
    let raw = read_file(path)?;
    let mut all = Vec::new();
    for item in parse_pem(&raw) {
        if let Ok(PemItem::Certificate(certificate)) = item {
            all.push(certificate);
        }
    }
    match all.is_empty() {
        true => Err(Error::inval(format!("{} holds no PEM certificate", path.display()))),
        false => Ok(all),
    }
}

/// Reads the files, and looks whether they are what they are to be.
///
/// Errors: `Inval`, also where a certificate and a key do not belong together; `Io`.
pub fn read(access: &EtcdAccess) -> Result<TlsConfig> {
    let mut tls = TlsConfig::builder();
    if let Some(ca) = &access.ca {
        tls = tls.root_certs(RootCerts::new_with_certs(&certificates(ca)?));
    }
    match (&access.cert, &access.key) {
        (Some(cert), Some(key)) => {
            let private = PrivateKey::from_pem(&read_file(key)?)
                .map_err(|_| Error::inval(format!("{} holds no PEM private key", key.display())))?;
            let chain = certificates(cert)?;
            must_fit(&chain, &private).map_err(|why| {
                let text = format!(
                    "the certificate {} and the key {} cannot be used together: {why}",
                    cert.display(),
                    key.display()
                );
                Error::inval(text)
            })?;
            tls = tls.client_cert(Some(ClientCert::new_with_certs(&chain, private)));
        }
        (None, None) => {}
        _ => return Err(Error::inval("etcd: 'cert' and 'key' go together")),
    }
    Ok(tls.build())
}

/// The HTTP library takes them unseen, and panics with its first request.
fn must_fit(chain: &[Certificate<'_>], key: &PrivateKey<'_>) -> Result<(), rustls::Error> {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let chain = chain.iter().map(|one| CertificateDer::from(one.der().to_vec())).collect();
    let key = PrivateKeyDer::try_from(key.der().to_vec())
        .map_err(|why| rustls::Error::General(why.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(rustls::RootCertStore::empty());
    client.with_client_auth_cert(chain, key).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::gateway::Gateway;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use serde_json::{Value, json};
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    const CA: &str = include_str!("for_tests/ca.pem");
    const SERVER: [&str; 2] =
        [include_str!("for_tests/server.pem"), include_str!("for_tests/server.key")];
    const FIRST: [&str; 2] =
        [include_str!("for_tests/first.pem"), include_str!("for_tests/first.key")];
    const SECOND: [&str; 2] =
        [include_str!("for_tests/second.pem"), include_str!("for_tests/second.key")];

    fn der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    /// Access with these files, in a directory of their own.
    fn access_with(dir: &Path, [cert, key]: [&str; 2]) -> EtcdAccess {
        let file = |name: &str, text: &str| -> PathBuf {
            let path = dir.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let [ca, cert, key] =
            [file("ca.pem", CA), file("cert.pem", cert), file("key.pem", key)].map(Some);
        EtcdAccess { ca, cert, key, ..EtcdAccess::default() }
    }

    /// The engine's thread for the catalog panicked with its first request, and the engine stayed up without serving anything.
    #[test]
    fn a_certificate_and_the_key_of_another_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(&access_with(dir.path(), FIRST)).is_ok());
        let error = read(&access_with(dir.path(), [FIRST[0], SECOND[1]])).unwrap_err().to_string();
        assert!(error.contains("cert.pem") && error.contains("key.pem"), "{error}");
    }

    /// Answers requests, one connection each; the certificates that clients showed.
    fn serve(listener: &TcpListener, count: usize) -> Vec<CertificateDer<'static>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(der(CA)).unwrap();
        let clients = rustls::server::WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots),
            provider.clone(),
        );
        let key = PrivateKeyDer::from_pem_slice(SERVER[1].as_bytes()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap())
            .with_single_cert(vec![der(SERVER[0])], key)
            .unwrap();
        let config = Arc::new(config);
        let mut shown = Vec::new();
        while shown.len() < count {
            let (stream, _) = listener.accept().unwrap();
            let session = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut tls = rustls::StreamOwned::new(session, stream);
            let mut request = Vec::new();
            while !request.ends_with(b"{}") {
                let mut some = [0; 1024];
                let bytes = tls.read(&mut some).unwrap();
                request.extend_from_slice(&some[..bytes]);
            }
            shown.push(tls.conn.peer_certificates().unwrap()[0].clone().into_owned());
            let text = r#"{"header":{"cluster_id":"7"},"kvs":[]}"#;
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close", text.len());
            tls.write_all(format!("{head}\r\n\r\n{text}").as_bytes()).unwrap();
            tls.conn.send_close_notify();
            tls.flush().unwrap();
        }
        shown
    }

    /// Certificates of all engines end at one time: those that had been renewed were not used before an engine was started again, and nobody had a catalog.
    #[test]
    fn renewed_certificates_are_used_from_the_next_request_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("https://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || serve(&listener, 3));
        let dir = tempfile::tempdir().unwrap();
        let mut access = access_with(dir.path(), FIRST);
        access.endpoints = vec![endpoint];
        let (cert, key) = (access.cert.clone().unwrap(), access.key.clone().unwrap());
        let mut gateway = Gateway::new(access, Duration::from_secs(10)).unwrap();
        let mut ask = || {
            let until = Instant::now() + Duration::from_secs(30);
            gateway.call::<Value>("/v3/kv/range", &json!({}), until).map_err(|why| why.into_error())
        };
        ask().unwrap();
        // One of the two files has been written so far.
        std::fs::write(&key, SECOND[1].to_string() + "\n").unwrap();
        ask().unwrap();
        std::fs::write(&cert, SECOND[0].to_string() + "\n").unwrap();
        ask().unwrap();
        assert_eq!(server.join().unwrap(), [FIRST, FIRST, SECOND].map(|[cert, _]| der(cert)));
    }
}
