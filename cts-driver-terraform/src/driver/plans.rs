//! Saved plans of one task, which only their owner can read.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use cts_tasks::PlanId;

use super::files::blocking;
use crate::{Error, Result};

/// The plan that is being made.
const FRESH: &str = "new.tfplan";

/// Saved plans of one task: at most one that waits, in a directory that only
/// its owner may enter, because the tool writes plans for everyone to read and
/// secrets stand in them.
pub(super) struct SavedPlans {
    directory: PathBuf,
}

impl SavedPlans {
    pub(super) fn new(task_directory: &Path) -> Self {
        Self { directory: task_directory.join(".cts-plans") }
    }

    /// Returns the path of the next plan, in a directory that is made if need be.
    pub(super) async fn fresh(&self) -> Result<PathBuf> {
        let directory = self.directory.clone();
        blocking(move || {
            DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(|source| {
                Error::File { action: "cannot create", path: directory.clone(), source }
            })?;
            Ok(directory.join(FRESH))
        })
        .await
    }

    /// Keeps a plan to be applied by its id, in place of any other.
    pub(super) async fn keep(&self, plan: &Path, id: &PlanId) -> Result<()> {
        let (directory, plan, kept) = (self.directory.clone(), plan.to_owned(), self.path(id));
        blocking(move || {
            let failed = |source| Error::File {
                action: "cannot keep the plan in",
                path: directory.clone(),
                source,
            };
            for entry in fs::read_dir(&directory).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                if path != plan {
                    fs::remove_file(path).map_err(failed)?;
                }
            }
            fs::set_permissions(&plan, Permissions::from_mode(0o600)).map_err(failed)?;
            fs::rename(&plan, kept).map_err(failed)
        })
        .await
    }

    /// The file of a plan that is kept.
    pub(super) async fn find(&self, id: &PlanId) -> Option<PathBuf> {
        if id.as_str().is_empty() || !id.as_str().bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let path = self.path(id);
        tokio::fs::try_exists(&path).await.unwrap_or(false).then_some(path)
    }

    /// Removes what a run left that was cut short while it planned.
    pub(super) async fn remove_unfinished(&self) -> Result<()> {
        self.remove(&self.directory.join(FRESH)).await
    }

    /// Removes a plan; one that is gone is no error.
    pub(super) async fn remove(&self, plan: &Path) -> Result<()> {
        match tokio::fs::remove_file(plan).await {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(Error::File { action: "cannot remove", path: plan.to_owned(), source })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn path(&self, id: &PlanId) -> PathBuf {
        self.directory.join(format!("{id}.tfplan"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use cts_tasks::PlanId;

    use super::SavedPlans;

    #[tokio::test]
    async fn one_plan_is_kept_where_only_its_owner_can_read() {
        let directory = tempfile::tempdir().unwrap();
        let plans = SavedPlans::new(directory.path());
        for id in ["aa", "bb"] {
            let fresh = plans.fresh().await.unwrap();
            std::fs::write(&fresh, id).unwrap();
            plans.keep(&fresh, &PlanId::new(id)).await.unwrap();
        }
        let mode = std::fs::metadata(directory.path().join(".cts-plans")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o700);
        assert_eq!(plans.find(&PlanId::new("aa")).await, None);
        let kept = plans.find(&PlanId::new("bb")).await.unwrap();
        assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
        plans.remove(&kept).await.unwrap();
        plans.remove(&kept).await.unwrap();

        let fresh = plans.fresh().await.unwrap();
        std::fs::write(&fresh, "half").unwrap();
        plans.remove_unfinished().await.unwrap();
        plans.remove_unfinished().await.unwrap();
        assert!(!fresh.exists());
    }

    #[tokio::test]
    async fn an_id_is_never_a_path() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("x.tfplan"), "").unwrap();
        let plans = SavedPlans::new(directory.path());
        assert_eq!(plans.find(&PlanId::new("../x")).await, None);
        assert_eq!(plans.find(&PlanId::new("")).await, None);
    }
}
