//! Secrets: what a write compares, what is said of refusals, and that no value is ever shown.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use acl_controller::{
    Error, SecretStore as _,
    aws::SecretsManager,
    secret_store::{Replaced, SecretVersion},
    testing::secret_store as contract,
};
use consul_watch::error_chain;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use wiremock::ResponseTemplate;

use super::{
    secrets_stub::{Secrets, arn},
    stub::{Stub, ok, refused},
};

const PLANTED: &str = "7f2c9c1e-planted-secret";

/// The store on a stub with the secret `prod-web`, whose value is `{}`.
async fn store() -> (SecretsManager, Secrets, Stub) {
    let secrets = Secrets::default();
    secrets.create("prod-web", Some("{}"));
    let answers = secrets.clone();
    let stub = Stub::start(move |action, input| answers.answer(action, input)).await;
    (stub.aws(3).await.secrets(), secrets, stub)
}

/// A store whose service always answers this.
async fn always(answer: ResponseTemplate) -> (SecretsManager, Stub) {
    let stub = Stub::start(move |_, _| answer.clone()).await;
    (stub.aws(1).await.secrets(), stub)
}

fn value(text: &str) -> SecretString {
    SecretString::from(text)
}

#[tokio::test]
async fn a_secret_is_found_by_name_and_by_arn() {
    let (store, secrets, _stub) = store().await;
    for name in ["prod-web".to_owned(), arn("prod-web")] {
        let found = store.get(&name).await.unwrap().unwrap();
        assert_eq!(found.value.unwrap().expose_secret(), "{}");
        assert_eq!(found.version, SecretVersion::new("first"));
    }
    assert!(store.get("prod-api").await.unwrap().is_none());
    secrets.create("prod-api", None);
    let empty = store.get("prod-api").await.unwrap().unwrap();
    assert!(empty.value.is_none());
    assert_eq!(empty.version, SecretVersion::default());
    secrets.put("prod-api", "binary", json!({"SecretBinary": "AAAA"}));
    let error = store.get("prod-api").await.unwrap_err();
    assert!(matches!(error, Error::Input { .. }), "{error:?}");
    let expected = "the secret prod-api holds a binary value; it has to be text";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn the_contract_of_a_store_is_kept() {
    let (store, secrets, _stub) = store().await;
    for name in ["prod-a", "prod-b", "prod-c", "prod-d", "prod-e"] {
        secrets.create(name, Some("{}"));
    }
    secrets.create("prod-empty", None);
    contract::what_is_written_can_be_read(&store, "prod-a").await;
    contract::what_is_written_can_be_read(&store, "prod-empty").await;
    contract::an_older_version_is_a_conflict(&store, "prod-b").await;
    contract::a_list_tells_the_same_versions(&store, "prod-c").await;
    contract::nothing_shows_a_value(&store, "prod-d").await;
    contract::one_of_many_writers_gets_through(Arc::new(store), "prod-e").await;
}

#[tokio::test]
async fn a_secret_that_was_put_back_can_be_written_again() {
    let (store, secrets, _stub) = store().await;
    let first = SecretVersion::new("first");
    for round in 0..3 {
        let new = value(&format!("round {round}"));
        let Replaced::Done(version) = store.replace("prod-web", &first, &new).await.unwrap() else {
            panic!("round {round}");
        };
        let (current, now) = secrets.current("prod-web");
        assert_eq!(
            (current.as_str(), &now["SecretString"]),
            (version.as_str(), &json!(new.expose_secret()))
        );
        secrets.put_back("prod-web", "first");
    }
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_done_once() {
    let secrets = Secrets::default();
    secrets.create("prod-web", Some("{}"));
    let (answers, updates) = (secrets.clone(), AtomicUsize::new(0));
    let stub = Stub::start(move |action, input| {
        let answer = answers.answer(action, input);
        let lost = action == "UpdateSecret" && updates.fetch_add(1, Ordering::SeqCst) == 0;
        if lost { refused(500, "InternalServiceError", "lost") } else { answer }
    })
    .await;
    let store = stub.aws(3).await.secrets();
    let first = SecretVersion::new("first");
    let done = store.replace("prod-web", &first, &value("new")).await.unwrap();
    let (current, _) = secrets.current("prod-web");
    assert_eq!(done, Replaced::Done(SecretVersion::new(current)));
    assert_eq!(stub.count("UpdateSecret").await, 2);
}

#[tokio::test]
async fn a_write_to_a_secret_that_is_not_there_fails() {
    let (store, _secrets, _stub) = store().await;
    let nothing = SecretVersion::default();
    let error = store.replace("prod-api", &nothing, &value("new")).await.unwrap_err();
    assert!(matches!(error, Error::Other { .. }), "{error:?}");
    assert!(error.to_string().contains("prod-api"), "{error}");
}

#[tokio::test]
async fn versions_are_told_without_reading_a_secret() {
    let (store, secrets, stub) = store().await;
    for name in ["prod-a", "prod-b", "prod-c", "production-a", "stage-a", "prod-empty"] {
        secrets.create(name, (name != "prod-empty").then_some("{}"));
    }
    let web = store.replace("prod-web", &SecretVersion::new("first"), &value("x")).await.unwrap();
    let before = stub.count("GetSecretValue").await;
    let versions = store.versions("prod-").await.unwrap().unwrap();
    let names: Vec<&str> = versions.keys().map(String::as_str).collect();
    assert_eq!(names, ["prod-a", "prod-b", "prod-c", "prod-web"]);
    assert_eq!(web, Replaced::Done(versions["prod-web"].clone()));
    let by_arn = store.versions(&arn("prod-web")).await.unwrap().unwrap();
    assert_eq!(
        by_arn.into_iter().collect::<Vec<_>>(),
        [(arn("prod-web"), versions["prod-web"].clone())]
    );
    assert_eq!(stub.count("GetSecretValue").await, before);
    assert_eq!(stub.count("ListSecrets").await, 3 + 1, "three pages, and one");
}

#[tokio::test]
async fn versions_that_may_not_be_listed_are_not_known() {
    let message = "User is not authorized to perform: secretsmanager:ListSecrets";
    let (store, _stub) = always(refused(400, "AccessDeniedException", message)).await;
    assert_eq!(store.versions("prod-").await.unwrap(), None);
    let error = store.get("prod-web").await.unwrap_err();
    assert!(!error.is_retryable());

    let (store, _stub) = always(refused(400, "ThrottlingException", "Rate exceeded")).await;
    let error = store.versions("prod-").await.unwrap_err();
    assert!(error.is_retryable());
    let expected = "listing secrets: ThrottlingException: Rate exceeded";
    assert_eq!(error_chain(&error), expected);
}

#[tokio::test]
async fn pages_of_secrets_that_lead_in_a_circle_end_the_list() {
    let calls = AtomicUsize::new(0);
    let stub = Stub::start(move |_, _| {
        let next = (calls.fetch_add(1, Ordering::SeqCst) % 2).to_string();
        ok(&json!({"SecretList": [], "NextToken": next}))
    })
    .await;
    let error = stub.aws(1).await.secrets().versions("prod-").await.unwrap_err();
    assert!(error.to_string().contains("a page again"), "{error}");
    assert_eq!(stub.calls().await.len(), 3);
}

#[tokio::test]
async fn refusals_name_the_secret_and_say_whether_to_try_again() {
    for (status, code, retryable) in [
        (400, "DecryptionFailure", false),
        (400, "InvalidRequestException", false),
        (400, "ExpiredTokenException", true),
        (400, "ThrottlingException", true),
        (500, "InternalServiceError", true),
    ] {
        let (store, _stub) = always(refused(status, code, "because")).await;
        let reading = store.get("prod-web").await.unwrap_err();
        let text = error_chain(&reading);
        assert_eq!(text, format!("retrieving the secret prod-web: {code}: because"));
        assert_eq!(reading.is_retryable(), retryable, "{code}");
    }
}

/// Everything that an error could be printed as.
fn shown(error: &Error) -> String {
    format!("{error} {error:?} {error:#?} {}", error_chain(error))
}

#[tokio::test]
async fn no_value_is_in_an_error() {
    // An answer that breaks off behind the secret.
    let broken = format!(r#"{{"SecretString":"{PLANTED}","VersionId":\q"#);
    let (store, _stub) =
        always(ResponseTemplate::new(200).set_body_raw(broken, "application/x-amz-json-1.1")).await;
    let error = store.get("prod-web").await.unwrap_err();
    let text = shown(&error);
    assert!(text.contains("the answer cannot be read") && !text.contains(PLANTED), "{text}");

    // A write that is refused.
    let stub = Stub::start(|action: &str, _: &Value| match action {
        "GetSecretValue" => ok(&json!({"SecretString": "{}", "VersionId": "first"})),
        _ => refused(400, "EncryptionFailure", "no key"),
    })
    .await;
    let store = stub.aws(1).await.secrets();
    let first = SecretVersion::new("first");
    let error = store.replace("prod-web", &first, &value(PLANTED)).await.unwrap_err();
    let text = shown(&error);
    assert!(text.contains("updating the secret prod-web") && !text.contains(PLANTED), "{text}");
    let sent = stub.calls().await;
    assert!(sent.iter().any(|(_, input)| input["SecretString"] == PLANTED), "it was sent");
    assert!(!format!("{store:?}").contains("wJalrXUtnFEMI"));
}
