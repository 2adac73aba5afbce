//! Several controllers at once, and controllers that end anywhere, do no harm.

use std::{pin::pin, task::Poll};

use acl_controller::{Controller, ControllerOptions, Reconciler as _, Writer};
use consul_watch::testing::Behaviour;

use crate::{
    interrupted::{How, Interrupted},
    scene::{Scene, check, pass, shown, try_pass},
};

crate::scene::cases![two_at_once_make_one_of_each, two_at_once_remove_everything];

/// That each service has exactly one token, which its secret holds, and one policy.
async fn assert_converged(scene: &Scene, services: &[String]) {
    let tokens = scene.tokens().await;
    assert_eq!(tokens.len(), services.len(), "{tokens:?}");
    assert_eq!(scene.policies().await.len(), services.len());
    for service in services {
        let (accessor, token) = scene.ids(&format!("{}-{service}", scene.prefix)).await;
        assert!(tokens.iter().any(|token| token.accessor_id == accessor), "{service}");
        assert!(scene.may_register(&token, service).await, "{service}");
    }
}

async fn two_at_once_make_one_of_each(scene: &Scene) {
    let services: Vec<String> = (0..8).map(|number| scene.name(&format!("s{number}"))).collect();
    for service in &services {
        scene.secret(service);
        scene.start(service, service);
    }
    let mut settings = scene.settings();
    settings.concurrency = 4;
    let (one, two) =
        (scene.service_tokens_with(settings.clone()), scene.service_tokens_with(settings));
    tokio::join!(try_pass(&one, false), try_pass(&two, true));
    for _ in 0..3 {
        tokio::join!(try_pass(&one, false), try_pass(&two, false));
    }
    assert_converged(scene, &services).await;
    assert_eq!(pass(&one).await, Vec::<String>::new());
    // A slower check notes in the secrets that the tokens are there, once.
    check(&two).await;
    for reconciler in [&one, &two] {
        assert_eq!(check(reconciler).await, Vec::<String>::new());
    }
}

async fn two_at_once_remove_everything(scene: &Scene) {
    let services: Vec<String> = (0..8).map(|number| scene.name(&format!("s{number}"))).collect();
    for service in &services {
        scene.secret(service);
        scene.start(service, service);
    }
    let (one, two) = (scene.service_tokens(), scene.service_tokens());
    pass(&one).await;
    scene.tasks.clear();
    let (first, second) = tokio::join!(try_pass(&one, false), try_pass(&two, false));
    assert!(first.0.errors.is_empty() && second.0.errors.is_empty(), "{first:?} {second:?}");
    assert!(scene.tokens().await.is_empty() && scene.policies().await.is_empty());
}

/// Two controllers that start together make one client token.
#[tokio::test]
async fn two_that_start_together_make_one_token_for_clients() {
    for seed in 0..20u32 {
        let mut scene = Scene::double(Behaviour::Current);
        let double = scene.double.clone().unwrap();
        scene.client = Interrupted::new(&double, 0..0, How::AnswerLost).1;
        let clients = scene.name("clients");
        scene.secrets.put(&clients, "{}");
        let start = async |delay: u32| {
            let mut settings = scene.settings();
            settings.client_secret = Some(clients.clone());
            let reconciler = scene.service_tokens_with(settings);
            for _ in 0..delay {
                tokio::task::yield_now().await;
            }
            let writer = Writer::new();
            reconciler.prepare(&writer).await.unwrap();
            shown(writer)
        };
        let (one, two, three) = tokio::join!(start(0), start(seed), start(2 * seed));
        let told: Vec<String> = [one, two, three].concat();
        let count = |what: &str| told.iter().filter(|change| change.starts_with(what)).count();
        assert!(
            count("create token") > count("delete token"),
            "what is taken back is told: {told:?}"
        );
        let (accessor, _) = scene.ids(&clients).await;
        let tokens = scene.tokens().await;
        assert_eq!(tokens.len(), 1, "seed {seed}: {tokens:?}");
        assert_eq!(tokens[0].accessor_id, accessor);
    }
}

/// A scene in which a pass has something to make and something to remove.
async fn unsettled(behaviour: Behaviour) -> (Scene, Vec<String>) {
    let scene = Scene::double(behaviour);
    let services: Vec<String> = ["a", "b", "old"].map(|name| scene.name(name)).into();
    for service in &services {
        scene.secret(service);
    }
    let old = scene.start("old", &services[2]);
    pass(&scene.service_tokens()).await;
    scene.tasks.remove(&old);
    for service in &services[..2] {
        scene.start(service, service);
    }
    (scene, services[..2].to_vec())
}

/// A pass that is dropped after any number of steps is made good by the next controller.
#[tokio::test]
async fn a_pass_that_breaks_off_anywhere_is_made_good() {
    for steps in 0.. {
        let (mut scene, services) = unsettled(Behaviour::V1_8).await;
        let admin = scene.client.clone();
        let double = scene.double.clone().unwrap();
        let (_, client) = Interrupted::new(&double, 0..0, How::AnswerLost);
        scene.client = client;
        let finished = {
            let broken = scene.service_tokens();
            let writer = Writer::new();
            let mut work = pin!(broken.pass(&writer, false));
            let mut polls = 0;
            // Each request waits once.
            std::future::poll_fn(|context| {
                if polls == steps {
                    return Poll::Ready(false);
                }
                polls += 1;
                match work.as_mut().poll(context) {
                    Poll::Ready(report) => {
                        assert!(report.unwrap().is_complete());
                        Poll::Ready(true)
                    }
                    Poll::Pending => Poll::Pending,
                }
            })
            .await
        };
        scene.client = admin;
        pass(&scene.service_tokens()).await;
        assert_converged(&scene, &services).await;
        if finished {
            assert!(steps > 10, "the pass waits for more than {steps} requests");
            break;
        }
    }
}

/// Each request of a pass fails once, in turn; the same controller makes it good, and another one.
#[tokio::test]
async fn a_request_that_fails_anywhere_is_made_good() {
    for how in [How::Refused(500), How::Refused(429), How::AnswerLost] {
        for failing in 0.. {
            let (mut scene, services) = unsettled(Behaviour::Current).await;
            let admin = scene.client.clone();
            let double = scene.double.clone().unwrap();
            let (way, client) = Interrupted::new(&double, failing..failing + 1, how);
            scene.client = client;
            let reconciler = scene.service_tokens();
            let outcome = reconciler.pass(&Writer::new(), false).await;
            if way.count() <= failing {
                assert!(failing > 10, "the pass makes more than {failing} requests");
                break;
            }
            assert!(
                outcome.is_err() || outcome.is_ok_and(|report| !report.is_complete()),
                "{how:?} of request {failing} is told"
            );
            scene.client = admin;
            if failing % 2 == 0 {
                pass(&scene.service_tokens()).await;
            } else {
                // What failed is left alone for a moment.
                for _ in 0..3 {
                    try_pass(&reconciler, false).await;
                }
            }
            assert_converged(&scene, &services).await;
        }
    }
}

/// When nothing works, not every service is tried, and those that were not come first next time.
#[tokio::test]
async fn an_outage_puts_the_rest_of_a_pass_off() {
    let mut scene = Scene::double(Behaviour::Current);
    let services: Vec<String> =
        (0..60).map(|number| scene.name(&format!("s{number:02}"))).collect();
    for service in &services {
        scene.secret(service);
        scene.start(service, service);
    }
    let admin = scene.client.clone();
    let double = scene.double.clone().unwrap();
    // The two lists are answered, and then nothing for a while.
    let (way, client) = Interrupted::new(&double, 2..30, How::Refused(500));
    scene.client = client;
    let reconciler = scene.service_tokens();
    let (report, _) = try_pass(&reconciler, false).await;
    assert_eq!((report.errors.len(), report.postponed), (10, 50));
    assert_eq!(way.count(), 12);
    while way.count() < 30 {
        drop(reconciler.pass(&Writer::new(), false).await);
    }
    let (_, changes) = try_pass(&reconciler, false).await;
    assert!(changes.len() >= 3 * 40, "{}", changes.len());
    scene.client = admin;
    for _ in 0..7 {
        try_pass(&reconciler, false).await;
    }
    assert_converged(&scene, &services).await;
}

/// The clean-up of logins puts the rest off too.
#[tokio::test]
async fn an_outage_puts_the_rest_of_a_clean_up_off() {
    let mut scene = Scene::double(Behaviour::Current);
    for number in 0..40 {
        scene.login_task(&format!("t{number:02}"), &scene.cluster).await;
    }
    register_node(&scene).await;
    let double = scene.double.clone().unwrap();
    let (way, client) = Interrupted::new(&double, 2..25, How::Refused(500));
    scene.client = client;
    let reconciler = scene.login_tokens();
    let (report, _) = try_pass(&reconciler, false).await;
    assert!(report.errors.len() >= 10 && report.postponed >= 20, "{report:?}");
    while way.count() < 25 {
        drop(reconciler.pass(&Writer::new(), false).await);
    }
    pass(&reconciler).await;
    let (report, changes) = try_pass(&reconciler, false).await;
    assert!(report.is_complete() && report.resources == 0 && changes.is_empty());
}

/// Registers the cluster's node, so that the next pass has only to remove.
async fn register_node(scene: &Scene) {
    let mut node = consul_watch::types::CatalogRegistration::new(&scene.cluster, "10.0.0.9");
    node.node_meta.insert("synthetic-node".to_owned(), "true".to_owned());
    scene.client.catalog_register(&node).await.unwrap();
}

/// A token that is not known or may not do this: told as that, and nothing is taken for absent.
#[tokio::test]
async fn without_rights_nothing_is_changed() {
    for behaviour in [Behaviour::Current, Behaviour::V1_8] {
        let mut scene = Scene::double(behaviour);
        let web = scene.name("web");
        let secret = scene.secret(&web);
        scene.start("1", &web);
        let admin = scene.client.clone();
        for token in [None, Some(uuid::Uuid::new_v4().to_string().into())] {
            scene.client = admin.with_token(token).unwrap();
            let controller = Controller::new(scene.service_tokens(), ControllerOptions::default());
            let error = controller.once().await.unwrap_err();
            let text = consul_watch::error_chain(&error);
            assert!(text.contains("403"), "{text}");
        }
        scene.client = admin;
        assert_eq!(scene.ids(&secret).await.0, "");
    }
}
