//! A cluster on moto, a Consul with ACLs, and what a deployment keeps there.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use acl_controller::testing::Moto;
use consul_watch::{
    Client, QueryOptions, WriteOptions,
    client::AclTokenFilter,
    testing::{
        parts::{Part, Suite},
        real::Consul,
    },
    types::{AclLink, AclPolicy, AclTokenRequest},
};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use wiremock::{Mock, MockServer, ResponseTemplate, matchers::path};

use super::{
    checker::{Expected, Found, Held, Token, violations},
    process::Launch,
    proxy::Proxy,
};

pub(super) const SUITE: Suite = Suite("acl-controller end to end");

/// What a management token is in a test.
pub(super) const MANAGEMENT: &str = "9a7d3c54-2b1e-4f7a-8f6d-51c0a1b2c3d4";
/// The secret half of the controller's AWS key.
pub(super) const AWS_SECRET_KEY: &str = "aws-secret-key-of-the-controller-8d1f";
/// Its session token, as that of a task's role has one.
pub(super) const AWS_SESSION_TOKEN: &str = "aws-session-token-of-the-controller-77c2";
pub(super) const CLUSTER: &str = "arn:aws:ecs:us-east-1:123456789012:cluster/prod";
/// A cluster of another controller, whose name begins with that of ours.
const NEIGHBOUR: &str = "arn:aws:ecs:us-east-1:123456789012:cluster/prod-2";
pub(super) const PREFIX: &str = "prod";
const FAMILIES: usize = 3;

/// Everything that a controller works with.
pub(super) struct World {
    pub(super) consul: Consul,
    pub(super) moto: Moto,
    pub(super) proxy: Proxy,
    pub(super) folder: TempDir,
    metadata: MockServer,
    /// The tasks that run, by service.
    tasks: BTreeMap<String, Vec<String>>,
    services: BTreeSet<String>,
}

impl World {
    /// On the real parts; `None` when one is missing, which is reported.
    pub(super) async fn start(case: &str, seed: u64) -> Option<Self> {
        let consul = SUITE.part_in_turn("consul", case)?;
        Self::start_on(&consul, case, seed).await
    }

    /// On this Consul; `None` without moto, which is reported.
    pub(super) async fn start_on(consul: &Part, case: &str, seed: u64) -> Option<Self> {
        let moto = SUITE.part("moto_server", case)?;
        // The word of before Consul 1.11.
        let old = consul.major_minor() < (1, 11);
        let management = if old { "master" } else { "initial_management" };
        let settings = json!({"acl": {
            "enabled": true, "default_policy": "deny", "tokens": {management: MANAGEMENT}}});
        let consul = Consul::start_with(&consul.path, settings).await.unwrap();
        let moto = Moto::start(&moto.path).await.unwrap();
        let proxy = Proxy::start(moto.endpoint(), seed).await;
        let metadata = MockServer::start().await;
        let task = json!({"Cluster": CLUSTER, "Family": "controller",
            "TaskARN": "arn:aws:ecs:us-east-1:123456789012:task/prod/0123456789abcdef"});
        let answer = ResponseTemplate::new(200).set_body_json(task);
        Mock::given(path("/task")).respond_with(answer).mount(&metadata).await;
        let folder = tempfile::tempdir().unwrap();
        let world = Self {
            consul,
            moto,
            proxy,
            folder,
            metadata,
            tasks: BTreeMap::new(),
            services: BTreeSet::new(),
        };
        world.deploy().await;
        Some(world)
    }

    /// What is there before the first controller.
    async fn deploy(&self) {
        self.ecs("CreateCluster", json!({"clusterName": "prod"})).await;
        for number in 0..FAMILIES {
            let container = json!({"name": "app", "image": "app", "memory": 64, "cpu": 1});
            let family = json!({"family": format!("family-{number}"),
                "containerDefinitions": [container]});
            self.ecs("RegisterTaskDefinition", family).await;
        }
        self.create_secret("prod-client").await;
        // The things of other people: a neighbour's, and a person's.
        let (client, options) = (self.client(), WriteOptions::default());
        let description = format!("for guest service\nconsul.hashicorp.com/cluster: {NEIGHBOUR}");
        let mut policy = AclPolicy::new("guest-service", r#"service "guest" { policy = "write" }"#);
        policy.description = format!("Policy {description}");
        client.acl_policy_create(&policy, &options).await.unwrap();
        let mut token = AclTokenRequest::new(format!("Token {description}"));
        token.policies.push(AclLink::name("guest-service"));
        client.acl_token_create(&token, &options).await.unwrap();
        client.acl_token_create(&AclTokenRequest::new("a person's"), &options).await.unwrap();
    }

    /// With all rights.
    pub(super) fn client(&self) -> Client {
        self.consul.client()
    }

    pub(super) async fn ecs(&self, action: &str, input: Value) -> Value {
        self.moto.ecs(action, &input).await.unwrap()
    }

    /// How the controller of the early generation is started here.
    pub(super) fn launch(&self) -> Launch {
        let arguments = [
            "acl-controller",
            "-secret-name-prefix",
            PREFIX,
            "-consul-client-secret-arn",
            "prod-client",
        ];
        let mut launch = Launch::new(&arguments, self.folder.path().join("controller.log"));
        for (name, value) in [
            ("CONSUL_HTTP_ADDR", self.consul.address()),
            ("CONSUL_HTTP_TOKEN", MANAGEMENT.to_owned()),
            ("ECS_CONTAINER_METADATA_URI_V4", self.metadata.uri()),
            ("AWS_ENDPOINT_URL", self.proxy.endpoint().to_owned()),
            ("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", AWS_SECRET_KEY.to_owned()),
            ("AWS_SESSION_TOKEN", AWS_SESSION_TOKEN.to_owned()),
            ("CONSUL_ECS_INTERVAL", "200ms".to_owned()),
            ("CONSUL_ECS_CHECK_INTERVAL", "2s".to_owned()),
        ] {
            launch.var(name, value);
        }
        launch
    }

    /// Makes the empty secret of a service, as the deployment does.
    pub(super) async fn create_service(&mut self, name: &str) {
        self.services.insert(name.to_owned());
        self.create_secret(&secret_of(name)).await;
    }

    pub(super) async fn create_secret(&self, name: &str) {
        let input = json!({"Name": name, "SecretString": "{}"});
        self.moto.secrets("CreateSecret", &input).await.unwrap();
    }

    pub(super) async fn delete_secret(&self, name: &str) {
        let input = json!({"SecretId": name, "ForceDeleteWithoutRecovery": true});
        self.moto.secrets("DeleteSecret", &input).await.unwrap();
    }

    pub(super) async fn write_secret(&self, name: &str, value: &str) {
        let version = uuid(name, value);
        let input = json!({"SecretId": name, "SecretString": value, "ClientRequestToken": version});
        self.moto.secrets("PutSecretValue", &input).await.unwrap();
    }

    /// What a task gets injected; `None` without a secret.
    pub(super) async fn secret(&self, name: &str) -> Option<String> {
        let secret = self.moto.secrets("GetSecretValue", &json!({"SecretId": name})).await.ok()?;
        Some(secret["SecretString"].as_str().unwrap().to_owned())
    }

    /// The token that a service's task gets injected as `CONSUL_HTTP_TOKEN`.
    pub(super) async fn injected(&self, service: &str) -> Option<String> {
        let value: Value = serde_json::from_str(&self.secret(&secret_of(service)).await?).ok()?;
        Some(value["token"].as_str()?.to_owned())
    }

    pub(super) async fn run_task(&mut self, service: &str) {
        let family = service.bytes().map(usize::from).sum::<usize>() % FAMILIES;
        let tags = json!([
            {"key": "consul.hashicorp.com/mesh", "value": "true"},
            {"key": "consul.hashicorp.com/service-name", "value": service},
        ]);
        let input = json!({"cluster": "prod", "taskDefinition": format!("family-{family}"),
            "launchType": "FARGATE", "tags": tags});
        let task = self.ecs("RunTask", input).await["tasks"][0]["taskArn"].clone();
        let tasks = self.tasks.entry(service.to_owned()).or_default();
        tasks.push(task.as_str().unwrap().to_owned());
    }

    /// Stops the oldest task of a service, if one runs.
    pub(super) async fn stop_task(&mut self, service: &str) {
        let Some(tasks) = self.tasks.get_mut(service).filter(|tasks| !tasks.is_empty()) else {
            return;
        };
        let task = tasks.remove(0);
        self.ecs("StopTask", json!({"cluster": "prod", "task": task, "reason": "test"})).await;
    }

    /// The services with a task.
    pub(super) fn running(&self) -> BTreeSet<String> {
        let running = self.tasks.iter().filter(|(_, tasks)| !tasks.is_empty());
        running.map(|(service, _)| service.clone()).collect()
    }

    pub(super) fn expected(&self) -> Expected {
        Expected { running: self.running(), services: self.services.clone() }
    }

    /// Waits until everything is as it has to be.
    pub(super) async fn settle(&self) {
        eventually("all is well", async || match self.found().await {
            Some(found) => violations(&self.expected(), &found).is_empty(),
            None => false,
        })
        .await;
    }

    /// What there is; `None` when Consul cannot tell at the moment.
    pub(super) async fn found(&self) -> Option<Found> {
        let (client, options) = (self.client(), QueryOptions::default());
        let mut found = Found::default();
        for entry in client.acl_tokens(&AclTokenFilter::default(), &options).await.ok()?.value {
            let token = client.acl_token(&entry.accessor_id, &options).await.ok()?.value?;
            found.tokens.push(Token {
                accessor: token.accessor_id,
                secret: token.secret_id?.expose_secret().to_owned(),
                description: token.description,
                policies: token.policies.into_iter().map(|link| link.name).collect(),
            });
        }
        let policies = client.acl_policies(&options).await.ok()?.value;
        // Consul's own from 1.17 on; the slash in its name keeps it from being read by name.
        for entry in policies.iter().filter(|entry| !entry.name.starts_with("builtin/")) {
            let policy = client.acl_policy_by_name(&entry.name, &options).await.ok()?.value?;
            found.policies.insert(policy.name, (policy.description, policy.rules));
        }
        for service in &self.services {
            let value = self.secret(&secret_of(service)).await;
            found.secrets.insert(service.clone(), value.map(|value| Held::read(&value)));
        }
        found.client_secret = self.secret("prod-client").await.map(|value| Held::read(&value));
        Some(found)
    }
}

/// Waits for what a process does, on a busy machine.
pub(super) async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let end = Instant::now() + Duration::from_mins(1);
    while !condition().await {
        assert!(Instant::now() < end, "not in time: {what}");
        sleep(Duration::from_millis(50)).await;
    }
}

pub(super) fn secret_of(service: &str) -> String {
    format!("{PREFIX}-{service}")
}

/// A version id that follows from what is written.
fn uuid(name: &str, value: &str) -> String {
    let mut random = fastrand::Rng::with_seed(
        name.bytes()
            .chain(value.bytes())
            .fold(7, |sum, byte| u64::wrapping_add(u64::wrapping_mul(sum, 31), u64::from(byte))),
    );
    format!("{:032x}", random.u128(..))
}
