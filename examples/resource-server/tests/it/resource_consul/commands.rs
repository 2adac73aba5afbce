//! `consul resource`, run by the original.

use std::{process::Stdio, sync::LazyLock};

use regex::Regex;
use tokio::process::Command;

use super::World;

const KORN: &str = r#"ID {
  Type = gvk("demo.v2.Artist")
  Name = "korn"
  Tenancy {
    Partition = "default"
    Namespace = "default"
  }
}
Data {
  Name  = "Korn"
  Genre = "GENRE_METAL"
}
Metadata = { "foo" = "bar" }
"#;
const ALBUM: &str = r#"{
  "id": {
    "type": { "group": "demo", "groupVersion": "v2", "kind": "Album" },
    "name": "issues",
    "tenancy": { "partition": "default", "namespace": "default" }
  },
  "data": {
    "@type": "hashicorp.consul.internal.demo.v2.Album",
    "title": "Issues",
    "yearOfRelease": 1999,
    "tracks": ["Dead", "Falling Away from Me"]
  },
  "metadata": { "a": "b" }
}
"#;
const NAMELESS: &str = r#"ID {
  Type = gvk("demo.v2.Artist")
  Name = "nameless"
}
Data {
  Genre = "GENRE_JAZZ"
}
"#;
const EXECUTIVE: &str = r#"ID {
  Type = gvk("demo.v1.Executive")
  Name = "boss"
}
Data {
  Position = "boss"
}
"#;

/// The commands, one after the other, and the secret of who gives each.
pub(super) fn all(management: &str, reads: &str) -> Vec<(Vec<String>, String)> {
    let place = ["-partition=default", "-namespace=default"];
    let mut commands = Vec::new();
    for grpc in ["", "-grpc"] {
        let verb = |verb: &str| format!("{verb}{grpc}");
        let mut all: Vec<(Vec<String>, &str)> = Vec::new();
        let mut add = |words: &[&str], secret| {
            let (first, rest) = words.split_first().unwrap();
            let rest = rest.iter().map(ToString::to_string);
            all.push((std::iter::once(verb(first)).chain(rest).collect(), secret));
        };
        let with_place = |words: &[&'static str]| [words, &place].concat();
        for secret in [management, reads, "unknown"] {
            for file in ["korn.hcl", "album.json", "nameless.hcl", "executive.hcl", "none.hcl"] {
                add(&["apply", "-f", file], secret);
                add(&["read", "-f", file], secret);
            }
            add(&with_place(&["read", "demo.v2.Artist", "korn"]), secret);
            add(&with_place(&["read", "demo.v2.Artist", "korn", "-stale"]), secret);
            add(&with_place(&["read", "demo.v1.Artist", "korn"]), secret);
            add(&with_place(&["read", "demo.v2.Artist", "missing"]), secret);
            add(&with_place(&["read", "demo.v9.Artist", "korn"]), secret);
            add(&["read", "demo.v1.Executive", "boss"], secret);
            add(&with_place(&["list", "demo.v2.Artist"]), secret);
            add(&with_place(&["list", "demo.v2.Album"]), secret);
            add(&["list", "demo.v1.Executive"], secret);
            add(&["list", "-f", "korn.hcl"], secret);
            add(&with_place(&["delete", "demo.v2.Artist", "missing"]), secret);
            add(&["delete", "demo.v2.Artist"], secret);
        }
        add(&["delete", "-f", "korn.hcl"], reads);
        add(&["delete", "-f", "korn.hcl"], management);
        add(&["delete", "-f", "korn.hcl"], management);
        add(&["delete", "-f", "album.json"], management);
        add(&["delete", "demo.v1.Executive", "boss"], management);
        add(&with_place(&["read", "demo.v2.Artist", "korn"]), management);
        commands.extend(all.into_iter().map(|(words, secret)| (words, secret.to_owned())));
    }
    commands
}

/// What each server chooses by itself: uids, generations and versions.
static CHOSEN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"[0-9A-HJKMNP-TV-Z]{26}|"version": "[0-9]+""#).unwrap());

/// Exit code, output and complaints of a command.
pub(super) async fn run(
    world: &World,
    http: &str,
    grpc: &str,
    arguments: &[String],
    secret: &str,
) -> String {
    for (name, text) in [
        ("korn.hcl", KORN),
        ("album.json", ALBUM),
        ("nameless.hcl", NAMELESS),
        ("executive.hcl", EXECUTIVE),
    ] {
        std::fs::write(world.folder.path().join(name), text).unwrap();
    }
    let output = Command::new(&world.program)
        .arg("resource")
        .args(arguments)
        .current_dir(world.folder.path())
        .env_clear()
        .env("CONSUL_HTTP_ADDR", http)
        .env("CONSUL_GRPC_ADDR", grpc)
        .env("CONSUL_HTTP_TOKEN", secret)
        .env("CONSUL_GRPC_TOKEN", secret)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        // Go's protobuf puts one or two spaces there, so that nobody relies on it.
        let text = text.replace("  ", " ").replace(http, "<http>").replace(grpc, "<grpc>");
        CHOSEN.replace_all(&text, "<chosen>").into_owned()
    };
    format!("{:?}\n{}{}", output.status.code(), text(&output.stdout), text(&output.stderr))
}
