//! Two controllers, of which one works at a time.

use consul_watch::{QueryOptions, client::DeleteOptions};

use super::{
    process::Launch,
    world::{World, eventually},
};

const KEY: &str = "acl-controller/leader";

fn leads(launch: &Launch) -> usize {
    launch.printed().matches("leads term").count()
}

#[tokio::test]
async fn another_controller_takes_over() {
    let Some(mut world) = World::start("election", 1).await else { return };
    let [first, second] = ["first", "second"].map(|name| {
        let mut launch = world.launch();
        launch.log = world.folder.path().join(format!("{name}.log"));
        launch.var("CONSUL_ECS_LEADER_KEY", KEY);
        launch
    });
    for service in ["web", "api"] {
        world.create_service(service).await;
    }
    let leader = first.start();
    world.run_task("web").await;
    world.settle().await;
    let waiting = second.start();
    eventually("the second stands for election", async || {
        let sessions = world.client().session_list(&QueryOptions::default()).await;
        sessions.is_ok_and(|sessions| sessions.value.len() == 2)
    })
    .await;
    assert_eq!((leads(&first), leads(&second)), (1, 0));

    // A leader that is asked to stop is followed at once.
    assert_eq!(leader.terminate().await, Some(0), "{}", first.printed());
    world.run_task("api").await;
    world.settle().await;
    assert_eq!((leads(&first), leads(&second)), (1, 1), "{}", second.printed());

    // One that loses the lock stops, and stands again.
    world.client().kv_delete(KEY, &DeleteOptions::default()).await.unwrap();
    eventually("the second has noticed", async || {
        second.printed().contains("leads no more") && leads(&second) == 2
    })
    .await;
    world.stop_task("api").await;
    world.settle().await;
    assert_eq!(waiting.terminate().await, Some(0));
    let sessions = world.client().session_list(&QueryOptions::default()).await.unwrap();
    assert!(sessions.value.is_empty(), "{sessions:?}");
}
