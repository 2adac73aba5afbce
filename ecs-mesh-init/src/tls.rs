//! Refuses settings that need the feature `tls` in a build without it, so that nobody who asks for
//! TLS goes without.

use crate::{Error, Result};

/// Refuses a setting that asks for TLS in a program that was built without it.
///
/// # Errors
///
/// [`Error::Input`] with the name of the setting.
pub(crate) fn check(setting: &str, asks_for_tls: bool) -> Result<()> {
    if cfg!(feature = "tls") || !asks_for_tls {
        return Ok(());
    }
    Err(Error::input(format!(
        "{setting}: TLS is needed for it, and this program was built without the feature `tls`"
    )))
}

#[cfg(all(test, not(feature = "tls")))]
mod tests {
    use std::sync::Arc;

    use tokio_util::sync::CancellationToken;

    use crate::{
        Config, Error, MeshInit,
        metadata::{FileTaskMetadata, HttpTaskMetadata},
    };

    #[test]
    fn metadata_over_https_are_refused() {
        let asked = HttpTaskMetadata::from_vars(|_| Some("https://127.0.0.1:9/v4/id".to_owned()));
        let error = asked.unwrap_err().to_string();
        assert!(error.starts_with("ECS_CONTAINER_METADATA_URI_V4: TLS is needed"), "{error}");
    }

    /// mesh-init ends at once with the setting's name, and has asked nobody.
    #[tokio::test]
    async fn every_way_to_consul_that_is_to_be_safe_is_refused() {
        const SERVERS: &str = r#""transparentProxy":{"enabled":false},"consulServers""#;
        let early = |login: &str| {
            format!(
                r#""consulLogin":{{"enabled":true}},"consulHTTPAddr":"http://127.0.0.1:9"{login}"#
            )
        };
        let cases: [(String, Option<(&str, &str)>, &str); 7] = [
            (format!(r#"{SERVERS}:{{"hosts":"127.0.0.1"}}"#), None, "consulServers.http.https"),
            (
                format!(r#"{SERVERS}:{{"hosts":"127.0.0.1","http":{{"https":false}}}}"#),
                None,
                "consulServers.grpc.tls",
            ),
            (early("").replace("http:", "https:"), None, "consulHTTPAddr"),
            (early(r#","consulCACertFile":"/ca.pem""#), None, "consulCACertFile"),
            (String::new(), Some(("CONSUL_HTTP_ADDR", "https://127.0.0.1:9")), "CONSUL_HTTP_ADDR"),
            (String::new(), Some(("CONSUL_HTTP_SSL", "true")), "CONSUL_HTTP_SSL"),
            (String::new(), Some(("CONSUL_CLIENT_CERT", "/c.pem")), "CONSUL_CLIENT_CERT"),
        ];
        for (keys, variable, setting) in cases {
            let volume = tempfile::tempdir().unwrap();
            let file = volume.path().join("task.json");
            let task = r#"{"Cluster":"arn:aws:ecs:us-east-1:1:cluster/c","Family":"web",
                "TaskARN":"arn:aws:ecs:us-east-1:1:task/c/abcdef"}"#;
            std::fs::write(&file, task).unwrap();
            let comma = if keys.is_empty() { "" } else { "," };
            let config = format!(
                r#"{{"bootstrapDir":{:?},"service":{{"port":8080}}{comma}{keys}}}"#,
                volume.path()
            );
            let vars = move |name: &str| {
                variable.filter(|(own, _value)| *own == name).map(|(_name, value)| value.to_owned())
            };
            let metadata = Arc::new(FileTaskMetadata::new(file));
            let config = Config::parse(&config).unwrap();
            let run = MeshInit::new(config, metadata, Arc::new(vars), "/bin/true".into());
            let error = run.run(CancellationToken::new()).await.unwrap_err();
            assert!(!error.is_retryable() && !matches!(error, Error::Stopped { .. }), "{error}");
            let text = consul_watch::error_chain(&error);
            assert!(text.contains(&format!("{setting}: ")), "{setting}: {text}");
            assert!(text.contains("without the feature `tls`"), "{setting}: {text}");
        }
    }
}
