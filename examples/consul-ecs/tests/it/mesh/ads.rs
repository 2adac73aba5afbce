//! A small control plane: it tells every Envoy of one cluster and one listener.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use futures::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use tokio::sync::watch;
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    codegen::{Service, http},
    server::{Grpc, NamedService, StreamingService},
    transport::{Server, server::TcpIncoming},
};
use tonic_prost::ProstCodec;

use super::wire::{self, DeltaDiscoveryRequest, DeltaDiscoveryResponse, Node};

/// What Envoy sent with its first request.
#[derive(Debug, Clone)]
pub(super) struct Introduction {
    pub(super) node: Node,
    pub(super) token: String,
}

/// The running control plane. It ends with the test's runtime.
#[derive(Debug)]
pub(super) struct ControlPlane {
    pub(super) port: u16,
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    introduction: Mutex<Option<Introduction>>,
    refused: Mutex<Vec<String>>,
    /// Types of the resources that Envoy has accepted.
    accepted: watch::Sender<Vec<String>>,
}

impl ControlPlane {
    /// Serves a listener on `listener` that leads to `backend`.
    pub(super) async fn start(listener: u16, backend: u16) -> Self {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let seen = Arc::new(Seen::default());
        let resources = vec![
            DeltaDiscoveryResponse::of("local_app", wire::cluster("local_app", backend)),
            DeltaDiscoveryResponse::of(
                "public_listener",
                wire::listener("public_listener", listener, "local_app"),
            ),
        ];
        let service = Ads { resources: resources.into(), seen: Arc::clone(&seen) };
        let server = Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(socket)));
        Self { port, seen }
    }

    /// Waits until Envoy has taken the listener.
    pub(super) async fn listener_accepted(&self) {
        let mut accepted = self.seen.accepted.subscribe();
        let found = accepted.wait_for(|types| types.iter().any(|it| it.ends_with("v3.Listener")));
        found.await.unwrap();
        assert_eq!(*self.seen.refused.lock().unwrap(), Vec::<String>::new());
    }

    pub(super) fn introduction(&self) -> Introduction {
        self.seen.introduction.lock().unwrap().clone().unwrap()
    }
}

#[derive(Debug, Clone)]
struct Ads {
    resources: Arc<[DeltaDiscoveryResponse]>,
    seen: Arc<Seen>,
}

impl Ads {
    /// The answers to one request: a type's resources the first time that it is asked for.
    fn answer(&self, request: DeltaDiscoveryRequest, token: &str) -> Vec<DeltaDiscoveryResponse> {
        if let Some(node) = request.node {
            let introduction = Introduction { node, token: token.to_owned() };
            self.seen.introduction.lock().unwrap().get_or_insert(introduction);
        }
        if let Some(problem) = request.error_detail {
            self.seen.refused.lock().unwrap().push(problem.message);
        } else if !request.response_nonce.is_empty() {
            self.seen.accepted.send_modify(|types| types.push(request.response_nonce));
        } else {
            let asked = |it: &&DeltaDiscoveryResponse| it.is_of(&request.type_url);
            return self.resources.iter().filter(asked).cloned().collect();
        }
        Vec::new()
    }
}

impl StreamingService<DeltaDiscoveryRequest> for Ads {
    type Response = DeltaDiscoveryResponse;
    type ResponseStream = BoxStream<'static, Result<DeltaDiscoveryResponse, Status>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<DeltaDiscoveryRequest>>) -> Self::Future {
        let token = request.metadata().get("x-consul-token");
        let token = token.and_then(|token| token.to_str().ok()).unwrap_or_default().to_owned();
        let ads = self.clone();
        let answers = request.into_inner().flat_map(move |request| {
            let answers = request.map(|request| ads.answer(request, &token)).unwrap_or_default();
            stream::iter(answers.into_iter().map(Ok))
        });
        ready(Ok(Response::new(answers.boxed())))
    }
}

impl NamedService for Ads {
    const NAME: &'static str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
}

impl Service<http::Request<Body>> for Ads {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let ads = self.clone();
        async move {
            assert!(request.uri().path().ends_with("/DeltaAggregatedResources"));
            let codec = ProstCodec::<DeltaDiscoveryResponse, DeltaDiscoveryRequest>::default();
            Ok(Grpc::new(codec).streaming(ads, request).await)
        }
        .boxed()
    }
}
