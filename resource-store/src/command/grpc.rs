//! The commands over gRPC.

use std::path::Path;

use crate::{
    GrpcClient, GrpcClientConfig, JsonCodec, Registry, RequestContext, ResourceClient as _,
    RpcError,
    backend::Consistency,
    pb::{DeleteRequest, ListRequest, Resource},
};
use serde_json::Value;

use super::{
    flags::{Arguments, COMMON, Known, go_bool},
    input::{created, identity, listed, load, pretty, shown},
};

const OWN: [Known; 2] = [("grpc-addr", false), ("grpc-tls", true)];
/// Spaces for each level of JSON.
const INDENT: usize = 2;

/// Objects that every command needs.
struct Context {
    arguments: Arguments,
    registry: Registry,
}

impl Context {
    fn new(arguments: &[String], registry: Registry, more: &[Known]) -> Result<Self, String> {
        let known = [COMMON.as_slice(), &OWN, more].concat();
        let arguments = Arguments::parse(&known, arguments)?;
        Ok(Self { arguments, registry })
    }

    fn client(&self) -> Result<GrpcClient, String> {
        let failed = |error: RpcError| format!("Error connecting to Consul agent: {error}");
        let config = config(&self.arguments, |name| std::env::var(name).ok())?;
        let mut context = RequestContext::anonymous();
        if let Some(token) = token(&self.arguments)? {
            context = context.with_token(token.into());
        }
        if !self.arguments.is_on("stale") {
            context = context.with_consistency(Consistency::Strong);
        }
        Ok(GrpcClient::new(&config).map_err(failed)?.with_context(context))
    }

    fn show(&self, resource: &Resource) -> Result<Value, String> {
        let ty = resource.resource_type().cloned().unwrap_or_default();
        let registration =
            self.registry.resolve(&ty).ok_or_else(|| format!("unknown resource type: {ty}"))?;
        let codec = JsonCodec::new().map_err(|error| error.to_string())?;
        codec.resource_with_type(resource, registration.schema()).map_err(|error| error.to_string())
    }
}

/// Builds the client's settings: flags win over the environment, but cannot turn
/// off the TLS that it turned on.
///
/// Deviation: the certificate of a server is always verified, where Consul's
/// command by default trusts any and sends it the token.
fn config(
    arguments: &Arguments,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<GrpcClientConfig, String> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let setting =
        |flag: &str, name: &str| arguments.get(flag).map(str::to_owned).or_else(|| variable(name));
    let switch = |name: &str| {
        let Some(text) = variable(name) else { return Ok(None) };
        go_bool(&text).map(Some).ok_or_else(|| {
            format!("failed to parse {name}: strconv.ParseBool: parsing {text:?}: invalid syntax")
        })
    };
    let address = setting("grpc-addr", "CONSUL_GRPC_ADDR");
    let address = address.unwrap_or_else(|| "127.0.0.1:8502".to_owned());
    let (secured, host) = match address.split_once("://") {
        Some(("https", host)) => (true, host),
        Some(("http", host)) => (false, host),
        _ => (false, address.as_str()),
    };
    let from_environment = switch("CONSUL_GRPC_TLS")?.unwrap_or_default();
    let tls = secured || from_environment || arguments.is_on("grpc-tls");
    if switch("CONSUL_GRPC_TLS_VERIFY")? == Some(false) {
        return Err("CONSUL_GRPC_TLS_VERIFY=false is not supported: name the authority that \
                    signed the server's certificate with -ca-file"
            .to_owned());
    }
    let scheme = if tls { "https" } else { "http" };
    let mut config = GrpcClientConfig::new(&format!("{scheme}://{host}"));
    let certificate = setting("client-cert", "CONSUL_GRPC_CLIENT_CERT");
    let key = setting("client-key", "CONSUL_GRPC_CLIENT_KEY");
    match (certificate, key) {
        (Some(certificate), Some(key)) => {
            config.identity_pem = Some((pem(&certificate)?, pem(&key)?.into()));
        }
        (None, None) => {}
        _ => {
            return Err("you have to provide client certificate file and key file at the same \
                        time if you intend to communicate in TLS/SSL mode"
                .to_owned());
        }
    }
    config.ca_pem = match setting("ca-file", "CONSUL_GRPC_CACERT") {
        Some(file) => Some(pem(&file)?),
        None => setting("ca-path", "CONSUL_GRPC_CAPATH").map(|path| pems(&path)).transpose()?,
    };
    Ok(config)
}

/// The token: that of a file wins, then flags win over the environment.
fn token(arguments: &Arguments) -> Result<Option<String>, String> {
    let setting = |flag: &str, name: &str| {
        let given = arguments.get(flag).map(str::to_owned);
        given.or_else(|| std::env::var(name).ok().filter(|value| !value.is_empty()))
    };
    if let Some(file) = setting("token-file", "CONSUL_GRPC_TOKEN_FILE") {
        let text = std::fs::read_to_string(&file)
            .map_err(|error| format!("Error loading token file {file}: {error}"))?;
        return Ok(Some(text.trim().to_owned()).filter(|token| !token.is_empty()));
    }
    Ok(setting("token", "CONSUL_GRPC_TOKEN"))
}

fn pem(file: &str) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("Error reading {file}: {error}"))
}

/// The certificates of all files of a folder.
fn pems(folder: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("Error reading {folder}: {error}");
    let mut files = Vec::new();
    for entry in Path::new(folder).read_dir().map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    let texts = files.iter().map(|path| pem(&path.display().to_string()));
    Ok(texts.collect::<Result<Vec<_>, _>>()?.join("\n"))
}

pub(super) async fn apply(arguments: &[String], registry: Registry) -> Result<String, String> {
    let context = Context::new(arguments, registry, &[])?;
    let file = context.arguments.get("f").ok_or(
        "Required '-f' flag was not provided to specify where to load the resource content from",
    )?;
    let resource = load(file, &context.registry)?;
    let id = resource.id.clone().unwrap_or_default();
    let stored = context
        .client()?
        .write(resource)
        .await
        .map_err(|error| format!("Error writing resource {}: {error}", shown(&id)))?;
    Ok(format!("{}\n{}", created(&id), pretty(&context.show(&stored)?, INDENT)?))
}

pub(super) async fn read(arguments: &[String], registry: Registry) -> Result<String, String> {
    let context = Context::new(arguments, registry, &[])?;
    let id = identity(&context.arguments, &context.registry)?;
    let found = context
        .client()?
        .read(id.clone())
        .await
        .map_err(|error| format!("Error reading resource {}: {error}", shown(&id)))?;
    pretty(&context.show(&found)?, INDENT)
}

pub(super) async fn list(arguments: &[String], registry: Registry) -> Result<String, String> {
    let context = Context::new(arguments, registry, &[("p", false)])?;
    let (ty, tenancy) = listed(&context.arguments, &context.registry, true)?;
    let request = ListRequest {
        r#type: Some(ty.clone()),
        tenancy: Some(tenancy),
        name_prefix: context.arguments.get("p").unwrap_or_default().to_owned(),
    };
    let found = context
        .client()?
        .list(request)
        .await
        .map_err(|error| format!("Error reading resources for type {ty}: {error}"))?;
    let shown: Vec<Value> =
        found.iter().map(|resource| context.show(resource)).collect::<Result<_, _>>()?;
    // As in Go, where a list that nothing was added to is null.
    let value = if shown.is_empty() { Value::Null } else { Value::Array(shown) };
    pretty(&value, INDENT)
}

pub(super) async fn delete(arguments: &[String], registry: Registry) -> Result<String, String> {
    let context = Context::new(arguments, registry, &[])?;
    let id = identity(&context.arguments, &context.registry)?;
    let request = DeleteRequest { id: Some(id.clone()), version: String::new() };
    context
        .client()?
        .delete(request)
        .await
        .map_err(|error| format!("Error deleting resource {}: {error}", shown(&id)))?;
    Ok(format!("{} deleted", shown(&id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<GrpcClientConfig, String> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let known = [COMMON.as_slice(), &OWN].concat();
        let arguments = Arguments::parse(&known, &arguments).unwrap();
        config(&arguments, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn flags_win_over_the_environment() {
        let url = |arguments: &[&str], variables: &[(&str, &str)]| {
            settings(arguments, variables).unwrap().url
        };
        assert_eq!(url(&[], &[]), "http://127.0.0.1:8502");
        let variables = [("CONSUL_GRPC_ADDR", "https://a:1")];
        assert_eq!(url(&[], &variables), "https://a:1");
        assert_eq!(url(&["-grpc-addr", "http://b:2"], &variables), "http://b:2");
        assert_eq!(url(&["-grpc-addr=b:2", "-grpc-tls"], &[]), "https://b:2");
        let on = [("CONSUL_GRPC_TLS", "true")];
        assert_eq!(url(&["-grpc-tls=false"], &on), "https://127.0.0.1:8502");
    }

    #[test]
    fn settings_that_contradict_are_refused() {
        assert_eq!(
            settings(&[], &[("CONSUL_GRPC_TLS", "yes")]).unwrap_err(),
            "failed to parse CONSUL_GRPC_TLS: strconv.ParseBool: parsing \"yes\": invalid syntax"
        );
        let both = "you have to provide client certificate file and key file at the same time if \
                    you intend to communicate in TLS/SSL mode";
        assert_eq!(settings(&["-client-cert", "x"], &[]).unwrap_err(), both);
        assert_eq!(settings(&[], &[("CONSUL_GRPC_CLIENT_KEY", "x")]).unwrap_err(), both);
        assert!(
            settings(&[], &[("CONSUL_GRPC_TLS_VERIFY", "false")]).unwrap_err().contains("-ca-file")
        );
    }
}
