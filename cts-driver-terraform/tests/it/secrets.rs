//! A planted secret is found nowhere but where it has to be.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use consul_watch::testing::{Log, real::Consul};
use cts_tasks::{Action, ApplyRequest, PlanPurpose, ResourceChange};
use serde_json::{Value as Json, json};

use crate::{
    fixtures::provider,
    site::{SUITE, Site, context, eventually, services, tools},
};

const PLANTED: &str = "pl4nted-5ecret";
const MASKED: &str = ResourceChange::MASKED;

/// Looks at the arguments of all processes until it is told to end.
struct Scan {
    end: Arc<AtomicBool>,
    seen: Arc<AtomicUsize>,
    thread: std::thread::JoinHandle<()>,
}

impl Scan {
    fn start(secret: &'static str) -> Self {
        let (end, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (ends, sees) = (Arc::clone(&end), Arc::clone(&seen));
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::SeqCst) {
                sees.fetch_add(arguments_with(secret), Ordering::SeqCst);
                std::thread::yield_now();
            }
        });
        Self { end, seen, thread }
    }

    /// How often a process with the secret in its arguments was seen.
    fn end(self) -> usize {
        self.end.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
        self.seen.load(Ordering::SeqCst)
    }
}

fn arguments_with(text: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .filter(|arguments| String::from_utf8_lossy(arguments).contains(text))
        .count()
}

/// Files below the task's directory that hold the secret, with their modes.
fn files_with_the_secret(site: &Site) -> Vec<(String, u32)> {
    use std::os::unix::fs::PermissionsExt as _;

    let mut found = Vec::new();
    let mut directories = vec![site.task_dir()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                directories.push(path);
            } else if std::fs::read(&path)
                .is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(PLANTED))
            {
                let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
                found.push((entry.file_name().into_string().unwrap(), mode));
            }
        }
    }
    found.sort();
    found
}

/// Without this the other tests could pass by looking at nothing.
#[tokio::test]
async fn the_control_finds_what_is_planted() {
    let log = Log::start();
    tracing::info!(token = PLANTED, "planted");
    assert!(log.text().contains(PLANTED));
    // Another word, because the scans of the other tests run meanwhile.
    let scan = Scan::start("c0ntrol-5ecret");
    let mut planted = tokio::process::Command::new("sh")
        .args(["-c", "read -r _", "c0ntrol-5ecret"])
        .stdin(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let seen = Arc::clone(&scan.seen);
    eventually("the sight of it", || seen.load(Ordering::SeqCst) > 0).await;
    planted.kill().await.unwrap();
    assert!(scan.end() > 0);
}

/// A Consul without access control takes any token.
#[tokio::test]
async fn the_token_of_consul_reaches_the_tool_and_nothing_else() {
    let case = "the_token_of_consul_reaches_the_tool_and_nothing_else";
    let mut runs = Vec::new();
    for part in SUITE.parts("consul", case) {
        let consul = Arc::new(Consul::start(&part.path).await.unwrap());
        runs.extend(tools(case).into_iter().map(|tool| (Arc::clone(&consul), tool)));
    }
    for (number, (consul, tool)) in runs.into_iter().enumerate() {
        let mut site = Site::new(&tool);
        site.driver_block = json!({"log": true});
        // In the backend's own block it stands where the tool keeps its backend, and
        // there alone.
        let in_block = number % 2 == 1;
        if in_block {
            site.driver_block["backend"] = json!({"consul": {"http_auth": format!("u:{PLANTED}")}});
        }
        site.consul.address = consul.address();
        site.consul.token = Some(PLANTED.into());
        let log = Log::start();
        let scan = Scan::start(PLANTED);
        let driver = site.driver(&json!({}));
        driver.prepare(&context()).await.unwrap();
        let inputs = services(&[("a", 80)]);
        driver.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap();
        driver.destroy(&context()).await.unwrap();
        assert!(log.text().contains("workspace new -no-color test"), "commands are logged");
        for text in [log.text(), format!("{driver:?} {:?}", site.factory())] {
            assert!(!text.contains(PLANTED), "{text}");
        }
        assert_eq!(scan.end(), 0);
        let kept = [("terraform.tfstate".to_owned(), 0o600)];
        let kept = if in_block { &kept[..] } else { &[] };
        assert_eq!(files_with_the_secret(&site), kept);
    }
}

/// Arguments of providers have to be in a file, which is their owner's alone.
#[tokio::test]
async fn arguments_of_providers_stand_in_one_file_for_the_owner() {
    for tool in tools("arguments_of_providers_stand_in_one_file_for_the_owner") {
        let mut site = Site::new(&tool);
        site.driver_block = json!({"log": true, "backend": {"local": {}}});
        let mut secret =
            provider("terraform", None, &json!({"token": PLANTED, "o": {"k": PLANTED}}));
        secret.task_env.insert("PLANTED_TASK_ENV".into(), PLANTED.into());
        site.providers = vec![secret];
        let log = Log::start();
        let scan = Scan::start(PLANTED);
        let driver = site.driver(&json!({"providers": ["terraform"]}));
        // The provider knows no arguments, so the module is not valid.
        let error = driver.prepare(&context()).await.unwrap_err();
        assert!(error.to_string().contains("token"), "{error}");
        for text in [log.text(), error.to_string(), format!("{error:?} {driver:?}")] {
            assert!(!text.contains(PLANTED), "{text}");
        }
        assert_eq!(scan.end(), 0);
        assert_eq!(files_with_the_secret(&site), [("providers.auto.tfvars".to_owned(), 0o600)]);
    }
}

/// In its documents for machines the tool does not mask a sensitive value, and
/// with `log` only what a person would read is logged.
#[tokio::test]
async fn sensitive_values_of_a_plan_are_not_logged_and_its_text_is() {
    for tool in tools("sensitive_values_of_a_plan_are_not_logged_and_its_text_is") {
        let mut site = Site::new(&tool);
        site.driver_block = json!({"log": true, "backend": {"local": {}}});
        let module = site.path().join("secretive");
        std::fs::create_dir(&module).unwrap();
        let text = format!(
            "variable \"services\" {{}}\nvariable \"directory\" {{}}\n\
             resource \"terraform_data\" \"x\" {{\n  input = sensitive(\"{PLANTED}-${{length(var.services)}}\")\n}}\n\
             resource \"terraform_data\" \"y\" {{\n  input = length(var.services)\n}}\n"
        );
        std::fs::write(module.join("main.tf"), text).unwrap();
        let log = Log::start();
        let driver = site.driver(&json!({"module": module}));
        driver.prepare(&context()).await.unwrap();
        let inputs = services(&[]);
        let plan = driver.plan(&inputs, PlanPurpose::Inspect, &context()).await.unwrap();
        let planned = plan.resources.unwrap().resources;
        let [secret, plain] = planned.as_slice() else { panic!("{planned:?}") };
        assert_eq!(secret.after["input"], MASKED);
        assert_eq!((&plain.before, &plain.after["input"]), (&Json::Null, &json!(0)));
        assert_eq!(plain.after["id"], "(known after apply)");
        assert!(!serde_json::to_string(&planned).unwrap().contains(PLANTED));
        driver.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap();
        // The tool does not mark the attribute `output`, which has the value of `input` by now.
        let plan = driver.plan(&services(&[("a", 1)]), PlanPurpose::Apply, &context()).await;
        let planned = plan.unwrap().resources.unwrap().resources;
        let [secret, plain] = planned.as_slice() else { panic!("{planned:?}") };
        assert_eq!((secret.action, &secret.before["input"]), (Action::Update, &json!(MASKED)));
        assert_eq!((&plain.before["input"], &plain.after["input"]), (&json!(0), &json!(1)));
        assert!(!serde_json::to_string(&planned).unwrap().contains(PLANTED));
        let log = log.text();
        for expected in [
            "show -json",
            "(sensitive value)",
            "terraform_data.x: Creation complete",
            "Apply complete! Resources: 2 added",
        ] {
            assert!(log.contains(expected), "{expected} in {log}");
        }
        for unexpected in [PLANTED, "@level", "format_version"] {
            assert!(!log.contains(unexpected), "{unexpected} in {log}");
        }
    }
}

/// A whole deployment: engine, API, guard, state in Consul, secrets of Vault
/// and of the configuration; everything it says is searched.
#[cfg(all(feature = "vault", feature = "testing"))]
#[tokio::test]
async fn a_whole_run_tells_no_secret() {
    let case = "a_whole_run_tells_no_secret";
    let Some(part) = SUITE.part("bao", case) else { return };
    let bao = crate::bao::Bao::start(&part.path).await;
    let mut consuls = Vec::new();
    for part in SUITE.parts("consul", case) {
        consuls.push(Arc::new(Consul::start(&part.path).await.unwrap()));
    }
    bao.write_secret("a", json!({"password": PLANTED})).await;
    let all = consuls
        .iter()
        .flat_map(|consul| tools(case).into_iter().map(|tool| (Arc::clone(consul), tool)));
    for (consul, tool) in all {
        let mut site = Site::new(&tool);
        site.driver_block = json!({"log": true});
        site.consul.address = consul.address();
        site.consul.token = Some(PLANTED.into());
        site.vault = Some(bao.config(crate::bao::ROOT));
        let mut secret = cts_tasks::ProviderBlock::new("terraform");
        secret.alias = Some("a".into());
        let template = r#"{{ with secret "secret/a" }}{{ .Data.data.password }}{{ end }}"#;
        secret.task_env.insert("PLANTED".into(), template.into());
        site.providers = vec![secret];
        let log = Log::start();
        let scan = Scan::start(PLANTED);
        let told = deployment(&site, &consul).await;
        assert!(log.text().contains("Apply complete!"), "the tool's output is logged");
        assert!(told.contains("waits for approval") && told.contains("successful"), "{told}");
        for text in [log.text(), told] {
            assert!(!text.contains(PLANTED), "{text}");
            assert!(!text.contains(crate::bao::ROOT), "{text}");
        }
        assert_eq!(scan.end(), 0);
        assert_eq!(files_with_the_secret(&site), []);
    }
}

/// Runs a guarded task until its plan was approved; returns all events, plans
/// and answers of the API.
#[cfg(all(feature = "vault", feature = "testing"))]
async fn deployment(site: &Site, consul: &Consul) -> String {
    use consul_watch::{Transport as _, Watcher, transport::ExchangeLimits};
    use cts_tasks::{ApiServer, Engine, EngineOptions, Single, Stop, StopReason};

    let api = json!({"Named": [crate::fixtures::named("consul", "", "", "")]});
    let mut task = site.task(&json!({
        "providers": ["terraform.a"],
        "condition": crate::fixtures::services_condition(&api, true),
    }));
    task.guard.require_approval = true;
    let name = task.name.clone();
    let factory = site.factory();
    factory.start().await.unwrap();
    let watcher = Watcher::new(consul.client());
    let engine = Engine::new(watcher, factory, EngineOptions::default());
    let stop = Stop::new();
    engine.load(vec![task], &stop).await.unwrap();
    let server = ApiServer::bind(([127, 0, 0, 1], 0).into(), engine.clone(), Arc::new(Single));
    let server = server.await.unwrap();
    let address = server.local_addr().unwrap();
    let serving = tokio::spawn(server.serve(stop.clone()));
    let (running, ended) = (engine.clone(), stop.clone());
    let work = tokio::spawn(async move { running.run(&ended).await });
    let waits = || engine.waiting_plan(&name).is_ok_and(|plan| plan.is_some());
    eventually("the plan", waits).await;
    let events = || format!("{engine:?}{:?}", engine.state(|state| state.events.clone()));
    let before = events();
    let plan = engine.waiting_plan(&name).unwrap().unwrap();
    // The run that made the plan may not have ended yet.
    while let Err(error) = engine.approve(&name, &plan.id).await {
        assert!(matches!(error, cts_tasks::Error::TaskActive { .. }), "{error:?}");
        tokio::task::yield_now().await;
    }
    let mut told = format!("{before}{plan:?}{}{}", plan.text, events());
    let mut config = consul_watch::ClientConfig::default();
    config.address = address.to_string();
    let transport = consul_watch::transport::SocketTransport::new(&config).unwrap();
    for path in
        ["status", "status/tasks?include=events", "tasks", "tasks/test", "metrics", "health"]
    {
        let request = http::Request::get(format!("http://{address}/v1/{path}"));
        let request = request.body(bytes::Bytes::new()).unwrap();
        let limit = std::time::Duration::from_secs(30);
        let answer = transport.exchange(request, ExchangeLimits::new(limit, limit)).await.unwrap();
        told += &String::from_utf8_lossy(answer.body());
    }
    stop.stop(StopReason::Shutdown);
    work.await.unwrap().unwrap();
    serving.await.unwrap().unwrap();
    told
}
