//! One task whose state is in S3 and whose AWS provider has another identity.
//!
//! With `SOAK=1` (`scripts/soak aws-provider`) the provider is the real one, which takes
//! minutes to build, and both identities speak to moto. Without it a script stands in for the
//! tool, and what it is given shows who could know what.

use std::{fs, os::unix::fs::symlink, path::Path};

use consul_watch::testing::parts::Part;
use cts_tasks::{ApplyRequest, ProviderBlock};
use serde_json::{Value as Json, json};

use crate::{
    backends::{KEY, SECRET, files_with, moto, s3},
    commands::fake,
    fixtures::provider,
    servers::{BUCKET, Moto},
    site::{SUITE, Site, context, counts, module, services, tools},
};

/// The task's identity.
const TASK_KEY: &str = "AKIATASK";
const TASK_SECRET: &str = "the-t4sks-secret";

/// The provider as an operator writes it for a server that is not AWS's.
fn aws(endpoint: &str) -> ProviderBlock {
    let mut block = provider(
        "aws",
        None,
        &json!({
            "region": "us-east-1", "endpoints": {"s3": endpoint}, "s3_force_path_style": true,
            "skip_credentials_validation": true, "skip_get_ec2_platforms": true,
            "skip_metadata_api_check": true, "skip_region_validation": true,
            "skip_requesting_account_id": true,
        }),
    );
    block.task_env.insert("AWS_ACCESS_KEY_ID".into(), TASK_KEY.into());
    block.task_env.insert("AWS_SECRET_ACCESS_KEY".into(), TASK_SECRET.into());
    block
}

/// Lets a site's task keep its state in S3, and objects with the provider.
fn configure(site: &mut Site, backend: &Json, endpoint: &str, version: &str) {
    site.options.environment.retain(|(name, _)| !name.to_string_lossy().starts_with("AWS_"));
    site.options.environment.push(("AWS_EC2_METADATA_DISABLED".into(), "true".into()));
    site.driver_block = json!({
        "backend": {"s3": backend},
        "required_providers": {"aws": {"source": "hashicorp/aws", "version": version}},
    });
    site.providers = vec![aws(endpoint)];
}

fn overrides() -> Json {
    json!({"providers": ["aws"], "module": module("objects"), "variables": {"bucket": BUCKET}})
}

#[tokio::test]
async fn the_aws_provider_and_the_backend_have_identities_of_their_own() {
    let case = "the_aws_provider_and_the_backend_have_identities_of_their_own";
    if std::env::var_os("SOAK").is_none_or(|value| value != "1") {
        return what_the_tool_is_given().await;
    }
    let Some(part) = SUITE.part("terraform-provider-aws", case) else { return };
    let Some(moto) = moto(case).await else { return };
    for tool in tools(case) {
        what_moto_is_asked(&tool, &part, &moto).await;
    }
}

/// The environment and the files of each command.
async fn what_the_tool_is_given() {
    let mut site = fake("1.11.4");
    let endpoint = "http://127.0.0.1:1";
    let backend = json!({
        "bucket": BUCKET, "key": "cts", "region": "us-east-1", "access_key": KEY,
        "secret_key": SECRET,
    });
    configure(&mut site, &backend, endpoint, "2.31.0");
    let driver = site.driver(&overrides());
    driver.prepare(&context()).await.unwrap();
    driver.apply(ApplyRequest::Inputs(&services(&[("a", 80)])), &context()).await.unwrap();
    for command in ["init", "workspace", "validate", "apply"] {
        let file = site.task_dir().join(format!("environment.{command}"));
        let environment = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = environment.lines().collect();
        assert!(lines.contains(&format!("AWS_ACCESS_KEY_ID={TASK_KEY}").as_str()), "{command}");
        assert!(
            lines.contains(&format!("AWS_SECRET_ACCESS_KEY={TASK_SECRET}").as_str()),
            "{command}"
        );
        for backends in [KEY, SECRET] {
            assert!(!environment.contains(backends), "{command}");
        }
        fs::remove_file(file).unwrap();
    }
    // The backend's key, which is no secret, stands in `main.tf`.
    for secret in [SECRET, TASK_KEY, TASK_SECRET] {
        assert!(files_with(secret, &site.task_dir()).is_empty(), "{secret}");
    }
}

/// Who signs which request to moto.
async fn what_moto_is_asked(tool: &Part, plugin: &Part, moto: &Moto) {
    let keys = json!({"access_key": KEY, "secret_key": SECRET});
    let state = format!("state-{}-{}", tool.name, tool.version);
    let mut site = Site::new(tool);
    configure(&mut site, &s3(moto, &state, &keys), &moto.endpoint(), &plugin.version);
    let settings = mirror(site.path(), plugin);
    site.options.environment.retain(|(name, _)| name != "TF_CLI_CONFIG_FILE");
    site.options.environment.push(("TF_CLI_CONFIG_FILE".into(), settings.into()));

    moto.call("POST", "moto-api/recorder/reset-recording").await;
    moto.call("POST", "moto-api/recorder/start-recording").await;
    let driver = site.driver(&overrides());
    driver.prepare(&context()).await.unwrap();
    for (port, expected) in [(80, (1, 0, 0)), (81, (0, 1, 0)), (81, (0, 0, 0))] {
        let inputs = services(&[("a", port)]);
        let done = driver.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap();
        assert_eq!(counts(&done), expected, "{tool:?}");
    }
    moto.call("POST", "moto-api/recorder/stop-recording").await;

    let (backends, tasks) = (moto.recorded_of(KEY).await, moto.recorded_of(TASK_KEY).await);
    assert!(backends.iter().any(|one| one.contains(&state)), "{backends:?}");
    assert!(tasks.iter().any(|one| one.contains("/rules/a")), "{tasks:?}");
    assert!(!backends.iter().any(|one| one.contains("/rules/a")), "{backends:?}");
    assert!(!tasks.iter().any(|one| one.contains(&state)), "{tasks:?}");
    assert!(files_with(TASK_SECRET, &site.task_dir()).is_empty());
    driver.destroy(&context()).await.unwrap();
}

/// Makes a mirror of providers that has this one, and the tool's settings that name it.
fn mirror(root: &Path, plugin: &Part) -> std::path::PathBuf {
    let mirror = root.join("mirror");
    for host in ["registry.terraform.io", "registry.opentofu.org"] {
        let platform = format!("{host}/hashicorp/aws/{}/linux_amd64", plugin.version);
        let folder = mirror.join(platform);
        fs::create_dir_all(&folder).unwrap();
        let name = format!("terraform-provider-aws_v{}", plugin.version);
        symlink(plugin.path.canonicalize().unwrap(), folder.join(name)).unwrap();
    }
    let settings = root.join("tool.rc");
    let text = format!(
        "provider_installation {{\n  filesystem_mirror {{\n    path = {:?}\n  }}\n}}\n",
        mirror.display().to_string()
    );
    fs::write(&settings, text).unwrap();
    settings
}
