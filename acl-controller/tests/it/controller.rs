//! The loop: when it works, and when it ends.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use acl_controller::{
    Controller, ControllerOptions, Error, Reconciler, Report, Result, Writer, partition,
};
use async_trait::async_trait;
use consul_watch::testing::{Behaviour, Fault, TestClock};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::scene::Scene;

/// Keeps when it was asked for what; answers as it is told.
#[derive(Debug, Default)]
struct Recorder {
    start: Mutex<Option<Instant>>,
    calls: Mutex<Vec<(u64, &'static str)>>,
    failures: AtomicUsize,
    retry_after: Option<Duration>,
    hangs: bool,
}

impl Recorder {
    fn note(&self, what: &'static str) {
        let start = *self.start.lock().unwrap().get_or_insert_with(Instant::now);
        self.calls.lock().unwrap().push((start.elapsed().as_secs(), what));
    }

    fn calls(&self) -> Vec<(u64, &'static str)> {
        self.calls.lock().unwrap().clone()
    }
}

#[async_trait]
impl Reconciler for Recorder {
    async fn prepare(&self, _writer: &Writer) -> Result<()> {
        self.note("prepare");
        Ok(())
    }

    async fn pass(&self, _writer: &Writer, check: bool) -> Result<Report> {
        self.note(if check { "check" } else { "pass" });
        if self.hangs {
            std::future::pending::<()>().await;
        }
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::Other {
                operation: "listing tasks".to_owned(),
                retryable: true,
                retry_after: self.retry_after,
                source: "ThrottlingException".into(),
            });
        }
        Ok(Report::default())
    }

    async fn cleanup(&self, _writer: &Writer, _force: bool) -> Result<Report> {
        Ok(Report::default())
    }
}

async fn run_for(recorder: &Arc<Recorder>, options: ControllerOptions, time: Duration) {
    let stop = CancellationToken::new();
    let controller =
        Controller::new(Arc::clone(recorder), options).with_clock(Arc::new(TestClock::default()));
    let running = tokio::spawn(controller.run(stop.clone()));
    tokio::time::sleep(time).await;
    stop.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pass_comes_after_each_interval_and_a_check_now_and_then() {
    let recorder = Arc::new(Recorder::default());
    let mut options = ControllerOptions::default();
    options.check_interval = Duration::from_secs(25);
    run_for(&recorder, options, Duration::from_secs(65)).await;
    assert_eq!(
        recorder.calls(),
        [
            (0, "prepare"),
            (10, "pass"),
            (20, "pass"),
            (30, "check"),
            (40, "pass"),
            (50, "pass"),
            (60, "check")
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn passes_that_cannot_list_become_rarer_and_then_regular_again() {
    let recorder = Arc::new(Recorder { failures: AtomicUsize::new(4), ..Recorder::default() });
    run_for(&recorder, ControllerOptions::default(), Duration::from_mins(6)).await;
    let times: Vec<u64> = recorder.calls().iter().map(|(at, _)| *at).collect();
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // Jitter adds up to a fifth.
    for (gap, least) in gaps[1..5].iter().zip([10, 20, 40, 80]) {
        assert!((least..=least + least / 5 + 1).contains(gap), "{gaps:?}");
    }
    assert!(gaps[5..].iter().all(|gap| *gap == 10 || *gap == 11), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn the_wait_that_the_other_side_asks_for_is_kept() {
    let recorder = Arc::new(Recorder {
        failures: AtomicUsize::new(1),
        retry_after: Some(Duration::from_secs(45)),
        ..Recorder::default()
    });
    run_for(&recorder, ControllerOptions::default(), Duration::from_mins(1)).await;
    assert_eq!(recorder.calls(), [(0, "prepare"), (10, "pass"), (55, "pass")]);
}

/// Losing the lead cancels `stop`: nothing is written after that, wherever the pass was.
#[tokio::test(start_paused = true)]
async fn a_controller_that_is_stopped_ends_at_once_in_the_middle_of_a_pass() {
    let recorder = Arc::new(Recorder { hangs: true, ..Recorder::default() });
    let begin = Instant::now();
    run_for(&recorder, ControllerOptions::default(), Duration::from_mins(5)).await;
    assert_eq!(begin.elapsed(), Duration::from_mins(5));
    assert_eq!(recorder.calls(), [(0, "prepare"), (10, "pass")]);
}

/// Case ACL33: one interval reconciles every resource, and the namespaces.
#[tokio::test(start_paused = true)]
async fn resources_and_namespaces_are_in_line_within_one_interval() {
    let consul = acl_controller::testing::EnterpriseConsul::new(crate::scene::ROOT);
    let tasks = acl_controller::testing::MemoryTasks::new();
    let secrets = Arc::new(acl_controller::MemorySecrets::new());
    for (id, service) in [("1", "web"), ("2", "api")] {
        let task = acl_controller::task::Task::new(
            format!("a/{id}"),
            format!("x:task-definition/{service}:1"),
        );
        tasks.set(
            task.with_tag("consul.hashicorp.com/mesh", "true")
                .with_tag("consul.hashicorp.com/partition", "default")
                .with_tag("consul.hashicorp.com/namespace", format!("ns-{service}")),
        );
        secrets.create(format!("pre-{service}-ns-{service}-default"));
    }
    let mut settings = acl_controller::ServiceTokenSettings::new("c1", "pre");
    settings.partition = partition(true, "").unwrap();
    let reconciler = acl_controller::ServiceTokens::new(
        Arc::new(consul.client()),
        Arc::new(tasks),
        secrets,
        settings,
    )
    .unwrap();
    let stop = CancellationToken::new();
    let controller = Controller::new(reconciler, ControllerOptions::default())
        .with_clock(Arc::new(TestClock::default()));
    let running = tokio::spawn(controller.run(stop.clone()));
    tokio::time::sleep(Duration::from_secs(11)).await;
    stop.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(consul.namespaces("default").len(), 3);
    let client = consul.scope("default", "default").unwrap().client();
    let tokens = client
        .acl_tokens(&consul_watch::client::AclTokenFilter::default(), &crate::scene::read())
        .await
        .unwrap()
        .value;
    assert_eq!(tokens.iter().filter(|token| token.description.starts_with("Token for")).count(), 2);
}

/// Case ACL43: a partition that is given but not enabled is an error at the start.
#[test]
fn a_partition_that_is_not_enabled_is_a_startup_error() {
    let error = partition(false, "p1").unwrap_err();
    assert!(matches!(error, Error::Config { .. }));
    assert!(error.to_string().contains("without enabling partitions"), "{error}");
    assert_eq!(partition(true, "").unwrap().as_deref(), Some("default"));
    assert_eq!(partition(true, "p1").unwrap().as_deref(), Some("p1"));
    assert_eq!(partition(false, "").unwrap(), None);
}

/// The name stands in rules: it must not be able to say more there than a name.
#[test]
fn a_partition_whose_name_says_more_is_refused() {
    let names = ["p\" { policy = \"write\" } key_prefix \"", "a b", "p\n", "ü", &"x".repeat(65)];
    for name in names {
        let error = partition(true, name).unwrap_err();
        assert!(error.to_string().contains("is no name of a partition"), "{error}");
        let scene = Scene::double(Behaviour::Current);
        let mut settings = scene.settings();
        settings.partition = Some(name.to_owned());
        let (consul, tasks) = (Arc::new(scene.client.clone()), Arc::new(scene.tasks.clone()));
        let secrets = Arc::clone(&scene.secrets);
        let (reader, listed) = (Arc::clone(&consul), Arc::clone(&tasks));
        let made = acl_controller::ServiceTokens::new(reader, listed, secrets, settings);
        assert!(matches!(made, Err(Error::Config { .. })), "{name}");
        let mut settings = acl_controller::LoginTokenSettings::new(&scene.cluster, "10.0.0.9");
        settings.partition = Some(name.to_owned());
        let made = acl_controller::LoginTokens::new(consul, tasks, settings);
        assert!(matches!(made, Err(Error::Config { .. })), "{name}");
    }
}

#[tokio::test]
async fn a_run_that_cannot_prepare_ends_with_the_error() {
    let scene = Scene::double(Behaviour::Current);
    scene.double.as_ref().unwrap().inject_always(Some(Fault::status(500, "No cluster leader")));
    let controller = Controller::new(scene.login_tokens(), ControllerOptions::default());
    let error = controller.run(CancellationToken::new()).await.unwrap_err();
    assert!(error.is_retryable());
    assert!(consul_watch::error_chain(&error).contains("No cluster leader"));
}

#[tokio::test]
async fn once_and_cleanup_tell_what_they_did() {
    let scene = Scene::double(Behaviour::Current);
    let web = scene.name("web");
    scene.secret(&web);
    scene.start("1", &web);
    let mut dry = ControllerOptions::default();
    dry.dry_run = true;
    let mut settings = scene.settings();
    settings.client_secret = Some(scene.secret("clients"));
    let told = Controller::new(scene.service_tokens_with(settings), dry.clone()).once().await;
    // The preparation and the pass both miss what the clients need.
    let told = told.unwrap().changes;
    assert_eq!(told.len(), 3 + 3, "{told:?}");
    let told = Controller::new(scene.login_tokens(), dry).once().await.unwrap().changes;
    assert_eq!(told.len(), 2 + 3 + 1 + 4 + 2 + 1, "{told:?}");
    assert!(scene.tokens().await.is_empty());
    let controller = Controller::new(scene.service_tokens(), ControllerOptions::default());
    assert_eq!(controller.once().await.unwrap().changes.len(), 3);
    assert_eq!(scene.tokens().await.len(), 1);
    assert!(controller.cleanup(false).await.is_err());
    assert_eq!(controller.cleanup(true).await.unwrap().changes.len(), 2);
    assert!(scene.tokens().await.is_empty() && scene.policies().await.is_empty());
}
