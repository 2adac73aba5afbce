//! A missing Terraform is installed from a release server.

use std::{io::Write as _, os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::json;
use wiremock::{
    Mock, MockServer, ResponseTemplate,
    matchers::{method, path},
};

use crate::site::Site;

/// A program that says it is this version.
fn archive(version: &str) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    archive.start_file("LICENSE.txt", options).unwrap();
    archive.start_file("terraform", options).unwrap();
    let program = format!("#!/bin/sh\necho '{{\"terraform_version\": \"{version}\"}}'\n");
    archive.write_all(program.as_bytes()).unwrap();
    archive.finish().unwrap().into_inner()
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};

    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

async fn serve(server: &MockServer, at: &str, content: Vec<u8>, times: u64) {
    Mock::given(method("GET"))
        .and(path(format!("/releases/terraform/{at}")))
        .respond_with(ResponseTemplate::new(200).set_body_bytes(content))
        .expect(times)
        .mount(server)
        .await;
}

fn zip_name(version: &str) -> String {
    let system = if cfg!(target_os = "macos") { "darwin" } else { std::env::consts::OS };
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    format!("terraform_{version}_{system}_{architecture}.zip")
}

/// Serves one version, with the checksum of `sum`.
async fn serve_version(server: &MockServer, version: &str, sum: &[u8]) {
    let name = zip_name(version);
    let sums = format!("{}  other.zip\n{}  {name}\n", sha256(b"x"), sha256(sum));
    serve(server, &format!("{version}/terraform_{version}_SHA256SUMS"), sums.into(), 1).await;
    serve(server, &format!("{version}/{name}"), archive(version), 1).await;
}

fn site(server: &MockServer, root: &Path, fields: &serde_json::Value) -> Site {
    let mut site = Site::at(root);
    site.options.environment = vec![("PATH".into(), "/none".into())];
    let mut block = json!({
        "install": true, "path": root.join("bin"), "backend": {"local": {}},
        "release_mirror": format!("{}/releases/", server.uri()),
    });
    block.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    site.driver_block = block;
    site
}

#[tokio::test]
async fn the_configured_version_is_installed_once() {
    let server = MockServer::start().await;
    serve_version(&server, "1.5.7", &archive("1.5.7")).await;
    let root = tempfile::tempdir().unwrap();
    let site = site(&server, root.path(), &json!({"version": "1.5.7"}));
    // The second start finds what the first installed.
    site.factory().start().await.unwrap();
    site.factory().start().await.unwrap();
    let installed = root.path().join("bin/terraform");
    assert_eq!(std::fs::metadata(installed).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(std::fs::read_dir(root.path().join("bin")).unwrap().count(), 1);
}

#[tokio::test]
async fn without_a_version_the_newest_supported_one_is_installed() {
    let server = MockServer::start().await;
    let versions = json!({"name": "terraform", "versions": {
        "1.9.8": {}, "1.10.1": {}, "1.12.0-beta1": {}, "99.0.0": {}, "odd": {},
    }});
    serve(&server, "index.json", versions.to_string().into(), 1).await;
    serve_version(&server, "1.10.1", &archive("1.10.1")).await;
    let root = tempfile::tempdir().unwrap();
    site(&server, root.path(), &json!({})).factory().start().await.unwrap();
}

/// Neither an index, nor one with a version that may be run.
#[tokio::test]
async fn without_a_known_version_an_old_one_is_installed() {
    for index in [None, Some(r#"{"versions": {"99.0.0": {}}}"#)] {
        let server = MockServer::start().await;
        if let Some(index) = index {
            serve(&server, "index.json", index.into(), 1).await;
        }
        serve_version(&server, "1.1.8", &archive("1.1.8")).await;
        let root = tempfile::tempdir().unwrap();
        site(&server, root.path(), &json!({})).factory().start().await.unwrap();
    }
}

#[tokio::test]
async fn an_archive_with_another_checksum_is_not_installed() {
    let server = MockServer::start().await;
    serve_version(&server, "1.5.7", b"another").await;
    let root = tempfile::tempdir().unwrap();
    let site = site(&server, root.path(), &json!({"version": "1.5.7"}));
    let error = site.factory().start().await.unwrap_err();
    let expected = format!(
        "cannot install Terraform: {}: its sha256 is {}, and {} is expected",
        zip_name("1.5.7"),
        sha256(&archive("1.5.7")),
        sha256(b"another")
    );
    assert_eq!(error.to_string(), expected);
    assert!(!root.path().join("bin").exists(), "nothing half done");
}

#[tokio::test]
async fn a_version_that_is_not_there_is_named_with_its_address() {
    let server = MockServer::start().await;
    let root = tempfile::tempdir().unwrap();
    let site = site(&server, root.path(), &json!({"version": "1.5.7"}));
    let error = site.factory().start().await.unwrap_err().to_string();
    let address = format!("{}/releases/terraform/1.5.7/terraform_1.5.7_SHA256SUMS", server.uri());
    assert_eq!(
        error,
        format!("cannot install Terraform: {address}: the server answered 404 Not Found")
    );
}

#[tokio::test]
async fn what_is_there_is_used_and_nothing_is_installed_unasked() {
    let server = MockServer::start().await;
    let root = tempfile::tempdir().unwrap();
    let bin = root.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let mut site = site(&server, root.path(), &json!({"install": false}));
    let error = site.factory().start().await.unwrap_err().to_string();
    assert!(error.starts_with("found neither terraform nor tofu"), "{error}");

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fake/terraform");
    std::os::unix::fs::symlink(script, bin.join("terraform")).unwrap();
    site.driver_block["install"] = json!(true);
    site.options.environment = vec![("PATH".into(), std::env::var_os("PATH").unwrap())];
    site.factory().start().await.unwrap();
    assert!(server.received_requests().await.unwrap().is_empty());
}

/// Serves the checksums and the archive of the test data, with this signature.
#[cfg(feature = "verify-signature")]
async fn serve_signed(server: &MockServer, signature: Option<&[u8]>) {
    let sums = include_bytes!("../data/release/SHA256SUMS").to_vec();
    serve(server, "1.5.7/terraform_1.5.7_SHA256SUMS", sums, 1).await;
    let archive = include_bytes!("../data/release/terraform_1.5.7.zip").to_vec();
    serve(server, &format!("1.5.7/{}", zip_name("1.5.7")), archive, u64::from(signature.is_some()))
        .await;
    if let Some(signature) = signature {
        serve(server, "1.5.7/terraform_1.5.7_SHA256SUMS.sig", signature.to_vec(), 1).await;
    }
}

#[cfg(feature = "verify-signature")]
#[tokio::test]
async fn checksums_are_taken_only_with_a_signature_where_keys_are_given() {
    let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/release/current.asc");
    let block = json!({"version": "1.5.7", "release_keys": keys});

    let server = MockServer::start().await;
    serve_signed(&server, Some(include_bytes!("../data/release/current.sig"))).await;
    let root = tempfile::tempdir().unwrap();
    site(&server, root.path(), &block).factory().start().await.unwrap();

    // Another's signature, and none.
    let server = MockServer::start().await;
    serve_signed(&server, None).await;
    serve(
        &server,
        "1.5.7/terraform_1.5.7_SHA256SUMS.sig",
        include_bytes!("../data/release/revoked.sig").to_vec(),
        1,
    )
    .await;
    let root = tempfile::tempdir().unwrap();
    let error = site(&server, root.path(), &block).factory().start().await.unwrap_err().to_string();
    assert!(
        error.contains("1.5.7/terraform_1.5.7_SHA256SUMS: none of the release keys"),
        "{error}"
    );
    assert!(!root.path().join("bin").exists(), "nothing half done");

    let server = MockServer::start().await;
    serve_signed(&server, None).await;
    let error = site(&server, root.path(), &block).factory().start().await.unwrap_err().to_string();
    assert!(error.ends_with("_SHA256SUMS.sig: the server answered 404 Not Found"), "{error}");
}

#[tokio::test]
async fn release_keys_that_cannot_be_used_stop_the_start() {
    let server = MockServer::start().await;
    let root = tempfile::tempdir().unwrap();
    let site = site(&server, root.path(), &json!({"release_keys": "keys.asc"}));
    let refused = || {
        let errors = site.try_factory().unwrap_err();
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().concat()
    };
    let keys = root.path().join("keys.asc").display().to_string();
    if cfg!(feature = "verify-signature") {
        assert!(refused().contains(&format!("{keys}: No such file or directory")), "{}", refused());
        std::fs::write(&keys, "no keys").unwrap();
        assert!(refused().contains(&format!("{keys}: cannot install Terraform")), "{}", refused());
    } else {
        assert!(refused().contains("this program checks no signature"), "{}", refused());
    }
}
