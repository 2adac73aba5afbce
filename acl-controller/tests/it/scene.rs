//! Where cases run: on the double as old and as current servers, and on a real Consul with ACLs.
//!
//! The real one is shared by all cases, one at a time, so each case has names of its own.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use acl_controller::{
    Change, Error, LoginTokenSettings, LoginTokens, MemorySecrets, Reconciler as _, Report,
    SecretStore, ServiceTokenSettings, ServiceTokens, TaskSource, Writer, task::Task,
    testing::MemoryTasks,
};
use consul_watch::{
    Client, QueryOptions, WriteOptions,
    client::AclTokenFilter,
    testing::{
        Behaviour, DefaultPolicy, LoginAttempt, LoginIdentity, TestConsul,
        parts::{Part, Suite},
        real,
    },
    types::{
        AclAuthMethod, AclBindingRule, AclLogin, AclPolicy, AclToken, AclTokenEntry, BindType,
    },
};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

const SUITE: Suite = Suite("acl-controller");
/// The secret of the management token.
pub(crate) const ROOT: &str = "5ec2e700-0000-4000-8000-00000000600d";
const KEY: &str = include_str!("../../../consul-watch/tests/data/login/key.pub.pem");
const JWT: &str = include_str!("../../../consul-watch/tests/data/login/web.jwt");

/// The oldest and the newest Consul that there are.
static SEALED: [OnceCell<Mutex<real::Consul>>; 2] =
    [const { OnceCell::const_new() }, const { OnceCell::const_new() }];
static NAMES: AtomicU32 = AtomicU32::new(0);

/// A Consul with ACLs, a cluster with tasks, and secrets.
pub(crate) struct Scene {
    pub(crate) client: Client,
    pub(crate) double: Option<TestConsul>,
    pub(crate) tasks: MemoryTasks,
    pub(crate) secrets: Arc<MemorySecrets>,
    pub(crate) cluster: String,
    pub(crate) prefix: String,
    number: u32,
    _real: Option<MutexGuard<'static, real::Consul>>,
}

/// A service that has all it needs.
pub(crate) struct Running {
    pub(crate) web: String,
    /// The name of its secret.
    pub(crate) secret: String,
    /// ARN of its task.
    pub(crate) task: String,
    /// Who gave it all.
    pub(crate) reconciler: ServiceTokens,
}

impl Scene {
    fn new(
        client: Client,
        double: Option<TestConsul>,
        real: Option<MutexGuard<'static, real::Consul>>,
    ) -> Self {
        let number = NAMES.fetch_add(1, Ordering::Relaxed);
        Self {
            client,
            double,
            tasks: MemoryTasks::new(),
            secrets: Arc::default(),
            cluster: format!("arn:aws:ecs:us-east-1:123456789012:cluster/c{number}"),
            prefix: format!("p{number}"),
            number,
            _real: real,
        }
    }

    pub(crate) fn double(behaviour: Behaviour) -> Self {
        SUITE.double("consul");
        let builder = TestConsul::builder().behaviour(behaviour).acls(DefaultPolicy::Deny);
        let consul = builder.management_token(ROOT).build();
        Self::new(consul.client(), Some(consul), None)
    }

    /// On the oldest Consul that there is.
    pub(crate) async fn real_oldest(case: &str) -> Option<Self> {
        let parts = SUITE.parts("consul", case);
        Self::real(parts.first()?, &SEALED[0]).await
    }

    /// On the newest one, if there are several.
    pub(crate) async fn real_newest(case: &str) -> Option<Self> {
        let parts = SUITE.parts("consul", case);
        Self::real(parts.get(1..)?.last()?, &SEALED[1]).await
    }

    async fn real(part: &Part, shared: &'static OnceCell<Mutex<real::Consul>>) -> Option<Self> {
        let start = || async {
            // The word of before Consul 1.11.
            let old = part.major_minor() < (1, 11);
            let tokens = json!({ if old { "master" } else { "initial_management" }: ROOT });
            let acl = json!({ "enabled": true, "default_policy": "deny", "tokens": tokens });
            let consul = real::Consul::start_with(&part.path, json!({ "acl": acl })).await;
            Mutex::new(consul.expect("a real Consul"))
        };
        let guard = shared.get_or_init(start).await.lock().await;
        Some(Self::new(guard.client(), None, Some(guard)))
    }

    /// A name that no other case uses.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{name}-{}", self.number)
    }

    pub(crate) fn settings(&self) -> ServiceTokenSettings {
        let mut settings = ServiceTokenSettings::new(&self.cluster, &self.prefix);
        // So that what is written comes in an order.
        settings.concurrency = 1;
        settings
    }

    pub(crate) fn service_tokens(&self) -> ServiceTokens {
        self.service_tokens_with(self.settings())
    }

    pub(crate) fn service_tokens_with(&self, settings: ServiceTokenSettings) -> ServiceTokens {
        let secrets: Arc<dyn SecretStore> = Arc::clone(&self.secrets) as Arc<dyn SecretStore>;
        self.service_tokens_of(Arc::new(self.tasks.clone()), secrets, settings)
    }

    pub(crate) fn service_tokens_of(
        &self,
        tasks: Arc<dyn TaskSource>,
        secrets: Arc<dyn SecretStore>,
        settings: ServiceTokenSettings,
    ) -> ServiceTokens {
        ServiceTokens::new(Arc::new(self.client.clone()), tasks, secrets, settings).unwrap()
    }

    pub(crate) fn login_tokens(&self) -> LoginTokens {
        self.login_tokens_of(Arc::new(self.tasks.clone()))
    }

    pub(crate) fn login_tokens_of(&self, tasks: Arc<dyn TaskSource>) -> LoginTokens {
        let settings = LoginTokenSettings::new(&self.cluster, "10.0.0.9");
        LoginTokens::new(Arc::new(self.client.clone()), tasks, settings).unwrap()
    }

    pub(crate) fn login_tokens_with(&self, settings: LoginTokenSettings) -> LoginTokens {
        let tasks = Arc::new(self.tasks.clone());
        LoginTokens::new(Arc::new(self.client.clone()), tasks, settings).unwrap()
    }

    /// A service with a task, after a pass that gave it all it needs.
    pub(crate) async fn running(&self) -> Running {
        let web = self.name("web");
        let (secret, task) = (self.secret(&web), self.start("t1", &web));
        let reconciler = self.service_tokens();
        pass(&reconciler).await;
        Running { web, secret, task, reconciler }
    }

    /// A task of the mesh; `id` is its last segment. Returns the task's ARN.
    pub(crate) fn start(&self, id: &str, service: &str) -> String {
        let task = self.task(id, service);
        let arn = task.arn.clone();
        self.tasks.set(task);
        arn
    }

    pub(crate) fn task(&self, id: &str, service: &str) -> Task {
        let arn = format!("arn:aws:ecs:us-east-1:123456789012:task/c{}/{id}", self.number);
        let family = format!("arn:aws:ecs:us-east-1:123456789012:task-definition/{service}:3");
        Task::new(arn, family).with_tag("consul.hashicorp.com/mesh", "true")
    }

    /// The name of a service's secret, which exists afterwards as a deployment makes it.
    pub(crate) fn secret(&self, service: &str) -> String {
        let name = format!("{}-{service}", self.prefix);
        self.secrets.put(&name, "{}");
        name
    }

    /// Ids in a secret: accessor and token.
    pub(crate) async fn ids(&self, secret: &str) -> (String, String) {
        let stored = self.secrets.get(secret).await.unwrap().unwrap();
        let text = stored.value.unwrap().expose_secret().to_owned();
        let value: Value = serde_json::from_str(&text).unwrap();
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        (text("accessor_id"), text("token"))
    }

    /// Tokens of this case.
    pub(crate) async fn tokens(&self) -> Vec<AclTokenEntry> {
        let tokens = self.client.acl_tokens(&AclTokenFilter::default(), &read()).await;
        let mut tokens = tokens.unwrap().value;
        tokens.retain(|token| {
            token.description.contains(&self.cluster)
                || token.policies.iter().any(|link| link.name.starts_with(&self.prefix))
        });
        tokens
    }

    /// Policies of this case, by name.
    pub(crate) async fn policies(&self) -> BTreeMap<String, AclPolicy> {
        let policies = self.client.acl_policies(&read()).await.unwrap().value;
        let own = policies.into_iter().filter(|policy| {
            policy.description.contains(&self.cluster) || policy.name.starts_with(&self.prefix)
        });
        own.map(|policy| (policy.name.clone(), policy)).collect()
    }

    pub(crate) async fn token(&self, accessor: &str) -> Option<AclToken> {
        self.client.acl_token(accessor, &read()).await.unwrap().value
    }

    /// What a service's token may do, tried on Consul: register its own service and no other.
    pub(crate) async fn may_register(&self, token: &str, service: &str) -> bool {
        let client = self.client.with_token(Some(token.into())).unwrap();
        let registration = consul_watch::types::AgentServiceRegistration::new(service);
        match client.agent_register_service(&registration).await {
            Ok(()) => {
                client.agent_deregister_service(service, None).await.unwrap();
                true
            }
            Err(error) if error.is_permission_denied() => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// A token from a login that wrote this into the description. Its accessor id.
    pub(crate) async fn login(&self, meta: &[(&str, &str)]) -> String {
        let method = self.name("jwt");
        self.make_jwt_method(&method).await;
        let mut login = AclLogin::new(&method, JWT.into());
        for (key, value) in meta {
            login.meta.insert((*key).to_owned(), (*value).to_owned());
        }
        let client = self.client.with_token(None).unwrap();
        client.acl_login(&login, &write()).await.unwrap().accessor_id
    }

    /// A token of a task of a cluster.
    pub(crate) async fn login_task(&self, id: &str, cluster: &str) -> String {
        let meta =
            [("consul.hashicorp.com/task-id", id), ("consul.hashicorp.com/cluster", cluster)];
        self.login(&meta).await
    }

    async fn make_jwt_method(&self, name: &str) {
        if self.client.acl_auth_method(name, &read()).await.unwrap().value.is_some() {
            return;
        }
        if let Some(double) = &self.double {
            let verify = |_: &LoginAttempt<'_>| Ok(LoginIdentity::default().claim("svc", "web"));
            double.set_login_verifier("jwt", verify);
        }
        let config = json!({
            "JWTValidationPubKeys": [KEY], "JWTSupportedAlgs": ["ES256"],
            "BoundIssuer": "https://issuer.test", "BoundAudiences": ["consul"],
            "ClaimMappings": { "svc": "svc" },
        });
        let config = config.as_object().cloned().unwrap();
        let method = AclAuthMethod::new(name, "jwt", config);
        self.client.acl_auth_method_create(&method, &write()).await.unwrap();
        let rule = AclBindingRule::new(name, BindType::Service, "${value.svc}");
        self.client.acl_binding_rule_create(&rule, &write()).await.unwrap();
    }
}

/// A pass of a reconciler, without errors. What it changed, in the order of the changes.
pub(crate) async fn pass(reconciler: &impl acl_controller::Reconciler) -> Vec<String> {
    let (report, changes) = try_pass(reconciler, false).await;
    assert!(report.errors.is_empty(), "{:?}", chains(&report));
    changes
}

/// The same with the slower check.
pub(crate) async fn check(reconciler: &impl acl_controller::Reconciler) -> Vec<String> {
    let (report, changes) = try_pass(reconciler, true).await;
    assert!(report.errors.is_empty(), "{:?}", chains(&report));
    changes
}

pub(crate) async fn try_pass(
    reconciler: &impl acl_controller::Reconciler,
    check: bool,
) -> (Report, Vec<String>) {
    let writer = Writer::new();
    let report = reconciler.pass(&writer, check).await.unwrap();
    (report, shown(writer))
}

pub(crate) async fn prepare(reconciler: &ServiceTokens) -> Result<Vec<String>, Error> {
    let writer = Writer::new();
    reconciler.prepare(&writer).await?;
    Ok(shown(writer))
}

pub(crate) fn shown(writer: Writer) -> Vec<String> {
    writer.into_changes().iter().map(Change::to_string).collect()
}

pub(crate) fn chains(report: &Report) -> Vec<String> {
    report.errors.iter().map(|error| consul_watch::error_chain(error)).collect()
}

pub(crate) fn read() -> QueryOptions {
    QueryOptions::default()
}

pub(crate) fn write() -> WriteOptions {
    WriteOptions::default()
}

/// Makes each case a test in each place that it runs in.
macro_rules! cases {
    ($($case:ident),+ $(,)?) => {
        mod current {
            $(#[tokio::test]
            async fn $case() {
                super::$case(&crate::scene::Scene::double(consul_watch::testing::Behaviour::Current)).await;
            })+
        }
        mod old {
            $(#[tokio::test]
            async fn $case() {
                super::$case(&crate::scene::Scene::double(consul_watch::testing::Behaviour::V1_8)).await;
            })+
        }
        mod real {
            $(#[tokio::test]
            async fn $case() {
                if let Some(scene) = crate::scene::Scene::real_oldest(stringify!($case)).await {
                    super::$case(&scene).await;
                }
            })+
        }
        mod newest {
            $(#[tokio::test]
            async fn $case() {
                if let Some(scene) = crate::scene::Scene::real_newest(stringify!($case)).await {
                    super::$case(&scene).await;
                }
            })+
        }
    };
}
pub(crate) use cases;
