//! The `resource` command, as a person uses it.

mod over_grpc;
mod over_http;
mod words;

use std::{path::PathBuf, process::Stdio, sync::Arc};

use resource_store::{
    Registry, ResourceService,
    acl::{Access, StaticRules, StaticTokens},
    backend::memory::MemoryBackend,
    demo, pb,
    server::{Server, ServerConfig},
};
use tokio::{io::AsyncWriteExt as _, process::Command};
use tokio_util::sync::{CancellationToken, DropGuard};

const KORN: &str = r#"ID {
  Type = gvk("demo.v2.Artist")
  Name = "korn"
}
Data {
  Name  = "Korn"
  Genre = "GENRE_METAL"
}
Metadata = { "foo" = "bar" }
"#;

/// A server of the demo types that stops when it is dropped, and a folder.
struct World {
    address: String,
    folder: tempfile::TempDir,
    _stop: DropGuard,
}

/// What a command did.
#[derive(Debug)]
struct Done {
    code: i32,
    out: String,
    err: String,
}

impl World {
    async fn new() -> Self {
        Self::with(|service| service, ServerConfig::default()).await
    }

    /// Only the token `writer` may do anything.
    async fn guarded() -> Self {
        let rules = StaticRules::none("a").with_key_prefix("resource/", Access::Write);
        let tokens = StaticTokens::default().with_token(
            "writer".to_owned().into(),
            rules,
            pb::Tenancy::default(),
        );
        Self::with(|service| service.authorization(tokens), ServerConfig::default()).await
    }

    async fn with(
        adjust: impl FnOnce(
            resource_store::service::ServiceBuilder,
        ) -> resource_store::service::ServiceBuilder,
        mut config: ServerConfig,
    ) -> Self {
        let mut registry = Registry::new().unwrap();
        demo::register(&mut registry).unwrap();
        let builder = ResourceService::builder(registry, Arc::new(MemoryBackend::new()));
        config.address = "127.0.0.1:0".into();
        let server = Server::bind(adjust(builder).build(), config).await.unwrap();
        let address = server.local_addr().unwrap().to_string();
        let stop = CancellationToken::new();
        tokio::spawn(server.run(stop.clone()));
        Self { address, folder: tempfile::tempdir().unwrap(), _stop: stop.drop_guard() }
    }

    /// Writes a file and gives its path.
    fn file(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    async fn run(&self, arguments: &[&str]) -> Done {
        self.run_with(arguments, "", &[]).await
    }

    async fn run_with(&self, arguments: &[&str], input: &str, vars: &[(&str, &str)]) -> Done {
        let mut child = Command::new(env!("CARGO_BIN_EXE_resource"))
            .args(arguments)
            .env_clear()
            .env("CONSUL_HTTP_ADDR", &self.address)
            .env("CONSUL_GRPC_ADDR", &self.address)
            .envs(vars.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that reads no input may be gone already.
        drop(stdin.write_all(input.as_bytes()).await);
        drop(stdin);
        let output = child.wait_with_output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Done {
            code: output.status.code().unwrap(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// Runs a command that works, and gives what it prints.
    async fn ok(&self, arguments: &[&str]) -> String {
        let done = self.run(arguments).await;
        assert_eq!((done.code, done.err.as_str()), (0, ""), "{arguments:?}: {done:?}");
        done.out
    }

    /// Runs a command that fails, and gives what it says.
    async fn fails(&self, arguments: &[&str]) -> String {
        let done = self.run(arguments).await;
        assert_eq!((done.code, done.out.as_str()), (1, ""), "{arguments:?}: {done:?}");
        done.err.trim_end().to_owned()
    }
}
