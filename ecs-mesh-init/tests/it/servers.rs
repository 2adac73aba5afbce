//! Several servers: one that dies is left for another, by mesh-init and by health-sync.

use std::{fs, sync::Arc, time::Duration};

use consul_watch::{
    Client, QueryOptions, WriteOptions,
    client::{AclTokenFilter, Request},
    testing::{DefaultPolicy, LoginAttempt, LoginIdentity, ServedConsul, TestConsul},
    types::{AclAuthMethod, AclBindingRule, BindType, HealthCheck, HealthStatus},
};
use ecs_mesh_init::{Error, MeshInit};
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;
use wiremock::{Mock, MockServer, ResponseTemplate, matchers::path};

use crate::volume::{Counted, NODE, Volume};

/// A server's address, with the one Consul of the test behind it.
struct Front(JoinHandle<()>);

impl Front {
    fn open(listener: TcpListener, to: String) -> Self {
        Self(tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut near, _peer)) = listener.accept().await {
                let to = to.clone();
                connections.spawn(async move {
                    let mut far = TcpStream::connect(to).await?;
                    tokio::io::copy_bidirectional(&mut near, &mut far).await
                });
            }
        }))
    }

    /// Cuts all connections and takes no more.
    async fn die(self) {
        self.0.abort();
        assert!(self.0.await.unwrap_err().is_cancelled());
    }
}

/// Two servers on one port, as all servers have the same.
async fn two_servers(consul: &ServedConsul) -> (u16, Front, Front) {
    loop {
        let first = TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = first.local_addr().unwrap().port();
        if let Ok(second) = TcpListener::bind(("127.0.0.3", port)).await {
            let front = |listener| Front::open(listener, consul.address());
            return (port, front(first), front(second));
        }
    }
}

/// A Consul where roles log in and may write the service `web`.
async fn sealed_consul() -> ServedConsul {
    let consul = TestConsul::builder().acls(DefaultPolicy::Deny).management_token("root").build();
    consul.set_login_verifier("aws-iam", |_: &LoginAttempt<'_>| -> Result<_, String> {
        Ok(LoginIdentity::aws_iam("arn:aws:iam::1:role/web", "web", "AROA1", "1"))
    });
    let served = consul.serve().await.unwrap();
    let (admin, options) = (served.client(), WriteOptions::default());
    let config = json!({"BoundIAMPrincipalARNs": ["arn:aws:iam::1:role/web"]});
    let config = config.as_object().cloned().unwrap();
    let method = AclAuthMethod::new("iam-ecs-service-token", "aws-iam", config);
    admin.acl_auth_method_create(&method, &options).await.unwrap();
    let rule = AclBindingRule::new("iam-ecs-service-token", BindType::Service, "web");
    admin.acl_binding_rule_create(&rule, &options).await.unwrap();
    let node = json!({"Node": NODE, "Address": "127.0.0.1"});
    admin.send(Request::put("node", "/v1/catalog/register").json(&node)).await.unwrap();
    served
}

fn task(volume: &Volume, port: u16) -> MeshInit {
    let config = json!({
        "bootstrapDir": "$DIR", "service": {"port": 8080}, "healthSyncContainers": ["app"],
        "transparentProxy": {"enabled": false}, "consulLogin": {"enabled": true},
        "consulServers": {"hosts": "exec=echo 127.0.0.2 127.0.0.3", "defaults": {"tls": false},
            "http": {"https": false, "port": port}},
    });
    let mut task = volume.run(&config.to_string(), &[]);
    task.bearer_tokens = Some(Arc::new(Counted::default()));
    task
}

/// What ECS says of the task from now on.
pub(crate) fn containers(volume: &Volume, app: &str, dataplane: &str) {
    let document = json!({
        "Cluster": "test", "TaskARN": "arn:aws:ecs:us-east-1:123456789:task/test/abcdef", "Family": "Web",
        "Containers": [
            {"Name": "app", "Type": "NORMAL", "Health": {"status": app}},
            {"Name": "consul-dataplane", "DesiredStatus": dataplane, "KnownStatus": dataplane,
                "Health": {"status": "HEALTHY"}},
        ],
    });
    fs::write(volume.path("next.json"), document.to_string()).unwrap();
    fs::rename(volume.path("next.json"), volume.path("task.json")).unwrap();
}

/// Waits until all checks of the service are as expected.
pub(crate) async fn checks_until(admin: &Client, expected: impl Fn(&HealthCheck) -> bool) {
    let mut options = QueryOptions::default();
    options.wait = Some(Duration::from_secs(30));
    loop {
        let answer = admin.health_checks("web", &options).await.unwrap();
        if answer.value.len() == 2 && answer.value.iter().all(&expected) {
            return;
        }
        options.index = answer.meta.index;
    }
}

async fn tokens_of_logins(admin: &Client) -> usize {
    let (filter, options) = (AclTokenFilter::default(), QueryOptions::default());
    let tokens = admin.acl_tokens(&filter, &options).await.unwrap().value;
    tokens.iter().filter(|token| !token.auth_method.is_empty()).count()
}

/// The first server dies while health-sync runs; the other comes to know all that follows, and at
/// the end the services are gone and the token is given back.
///
/// Case MI34: `SIGTERM` makes every check critical in one request; when the dataplane has stopped,
/// services and token go.
#[tokio::test]
async fn health_sync_goes_on_when_its_server_dies() {
    let consul = sealed_consul().await;
    let admin = consul.client();
    let (port, first, _second) = two_servers(&consul).await;
    let volume = Volume::new();
    containers(&volume, "HEALTHY", "RUNNING");
    task(&volume, port).run(CancellationToken::new()).await.unwrap();
    assert_eq!(tokens_of_logins(&admin).await, 0, "mesh-init has given its token back");

    let stop = CancellationToken::new();
    let mut sync = task(&volume, port).health_sync(&stop).await.unwrap();
    sync.period = Duration::from_millis(10);
    let running = tokio::spawn(sync.run(stop.clone()));
    checks_until(&admin, |check| check.status == HealthStatus::Passing).await;
    first.die().await;
    containers(&volume, "UNHEALTHY", "RUNNING");
    checks_until(&admin, |check| check.status == HealthStatus::Critical).await;
    containers(&volume, "HEALTHY", "RUNNING");
    checks_until(&admin, |check| check.status == HealthStatus::Passing).await;

    stop.cancel();
    checks_until(&admin, |check| check.status == HealthStatus::Critical).await;
    let services = admin.catalog_services(&QueryOptions::default()).await.unwrap().value;
    assert!(services.contains_key("web"), "it stays until the proxy has stopped");
    assert_eq!(tokens_of_logins(&admin).await, 1);
    containers(&volume, "HEALTHY", "STOPPED");
    running.await.unwrap().unwrap();
    let services = admin.catalog_services(&QueryOptions::default()).await.unwrap().value;
    assert!(!services.contains_key("web") && !services.contains_key("web-sidecar-proxy"));
    assert_eq!(tokens_of_logins(&admin).await, 0);
}

/// A start that fails leaves no token behind.
#[tokio::test]
async fn a_health_sync_that_cannot_start_gives_its_token_back() {
    let consul = sealed_consul().await;
    let (port, _first, _second) = two_servers(&consul).await;
    let volume = Volume::new();
    containers(&volume, "HEALTHY", "RUNNING");
    let stop = CancellationToken::new();
    let sync = task(&volume, port).health_sync(&stop).await.unwrap();
    assert_eq!(tokens_of_logins(&consul.client()).await, 1);
    let error = sync.run(stop).await.unwrap_err().to_string();
    assert!(error.starts_with("only one check should be associated"), "{error}");
    assert_eq!(tokens_of_logins(&consul.client()).await, 0);
}

/// A dead server is passed over at the start; with none left, the wait ends when it is told to.
#[tokio::test]
async fn servers_that_died_before_the_start_are_passed_over() {
    let consul = sealed_consul().await;
    let (port, first, second) = two_servers(&consul).await;
    first.die().await;
    let volume = Volume::new();
    containers(&volume, "HEALTHY", "RUNNING");
    task(&volume, port).run(CancellationToken::new()).await.unwrap();
    second.die().await;
    let stop = CancellationToken::new();
    let waiting = task(&volume, port);
    let (ended, ()) = tokio::join!(waiting.run(stop.clone()), async { stop.cancel() });
    assert!(matches!(ended, Err(Error::Stopped { .. })), "{ended:?}");
}

/// A server that has lost its leader is left, and what it refused is sent to the next.
#[tokio::test]
async fn a_server_without_a_leader_is_left() {
    let bind = |host: &str, port: u16| std::net::TcpListener::bind((host, port));
    let (first, second) = loop {
        let first = bind("127.0.0.2", 0).unwrap();
        if let Ok(second) = bind("127.0.0.3", first.local_addr().unwrap().port()) {
            break (first, second);
        }
    };
    let port = first.local_addr().unwrap().port();
    let server = async |listener, answer: ResponseTemplate, registrations: u64| {
        let server = MockServer::builder().listener(listener).start().await;
        let leader = ResponseTemplate::new(200).set_body_json("127.0.0.1:8300");
        Mock::given(path("/v1/status/leader")).respond_with(leader).mount(&server).await;
        let register = Mock::given(path("/v1/catalog/register")).respond_with(answer);
        register.expect(registrations).mount(&server).await;
        server
    };
    let refused = ResponseTemplate::new(500).set_body_string("No cluster leader");
    let _leaderless = server(first, refused, 1).await;
    let _leading = server(second, ResponseTemplate::new(200).set_body_json(true), 2).await;
    let volume = Volume::new();
    let mut run = task(&volume, port);
    run.config.consul_login = None;
    run.run(CancellationToken::new()).await.unwrap();
}
