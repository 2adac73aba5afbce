//! The bootstrap document itself: which part of Envoy's configuration comes from which option, in
//! the order in which Consul's own template writes it.

use std::fmt;

use secrecy::ExposeSecret;

use super::{
    BootstrapOptions, XdsAddress,
    envoy_json::{endpoints, http_protocol, pipe, socket_address},
    listeners::{self, Static},
    options::non_empty,
    prometheus_tls, sinks, stats_tags, telemetry,
};
use crate::{
    Result,
    json::{Json, object},
};

/// Rendered bootstrap document. It may hold a token, so `Debug` shows nothing of it.
#[derive(Clone, PartialEq)]
pub struct Bootstrap {
    pub(super) json: Json,
}

impl Bootstrap {
    /// Returns the document indented by two spaces, with a newline at its end. It may hold a token.
    ///
    /// Upstream's command prints one more newline after it.
    pub fn to_text(&self) -> String {
        let mut text = self.json.to_pretty();
        text.push('\n');
        text
    }
}

impl fmt::Debug for Bootstrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bootstrap").finish_non_exhaustive()
    }
}

/// Parts of the document that the settings of a proxy decide.
pub(super) struct Parts {
    pub(super) clusters: Vec<Json>,
    pub(super) listeners: Vec<Json>,
    pub(super) secrets: Vec<Json>,
    pub(super) sinks: Vec<Json>,
    pub(super) stats_config: Json,
    pub(super) flush_interval: Option<String>,
    pub(super) tracing: Option<Json>,
}

impl Parts {
    pub(super) fn new(
        options: &BootstrapOptions,
        vars: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let settings = &options.settings;
        let mut fixed = Static {
            clusters: settings.extra_clusters.clone(),
            listeners: settings.extra_listeners.clone(),
        };
        let mut sinks = sinks::configured(settings, vars)?;
        let mut flush_interval = settings.stats_flush_interval.clone();
        if let Some(folder) = &settings.telemetry_socket_dir {
            // Envoy's default is 5 s. Upstream asks for 60 s, but leaves the default to a proxy
            // that also has a sink of its own.
            if flush_interval.is_none() && sinks.is_empty() {
                flush_interval = Some("60s".to_owned());
            }
            sinks.push(telemetry::sink());
            let path = telemetry::socket_path(folder, options.namespace(), &options.proxy_id);
            // Before the listeners below: these add `self_admin` only if no cluster of that name is
            // there yet.
            fixed.clusters.push(telemetry::cluster(&path));
        }
        listeners::add(options, &mut fixed)?;
        Ok(Self {
            clusters: fixed.clusters,
            listeners: fixed.listeners,
            secrets: options
                .prometheus_tls
                .as_ref()
                .map(prometheus_tls::secrets)
                .unwrap_or_default(),
            sinks,
            stats_config: match &settings.stats_config {
                Some(config) => config.clone(),
                None => stats_tags::config(options),
            },
            flush_interval,
            tracing: settings.tracing.clone(),
        })
    }

    pub(super) fn assemble(self, options: &BootstrapOptions) -> Bootstrap {
        let mut clusters = vec![xds_cluster(options)];
        clusters.extend(self.clusters);
        let fixed = object! { "clusters" => clusters }
            .with("listeners", some(self.listeners))
            .with("secrets", some(self.secrets));
        let mut json = object! {
            "admin" => object! {
                "access_log" => admin_log(options),
                "address" => socket_address(&options.admin.ip().to_string(), options.admin.port()),
            },
            "node" => node(options),
            "layered_runtime" => object! {
                "layers" => vec![object! {
                    "name" => "base",
                    "static_layer" => object! {
                        // Envoy's default of 100 instructions refuses the expressions of the
                        // statistics tags.
                        "re2.max_program_size.error_level" => 1_048_576_u32,
                    },
                }],
            },
            "static_resources" => fixed,
        }
        .with("stats_sinks", some(self.sinks));
        // `push` and `with` alternate to keep upstream's order of keys, so that documents can be
        // compared as text.
        json.push("stats_config", self.stats_config);
        let mut json =
            json.with("stats_flush_interval", self.flush_interval).with("tracing", self.tracing);
        json.push("dynamic_resources", dynamic_resources(options));
        Bootstrap { json }
    }
}

fn some(items: Vec<Json>) -> Option<Vec<Json>> {
    (!items.is_empty()).then_some(items)
}

fn node(options: &BootstrapOptions) -> Json {
    let metadata = object! {}
        .with("node_name", non_empty(options.node_name.as_deref()))
        .with("namespace", Some(options.namespace()))
        .with("partition", Some(options.partition()));
    object! {
        "cluster" => options.cluster.as_str(),
        "id" => options.proxy_id.as_str(),
        "metadata" => metadata,
    }
}

pub(super) fn admin_log(options: &BootstrapOptions) -> Vec<Json> {
    let log = match &options.access_logs {
        Some(logs) => logs.to_json(),
        None => object! {
            "name" => "envoy.access_loggers.file",
            "typed_config" => object! {
                "@type" => "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
                "path" => options.admin_access_log_path.as_str(),
            },
        },
    };
    vec![log]
}

fn xds_cluster(options: &BootstrapOptions) -> Json {
    let xds = &options.xds;
    let tls = xds.tls.then(|| {
        object! {
            "name" => "tls",
            "typed_config" => object! {
                "@type" => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "common_tls_context" => object! {
                    "validation_context" => object! {
                        "trusted_ca" => object! { "inline_string" => xds.ca_pem.as_str() },
                    },
                },
            },
        }
    });
    let address = match &xds.address {
        XdsAddress::Tcp(address) => socket_address(&address.ip().to_string(), address.port()),
        XdsAddress::Unix(path) => pipe(&path.to_string_lossy()),
    };
    let mut cluster = object! {
        "name" => xds.cluster_name.as_str(),
        // Envoy knows this field only in its v3 form: it makes Envoy detect the version of the
        // configuration.
        "ignore_health_on_host_removal" => false,
        "connect_timeout" => "1s",
        "type" => "STATIC",
    }
    .with("transport_socket", tls);
    cluster.push("typed_extension_protocol_options", http_protocol("http2_protocol_options"));
    cluster.push("loadAssignment", endpoints(&xds.cluster_name, address));
    cluster
}

fn dynamic_resources(options: &BootstrapOptions) -> Json {
    let from_ads = || {
        object! {
            "ads" => object! {},
            "initial_fetch_timeout" => "0s",
            // No limit: Envoy shall not start with an empty configuration because Consul is slow.
            "resource_api_version" => "V3",
        }
    };
    let token = options.xds.token.as_ref().map(ExposeSecret::expose_secret).unwrap_or_default();
    object! {
        "lds_config" => from_ads(),
        "cds_config" => from_ads(),
        "ads_config" => object! {
            "api_type" => "DELTA_GRPC",
            "transport_api_version" => "V3",
            "grpc_services" => object! {
                // Always present, empty without a token: the field is part of upstream's document.
                "initial_metadata" => vec![object! { "key" => "x-consul-token", "value" => token }],
                "envoy_grpc" => object! { "cluster_name" => options.xds.cluster_name.as_str() },
            },
        },
    }
}
