//! mesh-init of the current generation with the servers' real gRPC port: it waits for one that
//! answers, and says what is wrong with one that does not.

use std::fs;

use consul_watch::testing::{
    parts::{Part, Suite},
    real::{Consul, free_port},
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::{log::Log, volume::Volume};

const SUITE: Suite = Suite("ecs-mesh-init and the servers' gRPC");

/// An authority, and a server's certificate by it.
pub(crate) struct Pki(TempDir);

impl Pki {
    pub(crate) fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // With the default name for both, the certificate would look as if it had signed itself.
        params.distinguished_name.push(DnType::CommonName, "Authority");
        let authority = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let own = KeyPair::generate().unwrap();
        let names = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = names.signed_by(&own, &issuer).unwrap();
        for (file, text) in [
            ("ca.pem", authority.pem()),
            ("cert.pem", certificate.pem()),
            ("key.pem", own.serialize_pem()),
        ] {
            fs::write(folder.path().join(file), text).unwrap();
        }
        Self(folder)
    }

    pub(crate) fn path(&self, file: &str) -> String {
        self.0.path().join(file).display().to_string()
    }
}

fn config(consul: &Consul, grpc: &Value) -> String {
    let port: u16 = consul.address().rsplit_once(':').unwrap().1.parse().unwrap();
    json!({"bootstrapDir": "$DIR", "service": {"port": 8080}, "transparentProxy": {"enabled": false},
        "consulServers": {"hosts": "127.0.0.1", "http": {"https": false, "port": port}, "grpc": grpc}})
    .to_string()
}

/// Runs mesh-init until it is done, or until it has logged a line with all of `problems`.
async fn run(config: &str, problems: &[&str]) {
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    let volume = Volume::new();
    let mut run = volume.run(config, &[]);
    run.uses_grpc = true;
    let stop = CancellationToken::new();
    let work = run.run(stop.clone());
    tokio::pin!(work);
    tokio::select! {
        done = &mut work => {
            done.unwrap();
            assert!(problems.is_empty(), "it should have waited: {log:?}");
        }
        () = log.until(problems), if !problems.is_empty() => {
            assert!(!volume.path("consul-dataplane.json").exists(), "nothing is done before");
            stop.cancel();
            let error = work.await.unwrap_err();
            assert_eq!(error.to_string(), "connecting to Consul: stopped before it was done");
        }
    }
}

async fn waits_for_a_port_that_answers(part: &Part) {
    let grpc = free_port().unwrap();
    let settings = json!({"ports": {"grpc": grpc}, "connect": {"enabled": true}});
    let consul = Consul::start_with(&part.path, settings).await.unwrap();
    run(&config(&consul, &json!({"port": grpc, "tls": false})), &[]).await;

    let dead = free_port().unwrap();
    let address = format!("gRPC at 127.0.0.1:{dead}: ");
    let problems = [address.as_str(), "Connection refused"];
    run(&config(&consul, &json!({"port": dead, "tls": false})), &problems).await;
    // Something else listens there.
    let http: u16 = consul.address().rsplit_once(':').unwrap().1.parse().unwrap();
    let address = format!("gRPC at 127.0.0.1:{http}: ");
    run(&config(&consul, &json!({"port": http, "tls": false})), &[&address]).await;
}

#[tokio::test]
async fn it_waits_for_a_port_that_answers() {
    for part in SUITE.parts("consul", "a port without TLS") {
        waits_for_a_port_that_answers(&part).await;
    }
}

#[tokio::test]
async fn it_waits_for_a_certificate_of_the_right_name() {
    // Ports for gRPC with TLS came with Consul 1.14.
    let case = "a port with TLS";
    let parts = SUITE.parts("consul", case);
    let Some(part) = parts.iter().find(|part| part.major_minor() >= (1, 14)) else {
        return SUITE.missing("consul", case, "needs Consul 1.14 or newer");
    };
    let (pki, grpc) = (Pki::new("server.dc1.consul"), free_port().unwrap());
    let tls = json!({"cert_file": pki.path("cert.pem"), "key_file": pki.path("key.pem"),
        "ca_file": pki.path("ca.pem")});
    let settings = json!({"ports": {"grpc_tls": grpc}, "connect": {"enabled": true},
        "tls": {"grpc": tls}});
    let consul = Consul::start_with(&part.path, settings).await.unwrap();
    let grpc = |name: &str, authority: &str| json!({"port": grpc, "tlsServerName": name, "caCertFile": authority});
    let ca = pki.path("ca.pem");
    run(&config(&consul, &grpc("server.dc1.consul", &ca)), &[]).await;
    let wrong = config(&consul, &grpc("server.dc2.consul", &ca));
    run(&wrong, &["(as server.dc2.consul): ", "certificate"]).await;
    let stranger = Pki::new("server.dc1.consul");
    let wrong = config(&consul, &grpc("server.dc1.consul", &stranger.path("ca.pem")));
    run(&wrong, &["(as server.dc1.consul): ", "certificate"]).await;

    // What no waiting cures.
    let volume = Volume::new();
    let mut absent = volume.run(&config(&consul, &grpc("x", "/nowhere/ca.pem")), &[]);
    absent.uses_grpc = true;
    let error = absent.run(CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "reading /nowhere/ca.pem");
}
