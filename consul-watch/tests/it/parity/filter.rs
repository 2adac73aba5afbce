//! Filter expressions, on every endpoint that takes them. Texts of errors are
//! those of Consul 1.8.7.

use bytes::Bytes;
use consul_watch::{Error, client::Request};
use serde_json::json;

use super::Env;

super::cases![filters_of_instances, filters_that_are_refused, filters_of_other_endpoints];

async fn register(env: &Env) -> (String, String) {
    let (web, node) = (env.name("web").replace('_', "-"), env.name("n").replace('_', "-"));
    let body = json!({
        "Node": node, "Address": "10.0.0.1", "NodeMeta": { "rack": "a", "x-y": "z" },
        "Service": {
            "Service": web, "ID": "w1", "Port": 80, "Tags": ["a", "b"], "Meta": { "v": "1" },
        },
        "Checks": [{ "CheckID": "c1", "Status": "passing", "ServiceID": "w1" }],
    });
    env.client.send(Request::put("register", "/v1/catalog/register").json(&body)).await.unwrap();
    (web, node)
}

async fn ask(env: &Env, path: &str, filter: &str) -> Result<Bytes, String> {
    let request = Request::get("filtered", path).param("filter", filter);
    match env.client.send(request).await {
        Ok(response) => Ok(response.body().clone()),
        Err(Error::Status { status, message, .. }) => {
            assert_eq!(status.as_u16(), 500, "{filter}");
            Err(message)
        }
        Err(error) => panic!("{filter}: {error}"),
    }
}

async fn filters_of_instances(env: &Env) {
    let (web, _) = register(env).await;
    let path = format!("/v1/health/service/{web}");
    for (filter, matches) in [
        ("Service.Port == 80", true),
        ("Service.Port == \"80\"", true),
        ("Service.Port == 99999", false),
        ("Service.Port != 80", false),
        ("Service.Port == \"0x50\"", true),
        ("Service.Tags contains a", true),
        ("a in Service.Tags", true),
        ("\"z\" not in Service.Tags", true),
        ("Service.Tags is empty", false),
        ("Service.Tags is not empty", true),
        ("Service.Tags contains \"a b\"", false),
        ("Service.Tags not contains a", false),
        ("Service.Meta.v == 1", true),
        ("Service.Meta[\"v\"] == \"1\"", true),
        ("Service.Meta.nope == 1", false),
        ("Service.Meta.nope != 1", true),
        ("x not in Service.Meta.nope", true),
        ("x in Service.Meta.nope", false),
        ("Service.Meta.nope not matches x", true),
        ("v in Service.Meta", true),
        ("Service.Meta contains v", true),
        ("Service.Meta is empty", false),
        ("Checks.Status == passing", true),
        ("Checks.Status != passing", false),
        ("Checks.CheckID == c1 and Checks.Status == passing", true),
        ("Checks is empty", false),
        ("Checks.ServiceTags contains a", true),
        ("Checks.Type == \"\"", true),
        ("Node.Meta[\"x-y\"] == z", true),
        ("Node.Meta.rack matches \"^a$\"", true),
        ("Node.Meta.rack not matches \"b\"", true),
        ("Node.TaggedAddresses.lan == x", false),
        ("Node.ID == \"\"", true),
        ("Service.ID matches w", true),
        ("Service.ID contains w", true),
        ("Service.ID == `w1`", true),
        ("Service.ID == 1.5", false),
        ("Service.Port in Service.ID", false),
        ("not Service.Port == 80", false),
        ("not (Service.ID == w1)", false),
        ("not not Service.ID == w1", true),
        ("Service.Port == 80 and (Service.ID == w1 or Service.ID == w2)", true),
        ("Service.ID==w1 and not Service.Port==81 or x in Service.Tags", true),
        ("Service.ID == x or Service.ID == y and Service.Port == 80", false),
        ("Service.EnableTagOverride == false", true),
        ("Service.EnableTagOverride == 1", false),
        ("Service.Weights.Passing == 1", true),
        ("Service.Weights.Passing == -1", false),
        ("Service.TaggedAddresses.lan.Address == x", false),
        ("Service.TaggedAddresses is empty", true),
        ("Service.Proxy.Upstreams.DestinationName == x", false),
        ("Service.Proxy.MeshGateway.Mode == x", false),
        ("Service.Kind == \"\"", true),
        ("Service.Connect.Native == false", true),
        ("  Service.ID   ==    w1  ", true),
        ("", true),
    ] {
        let found = ask(env, &path, filter).await.unwrap();
        assert_eq!(found.len() > 10, matches, "{filter}: {found:?}");
    }
}

async fn filters_that_are_refused(env: &Env) {
    let (web, _) = register(env).await;
    let path = format!("/v1/health/service/{web}");
    let value = r#"no match found, expected: "-", "0", "\"", "`", [ \t\r\n], [1-9] or [a-zA-Z]"#;
    let operator = r#"no match found, expected: "!=", "==", "contains", "in", "is", "matches", "not" or [ \t\r\n]"#;
    for (filter, error) in [
        (
            "Service.Port == x",
            r#"Failed to coerce value "x" for selector "Service.Port": strconv.ParseInt: parsing "x": invalid syntax"#.to_owned(),
        ),
        (
            "Service.EnableTagOverride == yes",
            r#"Failed to coerce value "yes" for selector "Service.EnableTagOverride": strconv.ParseBool: parsing "yes": invalid syntax"#.to_owned(),
        ),
        ("Foo == 1", r#"Selector "Foo" is not valid"#.to_owned()),
        ("Service.Port==80 or Foo == 1", r#"Selector "Foo" is not valid"#.to_owned()),
        ("Service.Foo == 1", r#"Selector "Service.Foo" is not valid"#.to_owned()),
        ("service.port == 80", r#"Selector "service" is not valid"#.to_owned()),
        ("Service.Meta.v.x == 1", r#"Selector "Service.Meta.v.x" is not valid"#.to_owned()),
        ("Service.CreateIndex == 1", r#"Selector "Service.CreateIndex" is not valid"#.to_owned()),
        ("Service.Proxy.Config.x == 1", r#"Selector "Service.Proxy.Config" is not valid"#.to_owned()),
        ("Checks.Definition.HTTP == x", r#"Selector "Checks.Definition" is not valid"#.to_owned()),
        ("Service == 1", r#"Invalid match operator "Equal" for selector "Service""#.to_owned()),
        ("Service.Tags == a", r#"Invalid match operator "Equal" for selector "Service.Tags""#.to_owned()),
        ("Service.Meta == x", r#"Invalid match operator "Equal" for selector "Service.Meta""#.to_owned()),
        ("Service.ID is empty", r#"Invalid match operator "Is Empty" for selector "Service.ID""#.to_owned()),
        ("Service.Proxy is empty", r#"Invalid match operator "Is Empty" for selector "Service.Proxy""#.to_owned()),
        ("Service.Port contains 8", r#"Invalid match operator "In" for selector "Service.Port""#.to_owned()),
        ("Service.Port matches 8", r#"Invalid match operator "Matches" for selector "Service.Port""#.to_owned()),
        ("Service.Tags matches a", r#"Invalid match operator "Matches" for selector "Service.Tags""#.to_owned()),
        ("Node.Meta.rack matches \"(\"", r#"Failed to compile regular expression "(": error parsing regexp: "#.to_owned()),
        ("Service.Port ==", format!("1:16 (15): {value}")),
        ("Service.ID == 'w1'", format!("1:15 (14): {value}")),
        (
            "== 80",
            r#"1:1 (0): no match found, expected: "(", "-", "0", "\"", "`", "not", [ \t\r\n], [1-9] or [a-zA-Z]"#.to_owned(),
        ),
        ("Service.Port = 80", format!("1:14 (13): {operator}")),
        ("Service.CreateIndex > 1", format!("1:21 (20): {operator}")),
        ("NOT Service.Port == 80", format!("1:5 (4): {operator}")),
        ("Service . Port == 80", format!("1:9 (8): {operator}")),
        ("Service.Port == 80 and", r"1:23 (22): no match found, expected: [ \t\r\n]".to_owned()),
        ("Service.ID == w1 and(Service.Port == 80)", r"1:21 (20): no match found, expected: [ \t\r\n]".to_owned()),
        (
            "Service.ID == w1 AND Service.Port == 80",
            r#"1:18 (17): no match found, expected: "and", "or", [ \t\r\n] or EOF"#.to_owned(),
        ),
        (
            "Service.ID == w1x-_/.",
            r#"1:18 (17): no match found, expected: ".", "[", [ \t\r\n], [a-zA-Z0-9_] or EOF"#.to_owned(),
        ),
        ("\"Service.Port\" == 80", r#"1:16 (15): no match found, expected: "in", "not" or [ \t\r\n]"#.to_owned()),
        ("(Service.Port == 80", r#"1:20 (19): rule "grouping": Unmatched parentheses"#.to_owned()),
        ("Service.ID == \"w\\\"1\"", r#"1:15 (14): rule "string": invalid syntax"#.to_owned()),
        ("Service.Tags[0] == a", r#"1:14 (13): rule "index": Invalid index"#.to_owned()),
        ("Service.Port == 080", r#"1:18 (17): rule "number": Invalid number literal"#.to_owned()),
        ("Service.Port == 0x50", r#"1:18 (17): rule "number": Invalid number literal"#.to_owned()),
    ] {
        let found = ask(env, &path, filter).await.unwrap_err();
        let wanted = format!("Failed to create boolean expression evaluator: {error}");
        assert!(found.starts_with(&wanted), "{filter}:\n{found}\n{wanted}");
    }
}

async fn filters_of_other_endpoints(env: &Env) {
    let (web, node) = register(env).await;
    let own = env.name("own").replace('_', "-");
    let body = json!({ "Name": own, "Tags": ["t"], "Check": { "TTL": "1h" } });
    let request = Request::put("register", "/v1/agent/service/register").json(&body);
    env.client.send(request).await.unwrap();
    for (path, right, wrong) in [
        ("/v1/catalog/nodes".to_owned(), format!("Node == `{node}`"), "Node == nobody"),
        (
            format!("/v1/catalog/service/{web}"),
            "ServiceTags contains a".into(),
            "NodeMeta.rack == b",
        ),
        (format!("/v1/catalog/node/{node}"), format!("Service == `{web}`"), "ID == zz"),
        (format!("/v1/catalog/node-services/{node}"), format!("Service == `{web}`"), "ID == zz"),
        (format!("/v1/health/checks/{web}"), "Status == passing".into(), "Status == critical"),
        (format!("/v1/health/node/{node}"), "CheckID == c1".into(), "CheckID == c2"),
        ("/v1/health/state/passing".to_owned(), format!("Node == `{node}`"), "Node == nobody"),
        ("/v1/agent/services".to_owned(), format!("Service == `{own}`"), "Service == nothing"),
        ("/v1/agent/checks".to_owned(), format!("ServiceID == `{own}`"), "ServiceID == nothing"),
    ] {
        let (wanted, other) = (ask(env, &path, &right).await, ask(env, &path, wrong).await);
        let (wanted, other) = (wanted.unwrap(), other.unwrap());
        assert!(wanted.len() > other.len(), "{path}: {wanted:?} {other:?}");
        let error = ask(env, &path, "Foo == 1").await.unwrap_err();
        assert!(error.ends_with("Selector \"Foo\" is not valid"), "{path}: {error}");
        let error = ask(env, &path, "Bad ==").await.unwrap_err();
        assert!(error.contains("evaluator: 1:7 (6): no match found"), "{path}: {error}");
    }
    let services = ask(env, "/v1/catalog/services", &format!("ServiceName == `{web}`")).await;
    let services: serde_json::Value = serde_json::from_slice(&services.unwrap()).unwrap();
    // Servers before 1.14 ignore the filter here.
    assert_eq!(services.as_object().unwrap().len() == 1, !env.is_1_8, "{services}");
    env.client.agent_deregister_service(&own, None).await.unwrap();
}
