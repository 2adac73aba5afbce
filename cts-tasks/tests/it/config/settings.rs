//! Defaults, the environment and the checks of everything but tasks.

use std::{collections::BTreeMap, fs, sync::Arc, time::Duration};

use cts_tasks::{
    BufferPeriod, Config, DriverKind,
    config::{LogLevel, Registry},
};
use secrecy::ExposeSecret;

use crate::authority::Authority;

use super::support::{
    AnyDriver, HighAvailability, error, load, loader, loader_of, short, show, source, task,
    task_text,
};

fn load_with(variables: &[(&str, &str)], text: &str) -> Config {
    let variables: BTreeMap<String, String> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let loader = loader().environment(move |name| variables.get(name).cloned());
    match loader.load_sources(vec![source("test.hcl", text)]) {
        Ok(loaded) => loaded.config,
        Err(errors) => panic!("{}", show(&errors)),
    }
}

fn enabled(min: u64, max: u64) -> BufferPeriod {
    BufferPeriod::Enabled { min: Duration::from_secs(min), max: Duration::from_secs(max) }
}

#[test]
fn defaults_are_those_of_upstream() {
    let config = load("# nothing");
    assert_eq!(config.log_level, LogLevel::Info);
    assert_eq!((config.port, config.id.as_str()), (8558, "cts-host"));
    assert_eq!(config.working_dir.to_str(), Some("sync-tasks"));
    assert_eq!(config.buffer_period, enabled(5, 20));
    assert_eq!(config.driver.label, "terraform");
    assert!(config.driver.body.is_none() && config.syslog.is_none() && config.tls.is_none());
    assert!(config.vault.is_none() && config.tasks.is_empty() && config.warnings.is_empty());
    assert_eq!(config.consul.address, "localhost:8500");
    assert_eq!(config.consul.kv_path, "consul-terraform-sync/");
    assert!(config.consul.token.is_none() && config.consul.tls.is_none());
    assert_eq!(config.consul.transport.max_idle_conns_per_host, 100);
    assert_eq!(config.consul.watch_connections, None);
    let registration = &config.consul.service_registration;
    assert!(registration.enabled && registration.default_check_enabled);
    assert_eq!(registration.service_name, "consul-terraform-sync");
}

#[test]
fn every_setting_of_the_transport_reaches_the_client() {
    let client = |transport: &str| {
        load(&format!("consul {{\n transport {{\n{transport}\n}}\n}}")).consul.client_config()
    };
    let defaults = client("");
    assert_eq!(defaults.connect_timeout, Duration::from_secs(30));
    assert_eq!(defaults.request_timeout, Duration::from_secs(10));
    let kept = defaults.connections;
    assert_eq!(kept.keep_alive, Some(Duration::from_secs(30)));
    assert!(kept.reuse);
    assert_eq!(kept.idle_timeout, Some(Duration::from_secs(5)));
    assert_eq!(kept.max_idle, Some(100));
    assert_eq!(kept.tls_handshake_timeout, Some(Duration::from_secs(10)));

    let set = client(
        "dial_keep_alive = \"7s\"\ndial_timeout = \"8s\"\ndisable_keep_alives = true\n\
         idle_conn_timeout = \"9s\"\nmax_idle_conns = 3\nmax_idle_conns_per_host = 4\n\
         tls_handshake_timeout = \"6s\"",
    );
    assert_eq!(set.connect_timeout, Duration::from_secs(8));
    let kept = set.connections;
    assert_eq!(kept.keep_alive, Some(Duration::from_secs(7)));
    assert!(!kept.reuse);
    assert_eq!(kept.idle_timeout, Some(Duration::from_secs(9)));
    assert_eq!(kept.max_idle, Some(3));
    assert_eq!(kept.tls_handshake_timeout, Some(Duration::from_secs(6)));
    assert_eq!(client("max_idle_conns_per_host = 4").connections.max_idle, Some(4));

    let none = client(
        "dial_keep_alive = \"0s\"\ndial_timeout = \"0s\"\nidle_conn_timeout = \"0s\"\n\
         max_idle_conns_per_host = 0\ntls_handshake_timeout = \"0s\"",
    );
    assert_eq!(none.connect_timeout, Duration::MAX, "no limit");
    let kept = none.connections;
    assert_eq!(kept.keep_alive, Some(Duration::from_secs(15)));
    assert_eq!((kept.idle_timeout, kept.max_idle), (None, Some(2)));
}

/// Spec: CTS7
#[test]
fn a_global_buffer_period_fills_what_is_not_set() {
    for (block, expected) in [
        ("", enabled(5, 20)),
        ("enabled = false", BufferPeriod::Disabled),
        ("enabled = false\nmin = \"1s\"", BufferPeriod::Disabled),
        ("enabled = true", enabled(5, 20)),
        ("min = \"10s\"", enabled(10, 40)),
        ("max = \"50s\"", enabled(5, 50)),
        ("min = \"100s\"\nmax = \"1s\"", enabled(100, 100)),
        ("min = \"1m30s\"", enabled(90, 360)),
    ] {
        let config = load(&format!("buffer_period {{\n{block}\n}}"));
        assert_eq!(config.buffer_period, expected, "{block}");
    }
}

fn task_buffer(global: &str, own: &str) -> BufferPeriod {
    let task = task_text(&format!("condition \"services\" {{ names = [\"a\"] }}\n{own}"));
    load(&format!("{global}\n{task}")).tasks[0].buffer_period
}

/// Spec: CTS8
#[test]
fn a_task_takes_from_the_global_buffer_period_what_it_does_not_set() {
    let disabled = "buffer_period { enabled = false }";
    let own = "buffer_period {\n enabled = true\n max = \"5s\"\n}";
    assert_eq!(task_buffer(disabled, own), enabled(5, 5));
    assert_eq!(task_buffer(disabled, ""), BufferPeriod::Disabled);
    assert_eq!(task_buffer(disabled, "buffer_period {}"), BufferPeriod::Disabled);
    let four = "buffer_period {\n min = \"4s\"\n max = \"4s\"\n}";
    assert_eq!(task_buffer(four, ""), enabled(4, 4));
    assert_eq!(task_buffer(four, "buffer_period { enabled = true }"), enabled(4, 16));
}

/// Spec: CTS9
#[test]
fn a_task_can_switch_its_buffer_period_off() {
    let global = "buffer_period { enabled = true }";
    assert_eq!(task_buffer(global, "buffer_period { enabled = false }"), BufferPeriod::Disabled);
}

/// Spec: CTS10
#[test]
fn a_scheduled_task_has_no_buffer_period() {
    let text =
        task_text("condition \"schedule\" { cron = \"@daily\" }\nbuffer_period { min = \"9s\" }");
    let config = load(&text);
    assert_eq!(config.tasks[0].buffer_period, BufferPeriod::Disabled);
    assert_eq!(
        short(&config.warnings[0]),
        "test.hcl:5:15: buffer_period is not supported for tasks with a schedule condition"
    );
    assert_eq!(
        task("condition \"schedule\" { cron = \"@daily\" }").buffer_period,
        BufferPeriod::Disabled
    );
}

/// Spec: CTS13
#[test]
fn a_name_or_a_facility_alone_switches_syslog_on() {
    for (block, expected) in [
        ("name = \"x\"", Some(("LOCAL0", "x"))),
        ("facility = \"local2\"", Some(("LOCAL2", "consul-terraform-sync"))),
        ("enabled = true", Some(("LOCAL0", "consul-terraform-sync"))),
        ("enabled = false\nname = \"x\"", None),
        ("", None),
    ] {
        let syslog = load(&format!("syslog {{\n{block}\n}}")).syslog;
        let found = syslog.map(|syslog| (syslog.facility.to_string(), syslog.name));
        let expected = expected.map(|(facility, name)| (facility.to_owned(), name.to_owned()));
        assert_eq!(found, expected, "{block}");
    }
}

/// Spec: CTS14
#[test]
fn the_environment_fills_what_the_consul_block_leaves_out() {
    let variables = [
        ("CONSUL_HTTP_ADDR", " consul:8500 "),
        ("CONSUL_TOKEN", ""),
        ("CONSUL_HTTP_TOKEN", "second"),
        ("CONSUL_CACERT", "ca.pem"),
        ("CONSUL_TLS_SERVER_NAME", "server"),
    ];
    let config = load_with(&variables, "id = \"x\"");
    assert_eq!(config.consul.address, "consul:8500");
    assert_eq!(config.consul.token.unwrap().expose_secret(), "second");
    assert!(config.consul.tls.is_none(), "the environment alone enables no TLS");

    let text = "consul {\n address = \"own\"\n token = \"\"\n tls { server_name = \"own\" }\n}";
    let consul = load_with(&variables, text).consul;
    assert_eq!(consul.address, "own");
    assert!(consul.token.is_none(), "an empty token beats the environment");
    let tls = consul.tls.unwrap();
    assert!(tls.verify);
    assert_eq!(tls.ca_cert.unwrap().to_str(), Some("ca.pem"));
    assert_eq!(tls.server_name.as_deref(), Some("own"));

    let both = [("CONSUL_TOKEN", "first"), ("CONSUL_HTTP_TOKEN", "second")];
    assert_eq!(load_with(&both, "id = \"x\"").consul.token.unwrap().expose_secret(), "first");
}

#[test]
fn a_token_may_stand_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "from-the-file\n").unwrap();
    let path = file.display();
    let inherited = [("CONSUL_HTTP_TOKEN", "inherited")];
    let consul = load_with(&inherited, &format!("consul {{ token_file = \"{path}\" }}")).consul;
    assert!(consul.token.is_none(), "the file takes the place of what is inherited");
    assert_eq!(consul.client_config().token_file.as_deref(), Some(file.as_path()));
    let shown = load(&format!("consul {{ token_file = \"{path}\" }}")).to_redacted_json();
    assert_eq!(shown["consul"]["token_file"], path.to_string());

    let named = path.to_string();
    let variable = ("CONSUL_HTTP_TOKEN_FILE", named.as_str());
    assert_eq!(load_with(&[variable], "id = \"x\"").consul.token_file, Some(file.clone()));
    let both = load_with(&[variable, inherited[0]], "id = \"x\"").consul;
    assert!(both.token.is_some() && both.token_file.is_none());
    let own = load_with(&[variable], "consul { token = \"\" }").consul;
    assert!(own.token.is_none() && own.token_file.is_none());

    assert_eq!(
        error("consul { token_file = \"\" }"),
        "test.hcl:1:23: consul.token_file: the name of the file is empty"
    );
    assert_eq!(
        error(&format!("consul {{\n token = \"x\"\n token_file = \"{path}\"\n}}")),
        "test.hcl:3:15: consul.token_file: token is set as well"
    );
    let missing = error("consul { token_file = \"/no/such\" }");
    assert!(missing.starts_with("test.hcl:1:23: consul.token_file: "), "{missing}");
    assert!(missing.contains("/no/such"), "{missing}");
}

/// Spec: CTS15
#[test]
fn state_is_kept_below_the_path_with_one_terraform_at_its_end() {
    for (path, expected) in [
        ("foo", "foo/terraform"),
        ("foo/", "foo/terraform"),
        ("foo/terraform", "foo/terraform"),
        ("terraform", "terraform/terraform"),
        ("foo/terraform/", "foo/terraform/terraform"),
        ("", "consul-terraform-sync/terraform"),
        ("/a//./b/../c", "/a/c/terraform"),
    ] {
        let config = load(&format!("consul {{ kv_path = \"{path}\" }}"));
        assert_eq!(config.consul.state_path(), expected, "{path}");
    }
    assert_eq!(load("consul {}").consul.state_path(), "consul-terraform-sync/terraform");
}

#[test]
fn tls_towards_consul_is_enabled_by_any_key() {
    let tls = |block: &str| load(&format!("consul {{ tls {{ {block} }} }}")).consul.tls;
    assert!(tls("").is_none());
    assert!(!tls("verify = false").unwrap().verify);
    assert!(tls("enabled = false\nverify = true").is_none());
    let authority = Authority::new();
    let pair = authority.sign("client", &["cts"]);
    let both = [fs::read(&pair.cert).unwrap(), fs::read(&pair.key).unwrap()].concat();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("both.pem");
    fs::write(&file, both).unwrap();
    assert_eq!(tls(&format!("cert = {file:?}")).unwrap().cert, Some(file));
}

#[test]
fn basic_authentication_is_enabled_by_its_values() {
    let auth = |block: &str| load(&format!("consul {{ auth {{ {block} }} }}")).consul.auth;
    assert!(auth("").is_none());
    assert!(auth("enabled = false username = \"u\"").is_none());
    let (user, password) = auth("username = \"u\" password = \"p\"").unwrap();
    assert_eq!((user.as_str(), password.expose_secret()), ("u", "p"));
}

#[test]
fn vault_is_enabled_by_its_address_and_filled_from_the_environment() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join(".vault-token"), "from-home\n").unwrap();
    fs::write(home.path().join("agent"), "from-agent\n").unwrap();
    let home_path = home.path().to_str().unwrap();
    assert!(load("vault { token = \"x\" }").vault.is_none());

    let variables =
        [("VAULT_ADDR", "https://v"), ("HOME", home_path), ("VAULT_SKIP_VERIFY", "true")];
    let vault = load_with(&variables, "vault {}").vault.unwrap();
    assert_eq!(vault.address, "https://v");
    assert_eq!(vault.token.unwrap().expose_secret(), "from-home");
    assert!(vault.renew_token && !vault.unwrap_token);
    assert!(!vault.tls.unwrap().verify);

    let text = format!(
        "vault {{\n token = \"own\"\n vault_agent_token_file = \"{home_path}/agent\"\n tls {{ enabled = false }}\n}}"
    );
    let vault = load_with(&variables, &text).vault.unwrap();
    assert_eq!(vault.token.unwrap().expose_secret(), "from-agent");
    assert!(!vault.renew_token && vault.tls.is_none());
    assert!(!load("vault { address = \"v\" }").vault.unwrap().renew_token, "no token");
}

#[test]
fn tls_of_the_api_needs_a_key_pair() {
    let authority = Authority::new();
    let (one, other) = (authority.sign("one", &["localhost"]), authority.sign("other", &["b"]));
    let (cert, key) = (one.cert.display(), one.key.display());
    let (ca, folder) = (authority.ca_file(), authority.ca_path());
    let (ca, folder) = (ca.display(), folder.display());
    let text = format!(
        "tls {{\n cert = \"{cert}\"\n key = \"{key}\"\n verify_incoming = true\n ca_cert = \"{ca}\"\n ca_path = \"{folder}\"\n}}"
    );
    let config = load(&text);
    assert!(config.tls.unwrap().verify_incoming);
    assert_eq!(
        short(&config.warnings[0]),
        "test.hcl:6:12: tls: both ca_cert and ca_path are configured"
    );
    assert_eq!(
        error(&format!("tls {{\n cert = \"{key}\"\n key = \"{key}\"\n}}")),
        format!("test.hcl:2:9: unable to load {key}: no CERTIFICATE in PEM")
    );
    let others = other.key.display();
    let mixed = error(&format!("tls {{\n cert = \"{cert}\"\n key = \"{others}\"\n}}"));
    let expected = format!("test.hcl:3:8: unable to load {others}: not the key of the certificate");
    assert!(mixed.starts_with(&expected), "{mixed}");
    fs::write(&other.cert, "-----BEGIN CERTIFICATE-----\n").unwrap();
    let (cut, key) = (other.cert.display(), other.key.display());
    let cut_off = error(&format!("tls {{\n cert = \"{cut}\"\n key = \"{key}\"\n}}"));
    assert!(cut_off.ends_with("not valid PEM: its end marker is missing"), "{cut_off}");
    assert!(load("tls { enabled = false cert = \"x\" }").tls.is_none());
}

/// What is wrong with a file is told where the configuration names it.
#[test]
fn files_of_tls_blocks_are_refused_where_they_are_named() {
    let authority = Authority::new();
    let pair = authority.sign("client", &["cts"]);
    let (ca, cert, key) = (authority.ca_file(), pair.cert.display(), pair.key.display());
    let ca = ca.display();
    let text = |body: &str| format!("consul {{\n tls {{\n{body}\n }}\n}}");
    assert!(
        load(&text(&format!("ca_cert = \"{ca}\"\ncert = \"{cert}\"\nkey = \"{key}\"")))
            .consul
            .tls
            .is_some()
    );
    let missing = "No such file or directory (os error 2)";
    for (body, expected) in [
        (
            "verify = true\nca_cert = \"/no/ca\"".to_owned(),
            format!("test.hcl:4:11: consul.tls.ca_cert: cannot read /no/ca: {missing}"),
        ),
        (
            format!("ca_cert = \"{key}\""),
            format!("test.hcl:3:11: consul.tls.ca_cert: {key} holds no certificate"),
        ),
        (
            "ca_path = \"/no/folder\"".to_owned(),
            format!("test.hcl:3:11: consul.tls.ca_path: /no/folder: {missing}"),
        ),
        (
            format!("cert = \"/no/cert\"\nkey = \"{key}\""),
            format!("test.hcl:3:8: consul.tls.cert: cannot read /no/cert: {missing}"),
        ),
        (
            format!("cert = \"{cert}\"\nkey = \"/no/key\""),
            format!("test.hcl:4:7: consul.tls.key: cannot read /no/key: {missing}"),
        ),
        (
            format!("key = \"{key}\""),
            "test.hcl:3:7: consul.tls.key: both client cert and client key must be provided"
                .to_owned(),
        ),
    ] {
        assert_eq!(error(&text(&body)), expected);
    }
    // A certificate that is to hold its key, and does not.
    let alone = error(&text(&format!("cert = \"{cert}\"")));
    assert!(alone.starts_with("test.hcl:3:8: consul.tls.cert: "), "{alone}");
    let api = |rest: &str| format!("tls {{\n cert = \"{cert}\"\n key = \"{key}\"\n{rest}\n}}");
    let mutual = |rest: &str| error(&api(&format!(" verify_incoming = true\n{rest}")));
    assert_eq!(
        mutual(" ca_cert = \"/no/ca\""),
        format!("test.hcl:5:12: unable to load /no/ca: cannot be read: {missing}")
    );
    let folder = authority.ca_path();
    fs::write(folder.join("b.pem"), "-----BEGIN CERTIFICATE-----\n").unwrap();
    assert_eq!(
        mutual(&format!(" ca_path = \"{}\"", folder.display())),
        format!(
            "test.hcl:5:12: unable to load {}: not valid PEM: its end marker is missing",
            folder.join("b.pem").display()
        )
    );
}

#[test]
fn what_opens_or_closes_the_api_is_read() {
    let config = load("port = 1");
    assert_eq!((config.api_token_file, config.api_metrics), (None, false));
    let config = load("api_token_file = \"/run/token\"\napi_metrics = \"true\"");
    assert_eq!(config.api_token_file, Some("/run/token".into()));
    assert!(config.api_metrics);
    assert_eq!(config.to_redacted_json()["api_token_file"], "/run/token");
    assert_eq!(
        error("api_token_file = \"\""),
        "test.hcl:1:18: api_token_file: the name of the file is empty"
    );
}

/// Named after upstream's defect: `ERR` logged as `INFO`, `ERROR` was refused.
#[test]
fn both_names_of_the_error_level_are_taken() {
    for (name, level) in [
        ("ERR", LogLevel::Error),
        ("error", LogLevel::Error),
        ("Warn", LogLevel::Warn),
        ("debug", LogLevel::Debug),
        ("TRACE", LogLevel::Trace),
    ] {
        assert_eq!(load(&format!("log_level = \"{name}\"")).log_level, level);
    }
}

#[test]
fn a_license_is_taken_and_has_no_effect() {
    let config = load(
        "license_path = \"x\"\nlicense {\n path = \"y\"\n auto_retrieval { enabled = false }\n}",
    );
    let warnings: Vec<_> = config.warnings.iter().map(short).collect();
    assert_eq!(
        warnings,
        ["test.hcl:1:16: license_path has no effect", "test.hcl:2:9: license has no effect"]
    );
}

#[test]
fn a_hostname_is_needed_only_without_an_id() {
    let loader = loader().hostname(|| Err(std::io::Error::other("no name")));
    let load = |text: &str| loader.load_sources(vec![source("test.hcl", text)]);
    assert_eq!(load("id = \"own\"").unwrap().config.id, "own");
    let errors = load("port = 1").unwrap_err();
    assert_eq!(errors[0].message, "unable to read the hostname for the default id: no name");
}

#[test]
fn what_is_claimed_by_name_is_checked_by_whoever_claims_it() {
    let cloud = AnyDriver::new("terraform-cloud", &["terraform_cloud_workspace"]);
    let driver: Arc<dyn DriverKind> = Arc::<AnyDriver>::clone(&cloud);
    let registry = Registry::new()
        .driver(AnyDriver::new("terraform", &[]))
        .driver(driver)
        .block(Arc::new(HighAvailability));
    let loader = loader_of(registry);
    let load = |text: &str| loader.load_sources(vec![source("test.hcl", text)]);

    let task = task_text(
        "condition \"services\" { names = [\"a\"] }\nterraform_cloud_workspace { execution_mode = \"remote\" }",
    );
    let cluster = "high_availability { cluster { name = \"c\" } }\n";
    let loaded =
        load(&format!("{cluster}driver \"terraform-cloud\" {{ odd = 1 }}\n{task}")).unwrap();
    assert_eq!(loaded.config.driver.label, "terraform-cloud");
    assert_eq!(
        cloud.seen().task_blocks,
        [("t".to_owned(), "terraform_cloud_workspace".to_owned())]
    );
    assert!(loaded.config.tasks[0].driver_blocks.contains_key("terraform_cloud_workspace"));
    assert!(loaded.config.blocks.contains_key("high_availability"));
    assert_eq!(loaded.config.warnings[0].message, "odd, says the driver");

    let errors =
        load("high_availability {}\ndriver \"terraform-cloud\" { refused = 1 }").unwrap_err();
    let texts: Vec<_> = errors.iter().map(short).collect();
    assert_eq!(
        texts,
        ["test.hcl:1:19: a cluster is required", "test.hcl:2:26: refused by the driver"]
    );
    let errors = load(&format!("driver \"terraform\" {{}}\n{task}")).unwrap_err();
    assert_eq!(
        short(&errors[0]),
        "test.hcl:6:1: unsupported configuration 'terraform_cloud_workspace' for task \"t\""
    );
}

#[test]
fn a_program_without_the_default_driver_says_so() {
    let errors = loader_of(Registry::new()).load_sources(vec![source("test.hcl", "port = 1")]);
    assert_eq!(
        errors.unwrap_err()[0].message,
        "this program has no driver \"terraform\", which is the default"
    );
}

#[test]
fn a_claimed_block_merges_over_files_and_stands_once_in_each() {
    let registry = || {
        Registry::new().driver(AnyDriver::new("terraform", &[])).block(Arc::new(HighAvailability))
    };
    let a = "high_availability {\n cluster { name = \"c\" }\n instance { address = \"a\" }\n}";
    let b = "{\"high_availability\": {\"instance\": {\"address\": \"b\"}}}";
    let load = |sources| loader_of(registry()).load_sources(sources);
    let loaded = load(vec![source("a.hcl", a), source("b.json", b)]).unwrap();
    assert_eq!(
        loaded.config.blocks["high_availability"].body.to_literal().to_expression(),
        r#"{"cluster":{"name":"c"},"instance":{"address":"b"}}"#
    );
    let errors = load(vec![source("a.hcl", &format!("{a}\n{a}"))]).unwrap_err();
    assert_eq!(
        short(&errors[0]),
        "a.hcl:5:1: only one 'high_availability' block can be configured"
    );
    let errors = load(vec![source("a.hcl", "high_availability = 1")]).unwrap_err();
    assert_eq!(
        short(&errors[0]),
        "a.hcl:1:21: high_availability: expected a block, found a number"
    );
}

#[test]
fn a_task_file_hands_through_what_belongs_to_a_driver() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.json");
    let text = r#"{ "task": { "name": "t", "module": "m", "terraform_version": "1.2.3",
        "condition": { "schedule": { "cron": "@daily" } } } }"#;
    fs::write(&path, text).unwrap();
    let task = loader().load_task(&path).unwrap();
    assert_eq!(task.driver_blocks["terraform_version"], "1.2.3".into());
    assert_eq!(task.working_dir.to_str(), Some("sync-tasks/t"));
}
