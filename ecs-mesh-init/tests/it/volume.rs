//! A task's shared volume, and runs of mesh-init on it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use ecs_mesh_init::{
    Config, MeshInit, Result, Vars,
    config::LoginConfig,
    login::BearerTokens,
    metadata::{FileTaskMetadata, Task},
    registration::RetryPolicy,
};
use secrecy::SecretString;
use serde_json::Value;
use tempfile::TempDir;

const TASK: &str = r#"{"Cluster":"test","TaskARN":"arn:aws:ecs:us-east-1:123456789:task/test/abcdef","Family":"Web",
    "AvailabilityZone":"us-east-1a","Containers":[{"Networks":[{"IPv4Addresses":["10.0.1.7"]}]}]}"#;
pub(crate) const NODE: &str = "arn:aws:ecs:us-east-1:123456789:cluster/test";

/// A volume, and what a task needs besides.
pub(crate) struct Volume {
    folder: TempDir,
}

impl Volume {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("task.json"), TASK).unwrap();
        fs::write(folder.path().join("program"), "#!/bin/true").unwrap();
        fs::write(folder.path().join("resolv.conf"), "nameserver 10.0.0.2\n").unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path(name)).unwrap()).unwrap()
    }

    pub(crate) fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.path(name)).unwrap().permissions().mode() & 0o7777
    }

    pub(crate) fn run(&self, config: &str, vars: &[(&str, String)]) -> MeshInit {
        let config = config.replace("$DIR", self.folder.path().to_str().unwrap());
        let metadata = Arc::new(FileTaskMetadata::new(self.path("task.json")));
        let mut run = MeshInit::new(
            Config::parse(&config).unwrap(),
            metadata,
            lookup(vars),
            self.path("program"),
        );
        run.resolv_conf = self.path("resolv.conf");
        run.iptables = "true".into();
        // The doubles have no gRPC; `grpc.rs` tests what waits for it.
        run.uses_grpc = false;
        run.retry = RetryPolicy::default().with_attempts(1);
        run
    }
}

fn lookup(vars: &[(&str, String)]) -> Vars {
    let vars: Vec<(String, String)> =
        vars.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    Arc::new(move |name| {
        vars.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    })
}

/// Bearer tokens that count.
#[derive(Debug, Default)]
pub(crate) struct Counted(AtomicU32);

#[async_trait::async_trait]
impl BearerTokens for Counted {
    async fn bearer_token(&self, _login: &LoginConfig, _task: &Task) -> Result<SecretString> {
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        Ok(format!("bearer-{number}").into())
    }
}
