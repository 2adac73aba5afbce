//! Moves the state of a task when its backend changed.
//!
//! A directory remembers the backend that it was last initialised with. When
//! that is another place than the configured one, the state has to follow, or
//! the next apply would make all infrastructure a second time. The tool's own
//! copy (`init -force-copy`, as upstream calls it) is not safe: it copies all
//! workspaces of the old place over those of the new one, states of other
//! tasks too, and also where the new ones are newer (Terraform 1.11.4,
//! observed). So only the task's own state is moved, and only where there is
//! none yet:
//!
//! | the new place has | the old place has | then |
//! |---|---|---|
//! | resources | not looked at | the new state is taken |
//! | none | resources | the old state is copied; it stays where it was, too |
//! | none | none, or no such workspace | nothing to do |
//! | none | no answer | an error: nobody knows what would be lost |
//!
//! Cut short anywhere, it starts again: the directory forgets the old backend
//! only when all is done. The `init` that follows gets `-force-copy`, as
//! upstream's does, and finds nothing to copy.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use cts_tasks::{Literal, TaskName};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::{
    files::blocking,
    local_state::{self, LOCAL_STATES, resolved},
};
use crate::{Backend, Error, Invocation, Result, Terraform};

/// The tool's file with the backend of a directory.
const REMEMBERED: &str = ".terraform/terraform.tfstate";

/// The directory below the task's that is used for a move, and removed.
const SCRATCH: &str = ".cts-move";

/// A task's directory with the backend that it is to have.
pub(super) struct Relocation<'a> {
    pub(super) directory: &'a Path,
    pub(super) task: &'a TaskName,
    pub(super) backend: &'a Backend,
    pub(super) terraform: &'a dyn Terraform,
}

impl Relocation<'_> {
    /// Brings the task's state to the configured backend if it is elsewhere.
    ///
    /// # Errors
    ///
    /// [`Error::StateMove`] when it cannot be known what the old place has.
    pub(super) async fn run(&self, run: &Invocation) -> Result<()> {
        self.remove_scratch().await?;
        let Some(old) = self.remembered() else { return Ok(()) };
        if self.place_of(&old) == self.place_of(self.backend)
            || same_but_for_secrets(&old, self.backend)
        {
            self.put_local_states_aside()?;
            return self.forget(&old);
        }
        tracing::warn!(
            task.name = %self.task, from = %shown(&old), to = %shown(self.backend),
            "the backend changed: looking for the state of the task in the old place"
        );
        let mut run = run.clone();
        run.masked.extend(old.secret_texts());
        let moved = self.move_from(&old, &run).await;
        self.remove_scratch().await?;
        moved.map_err(|source| match source {
            Error::Interrupted { .. } | Error::File { .. } => source,
            source => Error::StateMove {
                from: shown(&old),
                to: shown(self.backend),
                remembered: self.directory.join(REMEMBERED),
                source: Box::new(source),
            },
        })?;
        self.put_local_states_aside()?;
        self.forget(&old)
    }

    /// Lets the directory forget a backend that is not configured exactly so any
    /// more. The tool would open it to look for something to copy, with
    /// credentials that may be worth nothing by now.
    fn forget(&self, old: &Backend) -> Result<()> {
        if old.label() == self.backend.label() && old.settings() == self.backend.settings() {
            return Ok(());
        }
        let path = self.directory.join(REMEMBERED);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(Error::File { action: "cannot remove", path, source })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn move_from(&self, old: &Backend, run: &Invocation) -> Result<()> {
        let name = self.task.as_str();
        let new = self.open("new", self.backend, run).await?;
        if self.terraform.select_workspace(name, &new).await.is_err() {
            self.terraform.new_workspace(name, &new).await?;
        }
        if has_resources(&self.terraform.pull_state(&new).await?) {
            tracing::info!(task.name = %self.task, "the new place has the state of the task already");
            return Ok(());
        }
        if let Some(state) = local_state::path(self.directory, old, self.task) {
            local_state::restore(state, self.task).await?;
        }
        let from = self.open("old", old, run).await?;
        match self.terraform.select_workspace(name, &from).await {
            Ok(()) => {}
            // The backend answered the `init` before, so it is the workspace that is missing.
            Err(error @ Error::Failed { .. }) if error.lock_holder().is_none() => return Ok(()),
            Err(error) => return Err(error),
        }
        let state = self.terraform.pull_state(&from).await?;
        if !has_resources(&state) {
            return Ok(());
        }
        let file = new.directory.join("moved.tfstate");
        write_secret(&file, &state)?;
        self.terraform.push_state(&file, &new).await?;
        tracing::warn!(
            task.name = %self.task, from = %shown(old), to = %shown(self.backend),
            "copied the state of the task; the old one is left where it was"
        );
        Ok(())
    }

    /// Initialises a directory of its own with nothing but this backend.
    async fn open(&self, name: &str, backend: &Backend, run: &Invocation) -> Result<Invocation> {
        let directory = self.scratch().join(name);
        let attributes = backend.all_attributes().into_iter();
        let mut attributes: serde_json::Map<String, Json> = attributes
            .filter(|(_, value)| **value != Literal::Null)
            .map(|(name, value)| (name.to_owned(), self.absolute(backend.label(), name, value)))
            .collect();
        if backend.label() == "local" && !attributes.contains_key("workspace_dir") {
            let states = self.absolute("local", "workspace_dir", &LOCAL_STATES.into());
            attributes.insert("workspace_dir".to_owned(), states);
        }
        let document = json!({"terraform": {"backend": {backend.label(): attributes}}});
        DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(|source| {
            Error::File { action: "cannot create", path: directory.clone(), source }
        })?;
        write_secret(&directory.join("main.tf.json"), &document.to_string())?;
        let run = Invocation { directory, backend_config: None, ..run.clone() };
        self.terraform.init(&run).await?;
        Ok(run)
    }

    /// A value for another directory than the task's, in the tool's JSON syntax.
    fn absolute(&self, label: &str, name: &str, value: &Literal) -> Json {
        match value {
            Literal::String(path)
                if label == "local" && matches!(name, "workspace_dir" | "path") =>
            {
                resolved(self.directory, path).to_string_lossy().into()
            }
            value => escaped(&json!(value)),
        }
    }

    /// The backend that the directory remembers, or the local one where it only
    /// has states of that. What cannot be read was written by no tool.
    fn remembered(&self) -> Option<Backend> {
        #[derive(Deserialize)]
        struct File {
            backend: Option<Saved>,
        }
        #[derive(Deserialize)]
        struct Saved {
            #[serde(rename = "type")]
            label: String,
            config: Option<BTreeMap<String, Literal>>,
        }
        let text = fs::read(self.directory.join(REMEMBERED)).ok();
        let file = text.and_then(|text| serde_json::from_slice::<File>(&text).ok());
        if let Some(saved) = file.and_then(|file| file.backend) {
            let mut config = saved.config.unwrap_or_default();
            config.retain(|_, value| *value != Literal::Null);
            return Backend::new(saved.label, config).ok();
        }
        let local = Backend::new("local", BTreeMap::new()).ok()?;
        let own = local_state::path(self.directory, &local, self.task)?;
        own.is_file().then_some(local)
    }

    /// The place of a backend, to be compared.
    fn place_of(&self, backend: &Backend) -> (String, BTreeMap<&'static str, Literal>) {
        let mut place = backend.place();
        if backend.label() == "local" {
            let states = local_state::workspaces(self.directory, backend);
            let states = states.to_string_lossy().into_owned();
            place.insert("workspace_dir", Literal::String(states));
        }
        (backend.label().to_owned(), place)
    }

    /// Renames states of the default local backend that are no more in use: the
    /// tool would want to copy them at every `init`, without regard to what the
    /// new place has.
    fn put_local_states_aside(&self) -> Result<()> {
        let states = self.directory.join(LOCAL_STATES);
        let in_use = self.place_of(self.backend).1.get("workspace_dir").cloned()
            == Some(Literal::String(states.to_string_lossy().into_owned()));
        if in_use && self.backend.label() == "local" || !states.is_dir() {
            return Ok(());
        }
        let free =
            (1..).map(|number| self.directory.join(format!("{LOCAL_STATES}.moved-{number}")));
        let Some(aside) = free.into_iter().find(|path| !path.exists()) else { return Ok(()) };
        fs::rename(&states, &aside).map_err(|source| Error::File {
            action: "cannot rename",
            path: states.clone(),
            source,
        })?;
        tracing::warn!(
            task.name = %self.task, states = %aside.display(),
            "kept the local states of the former backend under another name"
        );
        Ok(())
    }

    fn scratch(&self) -> PathBuf {
        self.directory.join(SCRATCH)
    }

    /// Removes what this or an earlier, killed process used; secrets stand in it.
    async fn remove_scratch(&self) -> Result<()> {
        let path = self.scratch();
        blocking(move || match fs::remove_dir_all(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(Error::File { action: "cannot remove", path, source })
            }
            Ok(()) | Err(_) => Ok(()),
        })
        .await
    }
}

/// Returns `true` where the old backend only lacks secrets that say where the
/// state is: earlier versions handed them over by the environment.
fn same_but_for_secrets(old: &Backend, new: &Backend) -> bool {
    let secrets_of_old = old.secret_attributes().is_some();
    let mut place = new.place();
    let plain: Vec<_> = new.attributes().keys().map(String::as_str).collect();
    place.retain(|name, _| plain.contains(name));
    old.label() == new.label()
        && !secrets_of_old
        && new.secret_attributes().is_some()
        && old.place() == place
}

/// A backend for people, without its secrets.
fn shown(backend: &Backend) -> String {
    let secret = |name: &str| !backend.attributes().contains_key(name);
    let place = backend.place();
    let place = place.iter().filter(|(name, _)| !secret(name));
    let place: Vec<_> = place
        .map(|(name, value)| format!("{name} = {}", crate::language::literal(value)))
        .collect();
    format!("backend {:?} ({})", backend.label(), place.join(", "))
}

/// Returns `true` for a state that knows of anything. A text that is no state
/// counts as one: nothing is written over what is not understood.
fn has_resources(state: &str) -> bool {
    #[derive(Deserialize)]
    struct State {
        #[serde(default)]
        resources: Vec<serde::de::IgnoredAny>,
        #[serde(default)]
        outputs: serde_json::Map<String, Json>,
    }
    if state.trim().is_empty() {
        return false;
    }
    serde_json::from_str::<State>(state)
        .map_or(true, |state| !state.resources.is_empty() || !state.outputs.is_empty())
}

/// A JSON value in which no text is a template of the tool's language.
fn escaped(value: &Json) -> Json {
    match value {
        Json::String(text) => text.replace("${", "$${").replace("%{", "%%{").into(),
        Json::Array(items) => items.iter().map(escaped).collect(),
        Json::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), escaped(value))).collect()
        }
        other => other.clone(),
    }
}

fn write_secret(path: &Path, content: &str) -> Result<()> {
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    opened
        .and_then(|mut file| io::Write::write_all(&mut file, content.as_bytes()))
        .map_err(|source| Error::File { action: "cannot write", path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use cts_tasks::Literal;
    use proptest::prelude::*;
    use serde_json::json;

    use super::{escaped, has_resources, same_but_for_secrets, shown};
    use crate::Backend;

    fn backend(label: &str, attributes: &[(&str, &str)]) -> Backend {
        let attributes =
            attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).into()));
        Backend::new(label, attributes.collect::<BTreeMap<String, Literal>>()).unwrap()
    }

    #[test]
    fn credentials_are_no_part_of_the_place() {
        let s3 = |key: &str, secret: &str, bucket: &str| {
            backend("s3", &[("access_key", key), ("secret_key", secret), ("bucket", bucket)])
        };
        assert_eq!(s3("a", "b", "x").place(), s3("c", "d", "x").place());
        assert_ne!(s3("a", "b", "x").place(), s3("a", "b", "y").place());
        for (one, other, same) in [
            ("postgres://u:p@h/d?sslmode=off", "postgres://v:q@h/d?sslmode=off", true),
            ("postgres://u:p@h/d", "postgres://u:p@h/e", false),
            ("host=h user=u password=p dbname=d", "host=h user=v password=q dbname=d", true),
            ("host=h user=u dbname=d", "host=i user=u dbname=d", false),
        ] {
            let pg = |conn_str| backend("pg", &[("conn_str", conn_str)]).place();
            assert_eq!(pg(one) == pg(other), same, "{one} {other}");
        }
        let by_environment = backend("pg", &[("schema_name", "x")]);
        let by_file = backend("pg", &[("schema_name", "x"), ("conn_str", "postgres://h/d")]);
        assert!(same_but_for_secrets(&by_environment, &by_file));
        assert!(!same_but_for_secrets(&backend("pg", &[]), &by_file));
        assert_eq!(shown(&by_file), "backend \"pg\" (schema_name = \"x\")");
    }

    #[test]
    fn an_empty_state_is_known_and_an_unknown_text_is_not_taken_for_one() {
        assert!(!has_resources("\n"));
        assert!(!has_resources(r#"{"version":4,"serial":1,"resources":[],"outputs":{}}"#));
        assert!(has_resources(r#"{"version":4,"resources":[{"type":"a"}]}"#));
        assert!(has_resources(r#"{"version":4,"outputs":{"x":{}}}"#));
        assert!(has_resources("not a state"));
    }

    #[test]
    fn texts_are_no_templates() {
        let value = json!({"a": ["${x}", "%{y}"], "b": true});
        assert_eq!(escaped(&value), json!({"a": ["$${x}", "%%{y}"], "b": true}));
    }

    proptest! {
        #[test]
        fn any_state_is_read_without_a_panic(text in ".*") {
            let _read = has_resources(&text);
        }
    }
}
