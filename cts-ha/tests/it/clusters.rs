//! Daemons of one cluster.

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use consul_watch::{
    Client, ClientConfig, QueryOptions, Watcher, WriteOptions,
    client::PutOptions,
    testing::{
        DefaultPolicy, TestConsul,
        real::{Consul, free_port},
    },
    types::{
        AclLink, AclPolicy, AclTokenRequest, CatalogRegistration, HealthCheck, HealthStatus,
        Service,
    },
};
use cts_ha::{
    Candidate, ConsulElector, Elector as _,
    tasks::{ClusterOptions, CtsCluster, FailoverRun, HighAvailability},
};
use cts_tasks::{
    ApiServer, Cluster, Config, Daemon, DaemonOptions, Engine, EngineOptions, FirstRun, Member,
    Permit as _, Role, Single, State, Stop, StopReason, Task, TaskName,
    testing::{Call, RecordingDriver, task},
};
use serde_json::Value;
use tokio::{task::JoinHandle, time::timeout};

use crate::place::{Place, SUITE, Trouble, cases, eventually};

cases!(
    ha36_everything_is_there_after_three_failovers,
    what_did_not_change_is_not_run_again,
    an_instance_registers_with_its_cluster,
    members_are_found_by_their_tag,
    a_follower_says_who_leads,
    an_incompatible_instance_stands_only_where_it_may,
    a_strict_instance_outlives_a_store_that_cannot_be_read,
    a_restarted_instance_sends_nobody_to_itself,
    a_redirect_has_the_port_of_the_leaders_api,
);

const PATIENCE: Duration = Duration::from_mins(1);

/// One instance.
struct Node {
    id: &'static str,
    cluster: Arc<CtsCluster>,
    daemon: Arc<Daemon>,
    driver: RecordingDriver,
    trouble: Trouble,
    stop: Stop,
    running: JoinHandle<cts_tasks::Result<()>>,
}

/// What all instances of one cluster have in common.
#[derive(Clone)]
struct Deployment {
    name: String,
    tasks: Vec<Task>,
    failover_run: FailoverRun,
}

impl Deployment {
    fn new(place: &Place, tasks: &[&str]) -> Self {
        Self {
            name: place.name("cluster").replace('/', "-"),
            tasks: tasks.iter().map(|name| task(name)).collect(),
            failover_run: FailoverRun::All,
        }
    }

    fn settings(&self, place: &Place) -> HighAvailability {
        let mut settings = HighAvailability::new(&self.name);
        (settings.session_ttl, settings.lock_delay) = (place.ttl, place.delay);
        settings.failover_run = self.failover_run;
        settings
    }

    fn config(&self, id: &str) -> Config {
        let mut config = Config::default();
        config.id = format!("{}-{id}", self.name);
        config.port = 0;
        config.tasks.clone_from(&self.tasks);
        config
    }

    fn node(&self, place: &Place, id: &'static str) -> Node {
        self.node_with(place, id, &|_, _| {})
    }

    fn node_with(
        &self,
        place: &Place,
        id: &'static str,
        change: &dyn Fn(&mut HighAvailability, &mut ClusterOptions),
    ) -> Node {
        self.node_at(place, id, 0, change)
    }

    /// An instance whose API has this port.
    fn node_at(
        &self,
        place: &Place,
        id: &'static str,
        port: u16,
        change: &dyn Fn(&mut HighAvailability, &mut ClusterOptions),
    ) -> Node {
        let (client, trouble) = place.troubled();
        let mut settings = self.settings(place);
        settings.address = Some(format!("{id}.example.com"));
        let mut config = self.config(id);
        config.port = port;
        let mut options = ClusterOptions::default();
        options.clock = Arc::clone(&place.clock);
        change(&mut settings, &mut options);
        let cluster =
            Arc::new(CtsCluster::with_client(&config, settings, options, client.clone()).unwrap());
        let mut options = DaemonOptions::default();
        Arc::clone(&cluster).join(&mut options);
        let driver = RecordingDriver::default();
        let factory = Arc::new(driver.clone());
        let daemon = Arc::new(Daemon::with_client(config, factory, options, client));
        let stop = Stop::new();
        let running = tokio::spawn({
            let (daemon, stop) = (Arc::clone(&daemon), stop.clone());
            async move { daemon.run(&stop).await }
        });
        Node { id, cluster, daemon, driver, trouble, stop, running }
    }
}

impl Node {
    fn leads(&self) -> bool {
        self.cluster.role() == Role::Leader
    }

    /// Waits until it leads and every enabled task was seen to.
    async fn settled(&self, applies: &[(&str, usize)]) {
        eventually("it leads and has run its tasks", PATIENCE, async || {
            self.leads()
                && applies.iter().all(|(task, count)| self.driver.applies(task).len() >= *count)
        })
        .await;
        eventually("the engine takes orders", PATIENCE, async || {
            self.daemon.engine().watching().await.is_ok()
        })
        .await;
    }

    fn state(&self) -> State {
        self.daemon.engine().state(State::clone)
    }

    /// As a crash of its machine: nothing that it sends arrives any more.
    async fn kill(self) -> &'static str {
        self.trouble.cut(true);
        self.running.abort();
        drop(self.running.await);
        self.id
    }

    async fn shut_down(self) {
        self.stop.stop(StopReason::Shutdown);
        timeout(PATIENCE, self.running).await.unwrap().unwrap().unwrap();
    }
}

fn name(name: &str) -> TaskName {
    name.to_owned().try_into().unwrap()
}

/// Case HA36: after a crash of the leader a follower leads within 2 x TTL + lock-delay + 5 s, and
/// runs all tasks once.
async fn ha36_everything_is_there_after_three_failovers(place: &Place) {
    let deployment = Deployment::new(place, &["one", "two"]);
    let mut leader = deployment.node(place, "a");
    leader.settled(&[("one", 1), ("two", 1)]).await;
    let engine = leader.daemon.engine();
    engine.create(task("by-api"), FirstRun::Now).await.unwrap();
    engine.set_enabled(&name("two"), false, FirstRun::WhenTriggered).await.unwrap();
    let mut expected = leader.state();
    let mut follower = deployment.node(place, "b");
    for (failover, id) in ["c", "a", "b"].into_iter().enumerate() {
        leader.kill().await;
        let killed = tokio::time::Instant::now();
        eventually("the follower leads", PATIENCE, async || follower.leads()).await;
        assert!(killed.elapsed() <= place.failover(), "{:?}", killed.elapsed());
        follower.settled(&[("one", 1), ("by-api", 1)]).await;
        let state = follower.state();
        let enabled: Vec<(String, bool)> =
            state.tasks.iter().map(|task| (task.name.to_string(), task.enabled)).collect();
        let all = [("one", true), ("two", false), ("by-api", true)];
        assert_eq!(enabled, all.map(|(name, enabled)| (name.to_owned(), enabled)));
        assert!(follower.driver.applies("two").is_empty(), "a disabled task is not run");
        for task in ["one", "by-api"] {
            let (before, now) = (&expected.events[&name(task)], &state.events[&name(task)]);
            assert_eq!(now.len(), before.len() + 1, "failover {failover}: each task ran once");
            assert_eq!(&now[1..], &before[..], "what the old leader did is known");
        }
        assert_eq!(state.events[&name("two")], expected.events[&name("two")]);
        expected = state;
        leader = std::mem::replace(&mut follower, deployment.node(place, id));
    }
    follower.shut_down().await;
    leader.shut_down().await;
}

async fn what_did_not_change_is_not_run_again(place: &Place) {
    let mut deployment = Deployment::new(place, &[]);
    deployment.failover_run = FailoverRun::Changed;
    let services = ["same", "other"].map(|service| format!("{}-{service}", deployment.name));
    deployment.tasks = services.iter().map(|service| task(service)).collect();
    let [same, other] = [&services[0], &services[1]];
    let first = deployment.node(place, "a");
    first.settled(&[(same, 1), (other, 1)]).await;
    let events = first.state().events;
    first.shut_down().await;
    instance(place, other, &[]).await;
    let second = deployment.node(place, "b");
    second.settled(&[(other, 1)]).await;
    assert_eq!(second.driver.applies(same).len(), 0);
    assert_eq!(second.state().events[&name(same)], events[&name(same)]);
    // A change is noticed all the same.
    instance(place, same, &[]).await;
    second.settled(&[(same, 1)]).await;
    second.shut_down().await;
}

async fn instance(place: &Place, service: &str, tags: &[&str]) {
    let node = format!("node-{service}");
    instance_on(place, &node, service, tags, &[HealthStatus::Passing]).await;
}

/// An instance on a node of its own, whose id is the node's name, with a check of each status.
async fn instance_on(
    place: &Place,
    node: &str,
    service: &str,
    tags: &[&str],
    checks: &[HealthStatus],
) {
    let mut registration = CatalogRegistration::new(node, "10.0.0.9");
    let mut instance = Service::new(service, node);
    instance.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    registration.service = Some(instance);
    for (number, status) in checks.iter().enumerate() {
        let id = format!("{node}-check-{number}");
        registration.checks.push(HealthCheck::of_service(node, id, status.clone()));
    }
    place.client.catalog_register(&registration).await.unwrap();
}

/// Case HA31: a registration has the tag of the program and the extra tags; its end deregisters.
async fn an_instance_registers_with_its_cluster(place: &Place) {
    let deployment = Deployment::new(place, &[]);
    let node = deployment.node(place, "a");
    let id = deployment.config("a").id;
    let registered =
        async || place.client.agent_services(&QueryOptions::default()).await.unwrap().remove(&id);
    eventually("it is registered", PATIENCE, async || registered().await.is_some()).await;
    let tag = format!("cts-cluster:{}", deployment.name);
    let service = registered().await.unwrap().service;
    assert_eq!(service.tags, ["cts".to_owned(), tag]);
    assert_eq!(service.name, "consul-terraform-sync");
    node.shut_down().await;
    assert!(registered().await.is_none());
    // One that cannot register goes on without.
    let (client, trouble) = place.troubled();
    trouble.answer("PUT /v1/agent/service/register", 1, 403, "Permission denied");
    let cluster = CtsCluster::with_client(
        &deployment.config("b"),
        deployment.settings(place),
        ClusterOptions::default(),
        client.clone(),
    )
    .unwrap();
    let mut options = DaemonOptions::default();
    Arc::new(cluster).join(&mut options);
    let factory = Arc::new(RecordingDriver::default());
    let daemon = Daemon::with_client(deployment.config("b"), factory, options, client);
    let stop = Stop::new();
    let refused = async {
        eventually("the registration is refused", PATIENCE, async || {
            trouble.count("PUT /v1/agent/service/register") == 1
        })
        .await;
        eventually("it leads", PATIENCE, async || daemon.engine().watching().await.is_ok()).await;
        stop.stop(StopReason::Shutdown);
    };
    let (ran, ()) = tokio::join!(daemon.run(&stop), refused);
    ran.unwrap();
}

/// Case HA30: queries of services return lists; 429 is retried, 403 is an error about ACLs.
async fn members_are_found_by_their_tag(place: &Place) {
    let deployment = Deployment::new(place, &[]);
    let tag = format!("cts-cluster:{}", deployment.name);
    let (client, trouble) = place.troubled();
    let mut config = deployment.config("a");
    config.consul.service_registration.enabled = false;
    let cluster = CtsCluster::with_client(
        &config,
        deployment.settings(place),
        ClusterOptions::default(),
        client,
    )
    .unwrap();
    assert_eq!(cluster.members().await.unwrap(), []);
    let one = format!("{}-one", deployment.name);
    instance(place, &one, &["cts", &tag]).await;
    let found = cluster.members().await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].service_name.as_str(), found[0].healthy), (one.as_str(), true));
    assert!(!found[0].leader && found[0].address.is_none());
    let two = format!("{}-two", deployment.name);
    instance(place, &two, &[&tag]).await;
    instance(place, &format!("{}-stranger", deployment.name), &["cts"]).await;
    trouble.answer("GET /v1/catalog/services", 1, 429, "slow down");
    trouble.answer("GET /v1/health/service", 1, 500, "trouble");
    let names: Vec<String> =
        cluster.members().await.unwrap().into_iter().map(|member| member.service_name).collect();
    assert_eq!(names, [one.clone(), two.clone()]);
    // Several instances of one service, one of which has a check that does not pass.
    let third = format!("node-{two}-x");
    let checks = [HealthStatus::Passing, HealthStatus::Warning];
    instance_on(place, &third, &two, &[&tag], &checks).await;
    let found = cluster.members().await.unwrap();
    let healthy: Vec<(&str, bool)> =
        found.iter().map(|member| (member.service_name.as_str(), member.healthy)).collect();
    assert_eq!(healthy, [(one.as_str(), true), (two.as_str(), true), (two.as_str(), false)]);
    trouble.answer("GET /v1/catalog/services", 1, 403, "Permission denied");
    let error = cluster.members().await.unwrap_err();
    assert!(error.to_string().contains("missing required Consul ACL: service:read"), "{error}");
}

async fn a_follower_says_who_leads(place: &Place) {
    let deployment = Deployment::new(place, &["one"]);
    let leader = deployment.node(place, "a");
    leader.settled(&[("one", 1)]).await;
    let follower = deployment.node(place, "b");
    let expected = Role::Follower {
        leader: Some(deployment.config("a").id),
        address: Some("a.example.com".to_owned()),
    };
    eventually("it knows the leader", PATIENCE, async || follower.cluster.role() == expected).await;
    assert!(follower.cluster.check().is_err() && leader.cluster.check().is_ok());
    assert!(follower.driver.calls().is_empty(), "a follower runs nothing");
    eventually("both are registered", PATIENCE, async || {
        follower.cluster.members().await.is_ok_and(|members| members.len() == 2)
    })
    .await;
    let members = follower.cluster.members().await.unwrap();
    assert_eq!(members.iter().map(|member| member.leader).collect::<Vec<_>>(), [true, false]);
    assert_eq!(members[0].address.as_deref(), Some("a.example.com"));
    assert_eq!(members[1].address, None);
    leader.shut_down().await;
    follower.settled(&[("one", 1)]).await;
    follower.shut_down().await;
}

/// Case HA38: a local module that is missing on a follower is logged, and the follower may lead.
async fn an_incompatible_instance_stands_only_where_it_may(place: &Place) {
    let mut deployment = Deployment::new(place, &["one"]);
    "./firewall".clone_into(&mut deployment.tasks[0].module);
    let (here, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir(here.path().join("firewall")).unwrap();
    let node = |id, folder: &tempfile::TempDir, blocks| {
        let folder = folder.path().to_owned();
        deployment.node_with(place, id, &|settings, options| {
            settings.compat_blocks_leadership = blocks;
            settings.compat_check_interval = Duration::from_millis(200);
            options.directory.clone_from(&folder);
        })
    };
    // It stores the task, whose module only this instance has.
    let leader = node("a", &here, true);
    leader.settled(&[("one", 1)]).await;
    let strict = node("b", &elsewhere, true);
    let lenient = node("c", &elsewhere, false);
    eventually("the others know the leader", PATIENCE, async || {
        lenient.cluster.role() != Role::Leader
            && !strict.cluster.check_compatibility().await.unwrap().is_empty()
    })
    .await;
    leader.shut_down().await;
    // As upstream's does, the other leads, and says what it cannot do.
    eventually("the lenient one leads", PATIENCE, async || lenient.leads()).await;
    lenient.shut_down().await;
    // Nobody is left who may. After an orderly end another leads at once.
    let led = timeout(place.ttl, async {
        while !strict.leads() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    assert!(led.await.is_err(), "it stood though it could not run the task");
    assert!(strict.driver.calls().is_empty());
    // What it lacked is there, and it stands by itself.
    std::fs::create_dir(elsewhere.path().join("firewall")).unwrap();
    strict.settled(&[("one", 1)]).await;
    strict.shut_down().await;
}

async fn a_strict_instance_outlives_a_store_that_cannot_be_read(place: &Place) {
    let mut deployment = Deployment::new(place, &["one"]);
    "example/module/none".clone_into(&mut deployment.tasks[0].module);
    let folder = deployment.settings(place).directory();
    let broken = format!("{folder}/tasks/one");
    place.client.kv_put(&broken, "no document", &PutOptions::default()).await.unwrap();
    let node = |id, reset| {
        deployment.node_with(place, id, &|settings, options| {
            settings.compat_blocks_leadership = true;
            settings.compat_check_interval = Duration::from_millis(200);
            options.reset_storage = reset;
        })
    };
    let strict = node("a", false);
    let reads = format!("GET /v1/kv/{folder}/");
    eventually("it has looked several times, or ended", PATIENCE, async || {
        strict.running.is_finished() || strict.trouble.count(&reads) > 5
    })
    .await;
    assert!(!strict.running.is_finished() && !strict.leads(), "it waits until it can read it");
    // One that throws the store away needs to read nothing of it.
    let resetting = node("b", true);
    resetting.settled(&[("one", 1)]).await;
    resetting.shut_down().await;
    strict.settled(&[("one", 1)]).await;
    strict.shut_down().await;
}

/// An instance that comes back while the session of its crashed process holds the lock.
async fn a_restarted_instance_sends_nobody_to_itself(place: &Place) {
    let deployment = Deployment::new(place, &["one"]);
    let mut before = Candidate::new(deployment.config("a").id);
    (before.address, before.port) = (Some("a.example.com".to_owned()), Some(8558));
    let key = format!("{}/leader", deployment.settings(place).directory());
    let elector = ConsulElector::new(&place.consul(), &key, before, place.election()).unwrap();
    let earlier = elector.campaign().await.unwrap();
    let node = deployment.node(place, "a");
    let reads = format!("GET /v1/kv/{key}");
    // The second read waits for a change, and the first has shown who holds the lock.
    eventually("it waits for the lock", PATIENCE, async || node.trouble.count(&reads) >= 2).await;
    assert_eq!(node.cluster.role(), Role::Follower { leader: None, address: None });
    eventually("it is registered", PATIENCE, async || {
        node.cluster.members().await.is_ok_and(|members| !members.is_empty())
    })
    .await;
    assert!(!node.cluster.members().await.unwrap()[0].leader);
    earlier.resign().await;
    node.settled(&[("one", 1)]).await;
    assert!(node.cluster.members().await.unwrap()[0].leader);
    node.shut_down().await;
}

/// Case HA27: an interceptor decides for every route whether its handler runs.
async fn a_redirect_has_the_port_of_the_leaders_api(place: &Place) {
    let deployment = Deployment::new(place, &["one"]);
    let ports = [free_port().unwrap(), free_port().unwrap()];
    let node = |id, port| {
        deployment.node_at(place, id, port, &|settings, _| {
            (settings.address, settings.redirect) = (Some("127.0.0.1".to_owned()), true);
        })
    };
    let leader = node("a", ports[0]);
    leader.settled(&[("one", 1)]).await;
    let follower = node("b", ports[1]);
    eventually("it knows the leader", PATIENCE, async || {
        follower.cluster.role() != Role::Follower { leader: None, address: None }
    })
    .await;
    let asked = reqwest::get(format!("http://127.0.0.1:{}/v1/status", ports[1])).await.unwrap();
    assert_eq!((asked.url().port(), asked.status().as_u16()), (Some(ports[0]), 200));
    follower.shut_down().await;
    leader.shut_down().await;
}

/// Case HA31: a registration has the tag of the program and the extra tags; its end deregisters.
#[tokio::test(start_paused = true)]
async fn ha31_a_registration_that_fails_is_logged() {
    let place = Place::double();
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let deployment = Deployment::new(&place, &["one"]);
    let node = deployment.node_with(&place, "a", &|_, _| {});
    node.trouble.answer("PUT /v1/agent/service/register", 1, 403, "Permission denied");
    node.settled(&[("one", 1)]).await;
    let told = "CTS will continue without registering itself as a service with Consul";
    eventually("the log tells", PATIENCE, async || log.text().contains(told)).await;
    node.shut_down().await;
}

/// Case HA32: of five first runs, one of which fails, all or only those before it are made.
/// Case HA33: a failed first run keeps the driver and stores one event.
#[tokio::test(start_paused = true)]
async fn a_first_run_that_fails_ends_nothing_where_that_is_allowed() {
    for allowed in [true, false] {
        let consul = TestConsul::new();
        let driver = RecordingDriver::default();
        let mut options = EngineOptions::default();
        options.allow_failed_first_runs = allowed;
        let watcher = Watcher::new(consul.client());
        let engine = Engine::new(watcher, Arc::new(driver.clone()), options);
        let names = ["t0", "t1", "t2", "t3", "t4"];
        driver.fail_next("t3", "no", false);
        let stop = Stop::new();
        engine.load(names.map(task).into(), &stop).await.unwrap();
        let running = tokio::spawn({
            let (engine, stop) = (engine.clone(), stop.clone());
            async move { engine.run(&stop).await }
        });
        let prepared = |task: &str| driver.calls().contains(&Call::Prepare(name(task)));
        if allowed {
            driver.wait_for_applies("t4", 1).await;
            eventually("the engine watches", PATIENCE, async || engine.watching().await.is_ok())
                .await;
            assert!(names.iter().all(|name| prepared(name)));
            let events = engine.state(|state| state.events[&name("t3")].clone());
            assert_eq!(events.iter().map(|event| event.success).collect::<Vec<_>>(), [false]);
            // The task that failed is watched like the others.
            consul.set_instance("t3", "t3-1", "10.0.0.1", 80, HealthStatus::Passing);
            driver.wait_for_applies("t3", 2).await;
            stop.stop(StopReason::Shutdown);
            running.await.unwrap().unwrap();
            let events = engine.state(|state| state.events[&name("t3")].clone());
            assert_eq!(events.iter().filter(|event| !event.success).count(), 1);
        } else {
            running.await.unwrap().unwrap_err();
            assert!(names[..3].iter().all(|name| driver.applies(name).len() == 1));
            assert!(!prepared("t4"));
        }
    }
}

/// Answers as it is told.
#[derive(Debug)]
struct Scripted {
    role: Role,
    redirects: bool,
}

impl Scripted {
    fn leader() -> Self {
        Self { role: Role::Leader, redirects: false }
    }
}

#[async_trait]
impl Cluster for Scripted {
    fn role(&self) -> Role {
        self.role.clone()
    }

    fn name(&self) -> Option<String> {
        Some("cluster-a".to_owned())
    }

    fn redirects(&self) -> bool {
        self.redirects
    }

    fn tags(&self) -> Vec<String> {
        Vec::new()
    }

    async fn members(&self) -> cts_tasks::Result<Vec<Member>> {
        let mut leader = Member::new("cts-02", "consul-terraform-sync");
        (leader.healthy, leader.leader) = (true, true);
        leader.address = Some("cts-02.example.com".to_owned());
        Ok(vec![leader, Member::new("cts-03", "consul-terraform-sync")])
    }
}

/// Serves the API of a cluster: its address as a URL and as `host:port`.
async fn serve(
    cluster: Arc<dyn Cluster>,
) -> (String, String, Stop, JoinHandle<cts_tasks::Result<()>>) {
    let watcher = Watcher::new(TestConsul::new().client());
    let factory = Arc::new(RecordingDriver::default());
    let engine = Engine::new(watcher, factory, EngineOptions::default());
    let api = ApiServer::bind("127.0.0.1:0".parse().unwrap(), engine, cluster).await.unwrap();
    let address = api.local_addr().unwrap().to_string();
    let stop = Stop::new();
    let serving = tokio::spawn(api.serve(stop.clone()));
    (format!("http://{address}"), address, stop, serving)
}

async fn answers_of(
    cluster: Arc<dyn Cluster>,
    requests: &[(&str, &str)],
) -> Vec<(u16, reqwest::header::HeaderMap, String)> {
    let (url, _, stop, serving) = serve(cluster).await;
    let none = reqwest::redirect::Policy::none();
    let http = reqwest::Client::builder().redirect(none).build().unwrap();
    let mut answers = Vec::new();
    for (method, path) in requests {
        let request = http.request(method.parse().unwrap(), format!("{url}{path}"));
        let answer = request.send().await.unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        answers.push((status, headers, answer.text().await.unwrap()));
    }
    stop.stop(StopReason::Shutdown);
    drop(serving.await);
    answers
}

async fn ask(cluster: Arc<dyn Cluster>, requests: &[(&str, &str)]) -> Vec<(u16, Value)> {
    let answers = answers_of(cluster, requests).await.into_iter();
    answers.map(|(status, _, body)| (status, serde_json::from_str(&body).unwrap())).collect()
}

/// Case HA25: without high availability the status of the cluster is 405.
#[tokio::test]
async fn without_a_cluster_there_is_no_status_of_one() {
    let (status, body) = ask(Arc::new(Single), &[("GET", "/v1/status/cluster")]).await.remove(0);
    assert_eq!(status, 405);
    assert_eq!(
        body["error"]["message"],
        "this endpoint is only available with high availability configured"
    );
    assert_eq!(body["request_id"].as_str().unwrap().len(), 36);
}

/// Case HA26: a status handler of the program answers instead.
#[tokio::test]
async fn a_cluster_answers_for_its_status() {
    let cluster = Arc::new(Scripted::leader());
    let (status, mut body) = ask(cluster, &[("GET", "/v1/status/cluster")]).await.remove(0);
    assert_eq!(status, 200);
    assert!(body.as_object_mut().unwrap().remove("request_id").is_some());
    let expected = serde_json::json!({
        "cluster_name": "cluster-a",
        "members": [
            {"address": "cts-02.example.com", "healthy": true, "id": "cts-02", "leader": true,
             "service_name": "consul-terraform-sync"},
            {"healthy": false, "id": "cts-03", "leader": false,
             "service_name": "consul-terraform-sync"},
        ],
    });
    assert_eq!(body, expected);
}

/// Case HA27: an interceptor decides for every route whether its handler runs.
#[tokio::test]
async fn a_follower_sends_who_asks_it_to_the_leader() {
    let requests = [
        ("GET", "/v1/status"),
        ("GET", "/v1/status/tasks"),
        ("GET", "/v1/tasks"),
        ("GET", "/v1/tasks/a"),
        ("DELETE", "/v1/tasks/a"),
        ("GET", "/v1/health"),
        ("GET", "/v1/status/cluster"),
    ];
    let id = || Some("cts-01".to_owned());
    let address = || Some("cts-01.example.com:8558".to_owned());
    for (leader, address, text) in [
        (id(), address(), "redirect requests to leader 'cts-01' at cts-01.example.com:8558"),
        (id(), None, "redirect requests to leader 'cts-01'"),
        (None, None, "redirect requests to leader"),
    ] {
        let follower =
            Arc::new(Scripted { role: Role::Follower { leader, address }, redirects: false });
        let answers = ask(follower, &requests).await;
        for (status, body) in &answers[..5] {
            assert_eq!((*status, body["error"]["message"].as_str()), (400, Some(text)));
            assert!(body["request_id"].is_string());
        }
        assert_eq!(answers[5..].iter().map(|answer| answer.0).collect::<Vec<_>>(), [200, 200]);
    }
    let leader = Arc::new(Scripted::leader());
    let answers = ask(leader, &requests[..4]).await;
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.0).collect();
    assert_eq!(statuses, [200, 200, 200, 404]);
}

/// Case HA27: an interceptor decides for every route whether its handler runs.
#[tokio::test]
async fn a_follower_that_redirects_gives_the_leaders_address() {
    let redirecting = |leader: Option<&str>, address: Option<&str>| Scripted {
        role: Role::Follower {
            leader: leader.map(str::to_owned),
            address: address.map(str::to_owned),
        },
        redirects: true,
    };
    let paths = [
        ("GET", "/v1/status/tasks?include=events"),
        ("HEAD", "/v1/tasks"),
        ("PATCH", "/v1/tasks/a?run=now"),
        ("POST", "/v1/tasks"),
        ("DELETE", "/v1/tasks/a"),
    ];
    let follower = Arc::new(redirecting(Some("cts-01"), Some("cts-01.example.com:8558")));
    let answers = answers_of(follower, &paths).await;
    for ((method, path), (status, headers, body)) in paths.iter().zip(answers) {
        assert_eq!(status, 307, "{method} {path}");
        let location = headers["location"].to_str().unwrap().to_owned();
        assert_eq!(location, format!("http://cts-01.example.com:8558{path}"));
        let text = "redirect requests to leader 'cts-01' at cts-01.example.com:8558";
        assert!(*method == "HEAD" || body.contains(text), "{body}");
    }
    let follower = Arc::new(redirecting(Some("cts-01"), Some("[::1]:8558")));
    let (_, headers, _) = answers_of(follower, &paths[..1]).await.remove(0);
    assert_eq!(headers["location"], "http://[::1]:8558/v1/status/tasks?include=events");
    // Where there is nowhere to go, it is said as before.
    for (leader, address) in [
        (Some("cts-01"), None),
        (None, None),
        (Some("cts-01"), Some("cts-01.example.com")),
        (Some("cts-01"), Some("[https://cts-01.example.com]:8558")),
    ] {
        let follower = Arc::new(redirecting(leader, address));
        let (status, _) = ask(follower, &[("GET", "/v1/tasks")]).await.remove(0);
        assert_eq!(status, 400);
    }
    // Health and cluster are answered by whoever is asked.
    let follower = Arc::new(redirecting(Some("cts-01"), Some("cts-01.example.com:8558")));
    let others = [("GET", "/v1/health"), ("GET", "/v1/status/cluster")];
    let statuses = ask(follower, &others).await.into_iter().map(|answer| answer.0);
    assert_eq!(statuses.collect::<Vec<_>>(), [200, 200]);
}

/// Case HA27: an interceptor decides for every route whether its handler runs.
#[tokio::test]
async fn a_client_that_follows_a_redirect_reaches_the_leader() {
    let (leader, address, stop, leading) = serve(Arc::new(Scripted::leader())).await;
    let role = Role::Follower { leader: Some("a".to_owned()), address: Some(address.clone()) };
    let follower = Arc::new(Scripted { role, redirects: true });
    let (follower, _, follower_stop, following) = serve(follower).await;
    let http = reqwest::Client::new();
    let answer = http.get(format!("{follower}/v1/status")).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    assert!(answer.url().as_str().starts_with(&leader), "{}", answer.url());
    for (stop, task) in [(stop, leading), (follower_stop, following)] {
        stop.stop(StopReason::Shutdown);
        task.await.unwrap().unwrap();
    }
}

/// What the specification's policy allows, a rule each.
const RULES: [&str; 5] = [
    r#"session_prefix "" { policy = "write" }"#,
    r#"key_prefix "consul-terraform-sync/" { policy = "write" }"#,
    r#"service "consul-terraform-sync" { policy = "write" }"#,
    r#"service_prefix "" { policy = "read" }"#,
    r#"node_prefix "" { policy = "read" }"#,
];

/// Settings of a server that denies by default.
fn settings() -> Value {
    serde_json::json!({
        "session_ttl_min": "1s",
        "acl": {
            "enabled": true, "default_policy": "deny",
            "tokens": { "master": ROOT, "agent": ROOT },
        },
    })
}

const ROOT: &str = "5a4e4e9b-4d0f-4f5c-9a53-0d6c3a1b2c3d";

/// A Consul that denies by default.
enum Sealed {
    Real(Box<Consul>),
    Double(TestConsul),
}

impl Sealed {
    fn double() -> Self {
        let double = TestConsul::builder().acls(DefaultPolicy::Deny).management_token(ROOT);
        Self::Double(double.build())
    }

    /// A client that may do everything.
    fn manager(&self) -> Client {
        match self {
            Self::Real(consul) => consul.client(),
            Self::Double(double) => double.client(),
        }
    }

    /// The TTL of sessions: the least of the double is that of a server by default.
    fn ttl(&self) -> Duration {
        Duration::from_secs(if matches!(self, Self::Real(_)) { 2 } else { 10 })
    }

    /// A client with a token for these rules.
    async fn limited(&self, name: &str, rules: &[&str]) -> Client {
        let manager = self.manager();
        let policy = AclPolicy::new(name, rules.join("\n"));
        let options = WriteOptions::default();
        manager.acl_policy_create(&policy, &options).await.unwrap();
        let mut request = AclTokenRequest::new(name);
        request.policies.push(AclLink::name(name));
        let token = manager.acl_token_create(&request, &options).await.unwrap();
        let mut config = ClientConfig::default();
        config.token = token.secret_id;
        match self {
            Self::Real(consul) => {
                config.address = consul.address();
                Client::new(config).unwrap()
            }
            Self::Double(double) => double.client_with(config),
        }
    }
}

/// What is logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

impl tracing::field::Visit for Log {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        write!(self.0.lock().unwrap(), " {field}={value:?}").unwrap();
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
        self.0.lock().unwrap().push('\n');
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// Runs an instance with this client until it leads, or ends with an error.
async fn run_with(
    ttl: Duration,
    client: &Client,
    id: &str,
    service: &str,
    look: impl AsyncFnOnce(&CtsCluster),
) -> cts_tasks::Result<()> {
    let mut config = Config::default();
    (config.id, config.port) = (id.to_owned(), 0);
    service.clone_into(&mut config.consul.service_registration.service_name);
    config.tasks = vec![task("one")];
    let mut settings = HighAvailability::new("acl");
    (settings.session_ttl, settings.lock_delay) = (ttl, ttl);
    let options = ClusterOptions::default();
    let cluster =
        Arc::new(CtsCluster::with_client(&config, settings, options, client.clone()).unwrap());
    let mut options = DaemonOptions::default();
    Arc::clone(&cluster).join(&mut options);
    let factory = Arc::new(RecordingDriver::default());
    let daemon = Daemon::with_client(config, factory, options, client.clone());
    let stop = Stop::new();
    let looking = async {
        eventually("it leads", PATIENCE, async || daemon.engine().watching().await.is_ok()).await;
        look(&cluster).await;
        stop.stop(StopReason::Shutdown);
    };
    let running = daemon.run(&stop);
    tokio::pin!(running);
    tokio::select! {
        ran = &mut running => return ran,
        () = looking => {}
    }
    running.await
}

#[tokio::test]
async fn the_policy_suffices_and_each_rule_is_needed_on_the_double() {
    SUITE.double("consul");
    Box::pin(the_policy_suffices_and_each_rule_is_needed(&Sealed::double())).await;
}

#[tokio::test]
async fn the_policy_suffices_and_each_rule_is_needed_on_a_real_consul() {
    let case = "clusters::the_policy_suffices_and_each_rule_is_needed_on_a_real_consul";
    for part in SUITE.parts("consul", case) {
        let consul = Consul::start_with(&part.path, settings()).await.unwrap();
        let consul = Sealed::Real(Box::new(consul));
        Box::pin(the_policy_suffices_and_each_rule_is_needed(&consul)).await;
    }
}

async fn the_policy_suffices_and_each_rule_is_needed(consul: &Sealed) {
    let ttl = consul.ttl();
    let service = "consul-terraform-sync";
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());

    let all = consul.limited("all", &RULES).await;
    run_with(ttl, &all, "all", service, async |cluster| {
        eventually("it is a member", PATIENCE, async || {
            cluster.members().await.unwrap().iter().any(|member| member.leader)
        })
        .await;
    })
    .await
    .unwrap();
    assert!(!log.text().contains("missing required Consul ACL"), "{}", log.text());

    let without = async |left_out: usize| {
        let rules: Vec<&str> = RULES
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != left_out)
            .map(|(_, rule)| *rule)
            .collect();
        consul.limited(&format!("without-{left_out}"), &rules).await
    };
    for (left_out, needed) in
        [(0, "session:write"), (1, "key:read on \"consul-terraform-sync/acl/leader\"")]
    {
        let client = without(left_out).await;
        let running = run_with(ttl, &client, "less", service, async |_cluster| ());
        let error = timeout(PATIENCE, running).await.unwrap().unwrap_err();
        let text = consul_watch::error_chain(&error);
        assert!(text.contains(&format!("missing required Consul ACL: {needed}")), "{text}");
    }

    let client = without(2).await;
    run_with(ttl, &client, "less", service, async |_cluster| {
        eventually("the log tells", PATIENCE, async || log.text().contains("service:write")).await;
    })
    .await
    .unwrap();

    let client = without(4).await;
    run_with(ttl, &client, "less", service, async |cluster| {
        eventually("the error tells", PATIENCE, async || {
            let error = match cluster.members().await {
                Ok(_) => return false,
                Err(error) => consul_watch::error_chain(&error),
            };
            error.contains("node:read")
        })
        .await;
    })
    .await
    .unwrap();

    // A member under another name cannot be seen.
    let root = consul.manager();
    let client = without(3).await;
    Box::pin(run_with(ttl, &root, "other", "another-name", async |_leader| {
        let mut config = Config::default();
        "less".clone_into(&mut config.id);
        config.consul.service_registration.enabled = false;
        let settings = HighAvailability::new("acl");
        let options = ClusterOptions::default();
        let cluster = CtsCluster::with_client(&config, settings, options, client.clone()).unwrap();
        eventually("the log tells", PATIENCE, async || {
            cluster.members().await.unwrap();
            log.text().contains("service:read on \"another-name\"")
        })
        .await;
    }))
    .await
    .unwrap();
}
