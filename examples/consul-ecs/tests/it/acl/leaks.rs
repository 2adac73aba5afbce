//! No secret reaches a log, an error, a metric, a printed line or an argument.

use std::{collections::BTreeSet, fs};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use consul_watch::{QueryOptions, WriteOptions, client::AclTokenFilter};

use super::{
    process::{Launch, Process},
    proxy::Weather,
    world::{AWS_SECRET_KEY, AWS_SESSION_TOKEN, MANAGEMENT, World, eventually, secret_of},
};
use crate::mesh::task::free_port;

/// What somebody writes into a secret by mistake.
const PLANTED: &str = "planted-by-mistake-3b8e";
/// A token that Consul does not know.
pub(super) const UNKNOWN: &str = "4c1d0a7e-unknown-management-token";

/// Where a secret must not be: what it is called, and what it holds.
pub(super) type Place = (&'static str, String);

/// The places that hold one of the secrets, plain or in base64.
pub(super) fn leaks(places: &[Place], secrets: &BTreeSet<String>) -> Vec<String> {
    let mut all = Vec::new();
    for (name, text) in places {
        for (number, secret) in secrets.iter().enumerate() {
            // Without the end, which depends on what follows.
            let packed = STANDARD.encode(secret);
            let packed = packed.trim_end_matches('=');
            let packed = packed.split_at(packed.len() - 2).0;
            if text.contains(secret.as_str()) || text.contains(packed) {
                all.push(format!("{name} holds secret {number}"));
            }
        }
    }
    all
}

/// Everything that leaves a controller: ends it, runs its errands, and keeps what each says.
pub(super) async fn outlets(
    launch: &Launch,
    running: Process,
    metrics: &str,
    cleanup: &[&str],
) -> Vec<Place> {
    let metrics = reqwest::get(format!("http://{metrics}/metrics")).await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let arguments = fs::read_to_string(format!("/proc/{}/cmdline", running.id())).unwrap();
    assert_eq!(running.terminate().await, Some(0));
    let (_, planned, planning) = launch.run(&["dry-run"]).await;
    let (_, refused, refusing) = {
        let mut unknown = launch.clone();
        unknown.var("CONSUL_HTTP_TOKEN", UNKNOWN);
        unknown.run(&["dry-run"]).await
    };
    let (code, cleaned, cleaning) = launch.run(cleanup).await;
    assert_eq!(code, Some(0), "{cleaning}");
    vec![
        ("the log", launch.printed()),
        ("the metrics", metrics),
        ("the arguments", arguments),
        ("what a dry run prints", planned),
        ("the log of a dry run", planning),
        ("what a refused dry run prints", refused),
        ("the log of a refused dry run", refusing),
        ("what a clean-up prints", cleaned),
        ("the log of a clean-up", cleaning),
    ]
}

/// That places hold what they are to hold: a controller that says nothing proves nothing.
pub(super) fn assert_told(places: &[Place], signs: &[(&str, &str)]) {
    for (name, sign) in signs {
        let told = places.iter().any(|(place, text)| place == name && text.contains(sign));
        assert!(told, "{name} lacks {sign}");
    }
}

/// That each secret is found in each place where it is planted, and nowhere else.
pub(super) fn assert_search_is_worth_something(mut places: Vec<Place>, secrets: &BTreeSet<String>) {
    for (number, secret) in secrets.iter().enumerate() {
        for (name, text) in &mut places {
            let before = text.clone();
            let packed = STANDARD.encode(secret);
            text.push_str(if number % 2 == 0 { secret } else { &packed });
            let found = leaks(&[(name, text.clone())], secrets);
            assert_eq!(found, [format!("{name} holds secret {number}")]);
            *text = before;
        }
    }
}

/// The secrets of all tokens that there are.
async fn tokens(world: &World) -> BTreeSet<String> {
    let found = world.found().await.unwrap();
    // That of the anonymous token is known to everybody.
    let own = found.tokens.into_iter().filter(|token| token.secret != "anonymous");
    own.map(|token| token.secret).collect()
}

/// Brings the controller into every kind of trouble that it talks about.
async fn trouble(world: &mut World, launch: &Launch, secrets: &mut BTreeSet<String>) {
    let logged = async |what: &str| {
        eventually(what, async || launch.printed().contains(what)).await;
    };
    world.settle().await;
    secrets.extend(tokens(world).await);
    let (client, options) = (world.client(), WriteOptions::default());
    let all = client.acl_tokens(&AclTokenFilter::default(), &QueryOptions::default()).await;
    for token in all.unwrap().value {
        if token.description.starts_with("Token for web") {
            client.acl_token_delete(&token.accessor_id, &options).await.unwrap();
        }
    }
    world.settle().await;
    secrets.extend(tokens(world).await);
    // The first has a token to be put back, the second has none.
    world.write_secret(&secret_of("web"), PLANTED).await;
    world.create_service("new").await;
    world.write_secret(&secret_of("new"), PLANTED).await;
    world.run_task("new").await;
    logged("unmarshalling secret value: prod-new").await;
    world.delete_secret(&secret_of("api")).await;
    logged("retrieving secret prod-api: there is none").await;
    world.proxy.set(Weather::Throttled(1.0));
    logged("ThrottlingException").await;
    world.proxy.set(Weather::Lossy(1.0));
    logged("InternalServiceError").await;
    world.proxy.set(Weather::Fair);
    world.create_secret(&secret_of("api")).await;
    world.write_secret(&secret_of("new"), "{}").await;
    world.settle().await;
    secrets.extend(tokens(world).await);
    world.stop_task("web").await;
    world.settle().await;
}

#[tokio::test]
async fn nothing_that_leaves_the_controller_holds_a_secret() {
    let Some(mut world) = World::start("secrets", 1).await else { return };
    for service in ["web", "api"] {
        world.create_service(service).await;
        world.run_task(service).await;
    }
    let metrics = format!("127.0.0.1:{}", free_port());
    let mut launch = world.launch();
    launch.arguments.extend(["-log-level".to_owned(), "trace".to_owned()]);
    launch.var("CONSUL_ECS_METRICS_ADDRESS", &metrics);
    // The library for AWS shows bodies of requests and answers, as far as one lets it speak.
    launch.var("LOG_SENSITIVE_BODIES", "true");
    launch.var("LOG_SIGNABLE_BODY", "true");
    let controller = launch.start();

    let mut secrets: BTreeSet<String> =
        [MANAGEMENT, AWS_SECRET_KEY, AWS_SESSION_TOKEN, PLANTED, UNKNOWN].map(str::to_owned).into();
    trouble(&mut world, &launch, &mut secrets).await;
    assert!(secrets.len() >= 5 + 4, "there were tokens");

    let places = outlets(&launch, controller, &metrics, &["cleanup", "-force"]).await;
    assert_told(
        &places,
        &[
            ("the log", "DEBUG"),
            ("the log", "create token"),
            ("the metrics", "acl_controller_changes_total"),
            ("the arguments", "-secret-name-prefix"),
            ("the log of a refused dry run", "ERROR"),
            ("what a clean-up prints", "delete token"),
        ],
    );
    assert_eq!(leaks(&places, &secrets), Vec::<String>::new());
    assert_search_is_worth_something(places, &secrets);
}
