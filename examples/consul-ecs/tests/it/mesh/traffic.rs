//! Two tasks from T0 to T2 with a real Consul, under ACLs at default deny and with TLS on every way
//! to Consul, and a real Envoy beside each: their traffic goes from sidecar to sidecar with mutual
//! TLS, as far as intentions allow.
//!
//! The early generation has an agent of Consul in each task, and Envoy runs on the bootstrap that
//! mesh-init left. In the current one Envoy gets its configuration from the servers, with what
//! mesh-init left for consul-dataplane.
#![expect(clippy::print_stdout, reason = "the timeline is what an operator wants to see")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use consul_watch::{
    Client, WriteOptions,
    client::Request,
    testing::{
        parts::{Part, Suite},
        real::{Consul, free_port},
    },
    types::{AclTokenRequest, NodeIdentity, ServiceIdentity},
};
use ecs_mesh_init::bootstrap::{BootstrapOptions, XdsAddress};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use wiremock::{Mock, MockServer, ResponseTemplate, matchers::any};

use super::task::{Container, EcsTask};

const SUITE: Suite = Suite("consul-ecs: traffic between two tasks");
const MANAGEMENT: &str = "7d2f8f0e-3c5b-4c69-9d0a-1f3f3a0d9b51";
const CLUSTER: &str = "arn:aws:ecs:us-east-1:123456789012:cluster/prod";
const SERVER_NAME: &str = "server.dc1.consul";
const LIMIT: Duration = Duration::from_mins(2);

/// Generation of the task definitions.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Tasks {
    /// A Consul agent in each task; configured by the flags of 0.2, or by a document.
    Early {
        flags: bool,
    },
    Current,
}

/// Events with their times since the beginning.
#[derive(Clone)]
struct Timeline {
    began: Instant,
    events: Arc<Mutex<Vec<(Duration, String)>>>,
}

impl Timeline {
    fn new() -> Self {
        Self { began: Instant::now(), events: Arc::default() }
    }

    fn note(&self, event: impl Into<String>) {
        self.events.lock().unwrap().push((self.began.elapsed(), event.into()));
    }

    fn print(&self, title: &str) {
        println!("{title}");
        for (at, event) in &*self.events.lock().unwrap() {
            println!("{:>7.2} s  {event}", at.as_secs_f64());
        }
    }
}

/// An authority, and one certificate for all agents.
struct Pki(TempDir);

impl Pki {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // With the default name for both, the certificate would look as if it had signed itself.
        params.distinguished_name.push(DnType::CommonName, "Authority");
        let authority = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let own = KeyPair::generate().unwrap();
        let names = [SERVER_NAME, "localhost", "127.0.0.1"].map(str::to_owned).to_vec();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&own, &issuer).unwrap();
        for (file, text) in [
            ("ca.pem", authority.pem()),
            ("cert.pem", certificate.pem()),
            ("key.pem", own.serialize_pem()),
        ] {
            fs::write(folder.path().join(file), text).unwrap();
        }
        Self(folder)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn settings(&self) -> Value {
        json!({"defaults": {"ca_file": self.path("ca.pem"), "cert_file": self.path("cert.pem"),
                "key_file": self.path("key.pem"), "verify_outgoing": true},
            "internal_rpc": {"verify_incoming": true, "verify_server_hostname": true}})
    }
}

/// The servers of the datacenter: one.
struct Servers {
    pki: Pki,
    consul: Consul,
    program: PathBuf,
    serf: u16,
    https: u16,
    grpc: u16,
}

impl Servers {
    async fn start(part: &Part) -> Self {
        let pki = Pki::new();
        let [serf, https, grpc] = std::array::from_fn(|_| free_port().unwrap());
        let settings = json!({"connect": {"enabled": true}, "tls": pki.settings(),
            "acl": {"enabled": true, "default_policy": "deny",
                "tokens": {"initial_management": MANAGEMENT, "agent": MANAGEMENT}},
            "ports": {"serf_lan": serf, "https": https, "grpc_tls": grpc}});
        let consul = Consul::start_with(&part.path, settings).await.unwrap();
        Self { pki, consul, program: part.path.clone(), serf, https, grpc }
    }

    fn client(&self) -> Client {
        self.consul.client()
    }

    /// A token with the rights of a service, or of a node.
    async fn token(&self, service: Option<&str>, node: Option<&str>) -> String {
        let mut request = AclTokenRequest::new("of a task");
        request.service_identities.extend(service.map(ServiceIdentity::new));
        request.node_identities.extend(node.map(|node| NodeIdentity::new(node, "dc1")));
        let made = self.client().acl_token_create(&request, &WriteOptions::default()).await;
        made.unwrap().secret_id.unwrap().expose_secret().to_owned()
    }

    /// The container `consul-client` of a task.
    async fn agent(&self, task: &str) -> Agent {
        let node = format!("agent-{task}");
        let [serf, https, grpc] = std::array::from_fn(|_| free_port().unwrap());
        let token = self.token(None, Some(&node)).await;
        let settings = json!({"node_name": node, "server": false, "bootstrap": false,
            "retry_join": [format!("127.0.0.1:{}", self.serf)], "retry_interval": "100ms",
            "leave_on_terminate": true, "tls": self.pki.settings(),
            "acl": {"enabled": true, "default_policy": "deny",
                "tokens": {"initial_management": MANAGEMENT, "agent": token}},
            "ports": {"serf_lan": serf, "https": https, "grpc_tls": grpc}});
        let consul = Consul::start_with(&self.program, settings).await.unwrap();
        Agent { _consul: consul, https, grpc }
    }

    /// Registers the cluster's node, as the controller does once.
    async fn register_cluster(&self) {
        let node = json!({"Node": CLUSTER, "Address": "127.0.0.1",
            "NodeMeta": {"synthetic-node": "true"}});
        let request = Request::put("node", "/v1/catalog/register").json(&node);
        self.client().send(request).await.unwrap();
    }

    async fn intend(&self, action: &str) {
        let entry = json!({"Kind": "service-intentions", "Name": "api",
            "Sources": [{"Name": "web", "Action": action}]});
        let request = Request::put("intend", "/v1/config").json(&entry);
        self.client().send(request).await.unwrap();
    }
}

struct Agent {
    _consul: Consul,
    https: u16,
    grpc: u16,
}

/// A task of one service, with its containers.
struct Service {
    name: &'static str,
    task: EcsTask,
    application: MockServer,
    listener: u16,
    /// The port on which its sidecar takes what is for `api`.
    upstream: u16,
    timeline: Timeline,
    containers: Vec<Container>,
    agent: Option<Agent>,
}

impl Service {
    async fn new(name: &'static str, timeline: &Timeline) -> Self {
        let application = MockServer::start().await;
        Mock::given(any())
            .respond_with(ResponseTemplate::new(200).set_body_string(format!("this is {name}")))
            .mount(&application)
            .await;
        let service = Self {
            name,
            task: EcsTask::start().await,
            application,
            listener: free_port().unwrap(),
            upstream: free_port().unwrap(),
            timeline: timeline.clone(),
            containers: Vec::new(),
            agent: None,
        };
        service.describe("PENDING", "UNKNOWN");
        service
    }

    /// Sets the state of the application in the metadata; all else runs.
    fn describe(&self, status: &str, health: &str) {
        let container = |name: &str, status: &str, health: &str| {
            json!({"Name": name, "Type": "NORMAL", "DesiredStatus": "RUNNING",
                "KnownStatus": status, "Health": {"status": health},
                "Networks": [{"IPv4Addresses": ["127.0.0.1"]}]})
        };
        let mesh = ["consul-ecs-mesh-init", "sidecar-proxy", "consul-dataplane"]
            .map(|name| container(name, "RUNNING", "HEALTHY"));
        let mut containers = vec![container("app", status, health)];
        containers.extend(mesh);
        let id = format!("{}0123456789abcdef", self.name);
        let task = format!("{}/{id}", CLUSTER.replace(":cluster/", ":task/"));
        self.task.describe(json!({"Cluster": CLUSTER, "Family": self.name, "TaskARN": task,
            "Containers": containers}));
    }

    fn note(&self, event: &str) {
        self.timeline.note(format!("{}: {event}", self.name));
    }

    fn upstreams(&self) -> Value {
        if self.name == "api" {
            return json!([]);
        }
        json!([{"destinationName": "api", "localBindPort": self.upstream}])
    }

    /// T0 of the early generation: the agent and mesh-init start at the same time.
    async fn start_early(&mut self, servers: &Servers, flags: bool) {
        let ca = servers.pki.path("ca.pem").display().to_string();
        self.note("T0 consul-client and mesh-init start");
        let agent = servers.agent(self.name).await;
        self.note("consul-client answers");
        let token = servers.token(Some(self.name), None).await;
        for (name, value) in [
            ("CONSUL_HTTP_ADDR", format!("https://127.0.0.1:{}", agent.https)),
            ("CONSUL_GRPC_ADDR", format!("https://127.0.0.1:{}", agent.grpc)),
            ("CONSUL_CACERT", ca),
            ("CONSUL_HTTP_TOKEN", token),
        ] {
            self.task.set_var(name, value);
        }
        self.agent = Some(agent);
        let volume = self.task.file("").display().to_string();
        let port = self.application.address().port();
        if flags {
            // The sidecar's port is fixed there, so only one task of this machine can have it.
            self.listener = 20000;
            let port = port.to_string();
            let upstreams = format!("api:{}", self.upstream);
            let mut arguments = vec!["-envoy-bootstrap-dir", &volume, "-port", &port];
            arguments.extend(["-health-sync-containers", "app"]);
            if self.name != "api" {
                arguments.extend(["-upstreams", upstreams.as_str()]);
            }
            self.mesh_init(&arguments).await;
            return;
        }
        let config = json!({"bootstrapDir": volume, "healthSyncContainers": ["app"],
            "service": {"name": self.name, "port": port},
            "proxy": {"publicListenerPort": self.listener, "upstreams": self.upstreams()}});
        self.task.set_var("CONSUL_ECS_CONFIG_JSON", config.to_string());
        self.mesh_init(&[]).await;
    }

    async fn start_current(&mut self, servers: &Servers) {
        let token = servers.token(Some(self.name), None).await;
        self.task.set_var("CONSUL_HTTP_TOKEN", token);
        let tls = json!({"caCertFile": servers.pki.path("ca.pem"), "tlsServerName": SERVER_NAME});
        let config = json!({"bootstrapDir": self.task.file(""), "healthSyncContainers": ["app"],
            "consulServers": {"hosts": "127.0.0.1", "defaults": tls,
                "http": {"port": servers.https}, "grpc": {"port": servers.grpc}},
            "consulLogin": {"enabled": true}, "transparentProxy": {"enabled": false},
            "service": {"name": self.name, "port": self.application.address().port()},
            "proxy": {"publicListenerPort": self.listener, "upstreams": self.upstreams()}});
        self.task.set_var("CONSUL_ECS_CONFIG_JSON", config.to_string());
        self.note("T0 mesh-init starts");
        self.mesh_init(&[]).await;
        self.write_bootstrap_of_dataplane();
    }

    async fn mesh_init(&self, arguments: &[&str]) {
        let (code, log) = self.task.run(&[&["mesh-init"], arguments].concat()).await;
        assert_eq!(code, Some(0), "{}: {log}", self.name);
        self.note("mesh-init has succeeded");
        assert_eq!(self.dial().await, Some(2), "no proxy yet");
    }

    /// Gives Envoy what consul-dataplane would, but straight from the servers.
    fn write_bootstrap_of_dataplane(&self) {
        let text = fs::read_to_string(self.task.file("consul-dataplane.json")).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        let (consul, proxy) = (&document["consul"], &document["proxy"]);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut options = BootstrapOptions::new(text(&proxy["id"]), self.name);
        options.node_name = Some(text(&proxy["nodeName"]));
        options.omit_deprecated_tags = true;
        options.xds.cluster_name = "consul-dataplane".into();
        let address = format!("{}:{}", text(&consul["addresses"]), consul["grpcPort"]);
        options.xds.address = XdsAddress::Tcp(address.parse().unwrap());
        options.xds.tls = consul["tls"]["disabled"] == json!(false);
        options.xds.ca_pem = fs::read_to_string(text(&consul["tls"]["caCertsPath"])).unwrap();
        assert_eq!(consul["tls"]["tlsServerName"], SERVER_NAME);
        options.xds.token = Some(text(&consul["credentials"]["static"]["token"]).into());
        let rendered = options.render(&|_| None).unwrap().to_text();
        fs::write(self.task.file("envoy-bootstrap.json"), rendered).unwrap();
    }

    /// The health check of the proxy's container.
    async fn dial(&self) -> Option<i32> {
        self.task.run(&["net-dial", &format!("127.0.0.1:{}", self.listener)]).await.0
    }

    /// T1: the proxy and health-sync.
    async fn start_proxy(&mut self, envoy: &Path, health_sync: &[&str]) {
        self.note("T1 sidecar-proxy and health-sync start");
        self.containers.push(self.task.spawn_envoy(envoy));
        self.containers.push(self.task.spawn(&[&["health-sync"], health_sync].concat()));
        let end = Instant::now() + LIMIT;
        while self.dial().await != Some(0) {
            assert!(Instant::now() < end, "{}: {}", self.name, self.task.log());
            sleep(Duration::from_millis(50)).await;
        }
        self.note("sidecar-proxy is healthy");
    }

    /// T2: the application.
    fn start_application(&self) {
        self.describe("RUNNING", "HEALTHY");
        self.note("T2 the application starts");
    }

    /// ECS ends the task: the application first, then the rest.
    async fn end(mut self) {
        self.containers.iter().for_each(Container::terminate);
        self.task.describe(json!({"Cluster": CLUSTER, "Containers": []}));
        for container in self.containers.drain(..) {
            assert_eq!(container.exit_code().await, Some(0), "{}: {}", self.name, self.task.log());
        }
        // health-sync needs it to the end.
        drop(self.agent.take());
    }
}

/// Calls `api` through the sidecar of `web`; `None` when it is refused.
async fn call(web: &Service) -> Option<String> {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://127.0.0.1:{}/", web.upstream);
    let answer = client.get(url).timeout(Duration::from_secs(5)).send().await.ok()?;
    if !answer.status().is_success() {
        return None;
    }
    answer.text().await.ok()
}

async fn call_until(web: &Service, expected: Option<&str>, what: &str) {
    let end = Instant::now() + LIMIT;
    loop {
        let answer = call(web).await;
        if answer.as_deref() == expected {
            web.timeline.note(what);
            return;
        }
        assert!(Instant::now() < end, "{what}: {answer:?}\n{}", web.task.log());
        sleep(Duration::from_millis(100)).await;
    }
}

async fn two_tasks_talk(tasks: Tasks, consul: &Part, envoy: &Part) {
    let servers = Servers::start(consul).await;
    let timeline = Timeline::new();
    let mut api = Service::new("api", &timeline).await;
    let mut web = Service::new("web", &timeline).await;
    servers.register_cluster().await;
    match tasks {
        Tasks::Early { flags } => {
            api.start_early(&servers, false).await;
            web.start_early(&servers, flags).await;
        }
        Tasks::Current => {
            api.start_current(&servers).await;
            web.start_current(&servers).await;
        }
    }
    let by_flags = tasks == (Tasks::Early { flags: true });
    api.start_proxy(&envoy.path, &[]).await;
    let health_sync = ["-health-sync-containers", "app"];
    web.start_proxy(&envoy.path, if by_flags { &health_sync } else { &[] }).await;
    api.start_application();
    web.start_application();

    // Default deny holds for the mesh, too.
    assert_eq!(call(&web).await, None, "nothing allows it yet");
    servers.intend("allow").await;
    timeline.note("an intention allows web -> api");
    call_until(&web, Some("this is api"), "web reaches api through both sidecars").await;
    // Only with a certificate of the mesh: a plain connection to the listener gets no answer.
    let plain = reqwest::Client::builder().no_proxy().build().unwrap();
    let direct = plain.get(format!("http://127.0.0.1:{}/", api.listener)).send().await;
    assert!(direct.is_err(), "{direct:?}");
    timeline.note("a connection without a certificate of the mesh is refused");
    servers.intend("deny").await;
    timeline.note("an intention denies web -> api");
    call_until(&web, None, "web is refused").await;
    servers.intend("allow").await;
    call_until(&web, Some("this is api"), "web reaches api again").await;
    let release = envoy.version.split('/').nth(1).unwrap_or(&envoy.version);
    timeline.print(&format!("{tasks:?}, Consul {}, Envoy {release}:", consul.version));
    web.end().await;
    api.end().await;
}

async fn with_real_parts(tasks: Tasks, case: &str) {
    let Some(envoy) = SUITE.part("envoy", case) else { return };
    for consul in SUITE.parts("consul", case) {
        if consul.major_minor() < (1, 14) {
            SUITE.not_applicable("consul", case, "its xDS is not for this Envoy");
            continue;
        }
        two_tasks_talk(tasks, &consul, &envoy).await;
    }
}

#[tokio::test]
async fn two_tasks_of_the_early_generation_talk_as_intentions_allow() {
    with_real_parts(Tasks::Early { flags: false }, "two tasks of the early generation").await;
}

/// The one with the sidecar on the port that 0.2 has for it is configured by its flags.
#[tokio::test]
async fn two_tasks_by_flags_of_the_first_releases_talk_as_intentions_allow() {
    with_real_parts(Tasks::Early { flags: true }, "two tasks by flags").await;
}

#[tokio::test]
async fn two_tasks_of_the_current_generation_talk_as_intentions_allow() {
    with_real_parts(Tasks::Current, "two tasks of the current generation").await;
}
