//! The typed client of the HTTP API.

use std::{fs, path::Path, sync::Arc};

use cts_tasks::{
    ApiServer, FirstRun, Single, Status,
    client::{Client, ClientConfig, Error},
    config::Registry,
    wire::TaskDocument,
};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, date_time_ymd};
use tokio::{
    io::copy_bidirectional,
    net::{TcpStream, UnixListener},
};

use crate::{
    api::{Api, FollowerOf},
    authority::{Authority, Pair, tls},
    config::support::{AnyDriver, loader_of, source, task},
    scene::{Scene, on},
};

fn client(address: &str, change: impl FnOnce(&mut ClientConfig)) -> Client {
    let mut config = ClientConfig::default();
    address.clone_into(&mut config.address);
    change(&mut config);
    Client::new(&config).unwrap()
}

fn config_error(change: impl FnOnce(&mut ClientConfig)) -> String {
    let mut config = ClientConfig::default();
    change(&mut config);
    Client::new(&config).unwrap_err().to_string()
}

/// A running engine with the task `on`, and a client of its API.
async fn running() -> (Scene, Api, Client) {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("on", &["web"])]).await;
    drop(running);
    let driver = AnyDriver::new("terraform", &["limits"]);
    let loaded = loader_of(Registry::new().driver(driver))
        .load_sources(vec![source("test.hcl", "port = 1")])
        .unwrap();
    let api = Api::serve_with(&scene, loaded.rules).await;
    let client = client(&api.url, |_| ());
    (scene, api, client)
}

fn document(name: &str) -> TaskDocument {
    let mut document = TaskDocument::from(&task("condition \"services\" { names = [\"web\"] }"));
    name.clone_into(&mut document.name);
    document
}

#[tokio::test]
async fn every_question_has_its_typed_answer() {
    let (scene, _api, client) = running().await;
    client.health().await.unwrap();
    assert_eq!(client.status().await.unwrap().task_summary.enabled.enabled, 1);
    let all = client.task_statuses(true, Some(Status::Successful)).await.unwrap();
    assert_eq!(all["on"].events.len(), 1);
    assert!(client.task_statuses(false, Some(Status::Errored)).await.unwrap().is_empty());
    let one = client.task_status("on", true).await.unwrap();
    assert_eq!((one.status, one.events.len()), (Status::Successful, 1));
    assert_eq!(client.tasks().await.unwrap().len(), 1);
    assert_eq!(client.task("on").await.unwrap().name, "on");

    let api = Api::serve(&scene, Arc::new(FollowerOf(Some("cts-01")))).await;
    let cluster = self::client(&api.url, |_| ()).cluster_status().await.unwrap();
    assert_eq!((cluster.cluster_name.as_str(), cluster.members.len()), ("cluster-a", 1));
}

#[tokio::test]
async fn a_task_is_inspected_created_run_disabled_and_deleted() {
    let (scene, _api, client) = running().await;
    let inspected = client.inspect_new_task(&document("new")).await.unwrap();
    assert_eq!(inspected.value.plan, "recorded, not planned");
    assert!(inspected.value.changes_present && inspected.request_id.is_some());
    assert_eq!(client.task("new").await.unwrap_err().status().unwrap(), 404);

    let created = client.create_task(&document("new"), FirstRun::Now).await.unwrap();
    assert_eq!(created.value, document("new"));
    assert_eq!(scene.driver.applies("new").len(), 1);
    client.create_task(&document("later"), FirstRun::WhenTriggered).await.unwrap();
    assert_eq!(scene.driver.applies("later").len(), 0);

    client.run_task("new").await.unwrap();
    assert_eq!(scene.driver.applies("new").len(), 2);
    client.set_enabled("new", false, FirstRun::WhenTriggered).await.unwrap();
    assert!(!client.task("new").await.unwrap().enabled);
    let inspected = client.inspect_enabled("new", true).await.unwrap().value;
    assert_eq!(inspected.plan, "recorded, not planned");
    client.set_enabled("new", true, FirstRun::Now).await.unwrap();
    assert_eq!(scene.driver.applies("new").len(), 3);
    assert!(client.delete_task("new").await.unwrap().request_id.is_some());
    while client.task("new").await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_refusal_is_typed_and_names_its_request() {
    let (_scene, _api, client) = running().await;
    // A name cannot lead to another path.
    for name in ["gone", "on/run", "..", "a?b", "a b"] {
        let error = client.task(name).await.unwrap_err();
        let expected = if name.contains('/') { 400 } else { 404 };
        assert_eq!(error.status().unwrap(), expected, "{name}: {error}");
        assert!(uuid::Uuid::parse_str(error.request_id().unwrap()).is_ok());
    }
    let error = client.create_task(&document("on"), FirstRun::Now).await.unwrap_err();
    let Error::Refused { status, message, .. } = error else { panic!("{error}") };
    assert_eq!((status.as_u16(), message.as_str()), (400, "task with name on already exists"));
}

#[tokio::test]
async fn settings_that_cannot_be_used_are_refused_with_their_texts() {
    for (address, text) in [
        ("ftp://a", "unknown protocol scheme: ftp"),
        ("localhost:8558", "unknown protocol scheme: "),
        ("http://", "invalid address, host value is empty"),
        ("https://:8558", "invalid address, host value is empty"),
        ("unix://", "invalid address, host value is empty"),
    ] {
        assert_eq!(config_error(|config| config.address = address.to_owned()), text, "{address}");
    }
    let half = config_error(|config| config.tls.client_cert = Some("a".into()));
    assert_eq!(half, "both client cert and client key must be provided");
    let missing = config_error(|config| {
        config.address = "https://a".into();
        config.tls.ca_file = Some("/no/such.pem".into());
    });
    assert!(missing.starts_with("ca_file: cannot read /no/such.pem"), "{missing}");
}

/// A server that serves https with a certificate for `localhost`.
async fn secured(authority: &Authority, rest: &str) -> (Scene, Api, String) {
    let scene = Scene::new();
    let pair = authority.sign("server", &["localhost"]);
    let server: ApiServer = Api::bind(&scene, Arc::new(Single)).await;
    let server = server.with_tls(&tls(&pair, rest)).unwrap();
    let port = server.local_addr().unwrap().port();
    (scene, Api::start(server), format!("localhost:{port}"))
}

/// Spec: CTS81
#[tokio::test]
async fn https_is_checked_unless_told_otherwise() {
    let authority = Authority::new();
    let (_scene, _api, host) = secured(&authority, "").await;
    let https = format!("https://{host}");
    let untrusting = client(&https, |_| ()).status().await.unwrap_err();
    assert!(matches!(untrusting, Error::Transport { hint: None, .. }), "{untrusting}");
    client(&https, |config| config.tls.verify = false).status().await.unwrap();
    client(&https, |config| config.tls.ca_file = Some(authority.ca_file())).status().await.unwrap();
    client(&https, |config| config.tls.ca_path = Some(authority.ca_path())).status().await.unwrap();

    let other = Authority::new();
    assert!(
        client(&https, |config| config.tls.ca_file = Some(other.ca_file())).status().await.is_err()
    );
    let address = https.replace("localhost", "127.0.0.1");
    let by_address = client(&address, |config| config.tls.ca_file = Some(authority.ca_file()));
    assert!(by_address.status().await.is_err(), "the certificate is for a name");
    let named = client(&address, |config| {
        config.tls.ca_file = Some(authority.ca_file());
        config.tls.server_name = Some("localhost".into());
    });
    named.status().await.unwrap();
}

/// Spec: CTS81
#[tokio::test]
async fn a_client_that_speaks_http_to_https_is_told_so() {
    let authority = Authority::new();
    let (_scene, _api, host) = secured(&authority, "").await;
    let error = client(&format!("http://{host}"), |_| ()).status().await.unwrap_err();
    let Error::Transport { hint: Some(hint), .. } = &error else { panic!("{error}") };
    assert!(hint.contains("https://"), "{hint}");
}

/// A server that cuts a connection says nothing: the scheme may be the reason.
#[tokio::test]
async fn a_connection_that_is_cut_is_perhaps_due_to_the_scheme() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let cutting = tokio::spawn(async move { drop(listener.accept().await.unwrap()) });
    let error = client(&format!("http://{address}"), |_| ()).status().await.unwrap_err();
    assert!(matches!(error, Error::Transport { hint: Some(_), .. }), "{error:?}");
    cutting.await.unwrap();
}

/// Spec: CTS81
#[tokio::test]
async fn mutual_tls_wants_a_certificate_of_the_right_authority() {
    let authority = Authority::new();
    let (file, folder) = (authority.ca_file(), authority.ca_path());
    for setting in [format!("ca_cert = {file:?}"), format!("ca_path = {folder:?}")] {
        let (_scene, _api, host) =
            secured(&authority, &format!(" verify_incoming = true\n {setting}")).await;
        let https = format!("https://{host}");
        let trusting = |config: &mut ClientConfig| config.tls.ca_file = Some(authority.ca_file());
        assert!(client(&https, trusting).status().await.is_err(), "no certificate");
        let elsewhere = Authority::new();
        let other = elsewhere.sign("client", &["client"]);
        let foreign = client(&https, |config| {
            trusting(config);
            config.tls.client_cert = Some(other.cert.clone());
            config.tls.client_key = Some(other.key.clone());
        });
        assert!(foreign.status().await.is_err(), "another authority's");
        let own = authority.sign("client", &["client"]);
        let welcome = client(&https, |config| {
            trusting(config);
            config.tls.client_cert = Some(own.cert);
            config.tls.client_key = Some(own.key);
        });
        welcome.status().await.unwrap();
    }
}

/// Shows this certificate to an API that lists `listed` as its authority.
async fn show(authority: &Authority, listed: &Path, shown: &Pair) -> Result<(), Error> {
    let rest = format!(" verify_incoming = true\n ca_cert = \"{}\"", listed.display());
    let (_scene, _api, host) = secured(authority, &rest).await;
    let client = client(&format!("https://{host}"), |config| {
        config.tls.ca_file = Some(authority.ca_file());
        config.tls.client_cert = Some(shown.cert.clone());
        config.tls.client_key = Some(shown.key.clone());
    });
    client.status().await.map(|_status| ())
}

/// What makes a certificate unfit.
type Change = fn(&mut CertificateParams);

/// Upstream's server takes it, for Go finds it among the roots.
#[tokio::test]
async fn mutual_tls_takes_an_authority_s_certificate_that_is_listed_itself() {
    let authority = Authority::new();
    let own = authority.signed_by_itself("own", |_| ());
    show(&authority, &own.cert, &own).await.unwrap();
    let both = authority.ca_path().join("bundle.pem");
    let bundle = [&authority.ca_file(), &own.cert].map(|file| fs::read_to_string(file).unwrap());
    fs::write(&both, bundle.concat()).unwrap();
    show(&authority, &both, &own).await.unwrap();
    show(&authority, &both, &authority.sign("client", &["client"])).await.unwrap();

    assert!(show(&authority, &authority.ca_file(), &own).await.is_err(), "it is not listed");
    let changes: [(&str, Change); 3] = [
        ("expired", |certificate| certificate.not_after = date_time_ymd(2020, 1, 1)),
        ("early", |certificate| certificate.not_before = date_time_ymd(2200, 1, 1)),
        ("purpose", |certificate| {
            certificate.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        }),
    ];
    for (file, change) in changes {
        let own = authority.signed_by_itself(file, change);
        assert!(show(&authority, &own.cert, &own).await.is_err(), "{file}");
    }
}

#[tokio::test]
async fn a_socket_of_a_proxy_can_be_used() {
    let scene = Scene::new();
    let api = Api::serve(&scene, Arc::new(Single)).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let target = api.url.trim_start_matches("http://").to_owned();
    let proxy = tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = TcpStream::connect(target).await.unwrap();
        copy_bidirectional(&mut near, &mut far).await
    });
    client(&format!("unix://{}", path.display()), |_| ()).health().await.unwrap();
    proxy.abort();
}

#[tokio::test]
async fn the_token_is_sent_and_never_shown() {
    let scene = Scene::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "planted-token\n").unwrap();
    let server = Api::bind(&scene, Arc::new(Single)).await;
    let api = Api::start(server.with_token_file(file).await.unwrap());
    let mut config = ClientConfig::default();
    config.address.clone_from(&api.url);
    config.token = Some("planted-token".into());
    let client = Client::new(&config).unwrap();
    client.status().await.unwrap();
    for shown in [format!("{config:?}"), format!("{client:?}")] {
        assert!(!shown.contains("planted-token"), "{shown}");
    }
    config.token = Some("wrong-token".into());
    let error = Client::new(&config).unwrap().status().await.unwrap_err();
    assert_eq!(error.status().unwrap(), 401);
    assert!(!format!("{error:?}").contains("wrong-token"));
    config.token = Some("two\nlines".into());
    let error = Client::new(&config).unwrap_err();
    assert!(!format!("{error:?}").contains("two"), "{error:?}");
}
