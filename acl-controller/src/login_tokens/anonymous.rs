//! The anonymous token's policy, which lets requests without a token find services; set up in the
//! primary datacenter only.

use consul_watch::{
    QueryOptions, WriteOptions,
    types::{AclLink, AclPolicy, AclTokenRequest, AgentSelf},
};

use crate::{Action, Change, Consul, Error, Object, Result, Writer, rules, tenancy::ensure_policy};

const TOKEN: &str = "00000000-0000-0000-0000-000000000002";
const POLICY: &str = "anonymous-token-policy";
const DEFAULT: &str = "default";

/// Returns `true` if the agent's datacenter is the primary one, which owns the ACLs.
///
/// Source: consul-ecs 0.5 `controller`. Consul 1.8 reports the primary datacenter only in
/// `DebugConfig`.
pub(super) fn is_primary(agent: &AgentSelf) -> Result<bool> {
    let own = &agent.config.datacenter;
    if own.is_empty() {
        return Err(Error::input(
            "agent config does not contain Config.Datacenter key: it is empty",
        ));
    }
    let debug = agent.debug_config.get("PrimaryDatacenter").and_then(|value| value.as_str());
    let primary = Some(agent.config.primary_datacenter.as_str()).filter(|name| !name.is_empty());
    let primary = primary.or(debug).filter(|name| !name.is_empty());
    match primary {
        Some(primary) => Ok(own == primary),
        None => Err(Error::input(
            "both Config.PrimaryDatacenter and DebugConfig.PrimaryDatacenter are empty: the agent does not say where ACLs live",
        )),
    }
}

/// Links the policy to the anonymous token, and creates it if needed.
pub(super) async fn ensure(
    consul: &dyn Consul,
    writer: &Writer,
    agent: &AgentSelf,
    partitions: bool,
) -> Result<()> {
    let primary = is_primary(agent)
        .map_err(|error| Error::step("failed to list Consul datacenters", error))?;
    if !primary {
        return Ok(());
    }
    let (mut read, mut write) = (QueryOptions::default(), WriteOptions::default());
    if partitions {
        // One anonymous token serves all partitions.
        (read.partition, read.namespace) = (Some(DEFAULT.into()), Some(DEFAULT.into()));
        (write.partition, write.namespace) = (Some(DEFAULT.into()), Some(DEFAULT.into()));
    }
    let found = consul.acl_token(TOKEN, &read).await;
    let found = found.map_err(Error::consul("reading the anonymous token"))?.value;
    let token = found.ok_or_else(|| {
        Error::input("Consul has no anonymous token; its ACLs are not as they should be")
    })?;
    if token.policies.iter().any(|link| link.name == POLICY) {
        return Ok(());
    }
    let mut policy = AclPolicy::new(POLICY, rules::anonymous(partitions));
    policy.description = "Anonymous token Policy".into();
    ensure_policy(consul, writer, &policy, &read, &write).await?;
    let mut request = AclTokenRequest::from(&token);
    request.policies.push(AclLink::name(POLICY));
    let change = Change::new(Action::Update, Object::Token, "anonymous");
    let updated = writer.write(change, async {
        let updated = consul.acl_token_update(TOKEN, &request, &write).await;
        updated.map_err(Error::consul("updating the anonymous token"))
    });
    updated.await.map(drop)
}

#[cfg(test)]
mod tests {
    use consul_watch::testing::{DefaultPolicy, TestConsul};

    use super::*;

    fn agent(text: &str) -> AgentSelf {
        serde_json::from_str(text).unwrap()
    }

    /// Case ACL38: the anonymous token gets its policy in the primary datacenter only; an unknown
    /// datacenter is an error.
    #[tokio::test]
    async fn only_the_primary_datacenter_changes_the_anonymous_token() {
        let consul =
            TestConsul::builder().acls(DefaultPolicy::Deny).management_token("root").build();
        let client = consul.client();
        for (text, changes, succeeds) in [
            (r#"{"Config":{"Datacenter":"","NodeName":"n"}}"#, 0, false),
            (r#"{"Config":{"Datacenter":"dc1","NodeName":"n"}}"#, 0, false),
            (
                r#"{"Config":{"Datacenter":"dc2","PrimaryDatacenter":"dc1","NodeName":"n"}}"#,
                0,
                true,
            ),
            (
                r#"{"Config":{"Datacenter":"dc1","PrimaryDatacenter":"dc1","NodeName":"n"}}"#,
                2,
                true,
            ),
            (
                r#"{"Config":{"Datacenter":"dc1","PrimaryDatacenter":"dc1","NodeName":"n"}}"#,
                0,
                true,
            ),
        ] {
            let writer = Writer::new();
            let done = ensure(&client, &writer, &agent(text), false).await;
            assert_eq!(done.is_ok(), succeeds, "{text}: {done:?}");
            assert_eq!(writer.into_changes().len(), changes, "{text}");
        }
        let token = client.acl_token(TOKEN, &QueryOptions::default()).await.unwrap().value.unwrap();
        assert_eq!(token.policies.len(), 1);
    }

    #[test]
    fn the_primary_datacenter_is_told_in_one_of_two_places() {
        let none = agent(r#"{"Config":{"Datacenter":"","NodeName":"n"}}"#);
        let error = is_primary(&none).unwrap_err().to_string();
        assert!(
            error.starts_with("agent config does not contain Config.Datacenter key: "),
            "{error}"
        );
        let no_primary = agent(
            r#"{"Config":{"Datacenter":"dc1","NodeName":"n"},"DebugConfig":{"PrimaryDatacenter":""}}"#,
        );
        let error = is_primary(&no_primary).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "both Config.PrimaryDatacenter and DebugConfig.PrimaryDatacenter are empty: "
            ),
            "{error}"
        );
        for (text, expected) in [
            (r#"{"Config":{"Datacenter":"dc1","PrimaryDatacenter":"dc1","NodeName":"n"}}"#, true),
            (r#"{"Config":{"Datacenter":"dc2","PrimaryDatacenter":"dc1","NodeName":"n"}}"#, false),
            (
                r#"{"Config":{"Datacenter":"dc1","NodeName":"n"},"DebugConfig":{"PrimaryDatacenter":"dc1"}}"#,
                true,
            ),
            (
                r#"{"Config":{"Datacenter":"dc2","NodeName":"n"},"DebugConfig":{"PrimaryDatacenter":"dc1"}}"#,
                false,
            ),
        ] {
            assert_eq!(is_primary(&agent(text)).unwrap(), expected, "{text}");
        }
    }
}
