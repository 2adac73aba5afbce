//! `resource-server` beside the resource service of a real Consul, which also says
//! what its tokens may do: the same calls, over gRPC and HTTP, get the same answers,
//! and Consul's own command works with both.
//!
//! Needs a Consul that has the service: 1.17 or newer.

mod calls;
mod commands;
mod world;

use world::World;

/// A token, and the rules of its policy; none for one that Consul is not told of.
const TOKENS: [(&str, Option<&str>); 9] = [
    ("reads", Some(r#"key_prefix "resource/" { policy = "list" } operator = "read""#)),
    ("reads-without-lists", Some(r#"key_prefix "resource/" { policy = "read" }"#)),
    ("writes", Some(r#"key_prefix "resource/" { policy = "write" }"#)),
    ("one-key", Some(r#"key "resource/demo.v2.Artist/korn" { policy = "write" }"#)),
    (
        "denied-one-type",
        Some(
            r#"key_prefix "resource/" { policy = "write" }
               key_prefix "resource/demo.v2.Artist" { policy = "deny" }"#,
        ),
    ),
    ("operates", Some(r#"operator = "write""#)),
    ("nothing", Some(r#"service "web" { policy = "read" }"#)),
    ("unknown", None),
    ("", None),
];

/// Differences that are meant to be there, each with its reason.
///
/// Over gRPC a request without a token has the anonymous one. Consul takes that
/// token's id for its secret, finds no such token, and answers `INTERNAL`; over
/// HTTP it does as we do.
fn is_meant(transport: &str, token: &str, of_consul: &str) -> bool {
    transport == "gRPC"
        && token.is_empty()
        && of_consul == "Internal: failed getting authorizer: ACL not found"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_may_do_what_it_may_do_in_consul() {
    let Some(world) = World::new("a_token_may_do_what_it_may_do_in_consul").await else { return };
    let (mut compared, mut meant, mut different) = (0, 0, Vec::new());
    let mut without_token = 0;
    for (token, rules) in TOKENS {
        let secret = match rules {
            Some(rules) => world.token(token, rules).await,
            None => token.to_owned(),
        };
        for (transport, of_consul, of_ours) in [
            (
                "gRPC",
                calls::over_grpc(&world.consul_grpc(), &secret, &world.management).await,
                calls::over_grpc(&world.ours, &secret, &world.management).await,
            ),
            (
                "HTTP",
                calls::over_http(&world.consul_http(), &secret, &world.management).await,
                calls::over_http(&world.ours, &secret, &world.management).await,
            ),
        ] {
            assert_eq!(of_consul.len(), of_ours.len());
            if transport == "gRPC" && token.is_empty() {
                without_token = of_consul.len();
            }
            for ((call, expected), (_, got)) in of_consul.into_iter().zip(of_ours) {
                compared += 1;
                if expected == got {
                    continue;
                }
                if is_meant(transport, token, &expected) {
                    meant += 1;
                    continue;
                }
                different.push(format!(
                    "{transport}, token {token:?}, {call}:\n  Consul: {expected}\n  ours:   {got}"
                ));
            }
        }
    }
    assert!(different.is_empty(), "{} of {compared}:\n{}", different.len(), different.join("\n"));
    assert!(compared > 300 && without_token > 30, "{compared} compared, {without_token} without");
    assert_eq!(meant, without_token, "only those without a token differ, each of them");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_of_consul_works_as_with_consul() {
    let case = "the_command_of_consul_works_as_with_consul";
    let Some(world) = World::new(case).await else { return };
    let reads = world.token("reads", TOKENS[0].1.unwrap()).await;
    let (mut succeeded, mut different) = (0, Vec::new());
    for (arguments, secret) in commands::all(&world.management, &reads) {
        let (http, grpc) = (world.consul_http(), world.consul_grpc());
        let expected = commands::run(&world, &http, &grpc, &arguments, &secret).await;
        let got = commands::run(&world, &world.ours, &world.ours, &arguments, &secret).await;
        succeeded += usize::from(expected.starts_with("Some(0)"));
        // We also say what is wrong with the path.
        let more = "404 page not found: resource type demo/v9/artist not registered; group, version \
                    and kind are in lower case";
        if expected.replace("404 page not found", more) != got {
            different.push(format!("{arguments:?}:\n  Consul: {expected}\n  ours:   {got}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(succeeded > 30, "{succeeded}");
}
