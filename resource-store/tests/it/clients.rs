//! The clients side by side: the same calls in one process, over gRPC and over HTTP, with the
//! same answers; and what is of the connection over HTTP.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use resource_store::{
    Code, HttpClient, HttpClientConfig, LocalClient, RequestContext, ResourceClient,
    ResourceData as _, RpcError, Scope,
    backend::{Consistency, WatchEvent},
    demo::{self, v1, v2},
    pb::{self, DeleteRequest, Id, ListRequest, Tenancy, WatchListRequest, WriteStatusRequest},
    resuming_watch,
    server::{ServerConfig, ServerTls},
    testing::{Flow, Flows, Link},
};
use tokio::time::timeout;

use crate::{
    grpc::{self, Authority, Running, start, watch_artists},
    service::reading::Recorder,
    support::*,
};

const PATIENCE: Duration = Duration::from_secs(20);

fn over_http(server: &Running) -> HttpClient {
    let config = HttpClientConfig::new(&format!("http://{}", server.address));
    HttpClient::new(&config, demo_registry()).unwrap()
}

/// What the clients say one after the other, without what is random or of the time.
struct Script {
    client: Arc<dyn ResourceClient>,
    said: Vec<String>,
    /// Texts that are random, and what stands for them.
    random: Vec<(String, String)>,
}

impl Script {
    fn say<T: std::fmt::Debug>(&mut self, step: &str, said: &Result<T, RpcError>) {
        let mut line = format!("{step}: {said:?}");
        for (random, plain) in &self.random {
            line = line.replace(random, plain);
        }
        self.said.push(line);
    }

    fn resource(&mut self, step: &str, said: Result<pb::Resource, RpcError>) -> pb::Resource {
        let mut said = said;
        if let Ok(resource) = &mut said {
            resource.status.values_mut().for_each(|status| status.updated_at = None);
            let number = self.random.len();
            for (kind, text) in [("uid", resource.uid()), ("generation", &resource.generation)] {
                let known = self.random.iter().any(|(random, _)| random == text);
                if !text.is_empty() && !known {
                    self.random.push((text.to_owned(), format!("{kind} {number}")));
                }
            }
        }
        self.say(step, &said);
        said.unwrap_or_default()
    }

    async fn write(&mut self, step: &str, resource: pb::Resource) -> pb::Resource {
        let said = self.client.write(resource).await;
        self.resource(step, said)
    }

    async fn read(&mut self, step: &str, id: Id) {
        let said = self.client.read(id).await;
        self.resource(step, said);
    }

    async fn list(&mut self, step: &str, tenancy: Option<Tenancy>, name_prefix: &str) {
        let (r#type, name_prefix) = (Some(v2::Artist::resource_type()), name_prefix.to_owned());
        let found = self.client.list(ListRequest { r#type, tenancy, name_prefix }).await;
        let untimed = |mut resource: pb::Resource| {
            resource.status.values_mut().for_each(|status| status.updated_at = None);
            resource
        };
        let found: Result<Vec<_>, _> = found.map(|found| found.into_iter().map(untimed).collect());
        self.say(step, &found);
    }

    async fn delete(&mut self, step: &str, id: Id, version: &str) {
        let request = DeleteRequest { id: Some(id), version: version.to_owned() };
        let said = self.client.delete(request).await;
        self.say(step, &said);
    }

    async fn status(&mut self, step: &str, of: &pb::Resource, key: &str, version: &str) {
        let request = WriteStatusRequest {
            id: of.id.clone(),
            version: version.to_owned(),
            key: key.to_owned(),
            status: Some(status_of(of)),
        };
        let said = self.client.write_status(request).await;
        self.resource(step, said);
    }
}

/// Calls of every kind, those that are refused before all.
async fn script(client: Arc<dyn ResourceClient>) -> Vec<String> {
    let mut script = Script { client, said: Vec::new(), random: Vec::new() };
    let written = writes(&mut script).await;
    places(&mut script).await;
    statuses_and_lists(&mut script, &written).await;
    deletes(&mut script, written).await;
    script.said
}

/// Gives the artist that it wrote first, in the version of then.
async fn writes(script: &mut Script) -> pb::Resource {
    script.read("none", id(&artist("korn"))).await;
    let mut korn = artist("korn");
    korn.metadata.insert("a/b ?&=%".to_owned(), "ä\n\"".to_owned());
    let written = script.write("create", korn.clone()).await;
    script.read("by name", id(&artist("korn"))).await;
    script.read("by uid", id(&written)).await;
    script
        .read("of another incarnation", id(&written).with_uid("01M83KNFJ7ENK4VC5219FHYSJC"))
        .await;
    let strong = script.client.read_strong(id(&written)).await;
    script.resource("strong", strong);

    script.write("again", written.clone()).await;
    script.write("too late", written.clone()).await;
    for name in ["Korn", "", "a/b", "a%2fb", "a b", "a?b#c", "ä", &"x".repeat(64)] {
        script.write("a bad name", artist(name)).await;
        script.read("a bad name", id(&artist(name))).await;
    }
    script.write("without data", pb::Resource { data: None, ..korn.clone() }).await;
    script.write("without id", pb::Resource { id: None, ..korn.clone() }).await;
    let nameless = v2::Artist { genre: 2, ..Default::default() };
    let nameless = pb::Resource { data: Some(resource_store::any(&nameless)), ..artist("x") };
    script.write("refused by the hook", nameless.clone()).await;
    let dry = script.client.mutate_and_validate(nameless).await;
    script.resource("refused dry", dry);
    let plain = v2::Artist { name: "x".to_owned(), ..Default::default() };
    let plain = pb::Resource { data: Some(resource_store::any(&plain)), ..artist("x") };
    let dry = script.client.mutate_and_validate(plain).await;
    script.resource("dry", dry);
    let reserved = [("deletionTimestamp".to_owned(), "now".to_owned())];
    let marked = pb::Resource { metadata: reserved.into(), ..artist("marked") };
    script.write("marked", marked).await;
    written
}

async fn places(script: &mut Script) {
    script.write("of the cluster", executive("ceo")).await;
    script.write("of a partition", label("loud")).await;
    let elsewhere = |partition: &str, namespace: &str| {
        let id = id(&artist("korn"));
        Id { tenancy: Some(Tenancy::new(partition, namespace)), ..id }
    };
    script.read("no such namespace", elsewhere("default", "nowhere")).await;
    script.read("wildcard", elsewhere("*", "default")).await;
    script.read("not there", elsewhere("foo", "bar")).await;
    script.read("empty tenancy", elsewhere("", "")).await;
    script.read("no tenancy", Id { tenancy: None, ..id(&artist("korn")) }).await;
}

async fn statuses_and_lists(script: &mut Script, written: &pb::Resource) {
    let all = Some(Tenancy::new("*", "*"));
    script.status("status", written, "key", "").await;
    script.status("status of a version", written, "key", "3").await;
    script.status("status too late", written, "key", "1").await;
    script.status("a bad key", written, "", "").await;
    script.status("status of none", &artist("none"), "key", "").await;
    script.read("with status", id(&artist("korn"))).await;

    let album = demo::album("issues", &id(written)).encode();
    script.write("album", album.clone()).await;
    let other = v1::Album { name: "issues".to_owned(), ..Default::default() };
    let other = resource_store::Resource::new(default_tenancy(), "other", other).encode();
    script.write("another album", pb::Resource { owner: written.id.clone(), ..other }).await;
    for owner in [id(written), id(written).without_uid(), id(&artist("none")).with_uid("x")] {
        let owned = script.client.list_by_owner(owner).await;
        script.say(
            "owned",
            &owned.map(|owned| {
                owned
                    .into_iter()
                    .map(|found| (found.name().to_owned(), found.owner, found.data))
                    .collect::<Vec<_>>()
            }),
        );
    }
    script.list("all", all.clone(), "").await;
    script.list("prefix", all.clone(), "ko").await;
    script.list("no prefix", all, "x").await;
    script.list("a bad prefix", Some(default_tenancy()), "K").await;
    script.list("no such namespace", Some(Tenancy::new("default", "nowhere")), "").await;
    script.list("no tenancy", None, "").await;
}

async fn deletes(script: &mut Script, written: pb::Resource) {
    script.delete("too late", id(&written), "1").await;
    script.delete("of another incarnation", id(&written).with_uid("x"), "").await;
    script.read("still there", id(&artist("korn"))).await;
    script.delete("by name", id(&artist("korn")), "").await;
    script.delete("again", id(&artist("korn")), "").await;
    script.read("gone", id(&artist("korn"))).await;
    script.write("gone", written).await;
}

#[tokio::test]
async fn all_clients_say_the_same() {
    let in_process = script(Arc::new(LocalClient::new(service()))).await;
    assert!(in_process.len() > 60, "{}", in_process.len());
    let server = start(service(), ServerConfig::default()).await;
    let over_grpc = script(Arc::new(grpc::client(&server))).await;
    for http1_only in [false, true] {
        let server = start(service(), ServerConfig::default()).await;
        let mut config = HttpClientConfig::new(&format!("http://{}/", server.address));
        config.http1_only = http1_only;
        let over_http = script(Arc::new(HttpClient::new(&config, demo_registry()).unwrap())).await;
        for ((local, grpc), http) in in_process.iter().zip(&over_grpc).zip(&over_http) {
            assert_eq!(local, grpc);
            assert_eq!(local, http);
        }
    }
}

#[tokio::test]
async fn names_that_would_lead_elsewhere_are_not_sent() {
    let server = start(service(), ServerConfig::default()).await;
    let client = over_http(&server);
    for name in [".", ".."] {
        let refused = client.read(id(&artist(name))).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
    }
    let unknown = Id { r#type: Some(pb::Type::new("demo", "v9", "Artist")), ..id(&artist("korn")) };
    let error = client.read(unknown.clone()).await.unwrap_err();
    assert!(error.message().contains("demo/v9/artist not registered"), "{error}");
    assert_eq!(error.code(), Code::InvalidArgument, "and not that there is no such resource");
    let artist = pb::Resource { id: Some(unknown), ..artist("korn") };
    let error = client.write(artist).await.unwrap_err();
    assert_eq!(error.message(), "resource type demo.v9.Artist not registered with this client");
}

/// What it does not know, it does not take for something else.
#[tokio::test]
async fn a_client_of_few_types_sees_the_rest_without_data() {
    let server = start(service(), ServerConfig::default()).await;
    let korn = over_http(&server).write(artist("korn")).await.unwrap();
    over_http(&server).write(demo::album("issues", &id(&korn)).encode()).await.unwrap();
    let mut registry = resource_store::Registry::new().unwrap();
    let artists = resource_store::Registration::of::<v2::Artist>(Scope::Namespace).unwrap();
    registry.register(artists).unwrap();
    let config = HttpClientConfig::new(&format!("http://{}", server.address));
    let client = HttpClient::new(&config, registry).unwrap();
    let owned = client.list_by_owner(id(&korn)).await.unwrap();
    assert_eq!((owned[0].name(), &owned[0].data), ("issues", &None));
    assert_eq!(client.read(id(&korn)).await.unwrap(), korn);
}

#[tokio::test]
async fn a_watch_over_http_tells_what_one_in_process_does() {
    let service = service();
    let server = start(service.clone(), ServerConfig::default()).await;
    let client = over_http(&server);
    let there = service.put(artist("korn")).await.unwrap();
    let mut watch = client.watch_list(watch_artists()).await.unwrap();
    assert_eq!(snapshot(&mut watch).await, std::slice::from_ref(&there));
    let long = v1::Artist { description: "ä".repeat(1 << 20), ..Default::default() };
    let long = resource_store::Resource::new(
        default_tenancy(),
        "long",
        v1::Artist { name: "long".to_owned(), ..long },
    );
    let request = WatchListRequest {
        r#type: Some(v1::Artist::resource_type()),
        name_prefix: "lo".to_owned(),
        tenancy: Some(default_tenancy()),
    };
    let mut others = client.watch_list(request).await.unwrap();
    assert_eq!(next(&mut others).await, WatchEvent::EndOfSnapshot);
    let long = service.put(long.encode()).await.unwrap();
    assert_eq!(next(&mut others).await, WatchEvent::Upsert(long));
    let changed = service.put((*there).clone()).await.unwrap();
    service.remove(&id(&there), "").await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::Upsert(Arc::clone(&changed)));
    assert_eq!(next(&mut watch).await, WatchEvent::Delete(changed));

    // The end of the server is an error that says so, and the last.
    server.stop.cancel();
    let end = timeout(PATIENCE, watch.next()).await.expect("it hangs").unwrap().unwrap_err();
    assert_eq!((end.code(), end.message()), (Code::Unavailable, "server is shutting down"));
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn a_token_and_a_consistency_are_sent() {
    use resource_store::acl::{Access, StaticRules, StaticTokens};
    let rules = StaticRules::none("a").with_key_prefix("resource/", Access::Write);
    let token = || secrecy::SecretString::from("s3cret".to_owned());
    let tokens = StaticTokens::default().with_token(token(), rules, Tenancy::default());
    let server = start(builder().authorization(tokens).build(), ServerConfig::default()).await;
    let text = denied("key:write", "resource/demo.v2.Artist/korn");
    let refused = over_http(&server).write(artist("korn")).await;
    assert_fails(refused, Code::PermissionDenied, &text);
    let context = || RequestContext::anonymous().with_token(token());
    let known = over_http(&server).with_context(context());
    known.write(artist("korn")).await.unwrap();
    assert!(!format!("{known:?}").contains("s3cret"));

    let recorder = Arc::new(Recorder::default());
    let server = start(builder_over(recorder.clone()).build(), ServerConfig::default()).await;
    for consistency in [Consistency::Strong, Consistency::Eventual] {
        let client = over_http(&server)
            .with_context(RequestContext::anonymous().with_consistency(consistency));
        assert!(client.read(id(&artist("korn"))).await.is_err());
        let list = ListRequest {
            r#type: Some(v2::Artist::resource_type()),
            tenancy: Some(default_tenancy()),
            name_prefix: String::new(),
        };
        client.list(list).await.unwrap();
        assert_eq!(std::mem::take(&mut *recorder.seen.lock().unwrap()), [consistency; 2]);
    }
}

#[tokio::test]
async fn tls_over_http_wants_the_right_authority_and_certificate() {
    let authority = Authority::new();
    let (certificate, key) = authority.sign("localhost");
    let mut tls = ServerTls::new(certificate, key);
    tls.client_ca_pem = Some(authority.certificate.pem());
    let mut config = ServerConfig::default();
    config.tls = Some(tls);
    let server = start(service(), config).await;

    let mut config = HttpClientConfig::new(&format!("https://{}", server.address));
    config.server_name = Some("localhost".to_owned());
    config.identity_pem = Some(authority.sign("client"));
    let write = async |config: &HttpClientConfig| {
        HttpClient::new(config, demo_registry()).unwrap().write(artist("korn")).await
    };
    let untrusting = write(&config).await.unwrap_err();
    assert_eq!(untrusting.code(), Code::Unavailable, "no authority is trusted: {untrusting}");

    config.ca_pem = Some(authority.certificate.pem());
    write(&config).await.unwrap();
    config.http1_only = true;
    write(&config).await.unwrap();
    config.server_name = None;
    assert!(write(&config).await.is_err(), "the certificate is of a name, not of the address");
    config.server_name = Some("localhost".to_owned());
    config.identity_pem = None;
    assert!(write(&config).await.is_err(), "the client shows no certificate");

    config.server_name = Some("127.0.0.1".to_owned());
    let refused = HttpClient::new(&config, demo_registry()).unwrap_err();
    assert!(refused.message().contains("is an address"), "{refused}");
    for url in ["localhost:8502", "ftp://localhost", "nonsense"] {
        let refused = HttpClient::new(&HttpClientConfig::new(url), demo_registry()).unwrap_err();
        assert!(refused.message().contains(url), "{refused}");
    }
}

/// A client behind a link that can lose what passes, with short times.
async fn behind_link(server: &Running) -> (HttpClient, Link) {
    let link = Link::to(server.address.parse().unwrap()).await.unwrap();
    let mut config = HttpClientConfig::new(&format!("http://{}", link.address()));
    config.keepalive_interval = Some(Duration::from_millis(200));
    config.keepalive_timeout = Some(Duration::from_millis(200));
    config.call_timeout = Some(Duration::from_secs(2));
    (HttpClient::new(&config, demo_registry()).unwrap(), link)
}

#[tokio::test]
async fn a_watch_over_a_dead_connection_ends() {
    let server = start(service(), ServerConfig::default()).await;
    let (client, link) = behind_link(&server).await;
    let mut watch = client.watch_list(watch_artists()).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::EndOfSnapshot);
    link.set(Flows::STOPPED);
    let end = timeout(PATIENCE, watch.next()).await.expect("it hangs").unwrap();
    assert_eq!(end.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn of_a_change_over_a_dead_connection_nobody_knows() {
    let server = start(service(), ServerConfig::default()).await;
    let (client, link) = behind_link(&server).await;
    client.write(artist("korn")).await.unwrap();
    link.set(Flows { back: Flow::Stopped, ..Flows::default() });
    let error = timeout(PATIENCE, client.write(artist("muse"))).await.expect("it hangs");
    let error = error.unwrap_err();
    assert!(error.outcome_is_unknown() && !error.is_retryable(), "{error}");
    let read = timeout(PATIENCE, client.read(id(&artist("korn")))).await.expect("it hangs");
    let error = read.unwrap_err();
    assert!(matches!(error.code(), Code::Unavailable | Code::DeadlineExceeded), "{error}");

    // Nobody listens there: nothing was sent.
    let nobody = HttpClientConfig::new("http://127.0.0.1:1");
    let nobody = HttpClient::new(&nobody, demo_registry()).unwrap();
    let error = nobody.write(artist("korn")).await.unwrap_err();
    assert!(error.code() == Code::Unavailable && error.is_retryable(), "{error}");

    // It takes the connection and never says a word.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = HttpClientConfig::new(&format!("http://{}", silent.local_addr().unwrap()));
    config.call_timeout = Some(Duration::from_millis(100));
    let client = HttpClient::new(&config, demo_registry()).unwrap();
    let error = timeout(PATIENCE, client.write(artist("korn"))).await.expect("it hangs");
    assert!(error.unwrap_err().outcome_is_unknown());
    let watch = timeout(PATIENCE, client.watch_list(watch_artists())).await.expect("it hangs");
    assert!(watch.is_err());
}

/// What a proxy says before the server is not what the service says.
#[tokio::test]
async fn answers_of_others_are_no_answers_of_the_service() {
    use axum::http::StatusCode;
    for (status, question, change) in [
        (StatusCode::NOT_FOUND, Code::InvalidArgument, Code::InvalidArgument),
        (StatusCode::BAD_GATEWAY, Code::Unavailable, Code::Unknown),
        (StatusCode::GATEWAY_TIMEOUT, Code::Unavailable, Code::Unknown),
        (StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, Code::Unavailable),
        (StatusCode::FOUND, Code::Internal, Code::Internal),
        (StatusCode::OK, Code::Internal, Code::Internal),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = async move || (status, [("location", "/elsewhere")], "a proxy");
        let router = axum::Router::new().fallback(answer);
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        let mut config = HttpClientConfig::new(&format!("http://{address}/behind"));
        config.http1_only = true;
        let client = HttpClient::new(&config, demo_registry()).unwrap();
        let read = client.read(id(&artist("korn"))).await.unwrap_err();
        assert_eq!(read.code(), question, "{status}: {read}");
        let write = client.write(artist("korn")).await.unwrap_err();
        assert_eq!(write.code(), change, "{status}: {write}");
        serving.abort();
    }
}

/// The connection loses everything, then breaks; what comes after is the difference.
#[tokio::test]
async fn a_resuming_watch_over_http_tells_the_difference() {
    let service = service();
    let server = start(service.clone(), ServerConfig::default()).await;
    let (client, link) = behind_link(&server).await;
    let deleted = service.put(artist("deleted")).await.unwrap();
    let same = service.put(artist("same")).await.unwrap();
    let mut watch = resuming_watch(client, watch_artists());
    assert_eq!(snapshot(&mut watch).await, [Arc::clone(&deleted), same]);
    link.set(Flows::STOPPED);
    service.remove(&id(&deleted), "").await.unwrap();
    let created = service.put(artist("created")).await.unwrap();
    link.cut();
    link.set(Flows::default());
    assert_eq!(next(&mut watch).await, WatchEvent::Upsert(created));
    assert_eq!(next(&mut watch).await, WatchEvent::Delete(deleted));
    let last = service.put(artist("last")).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::Upsert(last));
}
