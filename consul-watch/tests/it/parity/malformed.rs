//! No request makes the double panic, whatever is wrong with it.

use std::time::Duration;

use bytes::Bytes;
use consul_watch::{
    Transport as _,
    testing::{Behaviour, DefaultPolicy, TestConsul},
    transport::ExchangeLimits,
};
use proptest::prelude::*;

use super::{
    ROOT,
    exchanges::table::{self, Exchange},
};

/// A request of the tables, spoilt.
#[derive(Debug, Clone)]
struct Spoilt {
    base: prop::sample::Index,
    method: Option<&'static str>,
    target: Vec<(prop::sample::Index, char)>,
    body: Vec<(prop::sample::Index, u8)>,
    cut: Option<prop::sample::Index>,
    other_body: Option<prop::sample::Index>,
}

fn spoilt() -> impl Strategy<Value = Spoilt> {
    let method = prop::option::weighted(
        0.2,
        prop::sample::select(vec!["GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS"]),
    );
    let target = prop::collection::vec((any::<prop::sample::Index>(), any::<char>()), 0..3);
    let body = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (
        any::<prop::sample::Index>(),
        method,
        target,
        body,
        prop::option::weighted(0.2, any::<prop::sample::Index>()),
        prop::option::weighted(0.3, any::<prop::sample::Index>()),
    )
        .prop_map(|(base, method, target, body, cut, other_body)| Spoilt {
            base,
            method,
            target,
            body,
            cut,
            other_body,
        })
}

impl Spoilt {
    fn request(&self, all: &[Exchange]) -> Option<http::Request<Bytes>> {
        let base = self.base.get(all);
        let mut target: Vec<char> = base.target.chars().collect();
        for (at, change) in &self.target {
            *at.get_mut::<char>(&mut target) = *change;
        }
        let mut body =
            self.other_body.map_or(base, |other| other.get(all)).body.clone().into_bytes();
        for (at, change) in &self.body {
            if !body.is_empty() {
                *at.get_mut(&mut body) = *change;
            }
        }
        if let Some(cut) = self.cut {
            body.truncate(cut.index(body.len() + 1));
        }
        let target: String = target.into_iter().collect();
        http::Request::builder()
            .method(self.method.unwrap_or(base.method.as_str()))
            .uri(format!("http://consul.test{}", target.replace("{{node}}", "test-consul")))
            .header("x-consul-token", ROOT)
            .body(body.into())
            .ok()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_request_makes_the_double_panic(requests in prop::collection::vec(spoilt(), 1..12), old: bool, sealed: bool) {
        let all: Vec<Exchange> =
            table::read_all().into_iter().flat_map(|table| table.exchanges).collect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let behaviour = if old { Behaviour::V1_8 } else { Behaviour::Current };
            let mut builder = TestConsul::builder().behaviour(behaviour);
            if sealed {
                builder = builder.acls(DefaultPolicy::Deny).management_token(ROOT);
            }
            let transport = builder.build().transport();
            for request in requests.iter().filter_map(|spoilt| spoilt.request(&all)) {
                let limit = Duration::from_mins(30);
                let answer = transport.exchange(request, ExchangeLimits::new(limit, limit)).await;
                let status = answer.expect("an answer").status().as_u16();
                assert!((200..600).contains(&status), "{status}");
            }
        });
    }
}
