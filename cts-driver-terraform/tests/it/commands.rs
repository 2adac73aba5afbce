//! How commands are called, interrupted and killed, with a script in their place.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use consul_watch::testing::Log;
use cts_tasks::{ApplyRequest, Error, Outcome, PlanPurpose, RunContext, Stop, StopReason};
use serde_json::json;

use crate::site::{Site, context, eventually, services};

/// The script cannot trap a signal that was ignored when it started, as under
/// `nohup`; a handler of ours is back at the default in what we start.
fn honour_interrupts() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    if ignored & (1 << (nix::sys::signal::Signal::SIGINT as u32 - 1)) != 0 {
        let interrupt = tokio::signal::unix::SignalKind::interrupt();
        drop(tokio::signal::unix::signal(interrupt).unwrap());
    }
}

pub(crate) fn fake(version: &str) -> Site {
    honour_interrupts();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fake/terraform");
    let mut site = Site::with_binary(&script);
    site.options.environment.push(("FAKE_VERSION".into(), version.into()));
    site
}

fn calls(site: &Site) -> Vec<String> {
    let calls = std::fs::read_to_string(site.task_dir().join("calls")).unwrap_or_default();
    calls.lines().map(str::to_owned).collect()
}

fn plan_file(site: &Site) -> PathBuf {
    site.task_dir().join(".cts-plans/new.tfplan")
}

#[tokio::test]
async fn command_lines_are_the_specified_ones() {
    let site = fake("1.11.4");
    let driver = site.driver(&json!({}));
    driver.prepare(&context()).await.unwrap();
    let inputs = services(&[]);
    driver.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap();
    driver.plan(&inputs, PlanPurpose::Inspect, &context()).await.unwrap();
    driver.destroy(&context()).await.unwrap();
    let plan = plan_file(&site);
    let plan = plan.display();
    assert_eq!(
        calls(&site),
        [
            "init -no-color -force-copy -input=false -backend=true -get=true -upgrade=false"
                .to_owned(),
            "workspace new -no-color test".to_owned(),
            "workspace select -no-color test".to_owned(),
            "validate -no-color -json".to_owned(),
            "apply -no-color -auto-approve -input=false -lock=true -parallelism=10 -refresh=true \
             -json"
                .to_owned(),
            format!(
                "plan -no-color -input=false -detailed-exitcode -lock-timeout=0s -lock=true \
                 -parallelism=10 -refresh=true -out={plan} -json"
            ),
            format!("show -json {plan}"),
            format!("show -no-color {plan}"),
            "init -no-color -force-copy -input=false -backend=true -get=true -upgrade=false"
                .to_owned(),
            "workspace new -no-color test".to_owned(),
            "workspace select -no-color test".to_owned(),
            "destroy -no-color -auto-approve -input=false -lock=true -parallelism=10 \
             -refresh=true -json"
                .to_owned(),
        ]
    );
}

#[tokio::test]
async fn a_terraform_without_the_stream_applies_a_saved_plan() {
    let site = fake("0.14.11");
    let driver = site.driver(&json!({}));
    driver.prepare(&context()).await.unwrap();
    let inputs = services(&[]);
    let applied = driver.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap();
    assert!(matches!(applied, Outcome::Applied(changes) if changes.add == 1));
    let calls = calls(&site);
    assert!(calls[0].ends_with("-get-plugins=true -verify-plugins=true"), "{calls:?}");
    assert!(!calls[4].contains("-json"), "{calls:?}");
    let plan = plan_file(&site);
    assert!(calls[7].ends_with(&format!("-refresh=true {}", plan.display())), "{calls:?}");
}

#[tokio::test]
async fn the_environment_is_the_specified_one() {
    let mut site = fake("1.11.4");
    for (name, value) in [("TF_LOG", "TRACE"), ("TF_VAR_x", "kept"), ("TF_WORKSPACE", "w")] {
        site.options.environment.push((name.into(), value.into()));
    }
    site.driver_block = json!({"persist_log": true});
    site.consul.address = "127.0.0.1:1".into();
    site.consul.token = Some("pl4nted".into());
    let driver = site.driver(&json!({}));
    driver.prepare(&context()).await.unwrap();
    let environment = std::fs::read_to_string(site.task_dir().join("environment.init")).unwrap();
    let log = format!("TF_LOG_PATH={}", site.task_dir().join("terraform.log").display());
    for line in [
        "CONSUL_HTTP_ADDR=127.0.0.1:1",
        "CONSUL_HTTP_TOKEN=pl4nted",
        "TF_IN_AUTOMATION=1",
        "TF_LOG=TRACE",
        "TF_VAR_x=kept",
        "TF_WORKSPACE=",
        &log,
    ] {
        assert!(
            environment.lines().any(|found| found == line),
            "{line} is missing:\n{environment}"
        );
    }
}

#[tokio::test]
async fn a_version_that_is_not_supported_stops_the_start() {
    let site = fake("1.99.0");
    let error = site.factory().start().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "unsupported Terraform version: remove Terraform from the configured path or specify a \
         new path to safely install a compatible version. Found 1.99.0, supported is >= 0.13.0, \
         <= 1.14.3"
    );

    let mut site = fake("1.99.0");
    site.driver_block = json!({"supported_versions": ">= 1.0", "backend": {"local": {}}});
    site.factory().start().await.unwrap();

    let mut site = fake("0.13.7");
    site.driver_block = json!({"backend": {"pg": {}}});
    assert_eq!(
        site.factory().start().await.unwrap_err().to_string(),
        "Consul-Terraform-Sync does not support pg backend in automation with Terraform <= 0.13: \
         0.13.7"
    );
}

#[tokio::test]
async fn another_version_than_configured_is_warned_about_and_used() {
    for (configured, warned) in [("1.11.4", false), ("1.5.7", true)] {
        let mut site = fake("1.11.4");
        site.driver_block = json!({"version": configured, "backend": {"local": {}}});
        let log = Log::start();
        site.factory().start().await.unwrap();
        let told = log.with("another version than configured is used");
        assert_eq!(told.len(), usize::from(warned), "{told:?}");
        assert!(told.iter().all(|line| line.contains("1.5.7") && line.contains("1.11.4")));
    }
}

#[tokio::test]
async fn a_binary_that_cannot_be_executed_is_named() {
    let mut site = fake("1.11.4");
    let bin = site.path().join("broken");
    std::fs::create_dir(&bin).unwrap();
    // Not a program of this machine; it has been on disk since the checkout.
    let garbage = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fake/garbage");
    std::os::unix::fs::symlink(garbage, bin.join("terraform")).unwrap();
    site.options.path = Some(bin);
    let error = site.factory().start().await.unwrap_err().to_string();
    assert!(error.starts_with("incompatible Terraform binary: remove Terraform"), "{error}");
}

#[tokio::test]
async fn a_failing_init_repeats_what_was_printed_and_is_not_tried_twice() {
    let site = fake("1.11.4");
    std::fs::create_dir_all(site.task_dir()).unwrap();
    std::fs::write(site.task_dir().join("fail.init"), "╷\n│ Error: No network\n╵\n").unwrap();
    let error = site.driver(&json!({})).prepare(&context()).await.unwrap_err();
    assert_eq!(error.to_string(), "error tf-init for 'test': init failed: Error: No network");
    assert!(error.is_retryable());
    assert_eq!(calls(&site).len(), 1);
}

/// Stops a call that hangs, and tells how it ended and how long that took.
#[tokio::test]
async fn a_validation_that_fails_without_a_reason_says_where_to_look() {
    let site = fake("1.11.4");
    std::fs::create_dir_all(site.task_dir()).unwrap();
    std::fs::write(site.task_dir().join("silent.validate"), "").unwrap();
    let error = site.driver(&json!({})).prepare(&context()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "error tf-validate for 'test': the module is not valid, and the tool gave no reason; \
             run `validate` in {}",
            site.task_dir().display()
        )
    );
}

async fn stopped(site: &Site, mode: &str, reason: StopReason) -> (Error, Duration) {
    let driver = site.driver(&json!({}));
    driver.prepare(&context()).await.unwrap();
    std::fs::write(site.task_dir().join(format!("{mode}.apply")), "").unwrap();
    let stop = Stop::new();
    let running = {
        let stop = stop.clone();
        tokio::spawn(async move {
            let inputs = services(&[]);
            driver.apply(ApplyRequest::Inputs(&inputs), &RunContext::new(stop)).await
        })
    };
    eventually("the call", || calls(site).iter().any(|call| call == mode || call == "hanging"))
        .await;
    let asked = tokio::time::Instant::now();
    stop.stop(reason);
    (running.await.unwrap().unwrap_err(), asked.elapsed())
}

#[tokio::test]
async fn a_stop_interrupts_first() {
    for reason in [StopReason::Shutdown, StopReason::LeadershipLost, StopReason::TimeLimit] {
        let site = fake("1.11.4");
        let (error, took) = stopped(&site, "hang", reason).await;
        assert!(matches!(error, Error::Stopped { reason: told } if told == reason), "{error:?}");
        assert!(calls(&site).contains(&"interrupted".to_owned()));
        assert!(took < Duration::from_secs(4), "{took:?}");
    }
}

#[tokio::test]
async fn what_does_not_end_in_time_is_killed_with_its_children() {
    let mut site = fake("1.11.4");
    site.options.fixed_grace = Some(Duration::from_millis(200));
    let (error, took) = stopped(&site, "deaf", StopReason::Shutdown).await;
    assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
    assert!(took >= Duration::from_millis(200), "{took:?}");
    eventually("the end of all processes", || processes_in(&site.task_dir()).is_empty()).await;
}

/// A resource may take minutes; until the stop is urgent the command gets them.
#[tokio::test]
async fn a_shutdown_interrupts_once_and_waits_until_it_is_urgent() {
    let site = fake("1.11.4");
    let driver = site.driver(&json!({}));
    driver.prepare(&context()).await.unwrap();
    std::fs::write(site.task_dir().join("finish.apply"), "").unwrap();
    let stop = Stop::new();
    let run = |stop: &Stop| {
        let (driver, stop) = (std::sync::Arc::clone(&driver), stop.clone());
        tokio::spawn(async move {
            let inputs = services(&[]);
            driver.apply(ApplyRequest::Inputs(&inputs), &RunContext::new(stop)).await
        })
    };
    let said = |word: &str| calls(&site).iter().filter(|call| *call == word).count();
    let running = run(&stop);
    eventually("the call", || said("finish") == 1).await;
    stop.stop(StopReason::Shutdown);
    eventually("the interrupt", || said("interrupted") == 1).await;
    stop.stop(StopReason::Shutdown);
    // Longer than it was ever given before.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!running.is_finished());
    std::fs::write(site.task_dir().join("go"), "").unwrap();
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Stopped { reason: StopReason::Shutdown }), "{error:?}");
    assert_eq!(said("interrupted"), 1);

    std::fs::remove_file(site.task_dir().join("go")).unwrap();
    let stop = Stop::new();
    let running = run(&stop);
    eventually("the call", || said("finish") == 2).await;
    stop.stop(StopReason::Shutdown);
    eventually("the interrupt", || said("interrupted") == 2).await;
    stop.stop_now(StopReason::Shutdown);
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Stopped { reason: StopReason::Shutdown }), "{error:?}");
    eventually("the end of all processes", || processes_in(&site.task_dir()).is_empty()).await;
}

#[tokio::test]
async fn a_call_that_is_dropped_interrupts_its_command() {
    let site = fake("1.11.4");
    let driver = site.driver(&json!({}));
    driver.prepare(&context()).await.unwrap();
    std::fs::write(site.task_dir().join("hang.apply"), "").unwrap();
    let running = tokio::spawn(async move {
        let inputs = services(&[]);
        driver.apply(ApplyRequest::Inputs(&inputs), &context()).await
    });
    eventually("the call", || calls(&site).contains(&"hanging".to_owned())).await;
    running.abort();
    eventually("the interrupt", || calls(&site).contains(&"interrupted".to_owned())).await;
}

#[tokio::test]
async fn nothing_is_started_after_the_stop() {
    let site = fake("1.11.4");
    let driver = site.driver(&json!({}));
    driver.prepare(&context()).await.unwrap();
    let before = calls(&site).len();
    let stop = Stop::new();
    stop.stop(StopReason::TaskDeleted);
    let inputs = services(&[]);
    let error = driver.apply(ApplyRequest::Inputs(&inputs), &RunContext::new(stop)).await;
    assert!(matches!(error, Err(Error::Stopped { reason: StopReason::TaskDeleted })));
    assert_eq!(calls(&site).len(), before);
}

/// Ids of processes whose working directory this is.
pub(crate) fn processes_in(directory: &Path) -> Vec<i32> {
    let Ok(directory) = directory.canonicalize() else { return Vec::new() };
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let entry = entry.ok()?;
        let id = entry.file_name().to_str()?.parse().ok()?;
        (std::fs::read_link(entry.path().join("cwd")).ok()? == directory).then_some(id)
    });
    processes.collect()
}
