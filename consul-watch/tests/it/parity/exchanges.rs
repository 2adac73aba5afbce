//! The double beside real servers, one raw HTTP exchange at a time.
//!
//! The tables under `exchanges/` are sent in order to the double (in memory and
//! on a socket, as old and as current servers) and to each real server that is
//! there. Nothing is pinned: what the double is held to is the real server's
//! answer of the same run. Status, headers, body and text of errors are
//! compared, after what differs between any two servers (ids, indexes, times,
//! addresses) got a common form.

mod compare;
mod on_purpose;
pub(super) mod table;

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc, time::Duration};

use bytes::Bytes;
use consul_watch::{
    ClientConfig, QueryOptions, Transport,
    testing::{Behaviour, DefaultPolicy, TestConsul, parts::Part, real},
    transport::{ExchangeLimits, SocketTransport},
};
use futures::future::join_all;
use serde_json::{Value, json};

use self::{
    compare::{Answer, View, differences},
    on_purpose::OnPurpose,
    table::{Exchange, Table},
};
use super::{ROOT, SUITE};

/// How often an exchange is repeated until its answer is the one that it waits for.
const ATTEMPTS: u32 = 200;
const LIMIT: Duration = Duration::from_secs(20);

/// A server's address, and the way to it.
struct Reached {
    address: String,
    transport: Arc<dyn Transport>,
}

/// One server, reached with and without ACLs.
struct Place {
    name: String,
    open: Reached,
    sealed: Reached,
    node: &'static str,
}

impl Place {
    /// Sends all tables, in order.
    async fn answers(&self, tables: &[Table]) -> Vec<Answer> {
        let mut answers = Vec::new();
        for table in tables {
            let server = if table.sealed { &self.sealed } else { &self.open };
            let mut known = BTreeMap::from([
                ("root".to_owned(), ROOT.to_owned()),
                ("node".to_owned(), self.node.to_owned()),
            ]);
            for exchange in &table.exchanges {
                answers.push(self.answer(server, exchange, &mut known).await);
            }
        }
        answers
    }

    async fn answer(
        &self,
        server: &Reached,
        exchange: &Exchange,
        known: &mut BTreeMap<String, String>,
    ) -> Answer {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let request = exchange.request(&server.address, known);
            let answer =
                server.transport.exchange(request, ExchangeLimits::new(LIMIT, LIMIT)).await;
            let answer =
                answer.unwrap_or_else(|error| panic!("{}: {exchange}: {error:?}", self.name));
            let text = String::from_utf8_lossy(answer.body()).into_owned();
            if attempts < ATTEMPTS
                && exchange.until.as_ref().is_some_and(|until| !text.contains(until))
            {
                // A real agent brings the catalog in line a moment later.
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            let body: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
            for (name, pointer) in &exchange.captures {
                let found = body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
                known.insert(name.clone(), found.unwrap_or_else(|| format!("no-{name}")));
            }
            return Answer::of(&answer, known, exchange.view);
        }
    }
}

fn socket(address: String) -> Reached {
    let mut config = ClientConfig::default();
    config.address.clone_from(&address);
    Reached { address, transport: Arc::new(SocketTransport::new(&config).expect("plain HTTP")) }
}

fn memory(consul: &TestConsul) -> Reached {
    Reached { address: "consul.test".to_owned(), transport: consul.transport() }
}

/// The doubles that are to answer as a server of this version does.
fn doubles(behaviour: Behaviour) -> (TestConsul, TestConsul) {
    let open = TestConsul::builder().behaviour(behaviour).build();
    let sealed = TestConsul::builder().behaviour(behaviour).acls(DefaultPolicy::Deny);
    (open, sealed.management_token(ROOT).build())
}

/// Waits until an agent has brought its own node in line.
///
/// The leader registers the node by itself, without addresses and meta; what the agent
/// adds comes later, by seconds where other work holds the machine up.
async fn until_in_line(consul: &real::Consul) {
    let (client, mut options) = (consul.client(), QueryOptions::default());
    loop {
        let answer = client.catalog_node(consul.node(), &options).await.unwrap();
        options.index = answer.meta.index;
        let found = answer.value.map(|found| found.node);
        if found.is_some_and(|node| !node.meta.is_empty() && !node.tagged_addresses.is_empty()) {
            return;
        }
    }
}

/// Compares a real server with the double, side by side.
async fn compare_with(part: &Part, tables: &[Table], unused: &mut Vec<OnPurpose>) -> String {
    let mesh = json!({ "connect": { "enabled": true } });
    let acl = json!({
        "connect": { "enabled": true },
        "acl": { "enabled": true, "default_policy": "deny", "tokens": { "master": ROOT } },
    });
    let (open, sealed) = tokio::join!(
        real::Consul::start_with(&part.path, mesh),
        real::Consul::start_with(&part.path, acl)
    );
    let (open, sealed) = (open.expect("a real Consul"), sealed.expect("a real Consul"));
    // Without a token of its own, the agent of the other one may write nothing.
    until_in_line(&open).await;
    let behaviour = if part.major_minor() < (1, 9) { Behaviour::V1_8 } else { Behaviour::Current };
    let (memory, served) = (doubles(behaviour), doubles(behaviour));
    let sockets = (served.0.serve().await.unwrap(), served.1.serve().await.unwrap());
    let places = [
        Place {
            name: format!("Consul {}", part.version),
            open: socket(open.address()),
            sealed: socket(sealed.address()),
            node: open.node(),
        },
        Place {
            name: "the double in memory".to_owned(),
            open: self::memory(&memory.0),
            sealed: self::memory(&memory.1),
            node: "test-consul",
        },
        Place {
            name: "the double on a socket".to_owned(),
            open: socket(sockets.0.address()),
            sealed: socket(sockets.1.address()),
            node: "test-consul",
        },
    ];
    let answers = join_all(places.iter().map(|place| place.answers(tables))).await;
    let [expected, memory, socket] = &answers[..] else { panic!("three places") };
    let mut report = String::new();
    let exchanges = tables.iter().flat_map(|table| &table.exchanges);
    for (at, exchange) in exchanges.enumerate() {
        for (place, actual) in [(&places[1], memory), (&places[2], socket)] {
            let mut found = differences(&expected[at], &actual[at]);
            found.retain(|difference| {
                if on_purpose::is_race(exchange, difference) {
                    return false;
                }
                let allowed = on_purpose::find(behaviour, exchange, difference);
                if let Some(allowed) = &allowed {
                    unused.retain(|entry| entry != allowed);
                }
                allowed.is_none()
            });
            if found.is_empty() {
                continue;
            }
            let (real, name) = (&places[0].name, &place.name);
            writeln!(report, "{exchange}: {name} beside {real}:").unwrap();
            for difference in found {
                writeln!(report, "    {difference}").unwrap();
            }
        }
    }
    report
}

/// Every exchange of the tables gets the same answer from the double and from real servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_double_answers_as_real_servers_do() {
    let tables = table::read_all();
    let count: usize = tables.iter().map(|table| table.exchanges.len()).sum();
    assert!(count >= 400, "only {count} exchanges");
    let parts = SUITE.parts("consul", "the_double_answers_as_real_servers_do");
    let mut unused = on_purpose::all();
    let mut report = String::new();
    for part in &parts {
        report += &compare_with(part, &tables, &mut unused).await;
    }
    let path = format!("{}/exchanges.txt", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&path, &report).unwrap();
    let lines = report.lines().filter(|line| !line.starts_with(' ')).count();
    let start: String = report.lines().take(60).fold(String::new(), |all, line| all + line + "\n");
    assert!(report.is_empty(), "{lines} answers differ, all of them in {path}:\n{start}");
    let both = parts.len() == 2;
    assert!(!both || unused.is_empty(), "differences that are none any more: {unused:#?}");
}

/// A difference between two answers is found, in each part of an answer.
#[test]
fn differences_are_found() {
    let answer = |status: u16, kind: &str, body: &str| {
        let response = http::Response::builder().status(status).header("content-type", kind);
        let response = response.body(Bytes::copy_from_slice(body.as_bytes())).unwrap();
        Answer::of(&response, &BTreeMap::new(), View::Values)
    };
    let one = answer(200, "application/json", r#"{"A": [1, {"CreateIndex": 7}]}"#);
    let same = answer(200, "application/json", r#"{"A":[1,{"CreateIndex":9}]}"#);
    assert_eq!(differences(&one, &same), Vec::<String>::new());
    for other in [
        answer(201, "application/json", r#"{"A": [1, {"CreateIndex": 7}]}"#),
        answer(200, "text/plain", r#"{"A": [1, {"CreateIndex": 7}]}"#),
        answer(200, "application/json", r#"{"A": [1, {"CreateIndex": 0}]}"#),
        answer(200, "application/json", r#"{"A": [1, {}]}"#),
        answer(200, "application/json", r#"{"A": [1, {"CreateIndex": 7}], "B": null}"#),
        answer(200, "application/json", r#"{"A": [2, {"CreateIndex": 7}]}"#),
        answer(200, "application/json", ""),
    ] {
        assert_eq!(differences(&one, &other).len(), 1, "{other:?}");
    }
}
