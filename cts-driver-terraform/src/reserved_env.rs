//! The environment variables that a task's `env` cannot set, because the driver does.

use cts_tasks::ConfigValue;

/// Variables that would change what the commands do; inherited ones are dropped, and the driver
/// sets some of them itself.
const OF_COMMANDS: [&str; 6] = [
    "TF_APPEND_USER_AGENT",
    "TF_DATA_DIR",
    "TF_INPUT",
    "TF_IN_AUTOMATION",
    "TF_REATTACH_PROVIDERS",
    "TF_WORKSPACE",
];

/// Variables that say how the state in Consul is reached; see [`crate::backend::consul_environment`].
const OF_CONSUL: [&str; 11] = [
    "CONSUL_CACERT",
    "CONSUL_CAPATH",
    "CONSUL_CLIENT_CERT",
    "CONSUL_CLIENT_KEY",
    "CONSUL_HTTP_ADDR",
    "CONSUL_HTTP_AUTH",
    "CONSUL_HTTP_SSL_VERIFY",
    "CONSUL_HTTP_TOKEN",
    "CONSUL_HTTP_TOKEN_FILE",
    "CONSUL_NAMESPACE",
    "CONSUL_TLS_SERVER_NAME",
];

/// Returns `true` for a variable of the commands that no task and no inherited environment sets.
pub(crate) fn is_of_commands(name: &str) -> bool {
    name.starts_with("TF_LOG") || OF_COMMANDS.contains(&name)
}

/// Says why a task cannot set this variable. `body` is the driver's block: where the state is
/// elsewhere than in Consul, a module may have a Consul of its own.
pub(crate) fn refused(name: &str, body: Option<&ConfigValue>) -> Option<String> {
    if is_of_commands(name) {
        return Some("the driver \"terraform\" sets it for each command".to_owned());
    }
    if name == "TF_CLI_ARGS" || name.starts_with("TF_CLI_ARGS_") {
        return Some(
            "it adds arguments to the commands of the driver \"terraform\": a guard, a plan that \
             waits and the reading of what they print rest on those that they have. Set it in the \
             environment of the program if it is right for all tasks"
                .to_owned(),
        );
    }
    (OF_CONSUL.contains(&name) && keeps_state_in_consul(body)).then(|| {
        "the driver \"terraform\" sets it for the state, which is in Consul; another token or \
         address for the module belongs into its provider"
            .to_owned()
    })
}

fn keeps_state_in_consul(body: Option<&ConfigValue>) -> bool {
    let backend = body.and_then(|body| body.get("backend"));
    let label = backend.and_then(|backend| backend.entries()?.first().map(|entry| &entry.key));
    label.is_none_or(|label| label == "consul")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cts_tasks::{
        ConsulConfig, Source,
        config::{ConsulTls, ValueKind},
    };

    use super::*;

    fn body(text: &str) -> ConfigValue {
        ConfigValue::parse(Source { path: "driver.hcl".into(), text: text.to_owned() }).unwrap()
    }

    #[test]
    fn what_the_driver_sets_is_refused_and_everything_else_passes() {
        for name in ["TF_LOG", "TF_LOG_CORE", "TF_WORKSPACE", "TF_DATA_DIR", "TF_IN_AUTOMATION"] {
            assert!(refused(name, None).is_some(), "{name}");
        }
        for name in ["TF_CLI_ARGS", "TF_CLI_ARGS_plan", "TF_CLI_ARGS_apply"] {
            assert!(refused(name, None).unwrap().contains("arguments"), "{name}");
            assert!(!is_of_commands(name), "{name}: an operator may set it for all");
        }
        for name in ["AWS_REGION", "TF_VAR_x", "PATH", "TF_PLUGIN_CACHE_DIR"] {
            assert_eq!(refused(name, None), None, "{name}");
        }
    }

    #[test]
    fn the_access_to_consul_is_refused_where_the_state_is_there() {
        assert!(refused("CONSUL_HTTP_TOKEN", None).is_some());
        let block = body("backend = { consul = { path = \"x\" } }");
        assert!(refused("CONSUL_HTTP_TOKEN", Some(&block)).is_some());
        let block = body("backend = { local = { } }");
        assert_eq!(refused("CONSUL_HTTP_TOKEN", Some(&block)), None);
        assert!(matches!(block.kind, ValueKind::Object(_)));
    }

    #[test]
    fn every_variable_of_the_state_is_known() {
        let mut consul = ConsulConfig::default();
        consul.token = Some("t".into());
        consul.kv_namespace = "n".to_owned();
        consul.auth = Some(("u".to_owned(), "p".into()));
        let mut tls = ConsulTls::default();
        (tls.verify, tls.server_name) = (false, Some("s".to_owned()));
        for path in [&mut tls.ca_cert, &mut tls.ca_path, &mut tls.cert, &mut tls.key] {
            *path = Some("f".into());
        }
        consul.tls = Some(tls);
        let set = crate::backend::consul_environment(&consul, Path::new("/"));
        assert_eq!(set.len(), OF_CONSUL.len() - 1, "all but the file of the token");
        assert!(set.keys().all(|name| OF_CONSUL.contains(&name.as_str())), "{:?}", set.keys());
    }
}
