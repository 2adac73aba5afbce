//! No answer, however broken, makes a call panic, tells a secret or ends a
//! watch; and no environment makes the configuration panic.
//!
//! A fixed number of cases by default; five minutes of them with `SOAK=1`.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{
    Client, ClientConfig, Error, Result, Transport, Watcher,
    client::{AclTokenFilter, ExecuteOptions, HealthOptions},
    query::{CatalogNodes, CatalogServices, HealthService, HealthState, KvGet, KvList},
    testing::TestConsul,
    transport::{ExchangeLimits, TransportError},
    types::{DiscoveryChainOverride, HealthStatus, IntentionSide, SessionId},
};
use futures::{FutureExt as _, future::BoxFuture};
use serde_json::{Value, json};

use crate::follower::{Follower, follow};

const SOAK: Duration = Duration::from_mins(5);
/// Seeds that once found something.
const FOUND: [u64; 1] = [4114];
/// What a body may hold and no decode error may show.
const PLANTED: &str = "planted-9e21";

/// Answers everything with one prepared answer.
#[derive(Debug, Default)]
struct Prepared(Mutex<Prepare>);

/// Status, headers, body.
type Prepare = (u16, Vec<(&'static str, String)>, Bytes);

#[async_trait]
impl Transport for Prepared {
    async fn exchange(
        &self,
        _request: http::Request<Bytes>,
        _limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        let (status, headers, body) = self.0.lock().unwrap().clone();
        let mut answer = http::Response::builder().status(status);
        for (name, value) in headers {
            answer = answer.header(name, value);
        }
        Ok(answer.body(body).unwrap())
    }
}

/// How a call ended; an index of zero is never passed on.
type Outcome = (&'static str, Result<Option<u64>>);

macro_rules! calls {
    ($client:ident; $($name:ident($($argument:expr),*)),+; plain $($plain:ident($($given:expr),*)),+) => {
        vec![
            $(async move {
                let answer = $client.$name($($argument),*).await;
                (stringify!($name), answer.map(|answer| answer.meta.index))
            }.boxed(),)+
            $(async move {
                (stringify!($plain), $client.$plain($($given),*).await.map(|_| None))
            }.boxed(),)+
        ]
    };
}

/// Every call that decodes what Consul answers to a read, and some to writes.
fn calls<'a>(client: &'a Client, with: &'a With) -> Vec<BoxFuture<'a, Outcome>> {
    let With { read, health, filter, execute, chain, session } = with;
    calls! { client;
        acl_policy("x", read), acl_policy_by_name("x", read), acl_policies(read),
        acl_role("x", read), acl_role_by_name("x", read), acl_roles(read),
        acl_token("x", read), acl_token_expanded("x", read), acl_token_self(read),
        acl_tokens(filter, read), acl_auth_method("x", read), acl_auth_methods(read),
        acl_binding_rule("x", read), acl_binding_rules(None, read), agent_service("x", read), catalog_services(read), catalog_service("x", read), catalog_nodes(read),
        catalog_node("x", read), catalog_datacenters(read), catalog_connect("x", read),
        catalog_node_services("x", read), catalog_gateway_services("x", read),
        config_entry("service-defaults", "x", read), config_entries("service-defaults", read),
        connect_ca_roots(read), agent_connect_ca_roots(read), agent_connect_ca_leaf("x", read),
        connect_ca_configuration(read), coordinate_nodes(read), coordinate_node("x", read),
        event_list(None, read), health_service("x", health), health_connect("x", health),
        health_ingress("x", health), health_checks("x", read), health_node("x", read),
        health_state(None, read), discovery_chain("x", None, chain, read), exported_services(read),
        intentions(read), intention("x", "y", read),
        intention_match(&IntentionSide::Destination, "x", read), intention_by_id("x", read),
        kv_get("x", read), kv_list("x", read), kv_keys("x", None, read), kv_raw("x", read),
        peering("x", read), peerings(read), prepared_queries(read), prepared_query("x", read),
        prepared_query_execute("x", execute), session_info(session, read),
        session_node("x", read), session_list(read);
        plain agent_self(), acl_replication(read), agent_services(read), agent_checks(read), agent_members(false), agent_health_service_by_id("x"),
        agent_health_service_by_name("x"), acl_bootstrap(None), coordinate_datacenters(),
        operator_raft_configuration(read), operator_autopilot_health(read),
        intention_check("x", "y", read), prepared_query_explain("x", read),
        session_renew(session, &consul_watch::WriteOptions::default()), status_leader(), status_peers(),
        kv_delete("x", &consul_watch::client::DeleteOptions::default())
    }
}

struct With {
    read: consul_watch::QueryOptions,
    health: HealthOptions,
    filter: AclTokenFilter,
    execute: ExecuteOptions,
    chain: DiscoveryChainOverride,
    session: SessionId,
}

fn documents() -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/1.8.7");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let texts = paths.into_iter().filter_map(|path| std::fs::read_to_string(path).ok());
    texts.filter_map(|text| serde_json::from_str(&text).ok()).collect()
}

/// Something that may stand where something else is expected.
fn odd(random: &mut fastrand::Rng) -> Value {
    match random.u8(..12) {
        0 => Value::Null,
        1 => json!(random.bool()),
        2 => json!(random.i64(..)),
        3 => json!(random.u64(..)),
        4 => json!(f64::from_bits(random.u64(..))),
        5 => json!([PLANTED]),
        6 => json!({ PLANTED: [PLANTED, null] }),
        7 => json!(format!("{}{}", random.u64(..), ["ns", "h", "s", "µs", ""][random.usize(..5)])),
        8 => json!("9999-99-99T99:99:99Z"),
        9 => json!("=="),
        10 => json!(""),
        _ => json!(PLANTED),
    }
}

/// Changes or removes something somewhere in a document.
fn mutate(value: &mut Value, random: &mut fastrand::Rng) {
    let deeper = random.u8(..5) > 0;
    match value {
        Value::Array(items) if deeper && !items.is_empty() => {
            let at = random.usize(..items.len());
            if random.u8(..6) == 0 {
                drop(items.remove(at));
            } else {
                mutate(&mut items[at], random);
            }
        }
        Value::Object(members) if deeper && !members.is_empty() => {
            let name = members.keys().nth(random.usize(..members.len())).unwrap().clone();
            if random.u8(..6) == 0 {
                members.remove(&name);
            } else {
                mutate(&mut members[&name], random);
            }
        }
        other => *other = odd(random),
    }
}

/// A body: a document that was changed, cut or had bytes exchanged, or any bytes.
fn body(documents: &[Value], random: &mut fastrand::Rng) -> Bytes {
    if random.u8(..8) == 0 {
        return (0..random.usize(..200)).map(|_| random.u8(..)).collect();
    }
    let mut document = documents[random.usize(..documents.len())].clone();
    for _ in 0..random.u8(..4) {
        mutate(&mut document, random);
    }
    let mut bytes = document.to_string().into_bytes();
    if random.u8(..4) == 0 && !bytes.is_empty() {
        let at = random.usize(..bytes.len());
        if random.bool() { bytes.truncate(at) } else { bytes[at] = random.u8(..) }
    }
    bytes.into()
}

fn headers(random: &mut fastrand::Rng) -> Vec<(&'static str, String)> {
    let names = [
        "x-consul-index",
        "x-consul-lastcontact",
        "x-consul-knownleader",
        "x-consul-contenthash",
        "x-cache",
        "age",
        "retry-after",
        "x-consul-results-filtered-by-acls",
    ];
    let values = ["0", "1", "-1", "18446744073709551616", "true", "HIT", "", "never", "7"];
    let some = names.into_iter().filter(|_| random.bool()).collect::<Vec<_>>();
    some.into_iter().map(|name| (name, values[random.usize(..values.len())].to_owned())).collect()
}

async fn one_answer(documents: &[Value], seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let transport = Arc::new(Prepared::default());
    let status = [200, 200, 200, 200, 404, 403, 409, 429, 500][random.usize(..9)];
    *transport.0.lock().unwrap() = (status, headers(&mut random), body(documents, &mut random));
    let client = Client::with_transport(ClientConfig::default(), transport).unwrap();
    let with = With {
        read: consul_watch::QueryOptions::default(),
        health: HealthOptions::default(),
        filter: AclTokenFilter::default(),
        execute: ExecuteOptions::default(),
        chain: DiscoveryChainOverride::default(),
        session: "adf4238a-882b-9ddc-4a9d-5b6758e4159e".parse().unwrap(),
    };
    for call in calls(&client, &with) {
        let (name, outcome) = call.await;
        match outcome {
            Ok(index) => assert_ne!(index, Some(0), "{name}, seed {seed}"),
            Err(error @ Error::Decode { .. }) => {
                let text = format!("{error:?} {}", consul_watch::error_chain(&error));
                assert!(!text.contains(PLANTED), "{name}, seed {seed}: {text}");
            }
            Err(_) => {}
        }
    }
}

/// Any text in any variable: an error at most.
fn one_environment(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let pieces = [
        "http://", "https://", "unix://", "[", "]", ":", "::1", "@", "/", "%", " ", "\n", "\u{7f}",
        "8500", "99999", "true", "no", "host", "\u{fc}", "?", "#", "..", "-", "*",
    ];
    let mut text = || -> String {
        (0..random.usize(..7)).map(|_| pieces[random.usize(..pieces.len())]).collect()
    };
    let vars: std::collections::HashMap<String, String> = [
        "CONSUL_HTTP_ADDR",
        "CONSUL_HTTP_TOKEN",
        "CONSUL_HTTP_AUTH",
        "CONSUL_HTTP_SSL",
        "CONSUL_HTTP_SSL_VERIFY",
        "CONSUL_TLS_SERVER_NAME",
        "CONSUL_NAMESPACE",
        "CONSUL_PARTITION",
    ]
    .into_iter()
    .map(|name| (name.to_owned(), text()))
    .collect();
    if let Ok(mut config) = ClientConfig::from_vars(|name| vars.get(name).cloned()) {
        drop(Client::with_transport(config.clone(), Arc::new(Prepared::default())));
        // Also the part that a transport of its own leaves out.
        config.tls.ca_file = Some("/dev/null".into());
        drop(Client::new(config));
    }
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "says how much a soak did")]
async fn no_answer_harms_a_call() {
    let soak = std::env::var_os("SOAK").is_some_and(|value| value == "1");
    let documents = documents();
    assert!(documents.len() > 40, "{} captured answers", documents.len());
    for seed in FOUND {
        one_answer(&documents, seed).await;
    }
    let (begun, mut cases) = (tokio::time::Instant::now(), 0);
    // Time only decides how many seeds there are.
    while if soak { begun.elapsed() < SOAK } else { cases < 300 } {
        one_answer(&documents, cases).await;
        one_environment(cases);
        cases += 1;
    }
    println!("{cases} answers to each call, {cases} environments, seeds from 0");
}

/// Spoils one answer of three.
#[derive(Debug)]
struct Garbling {
    to: Arc<dyn Transport>,
    left: AtomicU32,
    documents: Vec<Value>,
    random: Mutex<fastrand::Rng>,
}

#[async_trait]
impl Transport for Garbling {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        let mut answer = self.to.exchange(request, limits).await?;
        let mut random = self.random.lock().unwrap();
        let less = |left: u32| left.checked_sub(1);
        if random.u8(..3) == 0
            && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
        {
            *answer.body_mut() = body(&self.documents, &mut random);
        }
        Ok(answer)
    }
}

/// Also the broad queries', which stand in for most of these watches.
#[tokio::test(start_paused = true)]
async fn garbled_answers_pass() {
    const LIMIT: Duration = Duration::from_hours(1);
    for seed in 1..=5 {
        let consul = TestConsul::builder().seed(seed).build();
        let transport = Arc::new(Garbling {
            to: consul.transport(),
            left: AtomicU32::new(150),
            documents: documents(),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
        });
        let reader = Client::with_transport(ClientConfig::default(), transport).unwrap();
        let watcher = Watcher::builder(reader).connections(12).seed(seed).build();
        let mut all: Vec<Box<dyn Follower>> = vec![
            follow(&watcher, KvList::new("f/")),
            follow(&watcher, KvGet::new("f/1")),
            follow(&watcher, CatalogNodes::new()),
            follow(&watcher, CatalogServices::new()),
            follow(&watcher, HealthState::any()),
        ];
        let name = |number: u32| format!("s{number}");
        all.extend((0..30).map(|number| follow(&watcher, HealthService::new(name(number)))));
        for number in 0..30 {
            consul.set_instance(
                &name(number),
                &name(number),
                "10.0.0.1",
                80,
                HealthStatus::Passing,
            );
            consul.kv_put("f/1", number.to_string());
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        // Whatever a spoilt answer made a watch show, the next change puts right.
        tokio::time::sleep(LIMIT).await;
        for number in 0..30 {
            consul.set_instance(
                &name(number),
                &name(number),
                "10.0.0.2",
                80,
                HealthStatus::Warning,
            );
        }
        consul.kv_put("f/1", "last");
        for follower in &mut all {
            follower.settle(&consul.client(), LIMIT).await;
        }
        watcher.shutdown().await;
        for follower in all {
            follower.finish().await;
        }
    }
}
