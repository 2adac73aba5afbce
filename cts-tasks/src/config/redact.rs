//! The configuration as it may be shown.

use std::{fmt, time::Duration};

use consul_watch::GoDuration;
use serde_json::{Map, Value as Json, json};

use super::{
    ApiTls, ClaimedBlock, Config, ConsulConfig, ConsulTls, DriverBlock, ProviderBlock, Storage,
    VaultConfig,
};
use crate::{BufferPeriod, ConfigValue, Literal, Task};

const REDACTED: &str = "[redacted]";

/// Parts of names whose values are secrets, whoever reads them.
const SECRET_NAMES: [&str; 9] = [
    "token",
    "password",
    "secret",
    "credential",
    "private_key",
    "access_key",
    "client_key",
    "customer_key",
    "key_material",
];

impl Config {
    /// The configuration for a log or a person: tokens, passwords, arguments
    /// of providers and the secrets of drivers are replaced, and of a task's
    /// variables only the names are left.
    pub fn to_redacted_json(&self) -> Json {
        let blocks: Map<String, Json> =
            self.blocks.iter().map(|(name, block)| (name.clone(), block.to_json())).collect();
        json!({
            "log_level": self.log_level.to_string(),
            "port": self.port,
            "id": self.id,
            "working_dir": self.working_dir,
            "syslog": self.syslog.as_ref().map(|syslog| json!({
                "facility": syslog.facility.to_string(),
                "name": syslog.name,
            })),
            "buffer_period": buffer_period(self.buffer_period),
            "consul": consul(&self.consul),
            "vault": self.vault.as_ref().map(vault),
            "tls": self.tls.as_ref().map(api_tls),
            "api_token_file": self.api_token_file,
            "api_hosts": self.api_hosts,
            "api_cors_origins": self.api_cors_origins,
            "api_metrics": self.api_metrics,
            "shutdown_timeout": duration(self.shutdown_timeout),
            "storage": self.storage.as_ref().map(|storage| match storage {
                Storage::File { path } => json!({ "file": { "path": path } }),
            }),
            "driver": { self.driver.label.as_str(): self.driver.to_json() },
            "terraform_provider": self.providers.iter().map(provider).collect::<Vec<_>>(),
            "task": self.tasks.iter().map(task).collect::<Vec<_>>(),
            "blocks": blocks,
        })
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_redacted_json(), f)
    }
}

impl DriverBlock {
    fn to_json(&self) -> Json {
        self.body.as_ref().map_or(Json::Null, |body| body_json(body, self.secret_fields))
    }
}

impl ClaimedBlock {
    fn to_json(&self) -> Json {
        body_json(&self.body, self.secret_fields)
    }
}

impl fmt::Debug for DriverBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverBlock")
            .field("label", &self.label)
            .field("body", &self.to_json())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ClaimedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimedBlock").field("body", &self.to_json()).finish_non_exhaustive()
    }
}

fn body_json(body: &ConfigValue, secret_fields: &[&str]) -> Json {
    redact(&body.to_literal(), &mut Vec::new(), secret_fields)
}

fn redact<'v>(value: &'v Literal, path: &mut Vec<&'v str>, secret_fields: &[&str]) -> Json {
    match value {
        Literal::Map(members) => {
            let mut shown = Map::new();
            for (key, member) in members {
                path.push(key);
                shown.insert(key.clone(), redact(member, path, secret_fields));
                path.pop();
            }
            Json::Object(shown)
        }
        _ if is_secret(path, secret_fields) => REDACTED.into(),
        Literal::List(items) => {
            items.iter().map(|item| redact(item, path, secret_fields)).collect()
        }
        scalar => json!(scalar),
    }
}

fn is_secret(path: &[&str], secret_fields: &[&str]) -> bool {
    let named = path.iter().any(|key| is_secret_name(key));
    let listed = || {
        secret_fields.iter().any(|field| {
            let field: Vec<&str> = field.split('.').collect();
            field.len() <= path.len()
                && field.iter().zip(path).all(|(part, key)| *part == "*" || part == key)
        })
    };
    named || listed()
}

/// Returns `true` for a key that by its name is a secret's.
pub(super) fn is_secret_name(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|name| key.contains(name))
}

fn duration(length: Duration) -> String {
    GoDuration::new(length).to_string()
}

fn buffer_period(period: BufferPeriod) -> Json {
    match period {
        BufferPeriod::Disabled => json!({ "enabled": false }),
        BufferPeriod::Enabled { min, max } => {
            json!({ "enabled": true, "min": duration(min), "max": duration(max) })
        }
    }
}

fn consul(consul: &ConsulConfig) -> Json {
    let registration = &consul.service_registration;
    json!({
        "address": consul.address,
        "token": consul.token.as_ref().map(|_| REDACTED),
        "token_file": consul.token_file,
        "auth": consul.auth.as_ref().map(|(username, _)| json!({
            "username": username,
            "password": REDACTED,
        })),
        "kv_path": consul.kv_path,
        "kv_namespace": consul.kv_namespace,
        "tls": consul.tls.as_ref().map(tls),
        "transport": {
            "dial_keep_alive": duration(consul.transport.dial_keep_alive),
            "dial_timeout": duration(consul.transport.dial_timeout),
            "disable_keep_alives": consul.transport.disable_keep_alives,
            "idle_conn_timeout": duration(consul.transport.idle_conn_timeout),
            "max_idle_conns": consul.transport.max_idle_conns,
            "max_idle_conns_per_host": consul.transport.max_idle_conns_per_host,
            "tls_handshake_timeout": duration(consul.transport.tls_handshake_timeout),
        },
        "watch_connections": consul.watch_connections,
        "service_registration": {
            "enabled": registration.enabled,
            "service_name": registration.service_name,
            "address": registration.address,
            "namespace": registration.namespace,
            "default_check": {
                "enabled": registration.default_check_enabled,
                "address": registration.default_check_address,
            },
        },
    })
}

fn tls(tls: &ConsulTls) -> Json {
    json!({
        "verify": tls.verify,
        "ca_cert": tls.ca_cert,
        "ca_path": tls.ca_path,
        "cert": tls.cert,
        "key": tls.key,
        "server_name": tls.server_name,
    })
}

fn vault(vault: &VaultConfig) -> Json {
    json!({
        "address": vault.address,
        "namespace": vault.namespace,
        "token": vault.token.as_ref().map(|_| REDACTED),
        "unwrap_token": vault.unwrap_token,
        "renew_token": vault.renew_token,
        "tls": vault.tls.as_ref().map(tls),
    })
}

fn api_tls(tls: &ApiTls) -> Json {
    json!({
        "cert": tls.cert,
        "key": tls.key,
        "verify_incoming": tls.verify_incoming,
        "ca_cert": tls.ca_cert,
        "ca_path": tls.ca_path,
    })
}

fn provider(provider: &ProviderBlock) -> Json {
    json!({ provider.id(): REDACTED })
}

fn task(task: &Task) -> Json {
    let mut shown = json!(task);
    if let Some(members) = shown.as_object_mut() {
        members.insert("buffer_period".to_owned(), buffer_period(task.buffer_period));
        let blocks: Map<String, Json> = task
            .driver_blocks
            .iter()
            .map(|(name, body)| (name.clone(), redact(body, &mut Vec::new(), &[])))
            .collect();
        members.insert("driver_blocks".to_owned(), Json::Object(blocks));
        members.insert("env".to_owned(), json!(task.env.masked()));
        let names: Vec<&String> = task.variables.keys().collect();
        members.insert("variables".to_owned(), json!(names));
    }
    shown
}
