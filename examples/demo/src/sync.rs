//! The `consul-terraform-sync` of the demo, as a process of its own.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use chrono::{DateTime, Local};
use consul_watch::BoxError;
use serde_json::Value;
use tokio::process::{Child, Command};

/// The longest that any step of the demo may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// A running `consul-terraform-sync` with one task, `firewall`.
pub(crate) struct Sync {
    child: Child,
    log: PathBuf,
    http: reqwest::Client,
}

impl Sync {
    pub(crate) fn start(scratch: &Path, consul: &str, rules: &Path) -> Result<Self, BoxError> {
        let config = scratch.join("sync.hcl");
        fs::write(
            scratch.join("firewall.tfvars"),
            format!("rules_file = \"{}\"\n", rules.display()),
        )?;
        fs::write(&config, configuration(scratch, consul))?;
        println!("\n# consul-terraform-sync start -config-file sync.hcl\n");
        for line in fs::read_to_string(&config)?.lines() {
            println!("  {line}");
        }
        let log = scratch.join("sync.log");
        let child = Command::new(binary()?)
            .args(["start", "-config-file"])
            .arg(&config)
            .current_dir(scratch)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self { child, log, http: reqwest::Client::new() })
    }

    /// The present, on the clock that events are stamped with.
    #[expect(clippy::unused_self, reason = "it reads like what it is compared with")]
    pub(crate) fn now(&self) -> DateTime<Local> {
        Local::now()
    }

    /// Waits for the task's `count`th run, and returns how long that took.
    pub(crate) async fn applied(&mut self, task: &str, count: usize) -> Result<Duration, BoxError> {
        let waiting = async {
            loop {
                if let Some(status) = self.child.try_wait()? {
                    return Err::<Value, BoxError>(format!("it ended with {status}").into());
                }
                let events = self.events(task).await;
                let failed = events.iter().find_map(|event| event.pointer("/error/message"));
                if let Some(message) = failed {
                    return Err(message.to_string().into());
                }
                if let Some(newest) = events.first()
                    && events.len() >= count
                {
                    return Ok(newest.clone());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        let newest = waited.unwrap_or_else(|_| Err("the task did not run in time".into()));
        let newest = newest.map_err(|error| self.with_log(&error))?;
        Ok((time(&newest, "end_time")? - time(&newest, "start_time")?).to_std()?)
    }

    /// When the newest run ended.
    pub(crate) async fn end_of_last_run(&self, task: &str) -> Result<DateTime<Local>, BoxError> {
        let events = self.events(task).await;
        time(events.first().ok_or("no event")?, "end_time")
    }

    /// Fails when the task runs again within `quiet`.
    pub(crate) async fn stays_at(
        &self,
        task: &str,
        count: usize,
        quiet: Duration,
    ) -> Result<(), BoxError> {
        tokio::time::sleep(quiet).await;
        match self.events(task).await.len() {
            now if now == count => Ok(()),
            now => Err(format!("expected {count} runs, there are {now}").into()),
        }
    }

    /// Gives it a command, and prints what that says.
    pub(crate) async fn ask(&self, command: &[&str]) -> Result<(), BoxError> {
        let port = self.port().ok_or("not served yet")?;
        let output = Command::new(binary()?)
            .args(command)
            .env("CTS_ADDRESS", format!("http://127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .output()
            .await?;
        println!("\n# consul-terraform-sync {}\n", command.join(" "));
        for line in String::from_utf8(output.stdout)?.lines() {
            println!("  {line}");
        }
        if output.status.success() {
            return Ok(());
        }
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(self.with_log(&format!("{}: {complaint}", output.status).into()))
    }

    /// Asks it to end and waits for that.
    pub(crate) async fn stop(mut self) -> Result<(), BoxError> {
        let pid = self.child.id().ok_or("it has ended already")?;
        Command::new("kill").args(["-INT", &pid.to_string()]).status().await?;
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await??;
        if status.success() {
            return Ok(());
        }
        Err(self.with_log(&format!("it ended with {status}").into()))
    }

    async fn events(&self, task: &str) -> Vec<Value> {
        let asked = async {
            let port = self.port().ok_or("not served yet")?;
            let url = format!("http://127.0.0.1:{port}/v1/status/tasks/{task}?include=events");
            let body = self.http.get(url).send().await?.bytes().await?;
            let status: Value = serde_json::from_slice(&body)?;
            let events = status.pointer(&format!("/{task}/events")).and_then(Value::as_array);
            Ok::<_, BoxError>(events.cloned().unwrap_or_default())
        };
        // Until its API is up there is nothing to read.
        asked.await.unwrap_or_default()
    }

    /// The port that it took, as its log says.
    fn port(&self) -> Option<String> {
        let log = fs::read_to_string(&self.log).ok()?;
        let (_, rest) = log.split_once("serving the API: port=")?;
        rest.lines().next().map(str::to_owned)
    }

    fn with_log(&self, error: &BoxError) -> BoxError {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        format!("consul-terraform-sync: {error}\n\nIts log:\n{log}").into()
    }
}

/// The configuration that the demo shows.
fn configuration(scratch: &Path, consul: &str) -> String {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../modules/firewall-rules");
    let (module, scratch) = (module.display(), scratch.display());
    format!(
        r#"port        = 0 # any that is free
working_dir = "{scratch}/sync-tasks"

consul {{
  address = "{consul}"
}}

buffer_period {{
  min = "200ms"
  max = "2s"
}}

task {{
  name           = "firewall"
  description    = "allow what Consul knows to be healthy"
  module         = "{module}"
  variable_files = ["{scratch}/firewall.tfvars"]
  condition "services" {{
    names = ["web", "api"]
  }}
}}
"#
    )
}

/// The binary beside this one.
fn binary() -> Result<PathBuf, BoxError> {
    let path = std::env::current_exe()?.with_file_name("consul-terraform-sync");
    if path.exists() {
        Ok(path)
    } else {
        Err(format!("{} is not built; use scripts/demo", path.display()).into())
    }
}

fn time(event: &Value, field: &str) -> Result<DateTime<Local>, BoxError> {
    let text = event.get(field).and_then(Value::as_str).ok_or("an event without a time")?;
    Ok(DateTime::parse_from_rfc3339(text)?.into())
}
