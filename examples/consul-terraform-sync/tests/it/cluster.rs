//! Several processes of one cluster, with a real Consul.

use std::{fs, path::Path, time::Duration};

use consul_watch::{
    testing::{
        parts::{Suite, find},
        real::Consul,
    },
    types::HealthStatus,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    end_to_end::{firewall_task, instance},
    sync::{PATIENCE, SyncProcess, firewall_module},
};

/// A process in a folder of its own, with the cluster's task.
pub(crate) fn process(folder: &Path, number: u8, consul: &str) -> SyncProcess {
    let own = folder.join(number.to_string());
    fs::create_dir(&own).unwrap();
    let module = firewall_module().display().to_string();
    let task = firewall_task(folder, "rules", &["web"]).replace(&module, "./module");
    let config = format!(
        "id = \"cts-0{number}\"\nhigh_availability {{\n  cluster {{\n    name = \"cluster-a\"\n    \
         storage \"consul\" {{\n      session_ttl = \"2s\"\n      lock_delay = \"1s\"\n    }}\n  }}\n  \
         instance {{\n    address = \"cts-0{number}.example.com\"\n  }}\n}}\n{task}"
    );
    SyncProcess::new(&own, consul, &config)
}

pub(crate) fn give_module(folder: &Path, number: u8) {
    let module = folder.join(number.to_string()).join("module");
    std::os::unix::fs::symlink(firewall_module(), module).unwrap();
}

pub(crate) async fn leads(sync: &SyncProcess, number: u8, times: usize) {
    let line = format!("[INFO]  ha: acquired leadership lock: id=cts-0{number}");
    sync.until("it leads", || sync.log().matches(&line).count() >= times).await;
}

async fn answers(
    sync: &SyncProcess,
    path: &str,
    fits: impl Fn(&Value) -> bool + Send + Sync,
) -> Value {
    let asking = async {
        loop {
            if let Some(body) = sync.get(path).await.filter(&fits) {
                return body;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let answered = timeout(PATIENCE, asking).await;
    answered.unwrap_or_else(|_late| panic!("{path} is not as expected\n{}", sync.log()))
}

/// Spec: HA36, HA37, HA38
#[tokio::test]
async fn a_follower_takes_over_and_says_what_it_lacks() {
    let suite = Suite("cluster");
    let tool = if find("terraform").is_some() { "terraform" } else { "tofu" };
    let (Some(_tool), Some(part)) = (suite.part(tool, "all"), suite.part("consul", "all")) else {
        return;
    };
    let settings = json!({ "session_ttl_min": "1s" });
    let consul = Consul::start_with(&part.path, settings).await.unwrap();
    consul.client().catalog_register(&instance("web", 1, HealthStatus::Passing)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();

    let mut one = process(folder, 1, &consul.address());
    give_module(folder, 1);
    one.start();
    leads(&one, 1, 1).await;
    one.ran("rules", 1).await;

    // The second has no such module, says so, and lives on as a follower.
    let mut two = process(folder, 2, &consul.address());
    two.start();
    let lacks = "[ERROR] ha.compat: error=\"compatibility check failure: stat ./module: no such \
                 file or directory\"";
    two.until("it says what it lacks", || two.log().contains(lacks)).await;
    answers(&two, "/v1/status/tasks", |body| {
        body["error"]["message"] == "redirect requests to leader 'cts-01' at cts-01.example.com"
    })
    .await;
    assert_eq!(two.get("/v1/health").await.unwrap(), json!({}));
    let status = answers(&two, "/v1/status/cluster", |body| {
        body["members"].as_array().is_some_and(|members| members.len() == 2)
    })
    .await;
    assert_eq!(status["cluster_name"], "cluster-a");
    assert_eq!(status["members"][0]["address"], "cts-01.example.com");
    assert_eq!(
        (&status["members"][0]["leader"], &status["members"][1]["leader"]),
        (&json!(true), &json!(false))
    );
    assert!(status["members"][1].get("address").is_none());

    // A crash: it may lead all the same, and its task fails.
    let killed = Instant::now();
    one.end("-KILL").await;
    leads(&two, 2, 1).await;
    assert!(killed.elapsed() < Duration::from_secs(2 * 2 + 1 + 5), "{:?}", killed.elapsed());
    // It is not given up: it is tried again until its module is there.
    two.until("the task fails", || two.log().contains("the task cannot run, trying again")).await;
    answers(&two, "/v1/status/tasks", |body| body["rules"]["status"] == "errored").await;

    // A graceful stop is followed at once.
    one.start();
    one.until("it waits", || one.log().matches("serving the API").count() == 2).await;
    answers(&one, "/v1/status", |body| body["error"].is_object()).await;
    sleep(Duration::from_secs(1)).await;
    let stopped = Instant::now();
    assert_eq!(two.end("-TERM").await.code(), Some(0), "{}", two.log());
    leads(&one, 1, 2).await;
    assert!(stopped.elapsed() < Duration::from_secs(1), "{:?}", stopped.elapsed());
    answers(&one, "/v1/status/tasks", |body| body["rules"]["status"] == "successful").await;
    assert_eq!(one.end("-TERM").await.code(), Some(0), "{}", one.log());
}
