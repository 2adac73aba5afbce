//! Tasks that get their tokens by logging in with their IAM role: one that dies leaves nothing
//! behind for long. IAM, STS and ECS are moto. Consul is the real one from 1.12 on, which has the
//! auth method `aws-iam` and asks moto itself about the caller and its role, and the double.

use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::PathBuf,
};

use acl_controller::testing::Moto;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use consul_watch::{
    Client, QueryOptions, WriteOptions,
    client::AclTokenFilter,
    testing::{
        DefaultPolicy, LoginAttempt, LoginIdentity, ServedConsul, TestConsul,
        parts::Part,
        real::{self, Consul},
    },
    types::{AclAuthMethod, AclLogin},
};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use wiremock::{
    Mock, MockServer, ResponseTemplate,
    matchers::{any, path},
};

use super::{
    leaks::{UNKNOWN, assert_search_is_worth_something, assert_told, leaks, outlets},
    process::Launch,
    world::{AWS_SECRET_KEY, AWS_SESSION_TOKEN, CLUSTER, MANAGEMENT, SUITE, eventually},
};
use crate::mesh::task::free_port;

const TAG: &str = "consul.hashicorp.com.service-name";

/// What stands between two texts.
fn between(text: &str, before: &str, after: &str) -> Option<String> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(after)?.0.to_owned())
}

/// Sends a signed request on, as Consul's servers do; here to moto, whatever it is signed for.
fn forward(endpoint: &str, body: &str, headers: &Value) -> Result<String, String> {
    let address = endpoint.trim_start_matches("http://");
    let fixed = [
        "POST / HTTP/1.1".to_owned(),
        format!("Host: {address}"),
        "Connection: close".to_owned(),
        "Content-Type: application/x-www-form-urlencoded; charset=utf-8".to_owned(),
        format!("Content-Length: {}", body.len()),
    ];
    let signed = ["Authorization", "X-Amz-Date", "X-Amz-Security-Token"]
        .into_iter()
        .filter_map(|name| Some(format!("{name}: {}", headers[name][0].as_str()?)));
    let head: Vec<String> = fixed.into_iter().chain(signed).collect();
    let request = format!("{}\r\n\r\n{body}", head.join("\r\n"));
    let exchange = || {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    exchange().map_err(|error| error.to_string())
}

/// Judges a bearer token as Consul's servers do: STS says who calls, IAM which tags the role has.
fn judge(endpoint: &str, attempt: &LoginAttempt<'_>) -> Result<LoginIdentity, String> {
    let wrong = |what: &str| format!("the bearer token has no {what}");
    let token: Value = serde_json::from_str(attempt.bearer_token.expose_secret())
        .map_err(|error| error.to_string())?;
    let part = |name: &str| {
        let bytes = STANDARD.decode(token[name].as_str().unwrap_or_default()).ok();
        bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(|| wrong(name))
    };
    let headers: Value =
        serde_json::from_str(&part("iam_request_headers")?).map_err(|error| error.to_string())?;
    let caller = forward(endpoint, &part("iam_request_body")?, &headers)?;
    let caller = between(&caller, "<Arn>", "</Arn>").ok_or_else(|| wrong("caller"))?;
    let entity = |name: &str| {
        let value = headers[format!("X-Consul-Iam-Getentity-{name}")][0].as_str();
        value.ok_or_else(|| wrong(name))
    };
    let signed: Value =
        serde_json::from_str(entity("Headers")?).map_err(|error| error.to_string())?;
    let role = forward(endpoint, entity("Body")?, &signed)?;
    let field = |name: &str| {
        between(&role, &format!("<{name}>"), &format!("</{name}>")).ok_or_else(|| wrong(name))
    };
    let name = field("RoleName")?;
    if !caller.contains(&format!(":assumed-role/{name}/")) {
        return Err(format!("{caller} is not the role {name}"));
    }
    let mut identity = LoginIdentity::aws_iam(field("Arn")?, name, field("RoleId")?, Moto::ACCOUNT)
        .entity_path(field("Path")?);
    let tag = between(&role, &format!("<Key>{TAG}</Key>"), "</member>");
    if let Some(value) = tag.and_then(|tag| between(&tag, "<Value>", "</Value>")) {
        identity = identity.entity_tag(TAG, value);
    }
    Ok(identity)
}

/// Value of `ServerIDHeaderValue`, with which a bearer token is good for these servers only.
const SERVER_ID: &str = "consul.prod.example";

/// A Consul with ACLs at default deny, whose logins are judged by moto.
struct Servers {
    consul: Either,
    grpc: u16,
    /// The stand-in for the double's gRPC port.
    _answering: Option<MockServer>,
}

enum Either {
    Real(Box<Consul>),
    Double(ServedConsul),
}

impl Servers {
    async fn double(moto: &Moto) -> Self {
        SUITE.double("consul");
        let consul =
            TestConsul::builder().acls(DefaultPolicy::Deny).management_token(MANAGEMENT).build();
        let endpoint = moto.endpoint().to_owned();
        consul.set_login_verifier("aws-iam", move |attempt: &LoginAttempt<'_>| {
            judge(&endpoint, attempt)
        });
        let answering = MockServer::start().await;
        // As a server without any of the services that tasks call: 12 is `Unimplemented`.
        let answer = ResponseTemplate::new(200)
            .set_body_raw("", "application/grpc")
            .insert_header("grpc-status", "12");
        Mock::given(any()).respond_with(answer).mount(&answering).await;
        let consul = Either::Double(consul.serve().await.unwrap());
        Self { consul, grpc: answering.address().port(), _answering: Some(answering) }
    }

    async fn real(part: &Part) -> Self {
        let grpc = real::free_port().unwrap();
        let settings = json!({"ports": {"grpc": grpc}, "connect": {"enabled": true}, "acl": {
            "enabled": true, "default_policy": "deny",
            "tokens": {"initial_management": MANAGEMENT}}});
        let consul = Consul::start_with(&part.path, settings).await.unwrap();
        Self { consul: Either::Real(Box::new(consul)), grpc, _answering: None }
    }

    fn client(&self) -> Client {
        match &self.consul {
            Either::Real(consul) => consul.client(),
            Either::Double(consul) => consul.client(),
        }
    }

    /// Makes the auth method before the controller does, as an operator who has to name the
    /// endpoints does. The controller adds its principals and tags, and leaves the rest.
    async fn name_endpoints(&self, moto: &Moto) {
        let config = json!({"STSEndpoint": moto.endpoint(), "IAMEndpoint": moto.endpoint(),
            "BoundIAMPrincipalARNs": [format!("arn:aws:iam::{}:role/operator", Moto::ACCOUNT)],
            "ServerIDHeaderValue": SERVER_ID, "MaxRetries": 0});
        let config = config.as_object().cloned().unwrap();
        let method = AclAuthMethod::new("iam-ecs-service-token", "aws-iam", config);
        self.client().acl_auth_method_create(&method, &WriteOptions::default()).await.unwrap();
    }
}

/// The cluster, and its Consul.
struct Place {
    moto: Moto,
    consul: Servers,
    folder: TempDir,
}

/// A task, whose containers are processes.
struct Task {
    arn: String,
    _metadata: MockServer,
    volume: PathBuf,
    mesh_init: Launch,
    health_sync: Launch,
}

impl Place {
    async fn start(moto: Moto, consul: Servers) -> Self {
        consul.name_endpoints(&moto).await;
        let place = Self { moto, consul, folder: tempfile::tempdir().unwrap() };
        place.ecs("CreateCluster", json!({"clusterName": "prod"})).await;
        let container = json!({"name": "app", "image": "app", "memory": 64, "cpu": 1});
        let family = json!({"family": "web", "containerDefinitions": [container]});
        place.ecs("RegisterTaskDefinition", family).await;
        place
    }

    async fn ecs(&self, action: &str, input: Value) -> Value {
        self.moto.ecs(action, &input).await.unwrap()
    }

    fn client(&self) -> Client {
        self.consul.client()
    }

    fn servers(&self) -> Value {
        let client = self.client();
        let port: u16 = client.address().rsplit_once(':').unwrap().1.parse().unwrap();
        json!({"hosts": "127.0.0.1", "defaults": {"tls": false},
            "http": {"https": false, "port": port}, "grpc": {"port": self.consul.grpc}})
    }

    fn controller(&self, metadata: &MockServer) -> Launch {
        let config = json!({"bootstrapDir": self.folder.path(), "consulServers": self.servers(),
            "logLevel": "TRACE", "controller": {"iamRolePath": null}});
        let mut launch = Launch::new(&["controller"], self.folder.path().join("controller.log"));
        for (name, value) in [
            ("CONSUL_ECS_CONFIG_JSON", config.to_string()),
            ("CONSUL_HTTP_TOKEN", MANAGEMENT.to_owned()),
            ("ECS_CONTAINER_METADATA_URI_V4", metadata.uri()),
            ("AWS_ENDPOINT_URL", self.moto.endpoint().to_owned()),
            ("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", AWS_SECRET_KEY.to_owned()),
            ("AWS_SESSION_TOKEN", AWS_SESSION_TOKEN.to_owned()),
            ("CONSUL_ECS_INTERVAL", "200ms".to_owned()),
        ] {
            launch.var(name, value);
        }
        launch
    }

    /// A role of the service `web`, below a path.
    async fn role(&self, name: &str, below: &str) {
        let parameters = [
            ("RoleName", name),
            ("Path", below),
            ("AssumeRolePolicyDocument", "{}"),
            ("Tags.member.1.Key", TAG),
            ("Tags.member.1.Value", "web"),
        ];
        self.moto.query("iam", "CreateRole", &parameters).await.unwrap();
    }

    /// A task that runs with a role.
    async fn task(&self, number: usize, (role, below): (&str, &str)) -> Task {
        let tags = json!([{"key": "consul.hashicorp.com/mesh", "value": "true"}]);
        let input = json!({"cluster": "prod", "taskDefinition": "web", "launchType": "FARGATE",
            "tags": tags});
        let arn = self.ecs("RunTask", input).await["tasks"][0]["taskArn"].clone();
        let arn = arn.as_str().unwrap().to_owned();
        let metadata = metadata(&arn).await;
        let role_arn = format!("arn:aws:iam::{}:role{below}{role}", Moto::ACCOUNT);
        let session = [("RoleArn", role_arn.as_str()), ("RoleSessionName", "task")];
        let session = self.moto.query("sts", "AssumeRole", &session).await.unwrap();
        let field =
            |name: &str| between(&session, &format!("<{name}>"), &format!("</{name}>")).unwrap();
        let volume = self.folder.path().join(format!("volume-{number}"));
        std::fs::create_dir(&volume).unwrap();
        let config = json!({"bootstrapDir": volume, "consulServers": self.servers(),
            "service": {"name": "web", "port": 8080}, "transparentProxy": {"enabled": false},
            "healthSyncContainers": ["app"],
            "consulLogin": {"enabled": true, "serverIdHeaderValue": SERVER_ID,
                "stsEndpoint": self.moto.endpoint()}});
        let [mesh_init, health_sync] = ["mesh-init", "health-sync"].map(|name| {
            let log = self.folder.path().join(format!("{name}-{number}.log"));
            let mut launch = Launch::new(&[name], log);
            for (name, value) in [
                ("CONSUL_ECS_CONFIG_JSON", config.to_string()),
                ("ECS_CONTAINER_METADATA_URI_V4", metadata.uri()),
                ("AWS_REGION", Moto::REGION.to_owned()),
                ("AWS_ACCESS_KEY_ID", field("AccessKeyId")),
                ("AWS_SECRET_ACCESS_KEY", field("SecretAccessKey")),
                ("AWS_SESSION_TOKEN", field("SessionToken")),
            ] {
                launch.var(name, value);
            }
            launch
        });
        Task { arn, _metadata: metadata, volume, mesh_init, health_sync }
    }

    /// The ids of tasks that have a token, and of those that have services.
    async fn tasks_in_consul(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let (client, options) = (self.client(), QueryOptions::default());
        let tokens = client.acl_tokens(&AclTokenFilter::default(), &options).await.unwrap().value;
        let of_tokens = tokens
            .iter()
            .filter_map(|token| token.description.strip_prefix("token created via login: "))
            .map(|meta| {
                let meta: Value = serde_json::from_str(meta).unwrap();
                meta["consul.hashicorp.com/task-id"].as_str().unwrap().to_owned()
            })
            .collect();
        let node = client.catalog_node(CLUSTER, &options).await.unwrap().value;
        let services = node.into_iter().flat_map(|node| node.services.into_values());
        let of_services =
            services.filter_map(|service| service.meta.get("task-id").cloned()).collect();
        (of_tokens, of_services)
    }
}

async fn metadata(arn: &str) -> MockServer {
    let server = MockServer::start().await;
    let container = |name: &str| {
        json!({"Name": name, "Type": "NORMAL", "DesiredStatus": "RUNNING",
            "KnownStatus": "RUNNING", "Health": {"status": "HEALTHY"},
            "Networks": [{"IPv4Addresses": ["127.0.0.1"]}]})
    };
    let task = json!({"Cluster": CLUSTER, "TaskARN": arn, "Family": "web",
        "Containers": [container("app"), container("consul-dataplane")]});
    let answer = ResponseTemplate::new(200).set_body_json(task);
    Mock::given(path("/task")).respond_with(answer).mount(&server).await;
    server
}

fn id(task: &Task) -> String {
    task.arn.rsplit('/').next().unwrap().to_owned()
}

/// Logs in as consul-dataplane does, with what mesh-init left for it, and reads its own token.
async fn log_in_as_dataplane(place: &Place, task: &Task) {
    let text = std::fs::read_to_string(task.volume.join("consul-dataplane.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let login = &document["consul"]["credentials"]["login"];
    let bearer = login["bearerToken"].as_str().unwrap();
    let mut request = AclLogin::new(login["authMethod"].as_str().unwrap(), bearer.into());
    request.meta = serde_json::from_value(login["meta"].clone()).unwrap();
    let (nobody, options) = (place.client().with_token(None).unwrap(), WriteOptions::default());
    let token = nobody.acl_login(&request, &options).await.unwrap();
    let names: Vec<_> = token.service_identities.iter().map(|it| &it.service_name).collect();
    assert_eq!(names, ["web"]);
    let own = nobody.with_token(token.secret_id).unwrap();
    own.acl_token_self(&QueryOptions::default()).await.unwrap();
    own.acl_logout(&options).await.unwrap();
}

#[tokio::test]
async fn what_a_dead_task_leaves_is_removed_from_a_double() {
    let Some(part) = SUITE.part("moto_server", "logins") else { return };
    let moto = Moto::start(&part.path).await.unwrap();
    let consul = Servers::double(&moto).await;
    what_a_dead_task_leaves_is_removed(Place::start(moto, consul).await).await;
}

#[tokio::test]
async fn what_a_dead_task_leaves_is_removed_from_a_real_consul() {
    let Some(part) = SUITE.part("moto_server", "logins") else { return };
    for consul in with_aws_iam("logins") {
        let moto = Moto::start(&part.path).await.unwrap();
        let consul = Servers::real(&consul).await;
        what_a_dead_task_leaves_is_removed(Place::start(moto, consul).await).await;
    }
}

/// The real Consuls that know the auth method `aws-iam`.
fn with_aws_iam(case: &str) -> Vec<Part> {
    let mut parts = SUITE.parts("consul", case);
    parts.retain(|part| part.major_minor() >= (1, 12));
    if parts.is_empty() {
        SUITE.missing("consul", case, "logins with AWS IAM need Consul 1.12 or newer");
    }
    parts
}

async fn what_a_dead_task_leaves_is_removed(place: Place) {
    for (role, below) in [("web", "/consul-ecs/"), ("thief", "/")] {
        place.role(role, below).await;
    }
    let own = metadata(&format!("{}/0123", CLUSTER.replace(":cluster/", ":task/"))).await;
    let controller = place.controller(&own);
    let running = controller.start();
    eventually("logins are set up", async || {
        let options = QueryOptions::default();
        place.client().catalog_node(CLUSTER, &options).await.unwrap().value.is_some()
    })
    .await;

    let tasks = [
        place.task(0, ("web", "/consul-ecs/")).await,
        place.task(1, ("web", "/consul-ecs/")).await,
    ];
    let ids: BTreeSet<String> = tasks.iter().map(id).collect();
    let mut syncing = Vec::new();
    for task in &tasks {
        let (code, _, log) = task.mesh_init.run(&[]).await;
        assert_eq!(code, Some(0), "{log}");
        log_in_as_dataplane(&place, task).await;
        syncing.push(task.health_sync.start());
    }
    eventually("both tasks have a token and services", async || {
        place.tasks_in_consul().await == (ids.clone(), ids.clone())
    })
    .await;

    // A role beside the trusted path gets nothing.
    let thief = place.task(2, ("thief", "/")).await;
    let (code, _, log) = thief.mesh_init.run(&[]).await;
    assert_eq!(code, Some(1), "{log}");
    let last = log.lines().last().unwrap_or_default();
    assert!(last.contains("ERROR") && last.contains("is not trusted"), "{log}");

    // The first dies without a word; the second goes on.
    let second = syncing.pop().unwrap();
    syncing.pop().unwrap().kill().await;
    assert_eq!(place.tasks_in_consul().await, (ids.clone(), ids), "nobody has tidied up yet");
    let stop = json!({"cluster": "prod", "task": tasks[0].arn, "reason": "test"});
    place.ecs("StopTask", stop).await;
    let left: BTreeSet<String> = [id(&tasks[1])].into();
    eventually("only the second has a token and services", async || {
        place.tasks_in_consul().await == (left.clone(), left.clone())
    })
    .await;

    // The whole cluster is taken down without a word.
    second.kill().await;
    assert_eq!(running.terminate().await, Some(0), "{}", controller.printed());
    let (code, _, log) = controller.run(&["cleanup"]).await;
    assert_eq!(code, Some(1), "a task of the mesh runs: {log}");
    for task in [&tasks[1], &thief] {
        let stop = json!({"cluster": "prod", "task": task.arn, "reason": "test"});
        place.ecs("StopTask", stop).await;
    }
    let (code, printed, log) = controller.run(&["cleanup", "-dry-run"]).await;
    assert_eq!((code, printed.contains("delete token")), (Some(0), true), "{printed}{log}");
    assert_eq!(place.tasks_in_consul().await.0, left, "it was a dry run");
    let (code, _, log) = controller.run(&["cleanup"]).await;
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(place.tasks_in_consul().await, Default::default());
}

/// The secrets of all tokens, and what tasks log in with.
async fn secrets(place: &Place, task: &Task) -> BTreeSet<String> {
    let (client, options) = (place.client(), QueryOptions::default());
    let mut secrets: BTreeSet<String> =
        [MANAGEMENT, AWS_SECRET_KEY, AWS_SESSION_TOKEN, UNKNOWN].map(str::to_owned).into();
    for entry in client.acl_tokens(&AclTokenFilter::default(), &options).await.unwrap().value {
        let token = client.acl_token(&entry.accessor_id, &options).await.unwrap().value.unwrap();
        secrets.insert(token.secret_id.unwrap().expose_secret().to_owned());
    }
    // That of the anonymous token is known to everybody.
    secrets.remove("anonymous");
    let keys = ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
    let vars = task.mesh_init.vars.iter().filter(|(name, _)| keys.contains(&name.as_str()));
    secrets.extend(vars.map(|(_, value)| value.clone()));
    secrets
}

#[tokio::test]
async fn nothing_that_leaves_the_controller_of_logins_holds_a_secret() {
    let Some(part) = SUITE.part("moto_server", "secrets of logins") else { return };
    let moto = Moto::start(&part.path).await.unwrap();
    let consul = Servers::double(&moto).await;
    let place = Place::start(moto, consul).await;
    place.role("web", "/consul-ecs/").await;
    let own = metadata(&format!("{}/0123", CLUSTER.replace(":cluster/", ":task/"))).await;
    let mut controller = place.controller(&own);
    let metrics = format!("127.0.0.1:{}", free_port());
    for (name, value) in [
        ("CONSUL_ECS_METRICS_ADDRESS", metrics.as_str()),
        // The library for AWS shows bodies of requests and answers, as far as one lets it speak.
        ("LOG_SENSITIVE_BODIES", "true"),
        ("LOG_SIGNABLE_BODY", "true"),
    ] {
        controller.var(name, value);
    }
    let running = controller.start();
    eventually("logins are set up", async || {
        let options = QueryOptions::default();
        place.client().catalog_node(CLUSTER, &options).await.unwrap().value.is_some()
    })
    .await;
    let task = place.task(0, ("web", "/consul-ecs/")).await;
    let (code, _, log) = task.mesh_init.run(&[]).await;
    assert_eq!(code, Some(0), "{log}");
    let syncing = task.health_sync.start();
    eventually("the task has a token", async || {
        place.tasks_in_consul().await.0 == [id(&task)].into()
    })
    .await;
    let secrets = secrets(&place, &task).await;
    assert!(secrets.len() >= 4 + 1 + 2, "a token of a login, and keys");
    syncing.kill().await;
    let stop = json!({"cluster": "prod", "task": task.arn, "reason": "test"});
    place.ecs("StopTask", stop).await;
    eventually("the token is gone", async || place.tasks_in_consul().await.0.is_empty()).await;

    let places = outlets(&controller, running, &metrics, &["cleanup"]).await;
    assert_told(
        &places,
        &[
            ("the log", "DEBUG"),
            ("the log", "update auth-method"),
            ("the log", "delete token"),
            ("the metrics", "acl_controller_changes_total"),
            ("the arguments", "controller"),
            ("the log of a refused dry run", "ERROR"),
            ("what a clean-up prints", "delete node"),
        ],
    );
    assert_eq!(leaks(&places, &secrets), Vec::<String>::new());
    assert_search_is_worth_something(places, &secrets);
}
