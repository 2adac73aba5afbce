//! Which keys each block of the configuration has whose values may be shown.

use super::super::{
    decode::Body as _,
    raw::{
        RawApiTls, RawAuth, RawAutoRetrieval, RawBufferPeriod, RawCatalogCondition, RawConfig,
        RawConsul, RawDefaultCheck, RawFileStorage, RawKvCondition, RawLicense, RawRegistration,
        RawRetry, RawSchedule, RawService, RawServicesCondition, RawSyslog, RawTask, RawTls,
        RawTransport, RawVault,
    },
};

/// A kind of block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    keys: &'static [&'static [&'static str]],
    /// The kinds of those keys that are blocks. What stands in others is not shown.
    blocks: &'static [(&'static str, &'static Self)],
}

impl Block {
    pub(super) fn knows(&self, key: &str) -> bool {
        self.keys.iter().any(|keys| has(keys, key))
    }

    /// The block that is the value of `key`.
    pub(super) fn below(&self, key: &str) -> &'static Self {
        let found = self.blocks.iter().find(|(known, _block)| known.eq_ignore_ascii_case(key));
        found.map_or(&NOTHING, |(_known, block)| block)
    }
}

pub(super) fn has(keys: &[&str], key: &str) -> bool {
    keys.iter().any(|known| known.eq_ignore_ascii_case(key))
}

/// Returns `true` for a key that some block has.
pub(in crate::config) fn is_known(key: &str) -> bool {
    EVERY.iter().any(|block| block.knows(key)) || has(SECRET_BLOCKS, key) || has(CHOSEN, key)
}

/// Keys below which every value may be a secret.
pub(super) const SECRET_BLOCKS: &[&str] =
    &["terraform_provider", "variables", "task_env", "env", "backend"];

/// Keys whose blocks have labels, which are keys in JSON.
pub(super) const LABELLED: &[&str] =
    &["driver", "condition", "module_input", "source_input", "terraform_provider", "storage"];

/// Keys below which the operator chooses the keys, and values are no secrets.
pub(super) const CHOSEN: &[&str] = &["cts_user_defined_meta", "node_meta", "required_providers"];

const EVERY: &[&Block] = &[
    &FILE,
    &STORAGE,
    &SYSLOG,
    &BUFFER_PERIOD,
    &CONSUL,
    &AUTH,
    &TLS,
    &TRANSPORT,
    &REGISTRATION,
    &DEFAULT_CHECK,
    &VAULT,
    &API_TLS,
    &LICENSE,
    &AUTO_RETRIEVAL,
    &SERVICE,
    &TASK,
    &RETRY,
    &CONDITION,
    &DRIVER,
    &CLUSTER,
];

static NOTHING: Block = Block { keys: &[], blocks: &[] };

pub(super) static FILE: Block = Block {
    keys: &[RawConfig::KEYS, &["high_availability"]],
    blocks: &[
        ("storage", &STORAGE),
        ("syslog", &SYSLOG),
        ("buffer_period", &BUFFER_PERIOD),
        ("consul", &CONSUL),
        ("vault", &VAULT),
        ("driver", &DRIVER),
        ("tls", &API_TLS),
        ("task", &TASK),
        ("service", &SERVICE),
        ("license", &LICENSE),
        ("high_availability", &CLUSTER),
    ],
};

static STORAGE: Block = Block { keys: &[RawFileStorage::KEYS], blocks: &[] };
static SYSLOG: Block = Block { keys: &[RawSyslog::KEYS], blocks: &[] };
static BUFFER_PERIOD: Block = Block { keys: &[RawBufferPeriod::KEYS], blocks: &[] };

static CONSUL: Block = Block {
    keys: &[RawConsul::KEYS],
    blocks: &[
        ("auth", &AUTH),
        ("tls", &TLS),
        ("transport", &TRANSPORT),
        ("service_registration", &REGISTRATION),
    ],
};

static AUTH: Block = Block { keys: &[RawAuth::KEYS], blocks: &[] };
static TLS: Block = Block { keys: &[RawTls::KEYS], blocks: &[] };
static TRANSPORT: Block = Block { keys: &[RawTransport::KEYS], blocks: &[] };

static REGISTRATION: Block =
    Block { keys: &[RawRegistration::KEYS], blocks: &[("default_check", &DEFAULT_CHECK)] };

static DEFAULT_CHECK: Block = Block { keys: &[RawDefaultCheck::KEYS], blocks: &[] };

static VAULT: Block =
    Block { keys: &[RawVault::KEYS], blocks: &[("tls", &TLS), ("transport", &TRANSPORT)] };

static API_TLS: Block = Block { keys: &[RawApiTls::KEYS], blocks: &[] };

static LICENSE: Block =
    Block { keys: &[RawLicense::KEYS], blocks: &[("auto_retrieval", &AUTO_RETRIEVAL)] };

static AUTO_RETRIEVAL: Block = Block { keys: &[RawAutoRetrieval::KEYS], blocks: &[] };
static SERVICE: Block = Block { keys: &[RawService::KEYS], blocks: &[] };

static TASK: Block = Block {
    keys: &[RawTask::KEYS, CLAIMED_OF_TASK],
    blocks: &[
        ("buffer_period", &BUFFER_PERIOD),
        ("retry", &RETRY),
        ("condition", &CONDITION),
        ("module_input", &CONDITION),
        ("source_input", &CONDITION),
        ("terraform_cloud_workspace", &DRIVER),
    ],
};

static RETRY: Block = Block { keys: &[RawRetry::KEYS], blocks: &[] };

/// A condition or a module input of any type.
static CONDITION: Block = Block {
    keys: &[
        RawServicesCondition::KEYS,
        RawCatalogCondition::KEYS,
        RawKvCondition::KEYS,
        RawSchedule::KEYS,
    ],
    blocks: &[],
};

const CLAIMED_OF_TASK: &[&str] = &["terraform_version", "terraform_cloud_workspace"];

/// The block of a driver, what stands in it, and what it claims in tasks.
static DRIVER: Block = Block {
    keys: &[&[
        "agent_pool_id",
        "agent_pool_name",
        "auto_apply",
        "delete_workspace",
        "discard_others",
        "discard_stale",
        "execution_mode",
        "hostname",
        "install",
        "lock_timeout",
        "log",
        "max_retry",
        "organization",
        "path",
        "persist_log",
        "poll_max",
        "poll_min",
        "prefix",
        "project",
        "release_keys",
        "release_mirror",
        "requests_per_second",
        "retry_errored",
        "run",
        "supported_versions",
        "tags",
        "tags_allowlist",
        "tags_denylist",
        "terraform_version",
        "timeout",
        "tls",
        "version",
        "working_dir",
        "workspace_prefix",
        "workspaces",
    ]],
    blocks: &[("run", &DRIVER), ("tls", &TLS), ("workspaces", &DRIVER)],
};

/// Blocks that the cluster claims, with the rules for their bodies.
static CLUSTER: Block = Block {
    keys: &[&[
        "address",
        "cluster",
        "compat_blocks_leadership",
        "compat_check_interval",
        "failover_run",
        "instance",
        "lock_delay",
        "monitor_retries",
        "monitor_retry_time",
        "name",
        "namespace",
        "parent_path",
        "redirect",
        "session_ttl",
        "storage",
    ]],
    blocks: &[("cluster", &CLUSTER), ("instance", &CLUSTER), ("storage", &CLUSTER)],
};
