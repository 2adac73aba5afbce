//! SIGHUP: the daemon takes over tasks of files that were changed.

use std::fs;

use crate::{
    sync::SyncProcess,
    world::{World, slow_task},
};

#[tokio::test]
async fn tasks_of_the_files_come_and_go_at_sighup_and_a_mistake_changes_nothing() {
    let world = World::new("reload").await;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (one, two) = (slow_task(folder, "one", "none"), slow_task(folder, "two", "none"));
    let mut sync = SyncProcess::new(folder, &world.address(), &one);
    sync.start_with(|command| world.set_path(command));
    sync.ran("one", 1).await;
    let file = folder.join("sync.hcl");
    let head = fs::read_to_string(&file).unwrap().replace(&one, "");

    fs::write(&file, format!("{head}{one}{two}")).unwrap();
    sync.signal("-HUP").await;
    sync.ran("two", 1).await;
    sync.ran("one", 1).await;

    fs::write(&file, format!("{head}{two}prot = 1\n")).unwrap();
    sync.signal("-HUP").await;
    sync.until("the mistake is told", || {
        sync.log().contains("the configuration is not reloaded: it cannot be used")
    })
    .await;
    let log = sync.log();
    assert!(log.contains("has invalid keys: prot") && log.contains("sync.hcl:"), "{log}");
    sync.ran("one", 1).await;

    fs::write(&file, format!("{head}{two}")).unwrap();
    sync.signal("-HUP").await;
    sync.gone("one").await;
    sync.ran("two", 1).await;
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}
