//! Checks of blocks that are neither compiled nor run.

use ecs_mesh_init::Config;
use regex::Regex;
use serde_json::Value;

use crate::book::root;

/// Checks a `CONSUL_ECS_CONFIG_JSON`, or each one in a task definition, as mesh-init would.
pub(crate) fn ecs(text: &str) -> Result<(), String> {
    let document: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Some(containers) = document["containerDefinitions"].as_array() else {
        return Config::parse(text).map(drop).map_err(|error| error.to_string());
    };
    let mut found = 0;
    for container in containers {
        for variable in container["environment"].as_array().into_iter().flatten() {
            if variable["name"] == "CONSUL_ECS_CONFIG_JSON" {
                let value = variable["value"].as_str().ok_or("the value is no string")?;
                let name = &container["name"];
                Config::parse(value).map_err(|error| format!("container {name}: {error}"))?;
                found += 1;
            }
        }
    }
    (found > 0).then_some(()).ok_or_else(|| "no container has CONSUL_ECS_CONFIG_JSON".to_owned())
}

/// Checks that dependencies on our crates, each on its line, name a crate and features that are
/// there.
pub(crate) fn dependencies(text: &str) -> Result<(), String> {
    let named = Regex::new(r"^([a-z][a-z-]*) = (.*)$").unwrap();
    let quoted = Regex::new(r#""([a-z0-9-]+)""#).unwrap();
    let mut found = 0;
    for line in text.lines() {
        let Some(parts) = named.captures(line) else { continue };
        let path = root().join(&parts[1]).join("Cargo.toml");
        let Ok(manifest) = std::fs::read_to_string(path) else { continue };
        found += 1;
        let (_, features) = parts[2].split_once("features").unwrap_or_default();
        for feature in quoted.captures_iter(features) {
            let (_, known) = manifest.split_once("\n[features]\n").unwrap_or_default();
            let known = known.split("\n[").next().unwrap_or_default();
            if !known.lines().any(|line| line.starts_with(&format!("{} = ", &feature[1]))) {
                return Err(format!("{} has no feature {}", &parts[1], &feature[1]));
            }
        }
    }
    (found > 0).then_some(()).ok_or_else(|| "no crate of this workspace is named".to_owned())
}

#[test]
fn mistakes_are_found() {
    assert!(ecs(r#"{"bootstrapDir":"/consul","service":{"port":8080}}"#).is_ok());
    assert!(ecs(r#"{"bootstrapDir":7}"#).is_err());
    assert!(ecs(r#"{"containerDefinitions":[]}"#).is_err());
    assert!(
        dependencies("[dependencies]\ncts-ha = { version = \"0.1\", features = [\"tasks\"] }")
            .is_ok()
    );
    assert!(
        dependencies("[dependencies]\ncts-ha = { version = \"0.1\", features = [\"x\"] }").is_err()
    );
    assert!(dependencies("[dependencies]\ncts-hb = \"0.1\"").is_err());
}
