//! A cluster that is taken down, under whichever of its two names.

use acl_controller::{Reconciler as _, Writer};
use consul_watch::types::AclTokenRequest;

use crate::scene::{Running, Scene, chains, pass, shown, write};

crate::scene::cases![
    a_cluster_is_found_by_name_and_by_arn,
    a_namesake_of_another_account_is_left_alone_and_told,
];

fn name(scene: &Scene) -> String {
    scene.cluster.rsplit_once('/').unwrap().1.to_owned()
}

async fn a_cluster_is_found_by_name_and_by_arn(scene: &Scene) {
    let web = scene.name("web");
    scene.secret(&web);
    let (mut by_arn, mut by_name) = (scene.settings(), scene.settings());
    by_arn.cluster.clone_from(&scene.cluster);
    by_name.cluster = name(scene);
    for (made_by, cleaned_by) in [(&by_arn, &by_name), (&by_name, &by_arn)] {
        let task = scene.start("t1", &web);
        pass(&scene.service_tokens_with(made_by.clone())).await;
        let accessor = scene.ids(&format!("{}-{web}", scene.prefix)).await.0;
        scene.tasks.remove(&task);
        let writer = Writer::new();
        let cleaning = scene.service_tokens_with(cleaned_by.clone());
        let report = cleaning.cleanup(&writer, false).await.unwrap();
        assert!(report.errors.is_empty(), "{:?}", chains(&report));
        assert_eq!(shown(writer).len(), 2, "token and policy");
        assert!(scene.token(&accessor).await.is_none());
        assert!(scene.policies().await.is_empty());
    }
}

async fn a_namesake_of_another_account_is_left_alone_and_told(scene: &Scene) {
    let Running { web, task, .. } = scene.running().await;
    let namesake = format!("arn:aws:ecs:us-east-1:999999999999:cluster/{}", name(scene));
    let text =
        |cluster: &str| format!("Token for {web} service\nconsul.hashicorp.com/cluster: {cluster}");
    let theirs = AclTokenRequest::new(text(&namesake));
    let theirs = scene.client.acl_token_create(&theirs, &write()).await.unwrap().accessor_id;
    scene.tasks.remove(&task);
    let mut settings = scene.settings();
    settings.cluster = name(scene);
    let writer = Writer::new();
    let report = scene.service_tokens_with(settings).cleanup(&writer, false).await.unwrap();
    assert_eq!(shown(writer).len(), 2, "ours, under its other name");
    let errors = chains(&report);
    assert!(errors.len() == 1 && errors[0].contains(&namesake), "{errors:?}");
    assert!(scene.token(&theirs).await.is_some());
    // An ARN is of one account.
    let report = scene.service_tokens().cleanup(&Writer::new(), false).await.unwrap();
    assert!(report.errors.is_empty(), "{:?}", chains(&report));
    assert!(scene.token(&theirs).await.is_some());
    scene.client.acl_token_delete(&theirs, &write()).await.unwrap();
}
