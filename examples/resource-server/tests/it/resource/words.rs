//! What the commands say of wrong calls and wrong files.

use super::{KORN, World};

#[tokio::test]
async fn read_and_delete_want_a_type_and_a_name() {
    let world = World::new().await;
    let file = world.file("korn.hcl", KORN);
    for command in ["read", "delete", "read-grpc", "delete-grpc"] {
        let two = "Incorrect argument format: Must specify two arguments: resource type and resource name";
        let right = "Incorrect argument format: Must provide resource name right after type";
        let format = "Incorrect argument format: Must provide resource type argument with either in \
                      group.version.kind format or its shorthand name";
        let not_needed = "Incorrect argument format: File argument is not needed when resource \
                          information is provided with the command";
        for (arguments, expected) in [
            (vec![], two),
            (vec!["a.b.c"], two),
            (vec!["a.b.c", "-namespace", "default"], right),
            (vec!["a.", "name"], format),
            (vec!["a.b.c.d", "name"], format),
            (vec!["a.b.c", "name", "-f", &file], not_needed),
            (vec!["-f"], "Failed to parse args: flag needs an argument: -f"),
            (vec!["-what"], "Failed to parse args: flag provided but not defined: -what"),
        ] {
            let call = [vec![command], arguments].concat();
            assert_eq!(world.fails(&call).await, expected, "{call:?}");
        }
    }
}

#[tokio::test]
async fn list_wants_a_type() {
    let world = World::new().await;
    let file = world.file("korn.hcl", KORN);
    for command in ["list", "list-grpc"] {
        for (arguments, expected) in [
            (vec![], "Must include resource type argument"),
            (vec!["a.b.c", "name"], "Must include flag arguments after resource type"),
            (vec!["a.b.c", "name", "-f", &file], "Must include flag arguments after resource type"),
            (
                vec!["a.b.c", "-f", &file],
                "File argument is not needed when resource information is provided with the command",
            ),
        ] {
            let call = [vec![command], arguments].concat();
            let expected = format!("Incorrect argument format: {expected}");
            assert_eq!(world.fails(&call).await, expected, "{call:?}");
        }
    }
    let full = "Incorrect argument format: Must include resource type argument in group.version.kind format";
    assert_eq!(world.fails(&["list", "a."]).await, full);
    assert_eq!(world.fails(&["list", "artist"]).await, full);
}

#[tokio::test]
async fn apply_wants_a_file() {
    let world = World::new().await;
    let one = "Incorrect argument format: Must provide exactly one positional argument to specify the \
               resource to write";
    assert_eq!(world.fails(&["apply"]).await, one);
    assert_eq!(world.fails(&["apply", "a", "b"]).await, one);
    let required =
        "Required '-f' flag was not provided to specify where to load the resource content from";
    assert_eq!(world.fails(&["apply-grpc"]).await, required);
    assert_eq!(world.fails(&["apply-grpc", "korn.hcl"]).await, required);
}

#[tokio::test]
async fn kinds_alone_have_to_be_clear() {
    let world = World::new().await;
    let conflict =
        "The shorthand name has conflicts demo.v1.Artist, demo.v2.Artist, please use the full name";
    for call in [["read", "ARTIST", "x"], ["delete-grpc", "artist", "x"]] {
        assert_eq!(world.fails(&call).await, conflict);
    }
    let unknown = world.fails(&["list-grpc", "nothing"]).await;
    let start = "The shorthand name does not map to any existing resource type, please check ";
    assert!(unknown.starts_with(start), "{unknown}");
    // One type has this kind, so the server is asked.
    let missing = world.fails(&["read", "executive", "x"]).await;
    assert_eq!(
        missing,
        "Error reading resource demo.v1.Executive/x: Unexpected response code: 404 (rpc error: code = \
         NotFound desc = resource not found)"
    );
}

#[tokio::test]
async fn files_that_cannot_be_read_are_named() {
    let world = World::new().await;
    let prefix = "Failed to decode resource from input file: ";
    let file = world.file("d.hcl", "D {}");
    for command in ["apply", "read", "list", "delete", "apply-grpc", "read-grpc"] {
        assert_eq!(
            world.fails(&[command, "-f", "/none/at/all.hcl"]).await,
            format!(
                "{prefix}Failed to load data: Failed to read file: open /none/at/all.hcl: no such file \
                 or directory"
            )
        );
        assert_eq!(
            world.fails(&[command, "-f", &file]).await,
            format!(
                "{prefix}Failed to decode resource from input: {file}:1,1-2: Unsupported block type; \
                 Blocks of type \"D\" are not expected here."
            )
        );
    }
    let json = r#"{"id": {"name": "korn", "type": ""}}"#;
    let done = world.run_with(&["apply", "-"], json, &[]).await;
    assert_eq!(done.code, 1);
    assert_eq!(
        done.err.trim_end(),
        format!(
            "{prefix}Failed to decode resource from input: <stdin>:1,34: invalid type: string \"\", \
             expected a map"
        )
    );
}

#[tokio::test]
async fn help_is_there_and_unknown_commands_are_not() {
    let world = World::new().await;
    for call in [vec!["-h"], vec!["--help"], vec!["read", "-help"], vec!["apply-grpc", "-h"]] {
        assert!(world.ok(&call).await.starts_with("Usage: resource <command>"), "{call:?}");
    }
    assert!(world.fails(&[]).await.starts_with("Usage: resource <command>"));
    assert!(world.fails(&["write"]).await.starts_with("unknown command: write\n"));
}
