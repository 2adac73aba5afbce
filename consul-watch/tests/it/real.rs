//! The watcher over a real server that is stopped, killed and started again.

use std::time::Duration;

use consul_watch::{
    Watch, Watcher,
    client::PutOptions,
    query::{HealthService, KvGet},
    testing::{parts::Suite, real},
    types::{CatalogDeregistration, CatalogRegistration, KvPair, Service},
    watch::Liveness,
};
use tokio::time::timeout;

const SUITE: Suite = Suite("consul-watch with a real Consul");
const LIMIT: Duration = Duration::from_mins(1);

/// A server of each version that is there.
async fn each_consul(case: &str) -> Vec<real::Consul> {
    let mut found = Vec::new();
    for part in SUITE.parts("consul", case) {
        found.push(real::Consul::start(&part.path).await.expect("a real Consul"));
    }
    found
}

async fn until<T: Send + Sync + 'static>(watch: &mut Watch<T>, wanted: impl Fn(&T) -> bool + Sync) {
    timeout(LIMIT, async {
        loop {
            match watch.changed().await {
                Ok(snapshot) if wanted(&snapshot.data) => return,
                Ok(_) => {}
                Err(error) => assert!(!error.is_fatal(), "{error:?}"),
            }
        }
    })
    .await
    .expect("the wanted data in time");
}

fn text(pair: Option<&KvPair>) -> Option<&str> {
    pair.and_then(KvPair::text)
}

#[tokio::test]
async fn a_restart_and_a_crash_of_the_server_lose_no_update() {
    for mut consul in each_consul("a_restart_and_a_crash_of_the_server_lose_no_update").await {
        let (client, options) = (consul.client(), PutOptions::default());
        let watcher = Watcher::new(consul.client());
        let mut key = watcher.watch(KvGet::new("a"));
        let mut web = watcher.watch(HealthService::new("web"));
        client.kv_put("a", "0", &options).await.unwrap();
        until(&mut key, |pair| text(pair.as_ref()) == Some("0")).await;

        for (round, crash) in [(1, false), (2, true)] {
            if crash {
                consul.kill();
            } else {
                consul.stop().await;
            }
            let failed = timeout(LIMIT, key.changed()).await.unwrap().unwrap_err();
            assert!(!failed.is_fatal());
            assert_eq!(key.state().liveness, Liveness::Degraded);
            consul.restart().await.expect("the server starts on its data");
            assert!(key.latest().is_some(), "data is kept meanwhile");
            client.kv_put("a", round.to_string(), &options).await.unwrap();
            let id = format!("web-{round}");
            let registration =
                CatalogRegistration::new(&id, "10.0.0.1").with_service(Service::new("web", &id));
            client.catalog_register(&registration).await.unwrap();
            let expected = round.to_string();
            until(&mut key, |pair| text(pair.as_ref()) == Some(&expected)).await;
            until(&mut web, |entries| entries.len() == round).await;
            assert_eq!(key.state().liveness, Liveness::Live);
        }
        client.catalog_deregister(&CatalogDeregistration::node("web-1")).await.unwrap();
        until(&mut web, |entries| entries.len() == 1).await;
        drop((key, web));
        watcher.shutdown().await;
    }
}

#[tokio::test]
async fn a_server_is_gone_with_its_handle() {
    for consul in each_consul("a_server_is_gone_with_its_handle").await {
        let (client, folder) = (consul.client(), consul.folder().to_owned());
        assert!(folder.exists());
        drop(consul);
        assert!(client.status_leader().await.is_err());
        assert!(!folder.exists());
    }
}

/// A server whose port another one has taken meanwhile does not start, instead
/// of handing out the other one.
#[tokio::test]
async fn a_server_is_not_mistaken_for_one_on_its_port() {
    let case = "a_server_is_not_mistaken_for_one_on_its_port";
    for (mut late, mut early) in each_consul(case).await.into_iter().zip(each_consul(case).await) {
        late.stop().await;
        let port = late.address().rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
        let file = early.folder().join("config.json");
        let mut config: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        config["ports"]["http"] = port.into();
        std::fs::write(&file, config.to_string()).unwrap();
        early.stop().await;
        early.launch().unwrap();
        let client = late.client();
        timeout(LIMIT, async {
            while !matches!(client.status_leader().await, Ok(Some(_))) {
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        })
        .await
        .expect("the other server leads");
        let error = late.restart().await.unwrap_err().to_string();
        assert!(error.contains("address already in use"), "{error}");
    }
}

/// A machine that stalls keeps its connections: nothing is answered, and nothing is lost.
#[tokio::test]
async fn a_paused_server_answers_nothing_until_it_goes_on() {
    for consul in each_consul("a_paused_server_answers_nothing_until_it_goes_on").await {
        let (client, options) = (consul.client(), PutOptions::default());
        let mut key = Watcher::new(consul.client()).watch(KvGet::new("a"));
        until(&mut key, Option::is_none).await;
        consul.pause();
        let asked = timeout(Duration::from_millis(300), client.status_leader()).await;
        consul.resume();
        assert!(asked.is_err(), "a paused server answered: {asked:?}");
        client.kv_put("a", "1", &options).await.unwrap();
        until(&mut key, |pair| text(pair.as_ref()) == Some("1")).await;
    }
}
