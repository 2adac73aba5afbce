//! Nothing is deleted for what one list of tasks does not show.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use acl_controller::{Error, Result, SecretStore, TaskSource, task::TaskListing};
use async_trait::async_trait;

use crate::scene::{Running, Scene, chains, pass, try_pass};

crate::scene::cases![
    a_service_that_one_list_lacks_keeps_its_token,
    a_task_that_one_list_lacks_keeps_its_login,
    nothing_is_deleted_when_the_second_list_cannot_be_had,
];

/// What becomes of some listings, by their number.
#[derive(Debug)]
struct Unsteady {
    inner: acl_controller::testing::MemoryTasks,
    count: AtomicUsize,
    empty: &'static [usize],
    failing: &'static [usize],
}

impl Unsteady {
    fn new(scene: &Scene, empty: &'static [usize], failing: &'static [usize]) -> Arc<Self> {
        Arc::new(Self { inner: scene.tasks.clone(), count: AtomicUsize::new(0), empty, failing })
    }
}

#[async_trait]
impl TaskSource for Unsteady {
    async fn tasks(&self) -> Result<TaskListing> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        if self.failing.contains(&number) {
            return Err(Error::Other {
                operation: "listing tasks".to_owned(),
                retryable: true,
                retry_after: None,
                source: "ThrottlingException".into(),
            });
        }
        let listing = self.inner.tasks().await?;
        Ok(if self.empty.contains(&number) { TaskListing::default() } else { listing })
    }
}

async fn a_service_that_one_list_lacks_keeps_its_token(scene: &Scene) {
    let Running { task, .. } = scene.running().await;
    let tasks = Unsteady::new(scene, &[0, 2], &[]);
    let secrets: Arc<dyn SecretStore> = Arc::clone(&scene.secrets) as Arc<dyn SecretStore>;
    let reconciler = scene.service_tokens_of(tasks, secrets, scene.settings());
    for _ in 0..3 {
        assert_eq!(pass(&reconciler).await, Vec::<String>::new());
    }
    scene.tasks.remove(&task);
    assert_eq!(pass(&reconciler).await.len(), 3);
}

async fn a_task_that_one_list_lacks_keeps_its_login(scene: &Scene) {
    let token = scene.login_task("t1", &scene.cluster).await;
    let task = scene.start("t1", "web");
    let reconciler = scene.login_tokens_of(Unsteady::new(scene, &[0, 2], &[]));
    for _ in 0..3 {
        pass(&reconciler).await;
        assert!(scene.token(&token).await.is_some());
    }
    scene.tasks.remove(&task);
    assert_eq!(pass(&reconciler).await, [format!("delete token {token}")]);
}

async fn nothing_is_deleted_when_the_second_list_cannot_be_had(scene: &Scene) {
    let token = scene.login_task("t1", &scene.cluster).await;
    let reconciler = scene.login_tokens_of(Unsteady::new(scene, &[], &[1]));
    let (report, _) = try_pass(&reconciler, false).await;
    let errors = chains(&report);
    assert!(errors[0].contains("listing resources before deleting"), "{errors:?}");
    assert!(scene.token(&token).await.is_some());
    assert_eq!(pass(&reconciler).await, [format!("delete token {token}")]);
}
