//! The control plane of 0.7: with three real servers under ACLs at default deny and TLS, of which the one
//! that it is connected to dies; and for each kind of gateway.
#![expect(clippy::print_stdout, reason = "how long another server took is of interest")]

use std::{
    fs,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use consul_watch::{
    Client, QueryOptions, WriteOptions,
    client::{AclTokenFilter, Request},
    testing::{
        parts::{Part, Suite},
        real::{Consul, free_port},
    },
    types::{AclAuthMethod, AclBindingRule, BindType, HealthStatus, ServiceKind},
};
use ecs_mesh_init::{
    Config, ControlPlane, Error, Result,
    config::{CONFIG_VARIABLE, LoginConfig},
    login::BearerTokens,
    mesh_init::HEALTH_PATH,
    metadata::Task,
};
use rcgen::{KeyPair, SigningKey as _};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    grpc::Pki,
    log::Log,
    servers::containers,
    volume::{NODE, Volume},
};

const SUITE: Suite = Suite("ecs-mesh-init: the control plane of 0.7");
const SERVER_NAME: &str = "server.dc1.consul";
/// The control plane is given the first of them only.
const SERVERS: [&str; 3] = ["127.77.0.1", "127.77.0.2", "127.77.0.3"];
const LIMIT: Duration = Duration::from_mins(1);

/// Bearer tokens for an auth method of the type `jwt`.
#[derive(Debug)]
struct Jwt {
    key: KeyPair,
    made: AtomicU32,
}

impl Jwt {
    fn new() -> Self {
        Self { key: KeyPair::generate().unwrap(), made: AtomicU32::new(0) }
    }

    /// What the auth method trusts.
    fn method(&self) -> AclAuthMethod {
        let config = json!({"JWTValidationPubKeys": [self.key.public_key_pem()],
            "JWTSupportedAlgs": ["ES256"], "BoundIssuer": "test", "BoundAudiences": ["consul"],
            "ClaimMappings": {"service": "service"}});
        AclAuthMethod::new("tasks", "jwt", config.as_object().cloned().unwrap())
    }

    #[expect(clippy::disallowed_methods, reason = "the servers have the real time")]
    fn token(&self) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let claims = json!({"iss": "test", "aud": "consul", "sub": "task", "service": "web",
            "iat": now, "nbf": now - 60, "exp": now + 600});
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({"alg": "ES256", "typ": "JWT"})), part(&claims));
        let signature = raw(&self.key.sign(signed.as_bytes()).unwrap());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// The two numbers of a signature in DER, 32 bytes each, as a JWT has them.
fn raw(der: &[u8]) -> Vec<u8> {
    let mut rest = &der[2..];
    let mut numbers = Vec::new();
    for _ in 0..2 {
        let length = usize::from(rest[1]);
        let number = &rest[2..2 + length];
        let significant = &number[number.iter().take_while(|byte| **byte == 0).count()..];
        numbers.extend(vec![0; 32 - significant.len()]);
        numbers.extend(significant);
        rest = &rest[2 + length..];
    }
    numbers
}

#[async_trait::async_trait]
impl BearerTokens for Jwt {
    async fn bearer_token(&self, _login: &LoginConfig, _task: &Task) -> Result<SecretString> {
        self.made.fetch_add(1, Ordering::SeqCst);
        Ok(self.token().into())
    }
}

/// Three servers, each on an address of its own, with the same ports.
struct Servers {
    pki: Pki,
    consuls: Vec<Consul>,
    https: u16,
    grpc: u16,
    /// All rights, through the last server.
    admin: Client,
}

impl Servers {
    async fn start(part: &Part) -> Self {
        let pki = Pki::new(SERVER_NAME);
        let [serf, rpc, https, grpc] = std::array::from_fn(|_| free_port().unwrap());
        let tls = json!({"defaults": {"ca_file": pki.path("ca.pem"),
                "cert_file": pki.path("cert.pem"), "key_file": pki.path("key.pem"),
                "verify_outgoing": true},
            "internal_rpc": {"verify_incoming": true, "verify_server_hostname": true}});
        let peers: Vec<String> = SERVERS.iter().map(|ip| format!("{ip}:{serf}")).collect();
        let starting = SERVERS.iter().map(|ip| {
            let settings = json!({"bind_addr": ip, "node_name": format!("server-{ip}"),
                "bootstrap": false, "bootstrap_expect": SERVERS.len(), "retry_join": peers,
                "retry_interval": "100ms", "connect": {"enabled": true}, "tls": tls,
                "acl": {"enabled": true, "default_policy": "deny"},
                "addresses": {"https": ip, "grpc_tls": ip},
                "ports": {"serf_lan": serf, "server": rpc, "https": https, "grpc_tls": grpc}});
            let program = part.path.clone();
            async move { Consul::start_with(&program, settings).await }
        });
        let consuls: Vec<Consul> =
            futures(starting).await.into_iter().map(|started| started.unwrap()).collect();
        let last = consuls.last().unwrap().client();
        let admin = loop {
            // A leader takes a moment until its ACLs can be set up.
            match last.acl_bootstrap(None).await {
                Ok(token) => break last.with_token(token.secret_id).unwrap(),
                Err(_early) => sleep(Duration::from_millis(50)).await,
            }
        };
        Self { pki, consuls, https, grpc, admin }
    }

    /// Lets tasks log in as the service `web`, and registers the cluster's node.
    async fn trust(&self, jwt: &Jwt) {
        let options = WriteOptions::default();
        self.admin.acl_auth_method_create(&jwt.method(), &options).await.unwrap();
        let rule = AclBindingRule::new("tasks", BindType::Service, "${value.service}");
        self.admin.acl_binding_rule_create(&rule, &options).await.unwrap();
        let node = json!({"Node": NODE, "Address": "127.0.0.1"});
        self.admin.send(Request::put("node", "/v1/catalog/register").json(&node)).await.unwrap();
    }

    /// Waits until all checks of the service are so. While a leader is elected, nothing answers.
    async fn checks_until(&self, status: &HealthStatus, when: &str, log: &Log) {
        let wanted = async {
            loop {
                let answer = self.admin.health_checks("web", &QueryOptions::default()).await;
                let checks = answer.map(|answer| answer.value).unwrap_or_default();
                if checks.len() == 2 && checks.iter().all(|check| check.status == *status) {
                    return;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(timeout(LIMIT, wanted).await.is_ok(), "{when}: {log:?}");
    }

    async fn logins(&self) -> usize {
        let (filter, options) = (AclTokenFilter::default(), QueryOptions::default());
        let tokens = self.admin.acl_tokens(&filter, &options).await.unwrap().value;
        tokens.iter().filter(|token| token.auth_method == "tasks").count()
    }
}

/// Waits for all of them at the same time.
async fn futures<F>(all: impl Iterator<Item = F>) -> Vec<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let running: Vec<_> = all.map(tokio::spawn).collect();
    let mut done = Vec::new();
    for one in running {
        done.push(one.await.unwrap());
    }
    done
}

fn control_plane(volume: &Volume, config: &Value) -> ControlPlane {
    let mut control = ControlPlane::new(volume.run(&config.to_string(), &[]));
    control.health_address = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
    control.period = Duration::from_millis(20);
    control
}

/// A control plane that runs.
type Running = JoinHandle<Result<()>>;

/// Waits until the health endpoint lets the other containers start.
async fn ready(address: SocketAddr, running: &mut Running, log: &Log) {
    let url = format!("http://{address}{HEALTH_PATH}");
    let answers = async {
        loop {
            match reqwest::get(&url).await.map(|answer| answer.status().as_u16()) {
                Ok(200) => return,
                Ok(500) | Err(_) => sleep(Duration::from_millis(20)).await,
                Ok(other) => panic!("{url}: {other}"),
            }
        }
    };
    tokio::select! {
        answered = timeout(LIMIT, answers) => assert!(answered.is_ok(), "{log:?}"),
        ended = running => panic!("it has ended: {ended:?}"),
    }
}

/// One login over gRPC; then the server that it went to dies, which is the only one that the
/// configuration names: another one is used within seconds, and what health-sync writes arrives.
async fn goes_on_with_another_server(part: &Part) {
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    let (jwt, mut servers) = (Arc::new(Jwt::new()), Servers::start(part).await);
    servers.trust(&jwt).await;
    let volume = Volume::new();
    containers(&volume, "HEALTHY", "RUNNING");
    let config = json!({
        "bootstrapDir": "$DIR", "service": {"port": 8080}, "healthSyncContainers": ["app"],
        "transparentProxy": {"enabled": false},
        "consulLogin": {"enabled": true, "method": "tasks"},
        "consulServers": {"hosts": SERVERS[0], "http": {"port": servers.https},
            "grpc": {"port": servers.grpc},
            "defaults": {"caCertFile": servers.pki.path("ca.pem"), "tlsServerName": SERVER_NAME}},
    });
    let mut control = control_plane(&volume, &config);
    control.mesh_init.uses_grpc = true;
    control.mesh_init.bearer_tokens = Some(Arc::<Jwt>::clone(&jwt));
    let (address, stop) = (control.health_address, CancellationToken::new());
    let mut running = tokio::spawn(control.run(stop.clone()));
    ready(address, &mut running, &log).await;
    assert_eq!((servers.logins().await, jwt.made.load(Ordering::SeqCst)), (1, 1));
    let token = fs::read_to_string(volume.path("service-token")).unwrap();
    assert_eq!(volume.mode("service-token"), 0o644);
    let dataplane = volume.read("consul-dataplane.json");
    let credentials = json!({"type": "static", "static": {"token": token}});
    assert_eq!(dataplane["consul"]["credentials"], credentials);
    servers.checks_until(&HealthStatus::Passing, "at first", &log).await;
    // It takes the servers a few seconds to find each other ready.
    let told = timeout(LIMIT, log.until(&["3 servers are ready"])).await;
    assert!(told.is_ok(), "{log:?}");

    assert!(log.has("connected to the server"), "from here on it counts again");
    let mut first = servers.consuls.remove(0);
    let died = Instant::now();
    first.kill();
    containers(&volume, "UNHEALTHY", "RUNNING");
    servers.checks_until(&HealthStatus::Critical, "with the first server dead", &log).await;
    let written = died.elapsed();
    timeout(LIMIT, log.until(&["connected to the server"])).await.unwrap();
    let followed = died.elapsed();
    assert!(written < Duration::from_secs(20), "{written:?}");
    println!("Consul {}: written after {written:?}, followed by {followed:?}", part.version);
    containers(&volume, "HEALTHY", "RUNNING");
    servers.checks_until(&HealthStatus::Passing, "healthy again", &log).await;
    assert_eq!(servers.logins().await, 1, "nobody has logged in again");

    stop.cancel();
    servers.checks_until(&HealthStatus::Critical, "at the end", &log).await;
    containers(&volume, "HEALTHY", "STOPPED");
    timeout(LIMIT, running).await.unwrap().unwrap().unwrap();
    let services = servers.admin.catalog_services(&QueryOptions::default()).await.unwrap().value;
    assert!(!services.contains_key("web") && !services.contains_key("web-sidecar-proxy"));
    assert_eq!(servers.logins().await, 0);
}

/// The Consuls that have the gRPC API of tasks, with TLS on a port of its own.
fn parts(case: &str) -> Vec<Part> {
    let mut parts = SUITE.parts("consul", case);
    parts.retain(|part| part.major_minor() >= (1, 14));
    if parts.is_empty() {
        SUITE.missing("consul", case, "needs Consul 1.14 or newer");
    }
    parts
}

#[tokio::test]
async fn it_goes_on_with_a_server_that_only_the_dead_one_knew() {
    for part in parts("a server that dies") {
        goes_on_with_another_server(&part).await;
    }
}

/// Registers a gateway, with the addresses that its kind has, and takes it away at the end.
async fn gateway(consul: &Consul, kind: &str) {
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    let http: u16 = consul.address().rsplit_once(':').unwrap().1.parse().unwrap();
    let volume = Volume::new();
    containers(&volume, "HEALTHY", "RUNNING");
    let config = json!({
        "bootstrapDir": "$DIR",
        "gateway": {"kind": kind, "name": "entry", "lanAddress": {"address": "10.1.2.3", "port": 9443},
            "wanAddress": {"address": "192.0.2.7"}},
        "consulServers": {"hosts": "127.0.0.1", "defaults": {"tls": false},
            "http": {"https": false, "port": http}},
    });
    let control = control_plane(&volume, &config);
    let (address, stop) = (control.health_address, CancellationToken::new());
    let mut running = tokio::spawn(control.run(stop.clone()));
    ready(address, &mut running, &log).await;
    let options = QueryOptions::default();
    let client = consul.client();
    let found = client.catalog_service("entry", &options).await.unwrap().value;
    let [found] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(found.service_kind.as_str(), kind);
    let tagged: Vec<_> = ["lan", "wan"]
        .iter()
        .filter_map(|tag| found.service_tagged_addresses.get(*tag))
        .map(|it| (it.address.as_str(), it.port))
        .collect();
    // Only mesh gateways are told their addresses; consul-ecs leaves them out for the others.
    if found.service_kind == ServiceKind::MeshGateway {
        assert_eq!((found.service_address.as_str(), found.service_port), ("10.1.2.3", 9443));
        assert_eq!(tagged, [("10.1.2.3", 9443), ("192.0.2.7", 8443)]);
    } else {
        assert_eq!((found.service_address.as_str(), found.service_port), ("127.0.0.1", 8443));
    }
    let dataplane = volume.read("consul-dataplane.json");
    assert_eq!(dataplane["proxy"]["id"], "entry-abcdef");
    assert_eq!(dataplane["consul"].get("credentials"), None);
    stop.cancel();
    containers(&volume, "HEALTHY", "STOPPED");
    timeout(LIMIT, running).await.unwrap().unwrap().unwrap();
    assert!(client.catalog_service("entry", &options).await.unwrap().value.is_empty());
}

#[tokio::test]
async fn gateways_of_each_kind_come_with_their_addresses_and_go() {
    for part in parts("gateways") {
        let consul = Consul::start(&part.path).await.unwrap();
        for kind in ["mesh-gateway", "terminating-gateway", "api-gateway"] {
            gateway(&consul, kind).await;
        }
    }
}

/// A task that is stopped before it has joined leaves nothing in the catalog.
#[tokio::test]
async fn a_task_that_cannot_join_is_deregistered() {
    for part in SUITE.parts("consul", "a task that cannot join") {
        let consul = Consul::start(&part.path).await.unwrap();
        let http: u16 = consul.address().rsplit_once(':').unwrap().1.parse().unwrap();
        let volume = Volume::new();
        let config = json!({"bootstrapDir": "$DIR", "service": {"port": 8080},
            "transparentProxy": {"enabled": false},
            "consulServers": {"hosts": "127.0.0.1", "http": {"https": false, "port": http}}});
        let mut control = control_plane(&volume, &config);
        control.mesh_init.program = volume.path("nowhere");
        let error = control.run(CancellationToken::new()).await.unwrap_err();
        assert!(matches!(error, Error::File { .. }), "{error:?}");
        let client = consul.client();
        let services = client.catalog_services(&QueryOptions::default()).await.unwrap().value;
        assert!(!services.contains_key("web") && !services.contains_key("web-sidecar-proxy"));
    }
}

#[tokio::test]
async fn a_configuration_for_an_agent_is_refused() {
    let volume = Volume::new();
    let config = json!({"bootstrapDir": "$DIR", "service": {"port": 8080}});
    let error = control_plane(&volume, &config).run(CancellationToken::new()).await.unwrap_err();
    assert!(error.to_string().contains("\"consulServers\""), "{error}");
}

#[test]
fn traffic_is_redirected_only_when_the_configuration_says_so() {
    let config = |rest: &str| {
        let text = format!(
            r#"{{"bootstrapDir":"/c","service":{{"port":1}},"consulServers":{{"hosts":"h"}}{rest}}}"#
        );
        Config::of_control_plane(|name| (name == CONFIG_VARIABLE).then(|| text.clone())).unwrap()
    };
    assert!(!config("").redirects_traffic());
    assert!(!config(r#","transparentProxy":null"#).redirects_traffic());
    assert!(!config(r#","transparentProxy":{"enabled":false}"#).redirects_traffic());
    assert!(config(r#","transparentProxy":{}"#).redirects_traffic());
    assert!(Config::of_control_plane(|_| None).is_err());
    let early = Config::of_control_plane(|_| Some(r#"{"bootstrapDir":"/c"}"#.to_owned()));
    assert!(early.unwrap_err().to_string().contains("consulServers is required"));
}
