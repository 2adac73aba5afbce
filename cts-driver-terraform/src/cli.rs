//! The commands `terraform` and `tofu`.

mod backend_file;
mod environment;
mod init_turn;
mod lookup;
mod options;
mod process;
mod stream;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use cts_tasks::Changes;
use serde::Deserialize;
use tokio::sync::OnceCell;

pub use self::options::CliOptions;
use self::{backend_file::BackendFile, init_turn::InitTurn, process::Finished, stream::Stream};
use crate::{
    ApplyOptions, Error, Invocation, PlanOptions, Product, Result, ShownPlan, StateLock, Step,
    Terraform, Tool, ToolDiagnostic, Validation, Version, VersionConstraint,
    terraform::{PlanJson, planned},
};

/// The id of no lock: ids are random.
const NO_LOCK: &str = "00000000-0000-0000-0000-000000000000";

/// Runs the `terraform` or `tofu` command, and reads only its JSON.
///
/// The process gets a process group of its own. Asked to stop, it is first
/// interrupted, so that it can save the state and give its lock back, and
/// killed with all its children when the time that
/// [`CliOptions::grace`] gives is over. What it prints goes to
/// files without a name, not to pipes: if our own process dies, the command
/// goes on undisturbed, saves the state and gives its lock back.
///
/// Source: Consul-Terraform-Sync 0.9, command lines of the Terraform client.
///
/// Deviation: `-json` is added where something is decided.
///
/// # Cancel safety
///
/// Dropping the future of a call interrupts the command and does not wait for
/// its end.
#[derive(Debug)]
pub struct TerraformCli {
    options: CliOptions,
    found: OnceCell<Found>,
    init_turn: InitTurn,
}

/// A binary that answered.
#[derive(Debug, Clone)]
struct Found {
    binary: PathBuf,
    tool: Tool,
}

impl TerraformCli {
    /// Commands with these options. The binary is looked for at the first use.
    pub fn new(options: CliOptions) -> Self {
        Self { init_turn: InitTurn::new(&options.environment), options, found: OnceCell::new() }
    }

    async fn found(&self) -> Result<&Found> {
        self.found
            .get_or_try_init(|| async {
                let binary = self.binary().await?;
                let tool = self.ask_version(&binary).await?;
                tracing::info!(
                    binary = %binary.display(), product = %tool.product, version = %tool.version,
                    "found the command that runs tasks"
                );
                Ok(Found { binary, tool })
            })
            .await
    }

    /// The binary that is there, or one that is installed now.
    #[cfg(feature = "download")]
    async fn binary(&self) -> Result<PathBuf> {
        match (lookup::find(&self.options), &self.options.installer) {
            (Err(Error::NotFound { .. }), Some(installer)) => {
                match lookup::in_directory(installer.directory()) {
                    Some(installed) => Ok(installed),
                    None => installer.install().await,
                }
            }
            (found, _) => found,
        }
    }

    #[cfg(not(feature = "download"))]
    #[expect(clippy::unused_async, reason = "it waits where the feature `download` is on")]
    async fn binary(&self) -> Result<PathBuf> {
        lookup::find(&self.options)
    }

    async fn ask_version(&self, binary: &Path) -> Result<Tool> {
        #[derive(Deserialize)]
        struct VersionJson {
            terraform_version: String,
        }
        let run = Invocation {
            directory: std::env::temp_dir(),
            environment: BTreeMap::new(),
            backend_config: None,
            masked: Vec::new(),
            stop: cts_tasks::Stop::new(),
            input: None,
            progress: std::sync::Arc::new(cts_tasks::Silent),
        };
        let arguments = ["version".into(), "-json".into()];
        let finished = process::run(binary, &arguments, &self.options, &run, Step::Version).await?;
        let json: VersionJson = finished.document(Step::Version)?;
        let version: Version = json.terraform_version.parse()?;
        // Both answer with the same key; only the name of the file tells them apart.
        let tofu = std::fs::canonicalize(binary).unwrap_or_else(|_error| binary.to_owned());
        let named = |path: &Path| {
            path.file_stem().is_some_and(|name| name.to_string_lossy().contains("tofu"))
        };
        let product =
            if named(binary) || named(&tofu) { Product::OpenTofu } else { Product::Terraform };
        Ok(Tool { product, version })
    }

    async fn run(&self, step: Step, arguments: &[OsString], run: &Invocation) -> Result<Finished> {
        let found = self.found().await?;
        process::run(&found.binary, arguments, &self.options, run, step).await
    }

    /// Runs a command whose output decides nothing.
    async fn run_plain(&self, step: Step, arguments: &[&str], run: &Invocation) -> Result<()> {
        let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
        let finished = self.run(step, &arguments, run).await?;
        if finished.success() { Ok(()) } else { Err(finished.failure(step, Vec::new())) }
    }

    async fn push(&self, flags: &[&str], state: &Path, run: &Invocation) -> Result<()> {
        let words = ["state", "push", "-no-color"].iter().chain(flags);
        let mut arguments: Vec<_> = words.map(OsString::from).collect();
        arguments.push(state.as_os_str().to_owned());
        let finished = self.run(Step::State, &arguments, run).await?;
        if finished.success() { Ok(()) } else { Err(finished.failure(Step::State, Vec::new())) }
    }

    /// Runs `plan`, `apply` or `destroy`, and reads the stream if there is one.
    async fn run_stream(
        &self,
        step: Step,
        mut arguments: Vec<OsString>,
        last: Option<&Path>,
        run: &Invocation,
    ) -> Result<(Finished, Stream)> {
        let streams = self.found().await?.tool.streams();
        if streams {
            arguments.push("-json".into());
        }
        arguments.extend(last.map(|last| last.as_os_str().to_owned()));
        let finished = self.run(step, &arguments, run).await?;
        let stream =
            if streams { Stream::read(&finished.stdout, step)? } else { Stream::default() };
        if finished.code == Some(0) || (step == Step::Plan && finished.code == Some(2)) {
            Ok((finished, stream))
        } else {
            Err(finished.failure(step, stream.into_errors()))
        }
    }
}

#[async_trait]
impl Terraform for TerraformCli {
    async fn version(&self) -> Result<Tool> {
        self.found().await.map(|found| found.tool.clone())
    }

    async fn init(&self, run: &Invocation) -> Result<()> {
        let tool = self.version().await?;
        let mut arguments: Vec<OsString> = [
            "init",
            "-no-color",
            "-force-copy",
            "-input=false",
            "-backend=true",
            "-get=true",
            "-upgrade=false",
        ]
        .map(Into::into)
        .into();
        if tool.product == Product::Terraform && !tool.version.at_least(0, 15) {
            let flags = ["-lock-timeout=0s", "-lock=true", "-get-plugins=true"];
            arguments.extend(flags.map(Into::into));
            arguments.push("-verify-plugins=true".into());
        }
        let _turn = self.init_turn.wait(&run.stop).await?;
        let file = match &run.backend_config {
            Some(config) => Some(BackendFile::write(&run.directory, config)?),
            None => None,
        };
        arguments.extend(file.as_ref().map(BackendFile::argument));
        let finished = self.run(Step::Init, &arguments, run).await?;
        drop(file);
        if finished.success() { Ok(()) } else { Err(finished.failure(Step::Init, Vec::new())) }
    }

    async fn new_workspace(&self, name: &str, run: &Invocation) -> Result<()> {
        self.run_plain(Step::Init, &["workspace", "new", "-no-color", name], run).await
    }

    async fn select_workspace(&self, name: &str, run: &Invocation) -> Result<()> {
        self.run_plain(Step::Init, &["workspace", "select", "-no-color", name], run).await
    }

    async fn validate(&self, run: &Invocation) -> Result<Validation> {
        #[derive(Deserialize)]
        struct ValidationJson {
            valid: bool,
            #[serde(default)]
            diagnostics: Vec<ToolDiagnostic>,
        }
        let arguments = ["validate", "-no-color", "-json"].map(OsString::from);
        let finished = self.run(Step::Validate, &arguments, run).await?;
        match finished.document::<ValidationJson>(Step::Validate) {
            Ok(ValidationJson { valid, diagnostics }) => Ok(Validation { valid, diagnostics }),
            Err(error) if finished.success() => Err(error),
            Err(_) => Err(finished.failure(Step::Validate, Vec::new())),
        }
    }

    async fn plan(&self, options: &PlanOptions, run: &Invocation) -> Result<bool> {
        let mut out = OsString::from("-out=");
        out.push(&options.out);
        let mut arguments: Vec<OsString> =
            ["plan", "-no-color", "-input=false", "-detailed-exitcode"].map(Into::into).into();
        arguments.push("-lock-timeout=0s".into());
        arguments.extend(["-lock=true", "-parallelism=10", "-refresh=true"].map(Into::into));
        if options.refresh_only {
            arguments.push("-refresh-only".into());
        }
        arguments.push(out);
        let (finished, _) = self.run_stream(Step::Plan, arguments, None, run).await?;
        Ok(finished.code == Some(2))
    }

    async fn apply(&self, options: &ApplyOptions, run: &Invocation) -> Result<Changes> {
        let mut arguments: Vec<OsString> =
            ["apply", "-no-color", "-auto-approve", "-input=false"].map(Into::into).into();
        arguments.extend(["-lock=true", "-parallelism=10", "-refresh=true"].map(Into::into));
        let (_, stream) =
            self.run_stream(Step::Apply, arguments, options.plan.as_deref(), run).await?;
        Ok(stream.into_changes())
    }

    async fn destroy(&self, run: &Invocation) -> Result<Changes> {
        let mut arguments: Vec<OsString> =
            ["destroy", "-no-color", "-auto-approve", "-input=false"].map(Into::into).into();
        arguments.extend(["-lock=true", "-parallelism=10", "-refresh=true"].map(Into::into));
        let (_, stream) = self.run_stream(Step::Destroy, arguments, None, run).await?;
        Ok(stream.into_changes())
    }

    async fn show(&self, plan: &Path, run: &Invocation) -> Result<ShownPlan> {
        let file = plan.as_os_str().to_owned();
        let show = async |arguments: Vec<OsString>, run: &Invocation| {
            let finished = self.run(Step::Show, &arguments, run).await?;
            if finished.success() {
                Ok(finished)
            } else {
                Err(finished.failure(Step::Show, Vec::new()))
            }
        };
        let json = show(vec!["show".into(), "-json".into(), file.clone()], run).await?;
        let json: PlanJson = json.document(Step::Show)?;
        if !matches!(json.format_version.split('.').next(), Some("0" | "1")) {
            return Err(Error::Output {
                step: Step::Show,
                problem: format!("plans of format {} are not known", json.format_version),
            });
        }
        // For people the tool masks what is marked, but not what was computed from that.
        let secrets = json.sensitive_texts();
        let mut masking = run.clone();
        masking.masked.extend(secrets.iter().map(|secret| secret.as_str().into()));
        let text = show(vec!["show".into(), "-no-color".into(), file], &masking).await?;
        Ok(planned(&json, text.stdout.trim()))
    }

    async fn pull_state(&self, run: &Invocation) -> Result<String> {
        let arguments = ["state", "pull", "-no-color"].map(OsString::from);
        let finished = self.run(Step::State, &arguments, run).await?;
        if !finished.success() {
            return Err(finished.failure(Step::State, Vec::new()));
        }
        // A warning about the tool's own configuration may stand before it.
        let start = finished.stdout.find('{').unwrap_or(finished.stdout.len());
        Ok(finished.stdout.get(start..).unwrap_or_default().to_owned())
    }

    async fn push_state(&self, state: &Path, run: &Invocation) -> Result<()> {
        self.push(&["-force"], state, run).await
    }

    async fn push_newer_state(&self, state: &Path, run: &Invocation) -> Result<()> {
        self.push(&[], state, run).await
    }

    async fn state_lock(&self, run: &Invocation) -> Result<Option<StateLock>> {
        // Giving back a lock with an id that none has is refused with the lock that
        // is there, and changes nothing. No other command shows a lock without
        // running providers.
        let none = ["force-unlock", "-no-color", "-force", NO_LOCK];
        match self.run_plain(Step::Unlock, &none, run).await {
            Ok(()) => Ok(None),
            Err(error) => match error.state_lock() {
                Some(lock) => Ok(Some(lock)),
                None if matches!(error, Error::Failed { .. }) => Ok(None),
                None => Err(error),
            },
        }
    }

    async fn unlock_state(&self, id: &str, run: &Invocation) -> Result<()> {
        self.run_plain(Step::Unlock, &["force-unlock", "-no-color", "-force", id], run).await
    }

    async fn output(&self, run: &Invocation) -> Result<BTreeMap<String, serde_json::Value>> {
        #[derive(Deserialize)]
        struct OutputJson {
            value: serde_json::Value,
        }
        let arguments = ["output", "-no-color", "-json"].map(OsString::from);
        let finished = self.run(Step::Output, &arguments, run).await?;
        if !finished.success() {
            return Err(finished.failure(Step::Output, Vec::new()));
        }
        let outputs: BTreeMap<String, OutputJson> = finished.document(Step::Output)?;
        Ok(outputs.into_iter().map(|(name, output)| (name, output.value)).collect())
    }
}

/// Refuses a tool that may not be run.
///
/// Source: Consul-Terraform-Sync 0.9, checks of the binary at start.
///
/// Deviation: the words name what was found, and `OpenTofu` is accepted from
/// 1.6 on.
pub(crate) fn check_supported(tool: &Tool, supported: &VersionConstraint) -> Result<()> {
    let accepted = match tool.product {
        Product::Terraform => supported.accepts(&tool.version),
        Product::OpenTofu => tool.version.at_least(1, 6),
    };
    if accepted {
        return Ok(());
    }
    let expected = match tool.product {
        Product::Terraform => supported.as_str(),
        Product::OpenTofu => ">= 1.6.0",
    };
    Err(Error::Unsupported {
        message: format!(
            "unsupported {} version: remove {0} from the configured path or specify a new path to \
             safely install a compatible version. Found {}, supported is {expected}",
            tool.product, tool.version
        ),
    })
}
