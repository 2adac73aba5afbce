//! Cases that run on the double, and on a real agent where there is one.

use std::time::Duration;

use consul_watch::{
    Client,
    testing::{
        TestConsul,
        parts::{Part, Suite},
        real,
    },
};

pub(crate) const SUITE: Suite = Suite("cts-tasks with a real Consul");

/// A Consul, and what keeps it running.
pub(crate) struct Consul {
    pub(crate) client: Client,
    _real: Option<real::Consul>,
}

pub(crate) fn double() -> Consul {
    SUITE.double("consul");
    Consul { client: TestConsul::new().client(), _real: None }
}

/// A running agent of this version.
pub(crate) async fn real(part: &Part) -> Consul {
    let consul = real::Consul::start(&part.path).await.unwrap();
    Consul { client: consul.client(), _real: Some(consul) }
}

/// How long a case on a real agent may take. They take seconds; one that waits
/// for what never comes shall fail, and say which it is.
const LIMIT: Duration = Duration::from_mins(3);

pub(crate) async fn in_time<T>(case: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, case).await.expect("what the case waits for does not come")
}

/// Makes two tests of an `async fn(Client)`; the one on a real agent takes
/// every version that is there.
macro_rules! on_both {
    ($($(#[$doc:meta])* $case:ident, $double:ident, $real:ident;)*) => { $(
        $(#[$doc])*
        #[tokio::test]
        async fn $double() {
            let consul = crate::both::double();
            $case(consul.client.clone()).await;
        }

        $(#[$doc])*
        #[tokio::test]
        async fn $real() {
            for part in crate::both::SUITE.parts("consul", stringify!($case)) {
                let consul = crate::both::real(&part).await;
                crate::both::in_time($case(consul.client.clone())).await;
            }
        }
    )* };
}

pub(crate) use on_both;
