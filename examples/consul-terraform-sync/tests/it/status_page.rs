//! The status page in a real browser, of the built program with a real Consul and a real
//! Terraform or OpenTofu.
//!
//! `STATUS_PAGE_IMAGES=<folder>` has it write the pictures of the README there; a relative
//! folder is below the workspace.

use std::{
    fs,
    path::{Path, PathBuf},
};

use chrono::{DateTime, Local};
use consul_watch::{
    testing::{
        parts::{Suite, find},
        real::Consul,
    },
    types::HealthStatus,
};
use serde_json::{Value, json};

use crate::{
    browser::{Browser, REBOUND},
    cluster::{give_module, leads, process},
    end_to_end::{firewall_task, instance},
    parts,
    sync::SyncProcess,
};

const SUITE: Suite = Suite("status_page");
const TOKEN: &str = "a token of the API";
const PAGES: [&str; 5] = ["/ui/", "/ui/tasks/guarded", "/ui/cluster", "/ui/watches", "/ui/systems"];

async fn put(consul: &Consul, service: &str, number: u16) {
    let instance = instance(service, number, HealthStatus::Passing);
    consul.client().catalog_register(&instance).await.unwrap();
}

/// Tasks of each kind, for a picture: one that waits for approval, one that is disabled, one
/// with a schedule.
fn tasks(folder: &Path) -> String {
    let front = firewall_task(folder, "front", &["web"]);
    let guarded = firewall_task(folder, "guarded", &["api"]).replace(
        "task {",
        "task {\n  description = \"Firewall rules of the API's instances\"\n  require_approval = true",
    );
    let idle =
        firewall_task(folder, "idle", &["cache"]).replace("task {", "task {\n  enabled = false");
    let nightly = firewall_task(folder, "nightly", &[]).replace(
        "condition \"services\" {\n    names = []",
        "condition \"schedule\" {\n    cron = \"0 3 * * *\"",
    );
    let nightly = nightly.replace(
        "condition \"schedule\"",
        "module_input \"services\" {\n    names = [\"web\"]\n  }\n  condition \"schedule\"",
    );
    front + &guarded + &idle + &nightly
}

/// The newest run of a task, as the API has it.
async fn newest(sync: &SyncProcess, task: &str) -> Value {
    let url = format!("{}/v1/status/tasks/{task}?include=events", sync.address().unwrap());
    let answer = reqwest::Client::new().get(url).bearer_auth(TOKEN).send().await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    answer[task]["events"][0].clone()
}

async fn log_in(browser: &Browser, base: &str) {
    browser.open(&format!("{base}/ui/tasks/guarded")).await;
    assert_eq!(browser.run("return location.pathname").await, "/ui/login");
    assert!(!browser.html().await.contains("API's instances"), "nothing is shown");
    browser.write("#token", "another token").await;
    browser.click("button").await;
    browser.until("return document.body.innerText.includes('not the token')").await;
    browser.write("#token", TOKEN).await;
    browser.click("button").await;
    browser.until("return location.pathname == '/ui/tasks/guarded'").await;
    assert_eq!(browser.run("return document.cookie").await, "", "no script reads the session");
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "a figure")]
async fn a_browser_follows_tasks_and_approves_a_plan() {
    let Some(mut browser) = Browser::start(SUITE, "browser").await else { return };
    let Some(consul) = parts::consul_and_terraform(SUITE.0).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (service, number) in [("web", 1), ("api", 1), ("api", 2)] {
        put(&consul, service, number).await;
    }
    fs::write(folder.join("token"), TOKEN).unwrap();
    let config = format!("api_token_file = \"token\"\n{}", tasks(folder));
    let mut sync = SyncProcess::new(folder, &consul.address(), &config);
    sync.start();
    sync.until("the API is served", || sync.address().is_some()).await;
    let base = sync.address().unwrap();
    browser.look(1200, 800, "light").await;
    log_in(&browser, &base).await;
    let refused = browser.complaints().await;
    assert!(refused.iter().all(|line| line.contains("401 (Unauthorized)")), "{refused:?}");

    let seen = a_change_appears(&browser, &consul, &sync, &base).await;
    println!("status_page: a run shows on its page {seen} ms after its end");
    approves(&browser, &sync, folder, &base).await;
    everyone_can_read(&browser, &base).await;
    let complaints = browser.complaints().await;
    // The one that was brought in on purpose.
    let on_purpose = |line: &String| line.contains("inline script");
    assert!(complaints.iter().all(on_purpose) && !complaints.is_empty(), "{complaints:?}");
    another_name_shows_nothing(&browser, &sync).await;

    let asked = browser.asked().await;
    let own = |url: &String| url.starts_with(&base) || url.contains(REBOUND);
    assert!(asked.iter().any(|url| url.ends_with("live.js")), "{asked:?}");
    let elsewhere: Vec<&String> = asked.iter().filter(|url| !own(url)).collect();
    let elsewhere: Vec<_> = elsewhere.iter().filter(|url| url.starts_with("http")).collect();
    assert!(elsewhere.is_empty(), "{elsewhere:?}");
    browser.close().await;
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}

/// A change in Consul shows on the open page; returns how long after the end of its run, in
/// milliseconds.
async fn a_change_appears(
    browser: &Browser,
    consul: &Consul,
    sync: &SyncProcess,
    base: &str,
) -> i64 {
    browser.open(&format!("{base}/ui/tasks/front")).await;
    browser.until("return document.querySelectorAll('.events > li').length == 1").await;
    browser.until("return document.querySelector('#live').innerText == 'Live'").await;
    browser.run("window.sameAsBefore = true").await;
    put(consul, "web", 2).await;
    browser.until("return document.querySelectorAll('.events > li').length == 2").await;
    let seen = Local::now();
    assert_eq!(browser.run("return window.sameAsBefore").await, true, "it was not loaded again");
    assert!(browser.text("#task").await.contains("web-2"), "its inputs are shown");
    let end = newest(sync, "front").await["end_time"].as_str().unwrap().to_owned();
    (seen - DateTime::parse_from_rfc3339(&end).unwrap().with_timezone(&Local)).num_milliseconds()
}

async fn approves(browser: &Browser, sync: &SyncProcess, folder: &Path, base: &str) {
    browser.open(&format!("{base}/ui/tasks/guarded")).await;
    browser.until("return !!document.querySelector('#approve')").await;
    let text = browser.text("#task").await;
    assert!(text.contains("1 to add, 0 to change, 0 to destroy"), "{text}");
    assert!(text.contains("local_file") || text.contains("terraform_data"), "{text}");
    // The script that tells of it works, and one that somebody brings in does not.
    let inline = "const it = document.createElement('script'); it.textContent = 'window.evil = 1'; \
                  document.body.append(it); return window.evil ?? null";
    assert_eq!(browser.run(inline).await, Value::Null, "the page has no policy");
    for (page, name) in [("/ui/", "tasks"), ("/ui/tasks/guarded", "task")] {
        for scheme in ["light", "dark"] {
            // What is below is the module's folder on this machine.
            browser.look(1200, 600, scheme).await;
            browser.open(&format!("{base}{page}")).await;
            browser.until("return document.querySelector('#live').innerText == 'Live'").await;
            assert_eq!(browser.barriers().await, Vec::<String>::new(), "{page}, {scheme}");
            picture(browser, &format!("status-{name}-{scheme}.png")).await;
        }
    }
    assert!(!folder.join("guarded.rules").exists(), "nothing is applied so far");
    browser.open(&format!("{base}/ui/tasks/guarded")).await;
    browser.click("#approve").await;
    browser.until("return document.querySelector('.title .state').innerText == 'Successful'").await;
    assert!(browser.run("return !document.querySelector('#approve')").await == true);
    let rules = fs::read_to_string(folder.join("guarded.rules")).unwrap();
    assert!(rules.contains("api-1") && rules.contains("api-2"), "{rules}");
    assert_eq!(newest(sync, "guarded").await["success"], true);
}

/// Writes a picture for the README, if somebody asked for one.
async fn picture(browser: &Browser, file: &str) {
    let Some(folder) = std::env::var_os("STATUS_PAGE_IMAGES").map(PathBuf::from) else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    fs::create_dir_all(&folder).unwrap();
    browser.picture(&folder.join(file)).await;
}

/// Every page, in both schemes, on a large screen and on a phone, by keyboard, and without
/// scripts.
async fn everyone_can_read(browser: &Browser, base: &str) {
    for page in PAGES {
        browser.look(1200, 800, "light").await;
        browser.open(&format!("{base}{page}")).await;
        for scheme in ["light", "dark"] {
            browser.look(1200, 800, scheme).await;
            assert_eq!(browser.barriers().await, Vec::<String>::new(), "{page}, {scheme}");
        }
        browser.look(360, 740, "light").await;
        let width = browser.run("return document.documentElement.scrollWidth").await;
        assert!(width.as_u64().unwrap() <= 360, "{page} is {width} wide on a phone");
        assert_eq!(browser.barriers().await, Vec::<String>::new(), "{page}, on a phone");
    }
    browser.look(1200, 800, "light").await;
    browser.open(&format!("{base}/ui/")).await;
    browser.tab().await;
    assert_eq!(browser.run("return document.activeElement.className").await, "skip");
    assert_eq!(browser.run("return document.activeElement.matches(':focus-visible')").await, true);

    browser.command("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
    for (page, text) in [
        ("/ui/", ">front</a>"),
        ("/ui/tasks/front", "web-2"),
        ("/ui/watches", "health.service"),
        ("/ui/cluster", "single instance"),
        ("/ui/systems", "driver terraform"),
    ] {
        browser.command("Page.navigate", json!({"url": format!("{base}{page}")})).await;
        let loaded = async {
            while !browser.html().await.contains(text) {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        let loaded = tokio::time::timeout(crate::sync::PATIENCE, loaded).await;
        assert!(loaded.is_ok(), "{page} without scripts lacks {text}");
    }
    browser.command("Emulation.setScriptExecutionDisabled", json!({"value": false})).await;
}

/// The page under another name that leads to this machine.
async fn another_name_shows_nothing(browser: &Browser, sync: &SyncProcess) {
    let base = sync.address().unwrap().replace("127.0.0.1", REBOUND);
    for path in ["/ui/", "/ui/login", "/ui/tasks/front"] {
        browser.open(&format!("{base}{path}")).await;
        let shown = browser.html().await;
        assert!(shown.contains("does not know itself by the name"), "{shown}");
        assert!(!shown.contains("front"), "{shown}");
    }
}

#[tokio::test]
async fn a_followers_page_says_who_leads() {
    let Some(mut browser) = Browser::start(SUITE, "follower").await else { return };
    let tool = if find("terraform").is_some() { "terraform" } else { "tofu" };
    let (Some(_tool), Some(part)) =
        (SUITE.part(tool, "follower"), SUITE.part("consul", "follower"))
    else {
        return;
    };
    let settings = json!({ "session_ttl_min": "1s" });
    let consul = Consul::start_with(&part.path, settings).await.unwrap();
    put(&consul, "web", 1).await;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut one = process(folder, 1, &consul.address());
    give_module(folder, 1);
    one.start();
    leads(&one, 1, 1).await;
    one.ran("rules", 1).await;
    let mut two = process(folder, 2, &consul.address());
    give_module(folder, 2);
    two.start();
    two.until("the API is served", || two.address().is_some()).await;
    let base = two.address().unwrap();
    browser.look(1200, 800, "light").await;
    // Without a token nobody logs in.
    browser.open(&format!("{base}/ui/")).await;
    browser.until("return document.body.innerText.includes('The leader is cts-01')").await;
    assert!(!browser.text("main").await.contains("rules"), "tasks are shown by the leader");
    browser.open(&format!("{base}/ui/cluster")).await;
    browser.until("return document.querySelectorAll('tbody tr').length == 2").await;
    let shown = browser.text("main").await;
    assert!(shown.contains("follows") && shown.contains("cluster-a"), "{shown}");
    assert!(browser.text("tbody tr").await.contains("leader"), "{shown}");
    for scheme in ["light", "dark"] {
        browser.look(1200, 800, scheme).await;
        assert_eq!(browser.barriers().await, Vec::<String>::new(), "{scheme}");
    }

    // The page notices that this instance leads now.
    let term = "return Number([...document.querySelectorAll('dt')]\
                .find((it) => it.innerText == 'Term').nextElementSibling.innerText)";
    let before = browser.run(term).await.as_u64().unwrap();
    assert_eq!(one.end("-TERM").await.code(), Some(0), "{}", one.log());
    leads(&two, 2, 1).await;
    browser.until("return document.querySelector('.tiles').innerText.includes('leads')").await;
    assert!(browser.run(term).await.as_u64().unwrap() > before);
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.close().await;
    assert_eq!(two.end("-TERM").await.code(), Some(0), "{}", two.log());
}
