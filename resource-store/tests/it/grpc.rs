//! The service over sockets: gRPC server and client.

mod accepting;
mod connection;
mod health;
mod limits;

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use resource_store::{
    Code, GrpcClient, GrpcClientConfig, RequestContext, ResourceClient, ResourceData as _,
    ResourceService,
    backend::{Consistency, WatchEvent},
    demo::{self, v2},
    pb::{self, DeleteRequest, ListRequest, WatchListRequest, WriteStatusRequest},
    server::{Server, ServerConfig, ServerTls},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{service::reading::Recorder, support::*};

/// A server on a free port, which stops when this is dropped.
pub(crate) struct Running {
    pub(crate) address: String,
    pub(crate) stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(crate) async fn start(service: ResourceService, mut config: ServerConfig) -> Running {
    "127.0.0.1:0".clone_into(&mut config.address);
    let server = Server::bind(service, config).await.unwrap();
    let address = server.local_addr().unwrap().to_string();
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let stop = stop.clone();
        async move { server.run(stop).await.unwrap() }
    });
    Running { address, stop, task }
}

pub(crate) fn client(server: &Running) -> GrpcClient {
    GrpcClient::new(&GrpcClientConfig::new(&format!("http://{}", server.address))).unwrap()
}

const SERVICE: &str = "hashicorp.consul.resource.ResourceService";

/// A connection for clients other than ours.
fn channel(server: &Running) -> tonic::transport::Channel {
    tonic::transport::Endpoint::from_shared(format!("http://{}", server.address))
        .unwrap()
        .connect_lazy()
}

pub(crate) fn watch_artists() -> WatchListRequest {
    WatchListRequest { r#type: Some(v2::Artist::resource_type()), ..WatchListRequest::default() }
}

#[tokio::test]
async fn every_call_works_over_the_wire() {
    let server = start(service(), ServerConfig::default()).await;
    let client = client(&server);
    let mut watch = client.watch_list(watch_artists()).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::EndOfSnapshot);

    let dry = client.mutate_and_validate(artist("korn")).await.unwrap();
    assert!(dry.version.is_empty());
    let stored = client.write(artist("korn")).await.unwrap();
    assert_eq!(client.read(id(&stored)).await.unwrap(), stored);
    let album = client.write(demo::album("issues", &id(&stored)).encode()).await.unwrap();
    assert_eq!(client.list_by_owner(id(&stored)).await.unwrap(), [album]);
    let list = ListRequest {
        r#type: Some(v2::Artist::resource_type()),
        tenancy: Some(default_tenancy()),
        name_prefix: String::new(),
    };
    assert_eq!(client.list(list).await.unwrap(), std::slice::from_ref(&stored));
    let status = WriteStatusRequest {
        id: Some(id(&stored)),
        version: stored.version.clone(),
        key: "key".to_owned(),
        status: Some(status_of(&stored)),
    };
    let changed = client.write_status(status).await.unwrap();
    client.delete(DeleteRequest { id: Some(id(&stored)), version: String::new() }).await.unwrap();

    assert_eq!(next(&mut watch).await, WatchEvent::Upsert(Arc::new(stored)));
    assert_eq!(next(&mut watch).await, WatchEvent::Upsert(Arc::new(changed.clone())));
    assert_eq!(next(&mut watch).await, WatchEvent::Delete(Arc::new(changed.clone())));
    assert_fails(client.read(id(&changed)).await, Code::NotFound, "resource not found");
}

/// Spec: RS14 (the watch)
#[tokio::test]
async fn a_refused_watch_fails_on_the_first_receive() {
    let server = start(service(), ServerConfig::default()).await;
    let unknown = pb::Type::new("demo", "v9", "Artist");
    let request = WatchListRequest { r#type: Some(unknown), ..WatchListRequest::default() };
    let mut watch = client(&server).watch_list(request).await.unwrap();
    let first = watch.next().await.unwrap();
    assert_fails(first, Code::InvalidArgument, "resource type demo.v9.Artist not registered");
    assert!(watch.next().await.is_none());
}

/// Spec: RS38
#[tokio::test]
async fn metadata_asks_for_consistency() {
    let recorder = Arc::new(Recorder::default());
    let server = start(builder_over(recorder.clone()).build(), ServerConfig::default()).await;
    for consistency in [Consistency::Strong, Consistency::Eventual] {
        let context = RequestContext::anonymous().with_consistency(consistency);
        let client = client(&server).with_context(context);
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
async fn metadata_carries_the_token() {
    use resource_store::acl::{Access, StaticRules, StaticTokens};
    let rules = StaticRules::none("a").with_key_prefix("resource/", Access::Write);
    let token = || secrecy::SecretString::from("s3cret".to_owned());
    let tokens = StaticTokens::default().with_token(token(), rules, pb::Tenancy::default());
    let server = start(builder().authorization(tokens).build(), ServerConfig::default()).await;
    let anonymous = client(&server);
    let text = denied("key:write", "resource/demo.v2.Artist/korn");
    assert_fails(anonymous.write(artist("korn")).await, Code::PermissionDenied, &text);
    let known = client(&server).with_context(RequestContext::anonymous().with_token(token()));
    known.write(artist("korn")).await.unwrap();
    assert!(!format!("{known:?}").contains("s3cret"));
}

#[tokio::test]
async fn oversized_messages_are_refused() {
    let mut config = ServerConfig::default();
    config.max_message_bytes = 10_000;
    let server = start(service(), config).await;
    let mut large = artist("korn");
    large.metadata.insert("large".to_owned(), "x".repeat(20_000));
    let refused = client(&server).write(large).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange);
    assert!(refused.message().contains("the limit is: 10000 bytes"), "{refused}");
    client(&server).write(artist("korn")).await.unwrap();
}

#[tokio::test]
async fn a_server_that_stops_ends_watches_and_finishes() {
    let mut server = start(service(), ServerConfig::default()).await;
    let mut watch = client(&server).watch_list(watch_artists()).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::EndOfSnapshot);
    server.stop.cancel();
    let last = watch.next().await.unwrap();
    assert_fails(last, Code::Unavailable, "server is shutting down");
    tokio::time::timeout(Duration::from_secs(10), &mut server.task).await.unwrap().unwrap();
}

/// The descriptors have the names of files that upstream's have.
#[tokio::test]
async fn reflection_describes_the_service() {
    use resource_store::prost::Message as _;
    use tonic_reflection::pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    };
    let server = start(service(), ServerConfig::default()).await;
    let mut client = ServerReflectionClient::new(channel(&server));
    let mut ask = async |message_request| {
        let request =
            ServerReflectionRequest { host: String::new(), message_request: Some(message_request) };
        let answers = client.server_reflection_info(futures::stream::iter([request])).await;
        let answer = answers.unwrap().into_inner().message().await.unwrap().unwrap();
        answer.message_response.unwrap()
    };
    let MessageResponse::ListServicesResponse(services) =
        ask(MessageRequest::ListServices(String::new())).await
    else {
        panic!("no list of services");
    };
    assert!(services.service.iter().any(|service| service.name == SERVICE), "{services:?}");
    for (symbol, file) in [
        (SERVICE, "pbresource/resource.proto"),
        ("hashicorp.consul.resource.ResourceTypeSpec", "pbresource/annotations.proto"),
        ("hashicorp.consul.internal.ratelimit.Spec", "annotations/ratelimit/ratelimit.proto"),
        ("hashicorp.consul.internal.demo.v1.Artist", "private/pbdemo/v1/demo.proto"),
        ("hashicorp.consul.internal.demo.v2.Artist", "private/pbdemo/v2/demo.proto"),
    ] {
        let MessageResponse::FileDescriptorResponse(found) =
            ask(MessageRequest::FileContainingSymbol(symbol.to_owned())).await
        else {
            panic!("{symbol} is not described");
        };
        let files: Vec<_> = found
            .file_descriptor_proto
            .iter()
            .map(|bytes| prost_types::FileDescriptorProto::decode(bytes.as_slice()).unwrap())
            .collect();
        assert_eq!(files[0].name(), file);
    }
}

/// A certificate authority, and what it signs.
pub(crate) struct Authority {
    pub(crate) certificate: rcgen::Certificate,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate, issuer: rcgen::Issuer::new(params, key) }
    }

    pub(crate) fn sign(&self, name: &str) -> (String, secrecy::SecretString) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem().into())
    }
}

#[tokio::test]
async fn tls_wants_the_right_authority_and_a_client_certificate() {
    let authority = Authority::new();
    let (certificate, key) = authority.sign("localhost");
    let mut tls = ServerTls::new(certificate, key);
    tls.client_ca_pem = Some(authority.certificate.pem());
    let mut config = ServerConfig::default();
    config.tls = Some(tls);
    let server = start(service(), config).await;

    let mut config = GrpcClientConfig::new(&format!("https://{}", server.address));
    config.server_name = Some("localhost".to_owned());
    config.identity_pem = Some(authority.sign("client"));
    let untrusting = GrpcClient::new(&config).unwrap();
    assert!(untrusting.write(artist("korn")).await.is_err(), "no authority is trusted");

    config.ca_pem = Some(authority.certificate.pem());
    GrpcClient::new(&config).unwrap().write(artist("korn")).await.unwrap();

    config.identity_pem = None;
    let anonymous = GrpcClient::new(&config).unwrap();
    assert!(anonymous.write(artist("korn")).await.is_err(), "the client shows no certificate");
}

/// What is no gRPC gets no answer of gRPC.
///
/// Spec: what was measured beside Consul 1.21
#[cfg(feature = "http")]
#[tokio::test]
async fn unknown_paths_are_not_found() {
    let server = start(service(), ServerConfig::default()).await;
    for (path, expected) in
        [("/", 404), ("/v1/kv/a", 404), ("/ui", 404), ("/api", 307), ("/api/", 404)]
    {
        let client =
            reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let answer = client.get(format!("http://{}{path}", server.address)).send().await.unwrap();
        assert_eq!(answer.status(), expected, "{path}");
        let content =
            answer.headers().get("content-type").map(|value| value.to_str().unwrap().to_owned());
        if expected == 404 {
            assert_eq!(content.as_deref(), Some("text/plain; charset=utf-8"), "{path}");
            assert!(!answer.text().await.unwrap().is_empty(), "{path}");
        } else {
            assert_eq!(answer.headers()["location"], "/api/");
        }
    }
    // A method that there is not is answered as gRPC.
    let answer = reqwest::Client::new()
        .post(format!("http://{}/no.such.Service/Method", server.address))
        .header("content-type", "application/grpc")
        .send()
        .await
        .unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["grpc-status"]),
        (200, &"12".parse().unwrap())
    );
}
