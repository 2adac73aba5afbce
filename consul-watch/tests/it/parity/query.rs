//! Prepared queries.

use std::collections::BTreeSet;

use consul_watch::{
    QueryOptions, WriteOptions,
    client::ExecuteOptions,
    types::{PreparedQuery, PreparedQueryResult},
};
use serde_json::json;

use super::{Env, acl::holder, instance, status};

super::cases![
    made_read_changed_and_deleted,
    what_is_refused,
    what_a_query_finds,
    templates,
    a_query_goes_with_its_session,
];

mod sealed {
    super::super::cases![sealed: rights_over_queries];
    use super::rights_over_queries;
}

const NOBODY: &str = "00000000-0000-0000-0000-00000000000a";

fn read() -> QueryOptions {
    QueryOptions::default()
}

fn write() -> WriteOptions {
    WriteOptions::default()
}

async fn make(env: &Env, query: &PreparedQuery) -> String {
    env.client.prepared_query_create(query, &write()).await.unwrap()
}

async fn delete(env: &Env, id: &str) {
    env.client.prepared_query_delete(id, &write()).await.unwrap();
}

async fn get(env: &Env, id: &str) -> Option<PreparedQuery> {
    env.client.prepared_query(id, &read()).await.unwrap().value
}

async fn execute(env: &Env, name: &str, options: &ExecuteOptions) -> Option<PreparedQueryResult> {
    env.client.prepared_query_execute(name, options).await.unwrap().value
}

/// The ids of the instances that a query finds.
async fn found(env: &Env, name: &str) -> BTreeSet<String> {
    let result = execute(env, name, &ExecuteOptions::default()).await.expect("the query");
    result.nodes.into_iter().map(|entry| entry.service.id).collect()
}

async fn made_read_changed_and_deleted(env: &Env) {
    let (name, web) = (env.name("q"), env.name("web"));
    let mut query = PreparedQuery::new(&name, &web);
    query.dns_ttl = Some(std::time::Duration::from_secs(10));
    query.service.failover.nearest_n = 2;
    query.service.tags = vec!["!x".into()];
    let id = make(env, &query).await;
    let made = get(env, &id).await.unwrap();
    assert_eq!((&made.id, &made.name, &made.service), (&id, &name, &query.service));
    assert_eq!((made.dns_ttl, made.create_index), (query.dns_ttl, made.modify_index));
    let listed = env.client.prepared_queries(&read()).await.unwrap();
    assert!(listed.meta.index.is_some() && listed.value.iter().any(|query| query.id == id));

    let mut changed = made.clone();
    changed.service.only_passing = true;
    env.client.prepared_query_update(&changed, &write()).await.unwrap();
    let again = get(env, &id).await.unwrap();
    assert!(again.service.only_passing && again.modify_index > made.modify_index);
    assert_eq!(again.create_index, made.create_index);
    for asked in [&id, &name, &name.to_uppercase()] {
        let result = execute(env, asked, &ExecuteOptions::default()).await.unwrap();
        assert_eq!((result.service, result.datacenter.as_str()), (web.clone(), "dc1"));
        assert!(result.nodes.is_empty() && result.failovers == 0);
    }
    let explained = env.client.prepared_query_explain(&name, &read()).await.unwrap().value;
    assert_eq!(explained.unwrap().service, changed.service);

    delete(env, &id).await;
    assert!(get(env, &id).await.is_none());
    assert!(execute(env, &name, &ExecuteOptions::default()).await.is_none());
    assert!(env.client.prepared_query_explain(&name, &read()).await.unwrap().value.is_none());
}

async fn what_is_refused(env: &Env) {
    let taken = env.name("q");
    let id = make(env, &PreparedQuery::new(&taken, "web")).await;
    let changed = |change: &dyn Fn(&mut PreparedQuery)| {
        let mut query = PreparedQuery::new(env.name("q"), "web");
        change(&mut query);
        query
    };
    for (query, problem) in [
        (changed(&|query| query.name.clone_from(&taken)), "aliases an existing query name"),
        (changed(&|query| query.id = NOBODY.into()), "ID must be empty when creating"),
        (changed(&|query| query.name.clear()), "Must be bound to a session"),
        (changed(&|query| query.service.service.clear()), "Must provide a Service name to query"),
        (changed(&|query| query.session = NOBODY.into()), "invalid session"),
        (
            changed(&|query| query.token = Some("<hidden>".into())),
            "it looks like a query definition with a redacted token was submitted",
        ),
    ] {
        let error = env.client.prepared_query_create(&query, &write()).await.unwrap_err();
        assert_eq!(status(&error), 500, "{error}");
        assert!(error.to_string().contains(problem), "{error}");
    }
    let unknown = changed(&|query| query.id = NOBODY.into());
    let missing = format!("Cannot modify non-existent prepared query: '{NOBODY}'");
    let error = env.client.prepared_query_update(&unknown, &write()).await.unwrap_err();
    assert!(error.to_string().contains(&missing), "{error}");
    let error = env.client.prepared_query_delete(NOBODY, &write()).await.unwrap_err();
    assert!(error.to_string().contains(&missing), "{error}");
    let error = env.client.prepared_query("x", &read()).await.unwrap_err();
    assert!(error.to_string().contains("UUID must be 36 characters"), "{error}");
    delete(env, &id).await;
}

async fn what_a_query_finds(env: &Env) {
    let (web, name) = (env.name("web"), env.name("q"));
    let [a, b, c] = ["a", "b", "c"].map(|end| env.name(end));
    for (node, health, tag) in
        [(&a, "passing", "v1"), (&b, "warning", "v1"), (&c, "critical", "v2")]
    {
        let mut registration = instance(&web, node, health);
        let service = registration.service.as_mut().unwrap();
        service.tags = vec![tag.into()];
        service.meta.insert("zone".into(), node.clone());
        registration.node_meta.insert("rack".into(), node.clone());
        env.client.catalog_register(&registration).await.unwrap();
    }
    let finds = async |change: &(dyn Fn(&mut PreparedQuery) + Sync)| {
        let mut query = PreparedQuery::new(&name, &web);
        change(&mut query);
        let id = make(env, &query).await;
        let found = found(env, &name).await;
        delete(env, &id).await;
        found
    };
    let set = |ids: &[&String]| ids.iter().map(|id| (*id).clone()).collect::<BTreeSet<_>>();
    assert_eq!(finds(&|_| ()).await, set(&[&a, &b]), "critical ones never");
    assert_eq!(finds(&|query| query.service.only_passing = true).await, set(&[&a]));
    let ignored = format!("{c}-check");
    let ignoring =
        |query: &mut PreparedQuery| query.service.ignore_check_ids = vec![ignored.clone()];
    assert_eq!(finds(&ignoring).await, set(&[&a, &b, &c]));
    let tagged = |query: &mut PreparedQuery| {
        ignoring(query);
        query.service.tags = vec!["V2".into()];
    };
    assert_eq!(finds(&tagged).await, set(&[&c]));
    let untagged = |query: &mut PreparedQuery| {
        ignoring(query);
        query.service.tags = vec!["!v2".into()];
    };
    assert_eq!(finds(&untagged).await, set(&[&a, &b]));
    let of_zone = |query: &mut PreparedQuery| {
        query.service.service_meta.insert("zone".into(), b.clone());
    };
    assert_eq!(finds(&of_zone).await, set(&[&b]));
    let on_rack = |query: &mut PreparedQuery| {
        query.service.node_meta.insert("rack".into(), a.clone());
    };
    assert_eq!(finds(&on_rack).await, set(&[&a]));
    assert_eq!(finds(&|query| query.service.connect = true).await, set(&[]));

    let id = make(env, &PreparedQuery::new(&name, &web)).await;
    let mut options = ExecuteOptions::default();
    options.limit = 1;
    assert_eq!(execute(env, &name, &options).await.unwrap().nodes.len(), 1);
    options.limit = 0;
    options.connect = true;
    assert!(execute(env, &name, &options).await.unwrap().nodes.is_empty());
    delete(env, &id).await;
}

async fn templates(env: &Env) {
    let prefix = env.name("geo-");
    let mut query = PreparedQuery::new(&prefix, "${match(1)}");
    let regexp = format!("^{prefix}(.*?)-([^\\-]+?)$");
    let template =
        json!({ "Type": "name_prefix_match", "Regexp": regexp, "RemoveEmptyTags": true });
    query.template = template.as_object().cloned().unwrap();
    query.service.tags = ["${match(2)}", "${name.suffix}", "${match(7)}", "x${name.prefix}"]
        .map(String::from)
        .into();
    query.service.node_meta.insert("name".into(), "${name.full}".into());
    let id = make(env, &query).await;
    let name = format!("{prefix}web-v1");
    let explained = env.client.prepared_query_explain(&name, &read()).await.unwrap().value.unwrap();
    assert_eq!((&explained.id, &explained.name), (&id, &prefix));
    assert_eq!(explained.service.service, "web");
    assert_eq!(explained.service.tags, ["v1", "web-v1", &format!("x{prefix}")]);
    assert_eq!(explained.service.node_meta["name"], name);
    assert_eq!(execute(env, &name, &ExecuteOptions::default()).await.unwrap().service, "web");
    // The longest prefix that fits answers.
    let mut longer = PreparedQuery::new(format!("{prefix}web"), "longer");
    longer.template = json!({ "Type": "name_prefix_match" }).as_object().cloned().unwrap();
    let other = make(env, &longer).await;
    assert_eq!(execute(env, &name, &ExecuteOptions::default()).await.unwrap().service, "longer");
    // An id does not say what the name is.
    let error =
        env.client.prepared_query_execute(&id, &ExecuteOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("can only be resolved up by name"), "{error}");

    let mut wrong = PreparedQuery::new(env.name("q"), "web");
    for (template, service, problem) in [
        (json!({ "Type": "x" }), "web", "failed compiling template: Bad Template.Type 'x'"),
        (json!({ "Type": "name_prefix_match", "Regexp": "(" }), "web", "Bad Regexp: "),
        (
            json!({ "Type": "name_prefix_match" }),
            "${name.nope}",
            "Bad evaluation for '${name.nope}' in Service.Service: 1:3: unknown variable accessed: name.nope",
        ),
    ] {
        wrong.template = template.as_object().cloned().unwrap();
        wrong.service.service = service.into();
        let error = env.client.prepared_query_create(&wrong, &write()).await.unwrap_err();
        assert_eq!(status(&error), 500);
        assert!(error.to_string().contains(problem), "{error}");
    }
    delete(env, &id).await;
    delete(env, &other).await;
}

async fn a_query_goes_with_its_session(env: &Env) {
    let session = env.session(|_| ()).await;
    let mut query = PreparedQuery::new("", "web");
    query.session = session.to_string();
    let id = make(env, &query).await;
    assert!(execute(env, &id, &ExecuteOptions::default()).await.is_some());
    env.destroy(&session).await;
    assert!(get(env, &id).await.is_none());
}

async fn rights_over_queries(env: &Env) {
    let (name, other, web) = (env.name("q"), env.name("other"), env.name("web"));
    env.instance(&web, &env.name("n"), "passing").await;
    let who = holder(
        env,
        &[
            format!("query {name:?} {{ policy = \"write\" }}"),
            format!("query {other:?} {{ policy = \"read\" }}"),
            format!(
                "service {web:?} {{ policy = \"read\" }} node_prefix \"\" {{ policy = \"read\" }}"
            ),
        ],
    )
    .await;
    let mut query = PreparedQuery::new(&name, &web);
    query.token = Some(super::ROOT.into());
    let id = who.prepared_query_create(&query, &write()).await.unwrap();
    let token = |query: &PreparedQuery| {
        use secrecy::ExposeSecret as _;
        query.token.as_ref().map(|token| token.expose_secret().to_owned())
    };
    let seen = who.prepared_query(&id, &read()).await.unwrap().value.unwrap();
    assert_eq!(token(&seen), None, "the client takes what is hidden for none");
    assert_eq!(token(&get(env, &id).await.unwrap()).as_deref(), Some(super::ROOT));
    let explained = who.prepared_query_explain(&name, &read()).await.unwrap().value.unwrap();
    assert_eq!(token(&explained), None);

    let denied = PreparedQuery::new(&other, &web);
    assert!(who.prepared_query_create(&denied, &write()).await.unwrap_err().is_permission_denied());
    let other = make(env, &denied).await;
    assert!(who.prepared_query(&other, &read()).await.unwrap().value.is_some());
    let mut changed = denied;
    changed.id.clone_from(&other);
    let error = who.prepared_query_update(&changed, &write()).await.unwrap_err();
    assert!(error.is_permission_denied(), "{error}");
    let error = who.prepared_query_delete(&other, &write()).await.unwrap_err();
    assert!(error.is_permission_denied(), "{error}");

    // Who may see no query can carry one out, and sees what the query's token may see.
    let blind = holder(env, &[]).await;
    let options = ExecuteOptions::default();
    let error = blind.prepared_query(&id, &read()).await.unwrap_err();
    assert!(error.is_permission_denied(), "{error}");
    let error = blind.prepared_query_explain(&name, &read()).await.unwrap_err();
    assert!(error.is_permission_denied(), "{error}");
    assert!(blind.prepared_queries(&read()).await.unwrap().value.is_empty());
    let found = blind.prepared_query_execute(&id, &options).await.unwrap().value.unwrap();
    assert_eq!(found.nodes.len(), 1);
    let found = blind.prepared_query_execute(&other, &options).await.unwrap().value.unwrap();
    assert!(found.nodes.is_empty());
    let found = who.prepared_query_execute(&other, &options).await.unwrap().value.unwrap();
    assert_eq!(found.nodes.len(), 1);
    delete(env, &id).await;
    delete(env, &other).await;
}
