//! The task's metadata over HTTP and from a file.

use std::{sync::Arc, time::Duration};

use ecs_mesh_init::{
    Error,
    metadata::{FileTaskMetadata, HttpTaskMetadata, TaskMetadata},
};
use wiremock::{
    Mock, MockServer, ResponseTemplate,
    matchers::{method, path},
};

const TASK: &str = r#"{"TaskARN":"arn:aws:ecs:us-east-1:1:task/test/abcdef"}"#;

async fn answered(answer: ResponseTemplate) -> (MockServer, HttpTaskMetadata) {
    let server = MockServer::start().await;
    Mock::given(method("GET")).and(path("/v4/id/task")).respond_with(answer).mount(&server).await;
    let metadata = HttpTaskMetadata::with_time_limit(
        &format!("{}/v4/id", server.uri()),
        Duration::from_millis(300),
    )
    .unwrap();
    (server, metadata)
}

fn step(error: &Error) -> &str {
    match error {
        Error::Metadata { step, .. } => step,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn the_endpoint_gives_the_task() {
    let (_server, metadata) = answered(ResponseTemplate::new(200).set_body_string(TASK)).await;
    let seam: Arc<dyn TaskMetadata> = Arc::new(metadata);
    assert_eq!(seam.task().await.unwrap().id(), "abcdef");
}

#[tokio::test]
async fn a_slow_wrong_or_absent_endpoint_is_an_error() {
    let slow = ResponseTemplate::new(200).set_body_string(TASK).set_delay(Duration::from_secs(30));
    let (_server, metadata) = answered(slow).await;
    assert_eq!(step(&metadata.task().await.unwrap_err()), "calling metadata uri");
    let (_server, metadata) = answered(ResponseTemplate::new(500).set_body_string(TASK)).await;
    assert_eq!(step(&metadata.task().await.unwrap_err()), "calling metadata uri");
    let (server, metadata) = answered(ResponseTemplate::new(200).set_body_string("<html>")).await;
    assert_eq!(step(&metadata.task().await.unwrap_err()), "unmarshalling metadata uri response");
    drop(server);
    let absent = HttpTaskMetadata::new("http://127.0.0.1:9").unwrap();
    let error = absent.task().await.unwrap_err();
    assert_eq!(step(&error), "calling metadata uri");
    let text = consul_watch::error_chain(&error);
    assert!(text.contains("http://127.0.0.1:9/task") && text.contains("refused"), "{text}");
    let error = HttpTaskMetadata::from_vars(|_| None).unwrap_err();
    assert_eq!(error.to_string(), "ECS_CONTAINER_METADATA_URI_V4 env var not set");
    let error = HttpTaskMetadata::from_vars(|_| Some("169.254.170.2".to_owned())).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(r#"is "169.254.170.2", but must begin with http://"#), "{text}");
}

#[tokio::test]
async fn a_file_is_read_on_each_call() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("task.json");
    let metadata = FileTaskMetadata::new(&path);
    assert!(metadata.task().await.unwrap_err().to_string().contains("task.json"));
    std::fs::write(&path, TASK).unwrap();
    assert_eq!(metadata.task().await.unwrap().id(), "abcdef");
}
