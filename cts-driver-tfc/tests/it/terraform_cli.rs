//! Terraform's and OpenTofu's own commands against the double over TLS: the block `cloud` and the
//! backend `remote`.

use std::{fs, path::Path, process::Output};

use consul_watch::testing::parts::{Part, Suite};
use cts_driver_tfc::testing::{ServedTfc, TestTfc};
use serde_json::{Value, json};
use tokio::process::Command;

const SUITE: Suite = Suite("tfc_double");

/// A folder with a configuration, and the platform that it names.
struct Project {
    tool: Part,
    served: ServedTfc,
    folder: tempfile::TempDir,
}

impl Project {
    /// A platform whose runs use the same tool, and a root module with this block.
    async fn new(tool: &Part, block: impl Fn(&str) -> String) -> Self {
        let tfc = TestTfc::builder().tool(&tool.path).build();
        let served = tfc.serve_tls().await.unwrap();
        let project = Self { tool: tool.clone(), folder: tempfile::tempdir().unwrap(), served };
        project.write(&block(&project.served.host()), "one");
        project
    }

    fn tfc(&self) -> &TestTfc {
        self.served.tfc()
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a module with one resource of the tool itself, so that nothing is downloaded.
    fn write(&self, block: &str, value: &str) {
        let text = format!(
            "terraform {{\n{block}\n}}\n\nvariable \"word\" {{\n  type    = string\n  default = \
             \"{value}\"\n}}\n\nresource \"terraform_data\" \"kept\" {{\n  input = \
             var.word\n}}\n\noutput \"word\" {{\n  value = \
             terraform_data.kept.output\n}}\n\noutput \"secret\" {{\n  value     = \
             \"pl4nted-s3cret\"\n  sensitive = true\n}}\n"
        );
        fs::write(self.path().join("main.tf"), text).unwrap();
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        let environment = self.served.terraform_environment(self.path()).unwrap();
        Command::new(&self.tool.path)
            .args(arguments)
            .current_dir(self.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .envs(environment)
            .kill_on_drop(true)
            .output()
            .await
            .unwrap()
    }

    /// Runs a command that has to succeed, and returns what it printed.
    async fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        let (printed, complained) = texts(&output);
        assert!(
            output.status.success(),
            "{} {arguments:?}: {printed}\n{complained}\n{:#?}",
            self.tool.version,
            self.refusals()
        );
        printed
    }

    /// Runs a command that has to fail, and returns what it said.
    async fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        let (printed, complained) = texts(&output);
        assert!(!output.status.success(), "{arguments:?}: {printed}");
        format!("{printed}{complained}")
    }

    /// Requests that were not answered well, for messages.
    fn refusals(&self) -> Vec<String> {
        let all = self.tfc().requests();
        let refused = all.iter().filter(|request| request.status >= 400);
        refused.map(|it| format!("{} {}?{} {}", it.method, it.path, it.query, it.status)).collect()
    }
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn cloud(workspaces: &str) -> impl Fn(&str) -> String {
    let workspaces = workspaces.to_owned();
    move |host| {
        format!(
            "  cloud {{\n    hostname     = \"{host}\"\n    organization = \"{}\"\n    workspaces \
             {{\n      {workspaces}\n    }}\n  }}",
            TestTfc::ORGANIZATION
        )
    }
}

/// Every Terraform and OpenTofu that is there.
fn tools(case: &str) -> Vec<Part> {
    [SUITE.parts("terraform", case), SUITE.parts("tofu", case)].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_block_plans_applies_and_destroys_in_the_double() {
    for tool in tools("a block `cloud` is served") {
        let project = Project::new(&tool, cloud("name = \"web\"")).await;
        project.done(&["init", "-no-color"]).await;
        assert_eq!(project.tfc().workspaces(), ["web"], "init creates the workspace");

        let planned = project.done(&["plan", "-no-color"]).await;
        assert!(planned.contains("terraform_data.kept will be created"), "{planned}");
        assert!(!planned.contains("pl4nted-s3cret"), "{planned}");
        assert_eq!(project.tfc().current_state("web"), None, "a plan stores nothing");

        let applied = project.done(&["apply", "-auto-approve", "-no-color"]).await;
        assert!(applied.contains("Apply complete! Resources: 1 added"), "{applied}");
        let word = project.done(&["output", "-raw", "word"]).await;
        assert_eq!(word, "one");
        let outputs: Value =
            serde_json::from_str(&project.done(&["output", "-json"]).await).unwrap();
        assert_eq!(outputs["secret"]["value"], "pl4nted-s3cret");
        assert_eq!(project.done(&["state", "list"]).await.trim(), "terraform_data.kept");
        let pulled: Value = serde_json::from_str(&project.done(&["state", "pull"]).await).unwrap();
        assert_eq!(pulled["resources"][0]["type"], "terraform_data");
        let shown = project.done(&["show", "-no-color"]).await;
        assert!(shown.contains("terraform_data.kept"), "{shown}");
        let again = project.done(&["apply", "-auto-approve", "-no-color"]).await;
        assert!(again.contains("No changes"), "{again}");

        let destroyed = project.done(&["destroy", "-auto-approve", "-no-color"]).await;
        assert!(destroyed.contains("1 destroyed"), "{destroyed}");
        assert_eq!(project.done(&["state", "list"]).await.trim(), "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_remote_backend_plans_applies_and_destroys_in_the_double() {
    for tool in tools("the backend `remote` is served") {
        let project = Project::new(&tool, |host| {
            format!(
                "  backend \"remote\" {{\n    hostname     = \"{host}\"\n    organization = \
                 \"{}\"\n    workspaces {{\n      name = \"web\"\n    }}\n  }}",
                TestTfc::ORGANIZATION
            )
        })
        .await;
        project.done(&["init", "-no-color"]).await;
        let planned = project.done(&["plan", "-no-color"]).await;
        assert!(planned.contains("terraform_data.kept will be created"), "{planned}");
        let applied = project.done(&["apply", "-auto-approve", "-no-color"]).await;
        assert!(applied.contains("Apply complete! Resources: 1 added"), "{applied}");
        assert_eq!(project.done(&["output", "-raw", "word"]).await, "one");
        let destroyed = project.done(&["destroy", "-auto-approve", "-no-color"]).await;
        assert!(destroyed.contains("1 destroyed"), "{destroyed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workspaces_by_tag_are_made_listed_selected_and_deleted() {
    for tool in tools("workspaces are kept by tag") {
        let project = Project::new(&tool, cloud("tags = [\"app\"]")).await;
        for number in 0..25 {
            // More than one page of the list, and one of another tag.
            project.tfc().add_workspace(&format!("ws-{number:02}"), &json!({}), &["app"]);
        }
        project.tfc().add_workspace("other", &json!({}), &["db"]);
        // As if it had been selected before: `init` asks a person for one otherwise.
        fs::create_dir_all(project.path().join(".terraform")).unwrap();
        fs::write(project.path().join(".terraform/environment"), "ws-07").unwrap();
        project.done(&["init", "-no-color", "-input=false"]).await;
        let listed = project.done(&["workspace", "list"]).await;
        assert_eq!(listed.lines().filter(|line| line.contains("ws-")).count(), 25, "{listed}");
        assert!(listed.contains("* ws-07") && !listed.contains("other"), "{listed}");
        project.done(&["workspace", "select", "ws-11"]).await;
        assert_eq!(project.done(&["workspace", "show"]).await.trim(), "ws-11");
        project.done(&["workspace", "new", "fresh"]).await;
        assert_eq!(project.tfc().tags("fresh"), ["app"]);
        project.done(&["workspace", "select", "ws-11"]).await;
        project.done(&["workspace", "delete", "fresh"]).await;
        assert!(!project.tfc().workspaces().contains(&"fresh".to_owned()));
        assert_eq!(project.tfc().workspaces().len(), 26);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_and_a_failing_plan_are_told_as_terraform_tells_them() {
    for tool in tools("errors are told") {
        let project = Project::new(&tool, cloud("name = \"web\"")).await;
        project.done(&["init", "-no-color"]).await;
        let broken = "  # nothing\n}\n\nlocals {\n  bad = file(\"/does/not/exist\")\n}\n\nterraform \
                      {\n";
        project.write(
            &format!("{}\n{broken}", cloud("name = \"web\"")(&project.served.host())),
            "one",
        );
        let failed = project.refused(&["plan", "-no-color"]).await;
        assert!(failed.contains("/does/not/exist"), "{failed}");
        assert_eq!(project.tfc().current_state("web"), None);

        let environment = project.served.terraform_environment(project.path()).unwrap();
        project.tfc().set_token("another");
        let output = Command::new(&tool.path)
            .args(["plan", "-no-color"])
            .current_dir(project.path())
            .envs(environment)
            .output()
            .await
            .unwrap();
        let (printed, complained) = texts(&output);
        assert!(!output.status.success(), "{printed}");
        assert!(
            complained.contains("unauthorized") || complained.contains("Unauthorized"),
            "{complained}"
        );
        assert!(!format!("{printed}{complained}").contains(TestTfc::TOKEN));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saved_plan_of_terraform_is_applied_as_it_is() {
    let Some(tool) = SUITE.part("terraform", "a saved plan is applied") else { return };
    let project = Project::new(&tool, cloud("name = \"web\"")).await;
    project.done(&["init", "-no-color"]).await;
    project.done(&["plan", "-no-color", "-out=saved"]).await;
    let shown = project.done(&["show", "-no-color", "saved"]).await;
    assert!(shown.contains("terraform_data.kept will be created"), "{shown}");
    assert_eq!(project.tfc().current_state("web"), None);
    let applied = project.done(&["apply", "-no-color", "saved"]).await;
    assert!(applied.contains("Apply complete! Resources: 1 added"), "{applied}");
    assert_eq!(project.done(&["output", "-raw", "word"]).await, "one");
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_of_the_workspace_reach_the_run_and_a_lock_keeps_others_out() {
    for tool in tools("variables and locks hold") {
        let project = Project::new(&tool, cloud("name = \"web\"")).await;
        project.done(&["init", "-no-color"]).await;
        project.tfc().add_variable(
            "web",
            &json!({"key": "word", "value": "given", "category": "terraform", "hcl": false,
                    "sensitive": false}),
        );
        project.done(&["apply", "-auto-approve", "-no-color"]).await;
        assert_eq!(project.done(&["output", "-raw", "word"]).await, "given");

        // What a person pulled, changed and pushes back is the newest state, also of another serial.
        let pulled = project.done(&["state", "pull"]).await;
        let mut state: Value = serde_json::from_str(&pulled).unwrap();
        let serial = state["serial"].as_u64().unwrap();
        state["serial"] = json!(serial + 1);
        state["outputs"]["word"]["value"] = json!("pushed");
        let file = project.path().join("pushed.json");
        fs::write(&file, state.to_string()).unwrap();
        project.done(&["state", "push", file.to_str().unwrap()]).await;
        assert_eq!(project.done(&["output", "-raw", "word"]).await, "pushed");
        // A stale one is not.
        fs::write(&file, pulled).unwrap();
        let stale = project.refused(&["state", "push", file.to_str().unwrap()]).await;
        assert!(stale.contains("serial"), "{stale}");

        project.tfc().set_attribute("web", "locked", json!(true));
        let locked = project.refused(&["state", "rm", "terraform_data.kept"]).await;
        assert!(locked.to_lowercase().contains("lock"), "{locked}");
    }
}

#[tokio::test]
async fn what_the_double_does_not_serve_is_refused_by_its_name() {
    let served = TestTfc::new().serve_tls().await.unwrap();
    let authority = reqwest::Certificate::from_pem(served.authority().unwrap().as_bytes()).unwrap();
    let client = reqwest::Client::builder().tls_certs_only([authority]).build().unwrap();
    for path in ["registry-modules", "organizations/my-org/ssh-keys", "no-such-thing"] {
        let url = format!("{}/api/v2/{path}", served.hostname());
        let answer = client.get(url).bearer_auth(TestTfc::TOKEN).send().await.unwrap();
        assert_eq!(answer.status(), 404, "{path}");
        let text = answer.text().await.unwrap();
        assert!(text.contains("double of cts-driver-tfc, which does not serve GET"), "{text}");
    }
    let list = format!("{}/api/v2/organizations/my-org/workspaces", served.hostname());
    for (query, status) in [
        ("filter[project][id]=prj-1&filter[tagged][0][key]=a&filter[tagged][12][value]=b", 200),
        ("filter%5Bcurrent-run%5D%5Bstatus%5D=applied", 200),
        ("filter[owner]=a", 400),
        ("filter[tagged][x][key]=a", 400),
    ] {
        let url = format!("{list}?{query}");
        let answer = client.get(url).bearer_auth(TestTfc::TOKEN).send().await.unwrap();
        assert_eq!(answer.status(), status, "{query}");
        let text = answer.text().await.unwrap();
        assert_eq!(text.contains("unknown filter"), status == 400, "{text}");
    }
    let discovered = client
        .get(format!("{}/.well-known/terraform.json", served.hostname()))
        .send()
        .await
        .unwrap();
    let discovered: Value = serde_json::from_str(&discovered.text().await.unwrap()).unwrap();
    assert_eq!(discovered["tfe.v2"], "/api/v2/");
}
