//! Nodes, services and checks in transactions.

use consul_watch::{
    Client, QueryOptions,
    client::{HealthOptions, TxnOptions},
    types::{
        CatalogVerb::{self, Cas, Delete, DeleteCas, Get, Set},
        CheckOp, HealthCheck, HealthStatus, KvOp, Node, NodeOp, Service, ServiceOp, TxnOp,
        TxnOutcome, TxnResult,
    },
};

use super::{Env, acl::holder};

super::cases![
    a_node_with_its_service_and_check,
    conditions_on_objects,
    operations_that_are_refused,
    nothing_remains_of_what_failed,
];

mod sealed {
    super::super::cases![sealed: rights_over_objects];
    use super::rights_over_objects;
}

fn node(verb: CatalogVerb, name: &str, address: &str, index: u64) -> TxnOp {
    let mut node = Node::default();
    (node.name, node.address, node.modify_index) = (name.into(), address.into(), index);
    NodeOp { verb, node }.into()
}

fn service(verb: CatalogVerb, node: &str, name: &str, id: &str, index: u64) -> TxnOp {
    let mut service = Service::new(name, id);
    service.modify_index = index;
    ServiceOp { verb, node: node.into(), service }.into()
}

fn check(verb: CatalogVerb, node: &str, id: &str, of: &str, index: u64) -> TxnOp {
    let mut check = HealthCheck::of_node(id, HealthStatus::Warning);
    (check.node, check.service_id, check.modify_index) = (node.into(), of.into(), index);
    CheckOp { verb, check }.into()
}

async fn run(client: &Client, ops: &[TxnOp]) -> TxnOutcome {
    client.txn(ops, &TxnOptions::default()).await.unwrap()
}

async fn results(env: &Env, ops: &[TxnOp]) -> Vec<TxnResult> {
    run(&env.client, ops).await.into_result().unwrap()
}

/// The steps that failed, with Consul's words.
async fn refused(client: &Client, ops: &[TxnOp]) -> Vec<(usize, String)> {
    let failed = run(client, ops).await.into_result().unwrap_err();
    failed.into_iter().map(|failure| (failure.op_index, failure.what)).collect()
}

async fn a_node_with_its_service_and_check(env: &Env) {
    let (host, web) = (env.name("n"), env.name("web"));
    let health = {
        let web = web.clone();
        move |client: Client, query: QueryOptions| {
            let web = web.clone();
            async move { client.health_service(&web, &HealthOptions::from(query)).await }
        }
    };
    let made = [
        node(Set, &host, "10.0.0.1", 0),
        service(Set, &host, &web, "", 0),
        check(Set, &host, "c", &web, 0),
        KvOp::set(env.name("k"), "x").into(),
    ];
    let seen = env.observe(health.clone(), run(&env.client, &made)).await;
    seen.assert_woken();
    let found = &seen.last[0];
    assert_eq!((&found.node.name, &found.service.id), (&host, &web), "its name is its id");
    assert_eq!(
        (found.checks[0].status.clone(), &found.checks[0].service_name),
        (HealthStatus::Warning, &web)
    );

    let read =
        [node(Get, &host, "", 0), service(Get, &host, "", &web, 0), check(Get, &host, "c", "", 0)];
    let read = results(env, &read).await;
    let [TxnResult::Node(a), TxnResult::Service(b), TxnResult::Check(c)] = &read[..] else {
        panic!("{read:?}");
    };
    assert_eq!((&**b, &**c), (&found.service, &found.checks[0]));
    assert_eq!((a.address.as_str(), a.datacenter.as_str()), ("10.0.0.1", "dc1"));
    assert_eq!((a.modify_index, b.modify_index), (c.modify_index, c.modify_index), "one index");
    // The same again is no change.
    env.observe(health.clone(), run(&env.client, &made)).await.assert_quiet();

    let gone = [check(Delete, &host, "c", "", 0), service(Delete, &host, &web, &web, 0)];
    let seen = env.observe(health, run(&env.client, &gone)).await;
    seen.assert_woken();
    assert!(seen.last.is_empty());
    assert_eq!(results(env, &[node(Delete, &host, "", 0)]).await, []);
    // What is not there counts as deleted.
    let again = [gone.as_slice(), &[node(Delete, &host, "", 0)]].concat();
    assert_eq!(results(env, &again).await, []);
}

async fn conditions_on_objects(env: &Env) {
    let (host, web) = (env.name("n"), env.name("web"));
    let all = |verb: CatalogVerb, index| {
        [
            node(verb.clone(), &host, "10.0.0.1", index),
            service(verb.clone(), &host, &web, &web, index),
            check(verb, &host, "c", &web, index),
        ]
    };
    let stale = |doing: &str| {
        [
            (0, format!("failed to {doing} node {host:?}, index is stale")),
            (1, format!("failed to {doing} service {web:?} on node {host:?}, index is stale")),
            (2, format!("failed to {doing} check \"c\" on node {host:?}, index is stale")),
        ]
    };
    assert_eq!(refused(&env.client, &all(Cas, 7)).await, stale("set"));
    assert_eq!(refused(&env.client, &all(DeleteCas, 7)).await, stale("delete"));
    let made = results(env, &all(Cas, 0)).await;
    let TxnResult::Node(made) = &made[0] else { panic!("{made:?}") };
    let index = made.modify_index;
    assert_eq!(refused(&env.client, &all(Cas, 0)).await, stale("set"));
    assert_eq!(refused(&env.client, &all(Cas, index + 1)).await, stale("set"));
    assert_eq!(refused(&env.client, &all(DeleteCas, index + 1)).await, stale("delete"));
    assert_eq!(results(env, &all(Cas, index)).await.len(), 3);
    let mut gone = all(DeleteCas, index);
    gone.reverse();
    assert_eq!(results(env, &gone).await, []);
}

async fn operations_that_are_refused(env: &Env) {
    let (host, none) = (env.name("n"), env.name("none"));
    let done = |verb: &str| CatalogVerb::Other(verb.into());
    let unknown = |kind: &str| {
        if env.is_1_8 {
            format!("unknown {kind} verb \"x\"")
        } else {
            format!("unknown {} operation: x", kind.to_lowercase())
        }
    };
    let nameless = if env.is_1_8 {
        "Must provide service name with ID"
    } else {
        "Must provide service name (Service.Service) when service ID is provided"
    };
    let mut wrong = Vec::new();
    results(env, &[node(Set, &host, "10.0.0.1", 0)]).await;
    for (op, what) in [
        (node(Get, &none, "", 0), format!("node {none:?} doesn't exist")),
        (service(Get, &host, "", "x", 0), format!("service \"x\" on node {host:?} doesn't exist")),
        (check(Get, &none, "x", "", 0), format!("check \"x\" on node {none:?} doesn't exist")),
        (node(done("x"), &host, "", 0), unknown("Node")),
        (service(done("x"), &host, "x", "x", 0), unknown("Service")),
        (check(done("x"), &host, "x", "", 0), unknown("Check")),
        (node(Set, "", "10.0.0.1", 0), "Must provide node".into()),
        (service(Set, &none, "x", "x", 0), "Missing node registration".into()),
        (check(Set, &none, "x", "", 0), "Missing node registration".into()),
        (check(Set, &host, "x", "x", 0), "Missing service registration".into()),
        (service(Set, &host, "", "x", 0), nameless.into()),
        (service(Delete, &host, "", "x", 0), nameless.into()),
    ] {
        let ops = [KvOp::set(env.name("k"), "x").into(), op];
        let found = refused(&env.client, &ops).await;
        if found != [(1, what.clone())] {
            wrong.push(format!("{found:?} instead of {what:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    results(env, &[node(Delete, &host, "", 0)]).await;
}

/// Not even of what a step had brought about elsewhere.
async fn nothing_remains_of_what_failed(env: &Env) {
    let host = env.name("n");
    let mut passing = HealthCheck::of_node("c", HealthStatus::Passing);
    passing.node.clone_from(&host);
    let passing: TxnOp = CheckOp { verb: Set, check: passing }.into();
    results(env, &[node(Set, &host, "10.0.0.1", 0), passing]).await;
    let session = env
        .session(|request| {
            request.node = Some(host.clone());
            request.node_checks = Some(vec!["c".into()]);
        })
        .await;
    let alive = async || {
        let found = env.client.session_info(&session, &QueryOptions::default()).await.unwrap();
        found.value.is_some()
    };
    // A critical check ends the session; a node takes its checks along.
    let mut critical = HealthCheck::of_node("c", HealthStatus::Critical);
    critical.node.clone_from(&host);
    let critical: TxnOp = CheckOp { verb: Set, check: critical }.into();
    let failing = node(Get, &env.name("none"), "", 0);
    for step in [critical.clone(), node(Delete, &host, "", 0)] {
        let failed = refused(&env.client, &[step, failing.clone()]).await;
        assert_eq!(failed[0].0, 1);
        assert!(alive().await);
        let read = results(env, &[check(Get, &host, "c", "", 0)]).await;
        let TxnResult::Check(found) = &read[0] else { panic!("{read:?}") };
        assert_eq!(found.status, HealthStatus::Passing);
    }
    results(env, &[critical]).await;
    assert!(!alive().await);
    results(env, &[node(Delete, &host, "", 0)]).await;
}

async fn rights_over_objects(env: &Env) {
    let (host, web) = (env.name("n"), env.name("web"));
    let who = holder(
        env,
        &[
            format!("node {host:?} {{ policy = \"read\" }}"),
            format!("service {web:?} {{ policy = \"write\" }}"),
        ],
    )
    .await;
    let mut of_web = HealthCheck::of_service(&web, "c", HealthStatus::Passing);
    (of_web.node, of_web.service_name) = (host.clone(), web.clone());
    let of_web: TxnOp = CheckOp { verb: Set, check: of_web }.into();
    let made = [service(Set, &host, &web, &web, 0), of_web];
    // Writing a node takes a right that it lacks.
    let failed =
        refused(&who, &[node(Set, &host, "10.0.0.1", 0), check(Set, &host, "x", "", 0)]).await;
    assert_eq!(failed.len(), 2);
    assert!(failed.iter().all(|(_, what)| what.contains("Permission denied")), "{failed:?}");
    results(env, &[node(Set, &host, "10.0.0.1", 0)]).await;
    assert_eq!(run(&who, &made).await.into_result().unwrap().len(), 2);
    let failed = refused(&who, &[service(Delete, &host, "other", "other", 0)]).await;
    assert!(failed[0].1.contains("Permission denied"), "{failed:?}");

    // What may not be read is left out.
    let read =
        [node(Get, &host, "", 0), service(Get, &host, "", &web, 0), check(Get, &host, "c", "", 0)];
    assert_eq!(run(&who, &read).await.into_result().unwrap().len(), 3);
    let blind = holder(env, &[format!("service {web:?} {{ policy = \"read\" }}")]).await;
    let seen = run(&blind, &read).await.into_result().unwrap();
    assert!(matches!(&seen[..], [TxnResult::Service(_), TxnResult::Check(_)]), "{seen:?}");
    results(env, &[node(Delete, &host, "", 0)]).await;
}
