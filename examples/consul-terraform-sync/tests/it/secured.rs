//! Commands against a daemon that serves TLS, or wants a token.

use std::{
    fs,
    path::{Path, PathBuf},
};

use consul_watch::testing::TestConsul;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::{
    sync::SyncProcess,
    world::{double_path, operate_with},
};

/// A certificate authority, and the files that it has signed.
pub(crate) struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(folder: &Path) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        fs::create_dir_all(folder.join("cas")).unwrap();
        for file in ["ca.pem", "cas/ca.pem"] {
            fs::write(folder.join(file), certificate.pem()).unwrap();
        }
        Self { folder: folder.to_owned(), issuer: Issuer::new(params, key) }
    }

    /// Writes `self.pem` and `self.key`: an authority that serves by itself.
    fn signed_by_itself(folder: &Path) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.join("self.pem"), certificate.pem()).unwrap();
        fs::write(folder.join("self.key"), key.serialize_pem()).unwrap();
    }

    /// Writes `<name>.pem` and `<name>.key`.
    pub(crate) fn sign(&self, name: &str) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(self.folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

/// A daemon without tasks and with these settings, on a double of Consul.
/// Nothing of it needs Terraform but that there is one.
pub(crate) async fn daemon(
    folder: &Path,
    settings: &str,
) -> (SyncProcess, consul_watch::testing::ServedConsul) {
    let consul = TestConsul::new().serve().await.unwrap();
    let mut sync = SyncProcess::new(folder, &consul.address(), settings);
    sync.start_with(|command| {
        command.env("PATH", double_path());
    });
    sync.until("the API is served", || sync.address().is_some()).await;
    (sync, consul)
}

/// A daemon that shows `server.pem` and wants a certificate of its clients; `client.pem` is one.
pub(crate) async fn mutual_daemon(
    folder: &Path,
) -> (SyncProcess, consul_watch::testing::ServedConsul) {
    let authority = Authority::new(folder);
    authority.sign("server");
    authority.sign("client");
    let settings = "tls {\n  cert = \"server.pem\"\n  key = \"server.key\"\n  \
                    verify_incoming = true\n  ca_cert = \"ca.pem\"\n}\n";
    daemon(folder, settings).await
}

/// Disables a task that there is not: a daemon that was reached says 404.
async fn reach(sync: &SyncProcess, folder: &Path, scheme: &str, flags: &[&str]) -> String {
    let port = sync.address().unwrap().rsplit(':').next().unwrap().to_owned();
    let address = format!("-http-addr={scheme}://localhost:{port}");
    let arguments = [&["task", "disable", address.as_str()][..], flags, &["none"]].concat();
    let told = operate_with(folder, &arguments, "", &[]).await;
    assert_eq!(told.code, Some(11), "{}", told.complained);
    told.complained.split_whitespace().collect::<Vec<_>>().join(" ")
}

const REACHED: &str = "request returned 404 status code with error: a task with name 'none' does \
                       not exist";

/// Spec: CTS81
#[tokio::test]
async fn a_daemon_with_tls_is_reached_by_who_trusts_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    Authority::new(folder).sign("server");
    let settings = "tls {\n  cert = \"server.pem\"\n  key = \"server.key\"\n}\n";
    let (mut sync, _consul) = daemon(folder, settings).await;
    let told = reach(&sync, folder, "http", &[]).await;
    assert!(told.contains("the server may serve https: use https:// in the address"), "{told}");
    let told = reach(&sync, folder, "https", &[]).await;
    assert!(told.contains("Name the authority") && told.contains("-ca-cert"), "{told}");
    for trusting in ["-ca-cert=ca.pem", "-ca-path=cas", "-ssl-verify=false"] {
        let told = reach(&sync, folder, "https", &[trusting]).await;
        assert!(told.contains(REACHED), "{trusting}: {told}");
    }
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}

/// Spec: CTS81
#[tokio::test]
async fn a_daemon_that_verifies_its_clients_wants_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (mut sync, _consul) = mutual_daemon(folder).await;
    let told = reach(&sync, folder, "https", &["-ca-cert=ca.pem"]).await;
    assert!(told.contains("show a certificate with -client-cert"), "{told}");
    let flags = ["-ca-cert=ca.pem", "-client-cert=client.pem", "-client-key=client.key"];
    let told = reach(&sync, folder, "https", &flags).await;
    assert!(told.contains(REACHED), "{told}");
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}

#[tokio::test]
async fn a_daemon_with_a_token_tells_how_to_give_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("token"), "pl4nted-t0ken\n").unwrap();
    let settings = "api_token_file = \"token\"\napi_metrics = true\n";
    let (mut sync, _consul) = daemon(folder, settings).await;
    let told = reach(&sync, folder, "http", &[]).await;
    assert!(told.contains("401") && told.contains("-token-file"), "{told}");
    let told = reach(&sync, folder, "https", &[]).await;
    assert!(told.contains("use http:// in the address"), "{told}");
    let told = reach(&sync, folder, "http", &["-token-file=token"]).await;
    assert!(told.contains(REACHED), "{told}");
    // A new token counts at once.
    fs::write(folder.join("token"), "an0ther").unwrap();
    fs::write(folder.join("old"), "pl4nted-t0ken").unwrap();
    let told = reach(&sync, folder, "http", &["-token-file=old"]).await;
    assert!(told.contains("401"), "{told}");
    let address = sync.address().unwrap();
    let metrics = reqwest::Client::new().get(format!("{address}/metrics")).bearer_auth("an0ther");
    let metrics = metrics.send().await.unwrap();
    assert_eq!(metrics.status(), 200);
    let text = metrics.text().await.unwrap();
    for line in [
        "cts_api_requests_total{method=\"PATCH\",status_code=\"404\"} 1",
        "cts_api_request_duration_seconds_bucket{method=\"PATCH\",le=\"0.005\"}",
        concat!("cts_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        "# TYPE process_cpu_seconds_total counter",
        "# TYPE process_start_time_seconds gauge",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let sample = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    assert!(sample("process_resident_memory_bytes") > 1e6, "{text}");
    assert!(sample("process_open_fds") >= 3.0 && sample("process_max_fds") >= 256.0, "{text}");
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
    for secret in ["pl4nted-t0ken", "an0ther"] {
        assert!(!sync.log().contains(secret), "{}", sync.log());
    }
}

#[tokio::test]
async fn metrics_are_served_only_where_they_are_configured() {
    let folder = tempfile::tempdir().unwrap();
    let (mut sync, _consul) = daemon(folder.path(), "").await;
    let answer = reqwest::get(format!("{}/metrics", sync.address().unwrap())).await.unwrap();
    assert_eq!(answer.status(), 404);
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}

/// What `openssl req -x509` makes by default.
#[tokio::test]
async fn a_daemon_that_shows_an_authority_s_certificate_is_reached_where_it_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    Authority::signed_by_itself(folder);
    let settings = "tls {\n  cert = \"self.pem\"\n  key = \"self.key\"\n}\n";
    let (mut sync, _consul) = daemon(folder, settings).await;
    let told = reach(&sync, folder, "https", &["-ca-cert=self.pem"]).await;
    assert!(told.contains(REACHED), "{told}");
    let told = reach(&sync, folder, "https", &["-ssl-verify=false"]).await;
    assert!(told.contains(REACHED), "{told}");
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}
