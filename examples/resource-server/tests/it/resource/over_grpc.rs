//! The commands over gRPC.

use resource_store::server::{ServerConfig, ServerTls};
use serde_json::{Value, json};

use super::{KORN, World};

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn written(text: &str) -> Value {
    let (line, rest) = text.split_once('\n').unwrap();
    assert_eq!(line, "demo.v2.Artist 'korn' created.");
    value(rest)
}

#[tokio::test]
async fn a_resource_is_written_read_listed_and_deleted() {
    let world = World::new().await;
    let file = world.file("korn.hcl", KORN);
    let answer = world.ok(&["apply-grpc", "-f", &file]).await;
    let stored = written(&answer);
    let url = "type.googleapis.com/hashicorp.consul.internal.demo.v2.Artist";
    assert_eq!(stored["data"], json!({"@type": url, "name": "Korn", "genre": "GENRE_METAL"}));
    assert!(answer.contains("\n  \"data\": {\n    \"@type\""), "two spaces: {answer}");

    assert_eq!(value(&world.ok(&["read-grpc", "demo.v2.Artist", "korn"]).await), stored);
    assert_eq!(value(&world.ok(&["read-grpc", "-f", &file, "-stale"]).await), stored);
    assert_eq!(value(&world.ok(&["list-grpc", "demo.v2.Artist"]).await), json!([stored]));
    assert_eq!(value(&world.ok(&["list-grpc", "-f", &file]).await), json!([stored]));
    let prefix = |prefix| ["list-grpc", "demo.v2.Artist", "-p", prefix];
    assert_eq!(value(&world.ok(&prefix("ko")).await), json!([stored]));
    assert_eq!(world.ok(&prefix("x")).await, "null\n");
    assert_eq!(world.ok(&["list-grpc", "executive"]).await, "null\n");

    let delete = ["delete-grpc", "demo.v2.Artist", "korn"];
    assert_eq!(world.ok(&delete).await, "demo.v2.Artist/korn deleted\n");
    assert_eq!(world.ok(&["delete-grpc", "-f", &file]).await, "demo.v2.Artist/korn deleted\n");
    assert_eq!(
        world.fails(&["read-grpc", "demo.v2.Artist", "korn"]).await,
        "Error reading resource demo.v2.Artist/korn: rpc error: code = NotFound desc = resource not found"
    );
}

#[tokio::test]
async fn a_write_is_conditional_on_the_version_of_the_file() {
    let world = World::new().await;
    let first = world.run_with(&["apply-grpc", "-f", "-"], KORN, &[]).await;
    assert_eq!(first.code, 0, "{first:?}");
    // What was read can be written, once.
    let shown = world.ok(&["read-grpc", "demo.v2.Artist", "korn"]).await;
    let again = world.run_with(&["apply-grpc", "-f", "-"], &shown, &[]).await;
    assert_eq!(again.code, 0, "{again:?}");
    assert_ne!(written(&again.out)["version"], value(&shown)["version"]);
    let late = world.run_with(&["apply-grpc", "-f", "-"], &shown, &[]).await;
    assert_eq!(late.code, 1);
    assert_eq!(
        late.err.trim_end(),
        "Error writing resource demo.v2.Artist/korn: rpc error: code = Aborted desc = CAS operation \
         failed because the given version doesn't match what is stored"
    );
}

#[tokio::test]
async fn tokens_come_from_flags_files_and_the_environment() {
    let world = World::guarded().await;
    let file = world.file("korn.hcl", KORN);
    let refused = world.fails(&["apply-grpc", "-f", &file]).await;
    assert!(
        refused.contains("code = PermissionDenied desc = Permission denied: anonymous"),
        "{refused}"
    );
    world.ok(&["apply-grpc", "-f", &file, "-token", "writer"]).await;
    // The token of a file wins, without the white space around it.
    let token = world.file("token", " writer\n");
    let read = ["read-grpc", "demo.v2.Artist", "korn"];
    world.ok(&[&read[..], &["-token", "other", "-token-file", &token]].concat()).await;
    for vars in [[("CONSUL_GRPC_TOKEN", "writer")], [("CONSUL_GRPC_TOKEN_FILE", token.as_str())]] {
        let done = world.run_with(&read, "", &vars).await;
        assert_eq!(done.code, 0, "{done:?}");
    }
}

/// A certificate for an address, and its key.
fn sign(
    issuer: &rcgen::Issuer<'static, rcgen::KeyPair>,
    name: &str,
) -> (String, secrecy::SecretString) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.signed_by(&key, issuer).unwrap().pem(), key.serialize_pem().into())
}

#[tokio::test]
async fn tls_wants_the_authority_and_a_client_certificate() {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = rcgen::Issuer::new(params, key);

    let (certificate, key) = sign(&issuer, "127.0.0.1");
    let mut tls = ServerTls::new(certificate, key);
    tls.client_ca_pem = Some(authority.clone());
    let mut config = ServerConfig::default();
    config.tls = Some(tls);
    let world = World::with(|service| service, config).await;

    let (certificate, key) = sign(&issuer, "client");
    let file = world.file("korn.hcl", KORN);
    let ca = world.file("ca.pem", &authority);
    let certificate = world.file("client.pem", &certificate);
    let key = world.file("client.key", secrecy::ExposeSecret::expose_secret(&key));
    std::fs::create_dir(world.folder.path().join("authorities")).unwrap();
    world.file("authorities/ca.pem", &authority);
    let folder = world.folder.path().join("authorities").display().to_string();

    let apply = ["apply-grpc", "-f", &file, "-grpc-tls"];
    let with = |more: &[&'static str], values: &[&str]| -> Vec<String> {
        let pairs = more.iter().zip(values).flat_map(|(flag, value)| [*flag, *value]);
        apply.iter().copied().chain(pairs).map(str::to_owned).collect()
    };
    let identity = ["-client-cert", "-client-key"];
    let run = async |arguments: Vec<String>| {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        world.run(&arguments).await
    };
    for flags in
        [["-ca-file", "-client-cert", "-client-key"], ["-ca-path", "-client-cert", "-client-key"]]
    {
        let authorities = if flags[0] == "-ca-file" { &ca } else { &folder };
        let done = run(with(&flags, &[authorities, &certificate, &key])).await;
        assert_eq!(done.code, 0, "{done:?}");
    }
    let untrusting = run(with(&identity, &[&certificate, &key])).await;
    assert_eq!(untrusting.code, 1, "no authority is trusted");
    assert!(untrusting.err.contains("code = Unavailable"), "{}", untrusting.err);
    let anonymous = run(with(&["-ca-file"], &[&ca])).await;
    assert_eq!(anonymous.code, 1, "the client shows no certificate");
    let half = run(with(&["-client-cert"], &[&certificate])).await;
    assert_eq!((half.code, half.err.lines().count()), (1, 1));
    assert!(half.err.starts_with("you have to provide client certificate file and key file"));

    let address = format!("https://{}", world.address);
    let vars = [
        ("CONSUL_GRPC_ADDR", address.as_str()),
        ("CONSUL_GRPC_CACERT", &ca),
        ("CONSUL_GRPC_CLIENT_CERT", &certificate),
        ("CONSUL_GRPC_CLIENT_KEY", &key),
    ];
    let done = world.run_with(&["read-grpc", "demo.v2.Artist", "korn"], "", &vars).await;
    assert_eq!(done.code, 0, "{done:?}");
    let done = world
        .run_with(&["read-grpc", "demo.v2.Artist", "korn", "-grpc-tls=maybe"], "", &vars)
        .await;
    assert_eq!((done.code, done.out.as_str()), (1, ""));
}
