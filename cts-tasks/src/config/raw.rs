//! The bodies of the blocks as they stand in the files, before defaults.

use super::{
    decode::{
        Blocks, Decoder, Field, Findings, GivenDuration, Group, OneStringMap, SignedDuration,
        Spanned, StringMap, Strings, TypedBlocks, body, decode_body, join_path,
    },
    registry::Registry,
    value::ConfigValue,
};
use crate::Place;

body! {
    /// A whole file, or several merged.
    RawConfig {
        log_level: Spanned<String> = "log_level",
        port: Spanned<i64> = "port",
        working_dir: Spanned<String> = "working_dir",
        id: Spanned<String> = "id",
        syslog: RawSyslog = "syslog",
        buffer_period: RawBufferPeriod = "buffer_period",
        consul: RawConsul = "consul",
        vault: RawVault = "vault",
        driver: RawDriver = "driver",
        tls: RawApiTls = "tls",
        api_token_file: Spanned<String> = "api_token_file",
        api_hosts: Strings = "api_hosts",
        api_cors_origins: Strings = "api_cors_origins",
        api_metrics: Spanned<bool> = "api_metrics",
        shutdown_timeout: Spanned<GivenDuration> = "shutdown_timeout",
        storage: TypedBlocks = "storage",
        tasks: Blocks<RawTask> = "task",
        services: Blocks<RawService> = "service",
        providers: RawProviders = "terraform_provider",
        license: RawLicense = "license",
        license_path: Spanned<String> = "license_path",
    }
}

body! {
    /// `storage "file" { … }`
    RawFileStorage {
        path: Spanned<String> = "path",
    }
}

body! {
    /// `syslog { … }`
    RawSyslog {
        enabled: Spanned<bool> = "enabled",
        facility: Spanned<String> = "facility",
        name: Spanned<String> = "name",
    }
}

body! {
    /// `buffer_period { … }`
    RawBufferPeriod {
        enabled: Spanned<bool> = "enabled",
        min: Spanned<SignedDuration> = "min",
        max: Spanned<SignedDuration> = "max",
    }
}

body! {
    /// `consul { … }`
    RawConsul {
        address: Spanned<String> = "address",
        token: Spanned<String> = "token",
        token_file: Spanned<String> = "token_file",
        auth: RawAuth = "auth",
        kv_path: Spanned<String> = "kv_path",
        kv_namespace: Spanned<String> = "kv_namespace",
        tls: RawTls = "tls",
        transport: RawTransport = "transport",
        watch_connections: Spanned<i64> = "watch_connections",
        service_registration: RawRegistration = "service_registration",
    }
}

body! {
    /// `auth { … }`
    RawAuth {
        enabled: Spanned<bool> = "enabled",
        username: Spanned<String> = "username",
        password: Spanned<String> = "password",
    }
}

body! {
    /// `tls { … }` of a client.
    RawTls {
        enabled: Spanned<bool> = "enabled",
        verify: Spanned<bool> = "verify",
        ca_cert: Spanned<String> = "ca_cert",
        ca_path: Spanned<String> = "ca_path",
        cert: Spanned<String> = "cert",
        key: Spanned<String> = "key",
        server_name: Spanned<String> = "server_name",
    }
}

body! {
    /// `transport { … }`
    RawTransport {
        dial_keep_alive: Spanned<SignedDuration> = "dial_keep_alive",
        dial_timeout: Spanned<SignedDuration> = "dial_timeout",
        disable_keep_alives: Spanned<bool> = "disable_keep_alives",
        idle_conn_timeout: Spanned<SignedDuration> = "idle_conn_timeout",
        max_idle_conns: Spanned<i64> = "max_idle_conns",
        max_idle_conns_per_host: Spanned<i64> = "max_idle_conns_per_host",
        tls_handshake_timeout: Spanned<SignedDuration> = "tls_handshake_timeout",
    }
}

body! {
    /// `service_registration { … }`
    RawRegistration {
        enabled: Spanned<bool> = "enabled",
        service_name: Spanned<String> = "service_name",
        address: Spanned<String> = "address",
        namespace: Spanned<String> = "namespace",
        default_check: RawDefaultCheck = "default_check",
    }
}

body! {
    /// `default_check { … }`
    RawDefaultCheck {
        enabled: Spanned<bool> = "enabled",
        address: Spanned<String> = "address",
    }
}

body! {
    /// `vault { … }`
    RawVault {
        enabled: Spanned<bool> = "enabled",
        address: Spanned<String> = "address",
        namespace: Spanned<String> = "namespace",
        token: Spanned<String> = "token",
        vault_agent_token_file: Spanned<String> = "vault_agent_token_file",
        unwrap_token: Spanned<bool> = "unwrap_token",
        renew_token: Spanned<bool> = "renew_token",
        tls: RawTls = "tls",
        transport: RawTransport = "transport",
    }
}

body! {
    /// `tls { … }` of the API.
    RawApiTls {
        enabled: Spanned<bool> = "enabled",
        cert: Spanned<String> = "cert",
        key: Spanned<String> = "key",
        verify_incoming: Spanned<bool> = "verify_incoming",
        ca_cert: Spanned<String> = "ca_cert",
        ca_path: Spanned<String> = "ca_path",
    }
}

body! {
    /// `license { … }`
    RawLicense {
        path: Spanned<String> = "path",
        auto_retrieval: RawAutoRetrieval = "auto_retrieval",
    }
}

body! {
    /// `auto_retrieval { … }`
    RawAutoRetrieval {
        enabled: Spanned<bool> = "enabled",
    }
}

body! {
    /// `service { … }`
    RawService {
        name: Spanned<String> = "name",
        id: Spanned<String> = "id",
        description: Spanned<String> = "description",
        datacenter: Spanned<String> = "datacenter",
        namespace: Spanned<String> = "namespace",
        filter: Spanned<String> = "filter",
        cts_user_defined_meta: StringMap = "cts_user_defined_meta",
    }
}

body! {
    /// `task { … }`
    RawTask {
        name: Spanned<String> = "name",
        description: Spanned<String> = "description",
        enabled: Spanned<bool> = "enabled",
        module: Spanned<String> = "module",
        source: Spanned<String> = "source",
        version: Spanned<String> = "version",
        providers: Strings = "providers",
        services: Strings = "services",
        variable_files: Strings = "variable_files",
        variables: StringMap = "variables",
        buffer_period: RawBufferPeriod = "buffer_period",
        working_dir: Spanned<String> = "working_dir",
        max_destroy: Spanned<i64> = "max_destroy",
        require_approval: Spanned<bool> = "require_approval",
        destroy_on_delete: Spanned<bool> = "destroy_on_delete",
        drift_check: Spanned<String> = "drift_check",
        env: OneStringMap = "env",
        timeout: Spanned<GivenDuration> = "timeout",
        retry: RawRetry = "retry",
        shutdown_timeout: Spanned<GivenDuration> = "shutdown_timeout",
        condition: TypedBlocks = "condition",
        module_inputs: TypedBlocks = "module_input",
        source_inputs: TypedBlocks = "source_input",
    }
}

body! {
    /// `retry { … }` of a task.
    RawRetry {
        attempts: Spanned<i64> = "attempts",
        backoff: Spanned<GivenDuration> = "backoff",
        max_backoff: Spanned<GivenDuration> = "max_backoff",
    }
}

body! {
    /// `condition "services" { … }`
    RawServicesCondition {
        names: Strings = "names",
        regexp: Spanned<String> = "regexp",
        datacenter: Spanned<String> = "datacenter",
        namespace: Spanned<String> = "namespace",
        filter: Spanned<String> = "filter",
        cts_user_defined_meta: StringMap = "cts_user_defined_meta",
        use_as_module_input: Spanned<bool> = "use_as_module_input",
        source_includes_var: Spanned<bool> = "source_includes_var",
    }
}

body! {
    /// `condition "catalog-services" { … }`
    RawCatalogCondition {
        regexp: Spanned<String> = "regexp",
        datacenter: Spanned<String> = "datacenter",
        namespace: Spanned<String> = "namespace",
        node_meta: StringMap = "node_meta",
        use_as_module_input: Spanned<bool> = "use_as_module_input",
        source_includes_var: Spanned<bool> = "source_includes_var",
    }
}

body! {
    /// `condition "consul-kv" { … }`
    RawKvCondition {
        path: Spanned<String> = "path",
        recurse: Spanned<bool> = "recurse",
        datacenter: Spanned<String> = "datacenter",
        namespace: Spanned<String> = "namespace",
        use_as_module_input: Spanned<bool> = "use_as_module_input",
        source_includes_var: Spanned<bool> = "source_includes_var",
    }
}

body! {
    /// `condition "schedule" { … }`
    RawSchedule {
        cron: Spanned<String> = "cron",
    }
}

/// `driver "<label>" { … }`, of which there is one.
#[derive(Debug, Clone)]
pub(super) struct RawDriver {
    pub(super) label: String,
    pub(super) place: Option<Place>,
    pub(super) body: ConfigValue,
    /// Blocks of another label in later files.
    pub(super) others: Vec<Option<Place>>,
}

impl Field for RawDriver {
    fn decode(path: &str, group: &Group<'_>, decoder: &mut Decoder<'_>) -> Option<Self> {
        let found = TypedBlocks::decode(path, group, decoder)?;
        if let Some(second) = found.blocks.get(1) {
            decoder.only_one(path, second.place.clone());
            return None;
        }
        let block = found.blocks.into_iter().next();
        let Some(block) = block else {
            let place = found.odd.into_iter().next().and_then(|(_, place)| place);
            decoder.findings.error_help(
                "missing driver name for the driver block",
                place,
                "write driver \"terraform\" { … }",
            );
            return None;
        };
        let Some(objects) = block.body.objects() else {
            decoder.wrong_type(&join_path(path, &block.label), "a block", &block.body);
            return None;
        };
        if objects.len() > 1 {
            decoder.only_one(path, block.place);
            return None;
        }
        let mut body = (*objects.first()?).clone();
        // Drivers read keys as they are written in the documentation.
        body.lower_keys();
        body.gather_labels();
        if decoder.registry.find_driver(&block.label).is_none() {
            decoder.unknown.push(super::decode::UnknownKey {
                path: join_path(path, &block.label),
                place: block.place,
                hint: None,
            });
            return None;
        }
        Some(Self { label: block.label, place: block.place, body, others: Vec::new() })
    }

    fn merge(&mut self, later: Self) {
        if self.label == later.label {
            self.body.merge(later.body);
        } else {
            self.others.push(later.place);
        }
    }
}

/// `terraform_provider "<name>" { … }`, in order.
#[derive(Debug, Clone)]
pub(super) struct RawProviders(pub(super) TypedBlocks);

impl Field for RawProviders {
    fn decode(path: &str, group: &Group<'_>, decoder: &mut Decoder<'_>) -> Option<Self> {
        TypedBlocks::decode(path, group, decoder).map(Self)
    }

    fn merge(&mut self, later: Self) {
        self.0.merge(later.0);
    }
}

/// Decodes the body of a condition or a module input; unknown keys are
/// reported at once, because they belong to this block alone.
pub(super) fn decode_typed<B: super::decode::Body>(
    body: &ConfigValue,
    findings: &mut Findings,
) -> Option<B> {
    let registry = Registry::new();
    let mut decoder = Decoder::new(&registry, findings);
    let objects = body.objects();
    let Some([object]) = objects.as_deref() else {
        decoder.wrong_type("block", "one block", body);
        return None;
    };
    let decoded: B = decode_body("", object, &mut decoder);
    let unknown = decoder.unknown;
    if !unknown.is_empty() {
        findings.errors.push(super::unknown::diagnostic("", &unknown));
    }
    Some(decoded)
}
