//! Parity of intentions.

use consul_watch::{
    Client, QueryOptions, Result, WriteOptions,
    types::{AuthorizeRequest, Intention, IntentionAction, IntentionSide},
};

use super::{Env, acl::holder, status};

super::cases![
    made_changed_and_deleted,
    the_narrower_one_decides,
    by_their_names,
    intentions_that_are_refused,
    a_blocked_list,
];

mod sealed {
    super::super::cases![sealed: intentions_follow_their_services_rules];
    use super::intentions_follow_their_services_rules;
}

const NOBODY: &str = "00000000-0000-0000-0000-00000000000a";

fn read() -> QueryOptions {
    QueryOptions::default()
}

fn write() -> WriteOptions {
    WriteOptions::default()
}

async fn make(client: &Client, from: &str, to: &str, action: IntentionAction) -> Result<String> {
    client.intention_create(&Intention::new(from, to, action), &write()).await
}

async fn made_changed_and_deleted(env: &Env) {
    let (web, db) = (env.name("web"), env.name("db"));
    let id = make(&env.client, &web, &db, IntentionAction::Deny).await.unwrap();
    let find = async || env.client.intention_by_id(&id, &read()).await.unwrap().value;
    let mut found = find().await.unwrap();
    assert_eq!((&found.source_name, &found.destination_name), (&web, &db));
    assert_eq!((found.action.clone(), found.precedence), (Some(IntentionAction::Deny), 9));
    assert_eq!(
        (found.source_type.as_str(), found.source_namespace.as_str()),
        ("consul", "default")
    );
    assert!(found.created_at.is_some() && found.created_at == found.updated_at);
    found.description = "changed".into();
    env.client.intention_update(&found, &write()).await.unwrap();
    let changed = find().await.unwrap();
    assert_eq!(changed.description, "changed");
    assert!(changed.modify_index > changed.create_index && changed.hash != found.hash);
    env.client.intention_delete_by_id(&id, &write()).await.unwrap();
    assert_eq!(find().await, None);
}

async fn the_narrower_one_decides(env: &Env) {
    let (web, db, api) = (env.name("web"), env.name("db"), env.name("api"));
    let mut ids = Vec::new();
    for (from, to, action) in [
        ("*", db.as_str(), IntentionAction::Allow),
        (web.as_str(), db.as_str(), IntentionAction::Deny),
        (web.as_str(), "*", IntentionAction::Deny),
    ] {
        ids.push(make(&env.client, from, to, action).await.unwrap());
    }
    let matched = |side: IntentionSide, name: String| async move {
        let found = env.client.intention_match(&side, &name, &read()).await.unwrap().value;
        found.iter().map(|found| found.precedence).collect::<Vec<_>>()
    };
    assert_eq!(matched(IntentionSide::Destination, db.clone()).await, [9, 8, 6]);
    assert_eq!(matched(IntentionSide::Source, web.clone()).await, [9, 8, 6]);
    assert_eq!(matched(IntentionSide::Destination, api.clone()).await, [6]);
    for (from, to, allowed) in
        [(&web, &db, false), (&api, &db, true), (&web, &api, false), (&api, &web, true)]
    {
        let found = env.client.intention_check(from, to, &read()).await.unwrap();
        assert_eq!(found, allowed, "{from} to {to}");
        let uri = format!("spiffe://x.consul/ns/default/dc/dc1/svc/{from}");
        let connection = AuthorizeRequest::new(to, uri, "01");
        let answer = env.client.agent_connect_authorize(&connection).await.unwrap();
        assert_eq!(answer.authorized, allowed, "{from} to {to}: {}", answer.reason);
        let matched = if env.is_1_8 { "Matched intention: " } else { "Matched L4 intention: " };
        assert_eq!(answer.reason.starts_with(matched), *from != api || *to == db);
    }
    for id in ids {
        env.client.intention_delete_by_id(&id, &write()).await.unwrap();
    }
}

async fn by_their_names(env: &Env) {
    if env.is_1_8 {
        // Servers before 1.9 take the word for an id.
        let error = env.client.intention("a", "b", &read()).await.unwrap_err();
        assert!(error.to_string().contains("UUID must be 36 characters"), "{error}");
        return;
    }
    let (web, db) = (env.name("web"), env.name("db"));
    let find = async || env.client.intention(&web, &db, &read()).await.unwrap().value;
    assert_eq!(find().await, None);
    let mut wanted = Intention::new(&web, &db, IntentionAction::Deny);
    env.client.intention_set(&wanted, &write()).await.unwrap();
    let first = find().await.unwrap();
    wanted.action = Some(IntentionAction::Allow);
    env.client.intention_set(&wanted, &write()).await.unwrap();
    let second = find().await.unwrap();
    assert_eq!((second.create_index, &second.action), (first.create_index, &wanted.action));
    assert!(second.modify_index > first.modify_index);
    env.client.intention_delete(&web, &db, &write()).await.unwrap();
    env.client.intention_delete(&web, &db, &write()).await.unwrap();
    assert_eq!(find().await, None);
}

async fn intentions_that_are_refused(env: &Env) {
    let (web, db) = (env.name("web"), env.name("db"));
    let id = make(&env.client, &web, &db, IntentionAction::Deny).await.unwrap();
    let error = make(&env.client, &web, &db, IntentionAction::Allow).await.unwrap_err();
    assert_eq!(status(&error), 500);
    let text = if env.is_1_8 {
        format!("duplicate intention found: DENY default/{web} => default/{db} (ID: {id}")
    } else {
        format!("Sources[1] defines {web:?} more than once")
    };
    assert!(error.to_string().contains(&text), "{error}");
    let mut wrong = Vec::new();
    for (from, to, refused, text) in [
        ("", "x", 500, "SourceName must be set"),
        // Current servers ask for a right first that nobody has.
        if env.is_1_8 {
            ("x", "", 500, "DestinationName must be set")
        } else {
            ("x", "", 403, "Permission denied")
        },
        ("a*", "x", 500, "SourceName: wildcard character '*' cannot be used with partial values"),
    ] {
        match make(&env.client, from, to, IntentionAction::Deny).await {
            Err(error) if status(&error) == refused && error.to_string().contains(text) => {}
            other => wrong.push(format!("{from:?} to {to:?}: {other:?} instead of {text:?}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let mut moved = Intention::new(&web, env.name("elsewhere"), IntentionAction::Deny);
    moved.id.clone_from(&id);
    match env.client.intention_update(&moved, &write()).await {
        Ok(()) => assert!(env.is_1_8),
        Err(error) => {
            assert!(!env.is_1_8, "{error}");
            let text = "Cannot modify Destination partition/namespace/name for an intention once";
            assert!(error.to_string().contains(text), "{error}");
        }
    }
    let mut stranger = Intention::new(&web, &db, IntentionAction::Deny);
    stranger.id = NOBODY.into();
    let error = env.client.intention_update(&stranger, &write()).await.unwrap_err();
    let text = format!("Cannot modify non-existent intention: '{NOBODY}'");
    assert!(error.to_string().contains(&text), "{error}");
    assert_eq!(env.client.intention_by_id(NOBODY, &read()).await.unwrap().value, None);
    let error = env.client.intention_by_id("x", &read()).await.unwrap_err();
    assert_eq!(status(&error), 400);
    env.client.intention_delete_by_id(&id, &write()).await.unwrap();
}

async fn a_blocked_list(env: &Env) {
    let (web, db) = (env.name("web"), env.name("db"));
    let list =
        |client: Client, options: QueryOptions| async move { client.intentions(&options).await };
    let seen = env.observe(list, make(&env.client, &web, &db, IntentionAction::Deny)).await;
    seen.assert_woken();
    assert_eq!(seen.last.len(), seen.first.len() + 1);
    let id = seen.last.iter().find(|found| found.source_name == web).unwrap().id.clone();
    let seen = env.observe(list, env.client.intention_delete_by_id(&id, &write())).await;
    seen.assert_woken();
    assert!(seen.last.iter().all(|found| found.source_name != web));
}

async fn intentions_follow_their_services_rules(env: &Env) {
    let (web, db, other) = (env.name("web"), env.name("db"), env.name("other"));
    let first = make(&env.client, &other, &db, IntentionAction::Deny).await.unwrap();
    let rules = format!(r#"service "{web}" {{ policy = "read" intentions = "write" }}"#);
    let who = holder(env, &[rules]).await;
    let own = make(&who, &other, &web, IntentionAction::Allow).await.unwrap();
    let error = make(&who, &web, &other, IntentionAction::Allow).await.unwrap_err();
    assert!(error.is_permission_denied(), "{error}");
    let listed = who.intentions(&read()).await.unwrap().value;
    assert_eq!(listed.iter().map(|found| &found.id).collect::<Vec<_>>(), [&own]);
    let error = who.intention_by_id(&first, &read()).await.unwrap_err();
    assert!(error.is_permission_denied(), "{error}");
    let side = IntentionSide::Destination;
    assert_eq!(who.intention_match(&side, &web, &read()).await.unwrap().value.len(), 1);
    assert!(who.intention_match(&side, &db, &read()).await.unwrap_err().is_permission_denied());
    assert!(who.intention_check(&other, &web, &read()).await.unwrap());
    // What no intention decides is as the default policy says.
    assert!(!who.intention_check(&db, &web, &read()).await.unwrap());
    assert!(who.intention_check(&web, &db, &read()).await.unwrap_err().is_permission_denied());
    let error = who.intention_delete_by_id(&first, &write()).await.unwrap_err();
    assert!(error.is_permission_denied(), "{error}");
    for id in [first, own] {
        env.client.intention_delete_by_id(&id, &write()).await.unwrap();
    }
}
