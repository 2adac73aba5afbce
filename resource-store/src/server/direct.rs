//! The way of a request to what answers it: calls of the resource service go straight
//! there, past the router that everything else needs.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use tonic::{
    body::Body,
    codegen::{Service, http},
    server::NamedService,
    service::Routes,
};

use super::GrpcService;
use crate::pb::resource_service_server::ResourceServiceServer;

type Resources = ResourceServiceServer<GrpcService>;

/// The resource service, and routes to everything else.
///
/// A router copies, boxes and matches for each request what is one comparison here; it
/// has a twentieth of the time of a read.
#[derive(Debug, Clone)]
pub(super) struct Direct {
    pub(super) resources: Resources,
    pub(super) others: Routes,
}

impl Service<http::Request<Body>> for Direct {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The resource service is always ready.
        Service::<http::Request<Body>>::poll_ready(&mut self.others, cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if is_of_resources(request.uri().path()) {
            self.resources.call(request)
        } else {
            Box::pin(self.others.call(request))
        }
    }
}

/// Returns `true` for the path of a call, `/SERVICE/METHOD`.
fn is_of_resources(path: &str) -> bool {
    let rest = path.strip_prefix('/').and_then(|path| path.strip_prefix(Resources::NAME));
    rest.is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_the_resource_service_are_known_by_their_path() {
        assert!(is_of_resources("/hashicorp.consul.resource.ResourceService/Read"));
        assert!(is_of_resources("/hashicorp.consul.resource.ResourceService/NoSuch"));
        for other in [
            "",
            "/",
            "/hashicorp.consul.resource.ResourceService",
            "/hashicorp.consul.resource.ResourceServices/Read",
            "hashicorp.consul.resource.ResourceService/Read",
            "/api/demo/v1/artist/x",
            "/grpc.health.v1.Health/Check",
        ] {
            assert!(!is_of_resources(other), "{other}");
        }
    }
}
