//! The commands over HTTP.

use crate::{
    JsonCodec, Registry,
    pb::{Id, Resource, Tenancy, Type},
};
use consul_watch::{Client, ClientConfig, Error, client::Request, error_chain};
use serde_json::{Value, json};

use super::{
    flags::{Arguments, COMMON, Known},
    input::{created, identity, listed, load, pretty, shown},
    types::incorrect,
};

const OWN: [Known; 3] = [("http-addr", false), ("tls-server-name", false), ("datacenter", false)];
/// Spaces for each level of JSON.
const INDENT: usize = 4;

/// Objects that every command needs.
struct Context {
    arguments: Arguments,
    registry: Registry,
}

impl Context {
    fn new(arguments: &[String], registry: Registry) -> Result<Self, String> {
        let known = [COMMON.as_slice(), &OWN].concat();
        let arguments = Arguments::parse(&known, arguments)?;
        Ok(Self { arguments, registry })
    }

    fn client(&self) -> Result<Client, String> {
        let text = |name: &str| self.arguments.get(name).map(str::to_owned);
        let failed =
            |error: Error| format!("Error connecting to Consul agent: {}", error_chain(&error));
        let mut config = ClientConfig::from_env().map_err(failed)?;
        if let Some(address) = text("http-addr") {
            config.address = address;
        }
        if let Some(token) = text("token") {
            config.token = Some(token.into());
        }
        let paths = [
            ("token-file", &mut config.token_file),
            ("ca-file", &mut config.tls.ca_file),
            ("ca-path", &mut config.tls.ca_path),
            ("client-cert", &mut config.tls.client_cert),
            ("client-key", &mut config.tls.client_key),
        ];
        for (name, path) in paths {
            if let Some(given) = text(name) {
                *path = Some(given.into());
            }
        }
        if let Some(name) = text("tls-server-name") {
            config.tls.server_name = Some(name);
        }
        if let Some(datacenter) = text("datacenter") {
            config.datacenter = Some(datacenter);
        }
        Client::new(config).map_err(failed)
    }

    fn place(&self, request: Request, tenancy: &Tenancy) -> Request {
        let given = [("ns", &tenancy.namespace), ("partition", &tenancy.partition)];
        let mut request = request;
        for (name, unit) in given {
            if !unit.is_empty() {
                request = request.param(name, unit.as_str());
            }
        }
        match self.arguments.get("datacenter") {
            Some(datacenter) => request.param("dc", datacenter),
            None => request,
        }
    }

    fn fresh(&self, request: Request) -> Request {
        if self.arguments.is_on("stale") { request } else { request.flag("consistent") }
    }

    async fn send(&self, request: Request) -> Result<Vec<u8>, String> {
        let response = self.client()?.send(request).await.map_err(|error| match &error {
            Error::Status { status, message, .. } => {
                format!("Unexpected response code: {} ({message})", status.as_u16())
            }
            _ => error_chain(&error),
        })?;
        Ok(response.body().to_vec())
    }

    async fn json(&self, request: Request) -> Result<String, String> {
        let body = self.send(request).await?;
        let value: Value = serde_json::from_slice(&body)
            .map_err(|error| format!("the answer is no JSON: {error}"))?;
        pretty(&value, INDENT)
    }
}

/// The path of a type. As upstream, the whole of a path is in lower case, the
/// name, too.
fn path(ty: &Type) -> String {
    format!("/api/{}/{}/{}", ty.group, ty.group_version, ty.kind).to_lowercase()
}

fn parts(id: &Id) -> (String, Tenancy) {
    let ty = id.r#type.clone().unwrap_or_default();
    (path(&ty), id.tenancy.clone().unwrap_or_default())
}

/// Returns the body of a write. Version and uid of the resource stay out: the write
/// is not conditional.
fn body(resource: &Resource, registry: &Registry) -> Result<Value, String> {
    let ty = resource.resource_type().cloned().unwrap_or_default();
    let registration =
        registry.resolve(&ty).ok_or_else(|| format!("unknown resource type: {ty}"))?;
    let codec = JsonCodec::new().map_err(|error| error.to_string())?;
    let value =
        codec.resource(resource, registration.schema()).map_err(|error| error.to_string())?;
    let mut body = json!({ "data": value.get("data").cloned().unwrap_or_else(|| json!({})) });
    for key in ["metadata", "owner"] {
        if let (Some(part), Value::Object(fields)) = (value.get(key), &mut body) {
            fields.insert(key.to_owned(), part.clone());
        }
    }
    Ok(body)
}

pub(super) async fn apply(arguments: &[String], registry: Registry) -> Result<String, String> {
    let context = Context::new(arguments, registry)?;
    let file = match (context.arguments.positional.as_slice(), context.arguments.get("f")) {
        ([], Some(file)) => file,
        ([file], None) => file,
        ([_, ..], Some(_)) => {
            return Err(incorrect(
                "File argument is not needed when resource information is provided with the command",
            ));
        }
        _ => {
            return Err(incorrect(
                "Must provide exactly one positional argument to specify the resource to write",
            ));
        }
    };
    let resource = load(file, &context.registry)?;
    let id = resource.id.clone().unwrap_or_default();
    let (path, tenancy) = parts(&id);
    let request = Request::put("resource.write", &path)
        .segment(&id.name.to_lowercase())
        .json(&body(&resource, &context.registry)?);
    let answer = context
        .json(context.place(request, &tenancy))
        .await
        .map_err(|error| format!("Error writing resource {}: {error}", shown(&id)))?;
    Ok(format!("{}\n{answer}", created(&id)))
}

pub(super) async fn read(arguments: &[String], registry: Registry) -> Result<String, String> {
    let context = Context::new(arguments, registry)?;
    let id = identity(&context.arguments, &context.registry)?;
    let (path, tenancy) = parts(&id);
    let request = Request::get("resource.read", &path).segment(&id.name.to_lowercase());
    context
        .json(context.fresh(context.place(request, &tenancy)))
        .await
        .map_err(|error| format!("Error reading resource {}: {error}", shown(&id)))
}

pub(super) async fn list(arguments: &[String], registry: Registry) -> Result<String, String> {
    let context = Context::new(arguments, registry)?;
    let (ty, tenancy) = listed(&context.arguments, &context.registry, false)?;
    let request = context.place(Request::get("resource.list", &path(&ty)), &tenancy);
    context
        .json(context.fresh(request))
        .await
        .map_err(|error| format!("Error reading resources for type {ty}: {error}"))
}

pub(super) async fn delete(arguments: &[String], registry: Registry) -> Result<String, String> {
    let context = Context::new(arguments, registry)?;
    let id = identity(&context.arguments, &context.registry)?;
    let (path, tenancy) = parts(&id);
    let request = Request::delete("resource.delete", &path).segment(&id.name.to_lowercase());
    context
        .send(context.place(request, &tenancy))
        .await
        .map_err(|error| format!("Error deleting resource {}: {error}", shown(&id)))?;
    Ok(format!("{} deleted", shown(&id)))
}
