//! TLS by certificate files.

use std::path::Path;
use std::process::Command;

use milepost_server::{App, Server, Settings, Tls, TlsError};
use milepost_store::memory::MemoryStore;
use std::sync::Arc;
use tempfile::TempDir;

use crate::support::{PATIENCE, engine};

/// A certificate for 127.0.0.1 and its key, as `NAME.pem` and `NAME.key`; false where there is no openssl to make it.
fn make(directory: &Path, name: &str) -> bool {
    let (cert, key) = (directory.join(format!("{name}.pem")), directory.join(format!("{name}.key")));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
    openssl.args(["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.arg("-out").arg(&cert).arg("-keyout").arg(&key);
    match openssl.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            true
        }
        Err(_) => false,
    }
}

fn directory() -> Option<TempDir> {
    let directory = tempfile::tempdir().unwrap();
    (make(directory.path(), "a") && make(directory.path(), "b")).then_some(directory)
}

async fn serve(tls: &Tls) -> Server {
    let app = App::new(engine(Arc::new(MemoryStore::new())), Settings::default());
    Server::start_with(app, ([127, 0, 0, 1], 0).into(), Some(tls.clone())).await.unwrap()
}

fn trusting(certificate: &Path) -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificate = reqwest::Certificate::from_pem(&std::fs::read(certificate).unwrap()).unwrap();
    let builder = reqwest::Client::builder().no_proxy().timeout(PATIENCE).tls_certs_only([certificate]);
    builder.build().unwrap()
}

#[tokio::test]
async fn who_trusts_the_certificate_gets_an_answer_and_plain_http_gets_none() {
    let Some(directory) = directory() else { return };
    let path = |name: &str| directory.path().join(name);
    let tls = Tls::load(path("a.pem"), path("a.key")).unwrap();
    let server = serve(&tls).await;
    assert!(server.url().starts_with("https://127.0.0.1:"));
    let url = format!("{}/healthz", server.url());
    assert_eq!(trusting(&path("a.pem")).get(&url).send().await.unwrap().text().await.unwrap(), "ok");
    assert!(trusting(&path("b.pem")).get(&url).send().await.is_err());
    assert!(trusting(&path("a.pem")).get(url.replace("https", "http")).send().await.is_err());
}

#[tokio::test]
async fn a_certificate_that_was_replaced_is_used_once_it_is_read_again() {
    let Some(directory) = directory() else { return };
    let path = |name: &str| directory.path().join(name);
    let tls = Tls::load(path("a.pem"), path("a.key")).unwrap();
    let server = serve(&tls).await;
    let url = format!("{}/healthz", server.url());
    let (old, new) = (trusting(&path("a.pem")), trusting(&path("b.pem")));
    std::fs::write(path("a.pem"), "nothing of use").unwrap();
    tls.reload().unwrap_err();
    assert_eq!(old.get(&url).send().await.unwrap().status(), 200);
    std::fs::rename(path("b.pem"), path("a.pem")).unwrap();
    std::fs::rename(path("b.key"), path("a.key")).unwrap();
    tls.reload().unwrap();
    assert_eq!(new.get(&url).send().await.unwrap().status(), 200);
}

#[test]
fn files_that_are_no_use_are_told_apart() {
    let Some(directory) = directory() else { return };
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("empty.pem"), "").unwrap();
    let missing = Tls::load(path("none.pem"), path("a.key")).unwrap_err();
    assert!(matches!(missing, TlsError::Unreadable { .. }) && missing.to_string().contains("none.pem"), "{missing}");
    let empty = Tls::load(path("empty.pem"), path("a.key")).unwrap_err();
    assert!(matches!(empty, TlsError::Empty { .. }), "{empty:?}");
    let swapped = Tls::load(path("a.pem"), path("a.pem")).unwrap_err();
    assert!(matches!(swapped, TlsError::Empty { what: "private key", .. }), "{swapped:?}");
    let strangers = Tls::load(path("a.pem"), path("b.key")).unwrap_err();
    assert!(matches!(strangers, TlsError::Unusable { .. }), "{strangers:?}");
}
