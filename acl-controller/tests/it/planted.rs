//! No secret shows: neither in logs, reports, errors and metrics, nor in what `Debug` prints.

use std::sync::Arc;

use acl_controller::{Controller, ControllerOptions};
use consul_watch::testing::{Behaviour, Fault};
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::{
    log::logged,
    scene::{ROOT, Scene, write},
};

#[test]
fn no_secret_shows_anywhere() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let (mut shown, mut secrets) = (String::new(), vec![ROOT.to_owned()]);
    let log = metrics::with_local_recorder(&recorder, || {
        logged(async || work(&mut shown, &mut secrets).await)
    });
    let metrics = metrics.render();
    let everything = format!("{log}\n{shown}\n{metrics}");
    // A controller that tells nothing proves nothing.
    for word in ["create token", "delete token", "error reconciling resource", "No cluster leader"]
    {
        assert!(everything.contains(word), "{word}");
    }
    for name in [
        "acl_controller_changes_total",
        "acl_controller_errors_total",
        "acl_controller_pass_seconds",
    ] {
        assert!(metrics.contains(name), "{name} in {metrics}");
    }
    assert!(secrets.len() > 6);
    let find = |text: &str| secrets.iter().filter(|secret| text.contains(secret.as_str())).count();
    assert_eq!(find(&everything), 0, "{everything}");
    // The same search finds one that is planted.
    assert_eq!(find(&format!("{everything} {}", secrets[3])), 1);
}

async fn work(shown: &mut String, secrets: &mut Vec<String>) {
    let scene = Scene::double(Behaviour::Current);
    let (web, api, clients) = (scene.name("web"), scene.name("api"), scene.name("clients"));
    scene.secrets.put(&clients, "{}");
    let mut settings = scene.settings();
    settings.client_secret = Some(clients.clone());
    for service in [&web, &api] {
        scene.secret(service);
        scene.start(service, service);
    }
    let reconciler = Arc::new(scene.service_tokens_with(settings));
    let controller = Controller::new(Arc::clone(&reconciler), ControllerOptions::default());
    let mut keep = |secret: String| secrets.push(secret);
    let mut report = controller.once().await.unwrap();
    shown.extend([format!("{report:?} {reconciler:?} {controller:?}")]);
    for secret in [&clients, &format!("{}-{web}", scene.prefix), &format!("{}-{api}", scene.prefix)]
    {
        keep(scene.ids(secret).await.1);
    }
    // Every way in which a secret can be wrong.
    let name = format!("{}-{web}", scene.prefix);
    for text in [
        "planted-text",
        "{\"token\":\"planted-member\"",
        "[\"planted-element\"]",
        "{\"token\":1,\"accessor_id\":\"planted-accessor\"}",
    ] {
        scene.secrets.put(&name, text);
        scene.secrets.put(&clients, text);
        report = controller.once().await.unwrap();
        shown.extend([format!("{report:?}")]);
    }
    for planted in ["planted-text", "planted-member", "planted-element", "planted-accessor"] {
        keep(planted.to_owned());
    }
    // And where there is no token to put it right from.
    for token in scene.tokens().await {
        scene.client.acl_token_delete(&token.accessor_id, &write()).await.unwrap();
    }
    scene.secrets.put(&name, "planted-text");
    report = controller.once().await.unwrap();
    shown.extend([format!("{report:?}")]);
    shown.push_str(&report.into_error().unwrap().to_string());
    let double = scene.double.clone().unwrap();
    double.inject_always(Some(Fault::status(500, "No cluster leader")));
    let error = controller.once().await.unwrap_err();
    shown.extend([format!("{error:?} {error} {}", consul_watch::error_chain(&error))]);
    double.inject_always(None);
    scene.tasks.clear();
    let report = controller.cleanup(false).await.unwrap();
    shown.extend([format!("{report:?}")]);
}
