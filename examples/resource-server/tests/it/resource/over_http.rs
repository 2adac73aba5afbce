//! The commands over HTTP.

use serde_json::{Value, json};

use super::{KORN, World};

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// What follows the first line of a write.
fn written(text: &str, first: &str) -> Value {
    let (line, rest) = text.split_once('\n').unwrap();
    assert_eq!(line, first);
    value(rest)
}

#[tokio::test]
async fn a_resource_is_written_read_listed_and_deleted() {
    let world = World::new().await;
    let file = world.file("korn.hcl", KORN);
    let answer = world.ok(&["apply", "-f", &file]).await;
    let stored = written(&answer, "demo.v2.Artist 'korn' created.");
    assert_eq!(stored["data"], json!({"name": "Korn", "genre": "GENRE_METAL"}));
    assert_eq!(stored["metadata"], json!({"foo": "bar"}));
    assert!(answer.contains("\n    \"data\": {\n        \"genre\""), "four spaces: {answer}");

    assert_eq!(value(&world.ok(&["read", "demo.v2.Artist", "korn"]).await), stored);
    assert_eq!(value(&world.ok(&["read", "-f", &file]).await), stored);
    let stale =
        ["read", "demo.v2.Artist", "korn", "-stale", "-partition=default", "-namespace=default"];
    assert_eq!(value(&world.ok(&stale).await), stored);
    let listed = json!({"resources": [stored]});
    assert_eq!(value(&world.ok(&["list", "demo.v2.Artist"]).await), listed);
    assert_eq!(value(&world.ok(&["list", "-f", &file]).await), listed);
    assert_eq!(world.ok(&["list", "demo.v1.Artist"]).await, "{\n    \"resources\": []\n}\n");

    let delete = ["delete", "demo.v2.Artist", "korn", "-namespace", "default"];
    assert_eq!(world.ok(&delete).await, "demo.v2.Artist/korn deleted\n");
    assert_eq!(world.ok(&["delete", "-f", &file]).await, "demo.v2.Artist/korn deleted\n");
    assert_eq!(
        world.fails(&["read", "demo.v2.Artist", "korn"]).await,
        "Error reading resource demo.v2.Artist/korn: Unexpected response code: 404 (rpc error: code = \
         NotFound desc = resource not found)"
    );
}

#[tokio::test]
async fn what_is_written_comes_from_an_argument_or_the_standard_input() {
    let world = World::new().await;
    let file = world.file("korn.hcl", KORN);
    world.ok(&["apply", &file]).await;
    let done = world.run_with(&["apply", "-"], KORN, &[]).await;
    assert_eq!(done.code, 0, "{done:?}");
    // What was read can be written: its version and uid do not count.
    let shown = world.ok(&["read", "demo.v2.Artist", "korn"]).await;
    for input in ["-", "-f=-"] {
        let done = world.run_with(&["apply", input], &shown, &[]).await;
        assert_eq!(done.code, 0, "{done:?}");
        let stored = written(&done.out, "demo.v2.Artist 'korn' created.");
        assert_eq!(stored["id"], value(&shown)["id"]);
        assert_ne!(stored["version"], value(&shown)["version"]);
    }
}

#[tokio::test]
async fn lists_of_objects_arrive() {
    let world = World::new().await;
    let hcl = r#"ID {
  Type = gvk("demo.v2.Festival")
  Name = "woodstock"
}
Data {
  Genres = ["GENRE_FOLK", "GENRE_ROCK"]
  Artists = [
    { Name = "Arlo", Genre = "GENRE_FOLK" },
    { Name = "Janis", GroupMembers = { "Sam" = "guitar" } },
  ]
}
"#;
    let answer = world.ok(&["apply", &world.file("f.hcl", hcl)]).await;
    let stored = written(&answer, "demo.v2.Festival 'woodstock' created.");
    assert_eq!(
        stored["data"],
        json!({
            "genres": ["GENRE_FOLK", "GENRE_ROCK"],
            "artists": [
                {"name": "Arlo", "genre": "GENRE_FOLK"},
                {"name": "Janis", "groupMembers": {"Sam": "guitar"}}
            ]
        })
    );
}

#[tokio::test]
async fn tokens_come_from_flags_files_and_the_environment() {
    let world = World::guarded().await;
    let file = world.file("korn.hcl", KORN);
    let refused = world.fails(&["apply", &file]).await;
    let start = "Error writing resource demo.v2.Artist/korn: Unexpected response code: 403 (rpc error: \
                 code = PermissionDenied desc = Permission denied: anonymous token";
    assert!(refused.starts_with(start), "{refused}");
    world.ok(&["apply", "-token", "writer", &file]).await;
    let token = world.file("token", "writer\n");
    world.ok(&["read", "demo.v2.Artist", "korn", "-token-file", &token]).await;
    let vars = [("CONSUL_HTTP_TOKEN", "writer")];
    let done = world.run_with(&["read", "demo.v2.Artist", "korn"], "", &vars).await;
    assert_eq!(done.code, 0, "{done:?}");
    let unreachable =
        ["read", "demo.v2.Artist", "korn", "-http-addr", "127.0.0.1:1", "-token=writer"];
    let refused = world.fails(&unreachable).await;
    assert!(
        !refused.contains("writer") && refused.starts_with("Error reading resource"),
        "{refused}"
    );
}

/// As under `resource list … | head`, where nobody reads any more.
#[tokio::test]
async fn a_reader_that_is_gone_is_no_failure() {
    let world = World::new().await;
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_resource"))
        .args(["list", "demo.v2.Artist"])
        .env_clear()
        .env("CONSUL_HTTP_ADDR", &world.address)
        .stdout(writer)
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
