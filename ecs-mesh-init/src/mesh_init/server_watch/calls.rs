//! The three calls of the servers' gRPC API that a task makes, and their messages.
//!
//! Source: Consul 1.19 `proto-public/pbacl/acl.proto`, `pbdataplane/dataplane.proto`,
//! `pbserverdiscovery/serverdiscovery.proto`.

use std::collections::HashMap;

use prost::Message;
use secrecy::{ExposeSecret as _, SecretString};
use tonic::{
    Request, Status, Streaming,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};
use tonic_prost::ProstCodec;

const LOGIN: &str = "/hashicorp.consul.acl.ACLService/Login";
const FEATURES: &str = "/hashicorp.consul.dataplane.DataplaneService/GetSupportedDataplaneFeatures";
const WATCH: &str = "/hashicorp.consul.serverdiscovery.ServerDiscoveryService/WatchServers";

/// Wire value of `DATAPLANE_FEATURES_WATCH_SERVERS`.
const FEATURE_WATCH_SERVERS: i32 = 1;

/// Login with an auth method. It holds the bearer token, so `Debug` is written by hand.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(super) struct LoginRequest {
    #[prost(string, tag = "1")]
    pub(super) auth_method: String,
    #[prost(string, tag = "2")]
    pub(super) bearer_token: String,
    #[prost(map = "string, string", tag = "3")]
    pub(super) meta: HashMap<String, String>,
    #[prost(string, tag = "4")]
    pub(super) namespace: String,
    #[prost(string, tag = "5")]
    pub(super) partition: String,
    #[prost(string, tag = "6")]
    pub(super) datacenter: String,
}

impl std::fmt::Debug for LoginRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginRequest")
            .field("auth_method", &self.auth_method)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
struct LoginResponse {
    #[prost(message, optional, tag = "1")]
    token: Option<LoginToken>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
struct LoginToken {
    #[prost(string, tag = "1")]
    accessor_id: String,
    #[prost(string, tag = "2")]
    secret_id: String,
}

impl std::fmt::Debug for LoginResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginResponse").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for LoginToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginToken").field("accessor_id", &self.accessor_id).finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, Message)]
struct FeaturesRequest {}

#[derive(Clone, PartialEq, Message)]
struct FeaturesResponse {
    #[prost(message, repeated, tag = "1")]
    supported_dataplane_features: Vec<FeatureSupport>,
}

#[derive(Clone, PartialEq, Message)]
struct FeatureSupport {
    #[prost(int32, tag = "1")]
    feature_name: i32,
    #[prost(bool, tag = "2")]
    supported: bool,
}

#[derive(Clone, PartialEq, Message)]
struct WatchServersRequest {
    #[prost(bool, tag = "1")]
    wan: bool,
}

/// Set of servers that are ready.
#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchServersResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) servers: Vec<ServerEntry>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ServerEntry {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    pub(super) address: String,
    #[prost(string, tag = "3")]
    version: String,
}

/// Client for the calls to one server.
pub(super) struct Calls {
    grpc: Grpc<Channel>,
    token: Option<MetadataValue<Ascii>>,
}

impl Calls {
    /// Creates a client on this connection, with this token.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a token that no header can carry.
    pub(super) fn new(channel: Channel, token: Option<&SecretString>) -> Result<Self, Status> {
        let header = |token: &SecretString| -> Result<MetadataValue<Ascii>, Status> {
            // The parser's own error would show the token.
            let parsed = token.expose_secret().parse::<MetadataValue<Ascii>>();
            let mut value = parsed.map_err(|_invalid| {
                Status::invalid_argument("the token has characters that no header can carry")
            })?;
            // Keeps it out of logs, and out of HPACK's table.
            value.set_sensitive(true);
            Ok(value)
        };
        Ok(Self { grpc: Grpc::new(channel), token: token.map(header).transpose()? })
    }

    async fn request<T>(&mut self, message: T) -> Result<Request<T>, Status> {
        self.grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("x-consul-token", token.clone());
        }
        Ok(request)
    }

    /// Logs in, and returns the token.
    pub(super) async fn log_in(&mut self, message: LoginRequest) -> Result<SecretString, Status> {
        let request = self.request(message).await?;
        let codec = ProstCodec::<LoginRequest, LoginResponse>::default();
        let answer = self.grpc.unary(request, PathAndQuery::from_static(LOGIN), codec).await?;
        match answer.into_inner().token {
            Some(token) if !token.secret_id.is_empty() => Ok(token.secret_id.into()),
            _ => Err(Status::internal("Consul's answer has no token")),
        }
    }

    /// Returns `true` if the server reports the others to its clients.
    pub(super) async fn has_server_watch(&mut self) -> Result<bool, Status> {
        let request = self.request(FeaturesRequest {}).await?;
        let codec = ProstCodec::<FeaturesRequest, FeaturesResponse>::default();
        let answer = self.grpc.unary(request, PathAndQuery::from_static(FEATURES), codec).await?;
        let features = answer.into_inner().supported_dataplane_features;
        Ok(features.iter().any(|it| it.feature_name == FEATURE_WATCH_SERVERS && it.supported))
    }

    /// Opens the stream of the sets of ready servers.
    pub(super) async fn watch_servers(
        &mut self,
    ) -> Result<Streaming<WatchServersResponse>, Status> {
        // Servers of the own datacenter only; tasks never talk to others.
        let request = self.request(WatchServersRequest { wan: false }).await?;
        let codec = ProstCodec::<WatchServersRequest, WatchServersResponse>::default();
        let path = PathAndQuery::from_static(WATCH);
        Ok(self.grpc.server_streaming(request, path, codec).await?.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_show_no_secret() {
        let request = LoginRequest {
            auth_method: "jwt".into(),
            bearer_token: "planted".into(),
            ..LoginRequest::default()
        };
        let token = LoginToken { accessor_id: "a".into(), secret_id: "planted".into() };
        let response = LoginResponse { token: Some(token.clone()) };
        let shown = format!("{request:?} {token:?} {response:?}");
        assert!(!shown.contains("planted"), "{shown}");
        let read = LoginRequest::decode(request.encode_to_vec().as_slice()).unwrap();
        assert_eq!(read, request);
    }
}
