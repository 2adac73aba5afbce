//! Every call of the protocol, as a token makes it, and what came of it.

use futures::StreamExt as _;
use resource_store::{
    GrpcClient, GrpcClientConfig, RequestContext, Resource, ResourceClient, ResourceData as _,
    RpcError,
    demo::{self, v1, v2},
    pb,
};
use serde_json::json;

/// A call, and its answer in a form that does not depend on who gave it.
pub(super) type Answers = Vec<(String, String)>;

fn client(address: &str, secret: &str) -> GrpcClient {
    let client = GrpcClient::new(&GrpcClientConfig::new(&format!("http://{address}"))).unwrap();
    if secret.is_empty() {
        return client;
    }
    client.with_context(RequestContext::anonymous().with_token(secret.to_owned().into()))
}

/// What there is for every token anew.
struct Stored {
    artist: pb::Resource,
    label: pb::Resource,
    executive: pb::Resource,
    victim: pb::Resource,
}

fn label() -> pb::Resource {
    let data = v1::RecordLabel { name: "label".to_owned(), ..Default::default() };
    Resource::new(pb::Tenancy::new("default", ""), "label", data).encode()
}

fn executive() -> pb::Resource {
    let data = v1::Executive { position: "boss".to_owned() };
    Resource::new(pb::Tenancy::new("", ""), "executive", data).encode()
}

impl Stored {
    async fn new(address: &str, management: &str) -> Self {
        let client = client(address, management);
        let put = async |resource| client.write(resource).await.unwrap();
        let artist = put(demo::artist("korn").encode()).await;
        put(demo::album("issues", artist.id.as_ref().unwrap()).encode()).await;
        let stored = Self {
            artist,
            label: put(label()).await,
            executive: put(executive()).await,
            victim: put(demo::artist("victim").encode()).await,
        };
        // What a token made that was here before.
        let of_before = demo::artist("fresh").encode().id;
        client.delete(pb::DeleteRequest { id: of_before, version: String::new() }).await.unwrap();
        stored
    }
}

/// What a resource is, without what each store chooses by itself.
fn shown(resource: &pb::Resource) -> String {
    let id = resource.id.as_ref().unwrap();
    let data = resource.data.as_ref().map(|data| &data.value);
    format!("{:?} {} {} {data:?}", id.r#type, id.name, id.partition())
}

fn all(resources: &[pb::Resource]) -> String {
    resources.iter().map(shown).collect::<Vec<_>>().join("; ")
}

fn told(result: Result<String, RpcError>) -> String {
    result.unwrap_or_else(|error| format!("{:?}: {}", error.code(), error.message()))
}

fn id(resource: &pb::Resource) -> pb::Id {
    resource.id.clone().unwrap()
}

async fn writes(client: &GrpcClient, stored: &Stored) -> Answers {
    let mut answers = Answers::new();
    for (name, resource) in [
        ("an artist", demo::artist("korn").encode()),
        ("a new artist", demo::artist("fresh").encode()),
        ("an artist as it was read", stored.artist.clone()),
        (
            "an artist of an old version",
            pb::Resource { version: "1".into(), ..stored.artist.clone() },
        ),
        (
            "an artist without a name",
            Resource::new(demo::default_tenancy(), "x", v2::Artist::default()).encode(),
        ),
        ("a label", label()),
        ("an executive", executive()),
    ] {
        let written = client.write(resource.clone()).await.map(|stored| shown(&stored));
        answers.push((format!("Write of {name}"), told(written)));
        let tried = client.mutate_and_validate(resource).await.map(|stored| shown(&stored));
        answers.push((format!("MutateAndValidate of {name}"), told(tried)));
    }
    answers
}

pub(super) async fn over_grpc(address: &str, secret: &str, management: &str) -> Answers {
    let stored = Stored::new(address, management).await;
    let client = client(address, secret);
    let tombstone = pb::Type::new("internal", "v1", "Tombstone");
    let of_type = |ty: pb::Type, tenancy: pb::Tenancy| pb::ListRequest {
        r#type: Some(ty),
        tenancy: Some(tenancy),
        name_prefix: String::new(),
    };
    let mut answers = writes(&client, &stored).await;

    let missing = demo::artist("missing").encode();
    let dead = pb::Id::new(tombstone.clone(), demo::default_tenancy(), "x");
    for (name, id) in [
        ("an artist", id(&stored.artist)),
        ("a label", id(&stored.label)),
        ("an executive", id(&stored.executive)),
        ("what is missing", id(&missing)),
        ("a tombstone", dead.clone()),
    ] {
        let read = client.read(id).await.map(|found| shown(&found));
        answers.push((format!("Read of {name}"), told(read)));
    }
    let status = pb::Status {
        observed_generation: stored.artist.generation.clone(),
        ..pb::Status::default()
    };
    for (name, id) in [("an artist", id(&stored.artist)), ("what is missing", id(&missing))] {
        let request = pb::WriteStatusRequest {
            id: Some(pb::Id { uid: stored.artist.uid().to_owned(), ..id }),
            version: String::new(),
            key: "consul.io/test".to_owned(),
            status: Some(status.clone()),
        };
        let written = client.write_status(request).await.map(|stored| shown(&stored));
        answers.push((format!("WriteStatus of {name}"), told(written)));
    }
    for (name, ty, tenancy) in [
        ("artists", v2::Artist::resource_type(), demo::default_tenancy()),
        ("labels", v1::RecordLabel::resource_type(), pb::Tenancy::new("default", "")),
        ("executives", v1::Executive::resource_type(), pb::Tenancy::new("", "")),
    ] {
        let list = client.list(of_type(ty.clone(), tenancy.clone())).await;
        answers.push((format!("List of {name}"), told(list.map(|found| all(&found)))));
        let request = pb::WatchListRequest {
            r#type: Some(ty),
            tenancy: Some(tenancy),
            name_prefix: String::new(),
        };
        answers.push((format!("WatchList of {name}"), told(first(&client, request).await)));
    }
    let owned = client.list_by_owner(id(&stored.artist)).await.map(|found| all(&found));
    answers.push(("ListByOwner".to_owned(), told(owned)));
    for (name, id) in [
        ("what is missing", id(&missing)),
        ("an artist", id(&stored.victim)),
        ("an executive", id(&stored.executive)),
        ("a tombstone", dead),
    ] {
        let request = pb::DeleteRequest { id: Some(id), version: String::new() };
        let deleted = client.delete(request).await.map(|()| "deleted".to_owned());
        answers.push((format!("Delete of {name}"), told(deleted)));
    }
    answers
}

/// The first event of a watch.
async fn first(client: &GrpcClient, request: pb::WatchListRequest) -> Result<String, RpcError> {
    use resource_store::backend::WatchEvent;
    let mut events = client.watch_list(request).await?;
    Ok(match events.next().await {
        Some(event) => match event? {
            WatchEvent::Upsert(resource) => format!("upsert {}", shown(&resource)),
            WatchEvent::Delete(resource) => format!("delete {}", shown(&resource)),
            WatchEvent::EndOfSnapshot => "end of snapshot".to_owned(),
        },
        None => "the end".to_owned(),
    })
}

pub(super) async fn over_http(address: &str, secret: &str, management: &str) -> Answers {
    let place = "?partition=default&namespace=default";
    let artist = json!({ "data": { "name": "Korn" } });
    let call = async |secret: &str, method: &str, path: &str| {
        let url = format!("http://{address}/api/demo/{path}");
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = reqwest::Client::new().request(method.clone(), url);
        if !secret.is_empty() {
            request = request.header("x-consul-token", secret);
        }
        if method == reqwest::Method::PUT {
            request = request.json(&artist);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        // What is shown on success is compared by other tests.
        let text = if status.is_success() { String::new() } else { text };
        format!("{status} {}", text.trim_end())
    };
    for name in ["korn", "victim"] {
        let made = call(management, "PUT", &format!("v2/artist/{name}{place}")).await;
        assert!(made.starts_with("200"), "{made}");
    }
    call(management, "DELETE", &format!("v2/artist/fresh{place}")).await;
    let mut answers = Answers::new();
    for (method, path) in [
        ("GET", format!("v2/artist/korn{place}")),
        ("GET", format!("v2/artist/korn{place}&consistent")),
        ("GET", format!("v2/artist/missing{place}")),
        ("GET", format!("v2/artist{place}")),
        ("GET", "v1/executive".to_owned()),
        ("GET", "v1/executive/none".to_owned()),
        ("GET", "v1/recordlabel?partition=default".to_owned()),
        ("PUT", format!("v2/artist/korn{place}")),
        ("PUT", format!("v2/artist/fresh{place}")),
        ("PUT", format!("v2/artist/korn{place}&version=1")),
        ("DELETE", format!("v2/artist/victim{place}")),
        ("DELETE", format!("v2/artist/missing{place}")),
    ] {
        answers.push((format!("{method} {path}"), call(secret, method, &path).await));
    }
    answers
}
