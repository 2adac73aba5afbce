//! A task joins the mesh with the token that the controller has put into its secret.

use consul_watch::{QueryOptions, types::AgentServiceRegistration};

use super::{
    rights,
    world::{SUITE, World, eventually},
};
use crate::mesh::task::EcsTask;

#[tokio::test]
async fn a_service_task_registers_with_the_token_of_its_secret() {
    let case = "mesh-init";
    for consul in SUITE.parts("consul", case) {
        let Some(world) = World::start_on(&consul, case, 1).await else { return };
        joins_with_the_token_of_its_secret(world).await;
    }
}

async fn joins_with_the_token_of_its_secret(mut world: World) {
    for service in ["web", "api"] {
        world.create_service(service).await;
        world.run_task(service).await;
    }
    let controller = world.launch().start();
    world.settle().await;

    // What ECS does with `valueFrom` in the task definition.
    let token = world.injected("web").await.unwrap();
    let mut task = EcsTask::start().await;
    task.set_var(
        "CONSUL_ECS_CONFIG_JSON",
        format!(
            r#"{{"bootstrapDir":"{}","service":{{"name":"web","port":8080}}}}"#,
            task.file("").display()
        ),
    );
    task.set_var("CONSUL_HTTP_ADDR", world.consul.address());
    task.set_var("CONSUL_HTTP_TOKEN", &token);
    let (code, log) = task.run(&["mesh-init"]).await;
    assert_eq!(code, Some(0), "{log}");
    let services = world.client().agent_services(&QueryOptions::default()).await.unwrap();
    let names: Vec<&str> = services.keys().map(String::as_str).collect();
    assert_eq!(names, ["web-abcdef", "web-abcdef-sidecar-proxy"]);

    // The token of another service would not have done.
    let other = world.injected("api").await.unwrap();
    let other = world.client().with_token(Some(other.into())).unwrap();
    let refused = other.agent_register_service(&AgentServiceRegistration::new("web")).await;
    assert!(refused.unwrap_err().is_permission_denied());

    // With its last task the token goes, and only this one.
    world.stop_task("web").await;
    world.settle().await;
    let client = world.client().with_token(Some(token.into())).unwrap();
    eventually("the token is gone", async || !rights::lives(&client).await).await;
    assert!(rights::lives(&other).await);
    assert_eq!(controller.terminate().await, Some(0));
}
