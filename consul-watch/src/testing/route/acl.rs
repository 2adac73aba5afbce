//! Routes of `/v1/acl/`.

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{Ask, Path, agent::go_bool, call::bad_request};
use crate::testing::{
    acl::{Access, Resource},
    answer::Reply,
    go_json,
    state::{
        BindingBody, LoginBody, MethodBody, PolicyBody, Refused, RoleBody, Seen, State, TokenBody,
        TokenFilter,
    },
};

type Answered = Result<Reply, Refused>;

pub(super) const PATHS: &[Path] = &[
    Path::new("acl/bootstrap", "PUT"),
    Path::new("acl/login", "POST"),
    Path::new("acl/logout", "POST"),
    Path::new("acl/replication", "GET"),
    Path::new("acl/policies", "GET"),
    Path::new("acl/policy", "PUT"),
    Path::new("acl/policy/", "GET,PUT,DELETE"),
    Path::new("acl/policy/name/", "GET"),
    Path::new("acl/roles", "GET"),
    Path::new("acl/role", "PUT"),
    Path::new("acl/role/", "GET,PUT,DELETE"),
    Path::new("acl/role/name/", "GET"),
    Path::new("acl/binding-rules", "GET"),
    Path::new("acl/binding-rule", "PUT"),
    Path::new("acl/binding-rule/", "GET,PUT,DELETE"),
    Path::new("acl/auth-methods", "GET"),
    Path::new("acl/auth-method", "PUT"),
    Path::new("acl/auth-method/", "GET,PUT,DELETE"),
    Path::new("acl/tokens", "GET"),
    Path::new("acl/token", "PUT"),
    Path::new("acl/token/self", "GET"),
    Path::new("acl/token/", "GET,PUT,DELETE"),
];

pub(super) fn answer(state: &mut State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    if !state.acls_enabled() {
        return Some(Reply::text(401, "ACL support disabled"));
    }
    let (what, id) = rest.split_once('/').unwrap_or((rest, ""));
    let answered = match what {
        "bootstrap" => bootstrap(state, ask),
        "login" => {
            let login = body::<LoginBody>(ask, state.is_1_8(), "Failed to decode request body");
            login.and_then(|login| state.acl_login(login, ask.now)).map(|value| Reply::json(&value))
        }
        "logout" => state.acl_logout(&ask.call.token).map(|value| Reply::json(&value)),
        "replication" => Ok(Reply::json(&replication(state.is_1_8()))),
        "token" => token(state, ask, id),
        "tokens" => tokens(state, ask),
        "policy" => policy(state, ask, id),
        "policies" => read(ask).map(|()| listed(state.acl_policies())),
        "role" => role(state, ask, id),
        "roles" => read(ask).map(|()| listed(state.acl_roles())),
        "auth-method" => method(state, ask, id),
        "auth-methods" => read(ask).map(|()| listed(state.acl_methods())),
        "binding-rule" => rule(state, ask, id),
        "binding-rules" => {
            read(ask).map(|()| listed(state.acl_rules(ask.call.param("authmethod"))))
        }
        _ => return None,
    };
    Some(answered.unwrap_or_else(Reply::from))
}

fn read(ask: Ask<'_>) -> Result<(), Refused> {
    ask.who.require(Resource::Acl, "", Access::Read)
}

fn write(ask: Ask<'_>) -> Result<(), Refused> {
    ask.who.require(Resource::Acl, "", Access::Write)
}

/// The body of a write. Members that only answers have are ignored.
fn body<T: DeserializeOwned>(ask: Ask<'_>, old: bool, what: &str) -> Result<T, Refused> {
    let read = go_json::value(&ask.call.body).and_then(|mut value: Value| {
        for answered in ["CreateTime", "Hash", "CreateIndex", "ModifyIndex"] {
            value.as_object_mut().map(|fields| go_json::take(fields, answered));
        }
        go_json::from_value(value)
    });
    read.map_err(|error| bad_request(old, &format!("{what}: {error}")))
}

fn listed((list, seen): (Value, Seen)) -> Reply {
    Reply::json(&list).at(seen)
}

fn found(state: &State, what: &str, (found, seen): (Option<Value>, Seen)) -> Answered {
    found.map(|value| Reply::json(&value).at(seen)).ok_or_else(|| state.acl_missing(what))
}

fn written(value: Result<Value, Refused>) -> Answered {
    value.map(|value| Reply::json(&value))
}

fn bootstrap(state: &mut State, ask: Ask<'_>) -> Answered {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct Body {
        bootstrap_secret: String,
    }
    // Servers before 1.11 do not look at the body.
    let body: Body = if state.is_1_8() { Body::default() } else { ask.call.json_or_default()? };
    written(state.acl_bootstrap(&body.bootstrap_secret, ask.now))
}

fn token(state: &mut State, ask: Ask<'_>, id: &str) -> Answered {
    let old = state.is_1_8();
    let method = ask.call.method.as_str();
    if id == "self" && method == "GET" {
        let secret = state.agent.token_or_default(&ask.call.token);
        let (value, seen) = state.acl_token_self(secret)?;
        return Ok(Reply::json(&value).at(seen));
    }
    if method == "PUT"
        && let Some(accessor) = id.strip_suffix("/clone")
    {
        let new: TokenCopy = body(ask, old, "Token decoding failed")?;
        write(ask)?;
        return written(state.acl_token_clone(accessor, new.description, ask.now));
    }
    if id.is_empty() && method != "PUT" {
        return Err(bad_request(old, "Missing token ID"));
    }
    match method {
        "GET" => {
            read(ask)?;
            let visible = ask.who.allows(Resource::Acl, "", Access::Write);
            let (mut token, seen) = state.acl_token(id, visible)?;
            let expand =
                ask.call.param("expanded").is_some_and(|given| go_bool(given) == Some(true));
            if !old
                && expand
                && let Some(token) = &mut token
            {
                state.acl_expand(id, token);
            }
            found(state, "token", (token, seen))
        }
        "PUT" => {
            let new: TokenBody = body(ask, old, "Token decoding failed")?;
            write(ask)?;
            if !id.is_empty() && !new.is_of(id) {
                let text = "Token Accessor ID in URL and payload do not match";
                return Err(bad_request(old, text));
            }
            written(state.acl_token_set(named(id), new, ask.now))
        }
        "DELETE" => {
            write(ask)?;
            written(state.acl_token_delete(id, &ask.call.token))
        }
        _ => Err(Refused::new(405, format!("method {method} not allowed"))),
    }
}

/// The body of a request to copy a token.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct TokenCopy {
    description: String,
}

fn named(id: &str) -> Option<&str> {
    (!id.is_empty()).then_some(id)
}

fn tokens(state: &State, ask: Ask<'_>) -> Answered {
    read(ask)?;
    let call = ask.call;
    let filter = TokenFilter {
        policy: call.param("policy"),
        role: call.param("role"),
        method: call.param("authmethod"),
        // Servers before 1.17 do not know it.
        service: call.param("servicename").filter(|_| !state.is_1_8()),
    };
    let visible = ask.who.allows(Resource::Acl, "", Access::Write);
    Ok(listed(state.acl_tokens(filter, visible)))
}

fn policy(state: &mut State, ask: Ask<'_>, id: &str) -> Answered {
    let old = state.is_1_8();
    if id.is_empty() && ask.call.method != "PUT" {
        return Err(bad_request(old, "Missing policy ID"));
    }
    match ask.call.method.as_str() {
        "GET" => {
            read(ask)?;
            match id.strip_prefix("name/") {
                Some(name) => found(state, "policy", state.acl_policy_by_name(name)),
                None => found(state, "policy", state.acl_policy(id)?),
            }
        }
        "PUT" => {
            let new: PolicyBody = body(ask, old, "Policy decoding failed")?;
            write(ask)?;
            match (named(id), new.id.as_str()) {
                (None, "") => {}
                (None, _) => {
                    let text = "Cannot specify the ID when creating a new policy";
                    return Err(bad_request(old, text));
                }
                (Some(id), other) if other.is_empty() || other == id => {}
                (Some(_), _) => {
                    return Err(bad_request(old, "Policy ID in URL and payload do not match"));
                }
            }
            written(state.acl_policy_set(named(id), new))
        }
        "DELETE" => {
            write(ask)?;
            written(state.acl_policy_delete(id))
        }
        method => Err(Refused::new(405, format!("method {method} not allowed"))),
    }
}

fn role(state: &mut State, ask: Ask<'_>, id: &str) -> Answered {
    let old = state.is_1_8();
    if id.is_empty() && ask.call.method != "PUT" {
        return Err(bad_request(old, "Missing role ID"));
    }
    match ask.call.method.as_str() {
        "GET" => {
            read(ask)?;
            match id.strip_prefix("name/") {
                Some(name) => found(state, "role", state.acl_role_by_name(name)),
                None => found(state, "role", state.acl_role(id)?),
            }
        }
        "PUT" => {
            let new: RoleBody = body(ask, old, "Role decoding failed")?;
            write(ask)?;
            if !new.id.is_empty() && new.id != id {
                return Err(bad_request(old, "Role ID in URL and payload do not match"));
            }
            written(state.acl_role_set(named(id), new))
        }
        "DELETE" => {
            write(ask)?;
            written(state.acl_role_delete(id))
        }
        method => Err(Refused::new(405, format!("method {method} not allowed"))),
    }
}

fn method(state: &mut State, ask: Ask<'_>, name: &str) -> Answered {
    let old = state.is_1_8();
    match ask.call.method.as_str() {
        "GET" => {
            read(ask)?;
            found(state, "auth method", state.acl_method(name))
        }
        "PUT" => {
            let mut new: MethodBody = body(ask, old, "AuthMethod decoding failed")?;
            write(ask)?;
            if new.name.is_empty() {
                name.clone_into(&mut new.name);
            } else if !name.is_empty() && new.name != name {
                return Err(bad_request(old, "AuthMethod Name in URL and payload do not match"));
            }
            written(state.acl_method_set(new))
        }
        "DELETE" => {
            write(ask)?;
            written(state.acl_method_delete(name))
        }
        method => Err(Refused::new(405, format!("method {method} not allowed"))),
    }
}

fn rule(state: &mut State, ask: Ask<'_>, id: &str) -> Answered {
    let old = state.is_1_8();
    match ask.call.method.as_str() {
        "GET" => {
            read(ask)?;
            found(state, "binding rule", state.acl_rule(id)?)
        }
        "PUT" => {
            let new: BindingBody = body(ask, old, "BindingRule decoding failed")?;
            write(ask)?;
            if !new.id.is_empty() && new.id != id {
                return Err(bad_request(old, "BindingRule ID in URL and payload do not match"));
            }
            written(state.acl_rule_set(named(id), new))
        }
        "DELETE" => {
            write(ask)?;
            written(state.acl_rule_delete(id))
        }
        method => Err(Refused::new(405, format!("method {method} not allowed"))),
    }
}

/// The only datacenter copies from nowhere.
fn replication(old: bool) -> Value {
    const NEVER: &str = "0001-01-01T00:00:00Z";
    let mut value = json!({
        "Enabled": false, "Running": false, "SourceDatacenter": "", "ReplicationType": "",
        "ReplicatedIndex": 0, "ReplicatedRoleIndex": 0, "ReplicatedTokenIndex": 0,
        "LastSuccess": NEVER, "LastError": NEVER,
    });
    if !old && let Some(fields) = value.as_object_mut() {
        fields.insert("LastErrorMessage".to_owned(), json!(""));
    }
    value
}
