//! `consul-ecs` as a container runs it.

use std::{
    fs,
    process::{Output, Stdio},
};

use consul_watch::{QueryOptions, testing::TestConsul};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

async fn run(arguments: &[&str], vars: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_consul-ecs"))
        .args(arguments)
        .env_clear()
        .envs(vars.iter().copied())
        .output()
        .await
        .unwrap()
}

fn complaint(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// Spec: MI1, MI2
#[tokio::test]
async fn wrong_calls_say_why() {
    for command in ["mesh-init", "health-sync", "control-plane"] {
        let (code, text) = complaint(&run(&[command, "some-arg"], &[]).await);
        assert_eq!((code, text.as_str()), (Some(1), "unexpected argument: some-arg"));
        let (code, text) = complaint(&run(&[command], &[]).await);
        let expected = r#"invalid config: "CONSUL_ECS_CONFIG_JSON" isn't populated"#;
        assert_eq!((code, text.as_str()), (Some(1), expected));
    }
    let config = [("CONSUL_ECS_CONFIG_JSON", r#"{"bootstrapDir":"/tmp","service":{"port":1}}"#)];
    let (code, text) = complaint(&run(&["mesh-init"], &config).await);
    assert_eq!(code, Some(1));
    assert!(
        text.contains("ERROR") && text.ends_with("ECS_CONTAINER_METADATA_URI_V4 env var not set"),
        "{text}"
    );
}

/// Spec: MI36, MI37, MI38
#[tokio::test]
async fn exit_codes_are_those_of_upstream() {
    let code =
        async |arguments: &[&str]| run(arguments, &[("PATH", "/usr/bin:/bin")]).await.status.code();
    assert_eq!(code(&["app-entrypoint", "sh", "-c", "exit 7"]).await, Some(7));
    assert_eq!(code(&["app-entrypoint"]).await, Some(1));
    // Also where there is no metadata: the proxy runs all the same.
    assert_eq!(code(&["envoy-entrypoint", "sh", "-c", "exit 9"]).await, Some(9));
    assert_eq!(code(&["app-entrypoint", "-shutdown-delay", "asdf", "true"]).await, Some(1));
    assert_eq!(code(&["net-dial"]).await, Some(1));
    let (code_of_dial, text) = complaint(&run(&["net-dial", "nobody"], &[]).await);
    assert_eq!(code_of_dial, Some(2));
    assert!(text.contains("cannot connect to nobody: "), "{text}");
    assert_eq!(code(&["version"]).await, Some(0));
    assert_eq!(code(&["nothing"]).await, Some(127));
    assert_eq!(code(&[]).await, Some(127));
    assert_eq!(code(&["app-entrypoint", "sh", "-c", "kill -KILL $$"]).await, Some(255));
    assert_eq!(code(&["app-entrypoint", "-log-level", "loud", "true"]).await, Some(0));
    assert_eq!(code(&["app-entrypoint", "-shutdown-delay", "-1s", "true"]).await, Some(0));
}

/// Each of these would end the entrypoint by default, and leave its program behind.
///
/// Spec: MI37
#[tokio::test]
async fn broken_pipes_and_real_time_signals_reach_the_program() {
    // `kill` of the shell knows the real-time signals by their numbers alone.
    for (signal, code) in [("PIPE", 41), ("34", 42), ("64", 43)] {
        let script =
            format!("trap 'exit {code}' {signal}; echo ready; while :; do sleep 0.02; done");
        let mut entrypoint = Command::new(env!("CARGO_BIN_EXE_consul-ecs"))
            .args(["app-entrypoint", "sh", "-c", &script])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut output = BufReader::new(entrypoint.stdout.take().unwrap()).lines();
        assert_eq!(output.next_line().await.unwrap().as_deref(), Some("ready"));
        let process = entrypoint.id().unwrap().to_string();
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -{signal} {process}")])
            .status()
            .await
            .unwrap();
        assert!(sent.success(), "{signal}");
        assert_eq!(entrypoint.wait().await.unwrap().code(), Some(code), "{signal}");
    }
}

#[tokio::test]
async fn each_command_has_help() {
    let help = run(&["--help"], &[]).await;
    assert_eq!(help.status.code(), Some(0));
    let list = String::from_utf8_lossy(&help.stdout).into_owned();
    let commands =
        list.lines().filter_map(|line| line.strip_prefix("    ")?.split_whitespace().next());
    let commands: Vec<&str> = commands.filter(|command| *command != "version").collect();
    assert_eq!(commands.len(), 10, "{list}");
    for command in commands {
        for flag in ["-h", "-help", "--help"] {
            let output = run(&[command, flag], &[]).await;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output.status.code(), Some(0), "{command} {flag}");
            assert!(text.starts_with(&format!("Usage: consul-ecs {command}")), "{text}");
            assert!(output.stderr.is_empty());
        }
    }
    // What stands behind a program is the program's.
    let output = run(&["app-entrypoint", "echo", "--help"], &[("PATH", "/usr/bin:/bin")]).await;
    assert!(!String::from_utf8_lossy(&output.stdout).contains("app-entrypoint"));
}

#[tokio::test]
async fn mesh_init_registers_and_writes_the_bootstrap() {
    let consul = TestConsul::new().serve().await.unwrap();
    let metadata = wiremock::MockServer::start().await;
    let task = r#"{"TaskARN":"arn:aws:ecs:us-east-1:1:task/test/abcdef","Family":"Web"}"#;
    wiremock::Mock::given(wiremock::matchers::path("/task"))
        .respond_with(wiremock::ResponseTemplate::new(200).set_body_string(task))
        .expect(1)
        .mount(&metadata)
        .await;
    let folder = tempfile::tempdir().unwrap();
    let config =
        format!(r#"{{"bootstrapDir":"{}","service":{{"port":8080}}}}"#, folder.path().display());
    let vars = [
        ("CONSUL_ECS_CONFIG_JSON", config.as_str()),
        ("CONSUL_HTTP_ADDR", &consul.address()),
        ("ECS_CONTAINER_METADATA_URI_V4", &metadata.uri()),
    ];
    let (code, text) = complaint(&run(&["mesh-init"], &vars).await);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("successfully initialized the task to operate as part of the mesh"),
        "{text}"
    );
    let bootstrap = fs::read_to_string(folder.path().join("envoy-bootstrap.json")).unwrap();
    assert!(bootstrap.contains(r#""id": "web-abcdef-sidecar-proxy""#));
    let copy = fs::metadata(folder.path().join("consul-ecs")).unwrap();
    let original = fs::metadata(env!("CARGO_BIN_EXE_consul-ecs")).unwrap();
    assert_eq!(copy.len(), original.len());
    let services = consul.client().agent_services(&QueryOptions::default()).await.unwrap();
    assert_eq!(services.len(), 2);
}
