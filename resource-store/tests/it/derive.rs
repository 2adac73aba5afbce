//! `#[derive(Resource)]`: structs of serde and messages of prost as data.

use std::{collections::BTreeMap, error::Error as _, sync::Arc};

use resource_store::{
    Api, ApiError, Code, HasStatus, LocalClient, Registry, Resource, ResourceClient as _,
    ResourceData as _, ResourceService, ResourceType as _, Scope, StaticTenancies, StatusReport,
    backend::memory::MemoryBackend,
    pb::{self, Any, Condition, condition::State},
    registry::HookError,
};
use serde::{Deserialize, Serialize};

/// A struct of serde with much in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Resource)]
#[resource(group = "music", version = "v1beta1", scope = "namespace", validate = "check")]
#[resource(status = "Availability")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Record {
    title: String,
    year_of_release: u32,
    #[serde(default)]
    rating: Option<f64>,
    #[serde(default)]
    tracks: Vec<Track>,
    #[serde(default)]
    credits: BTreeMap<String, String>,
    #[serde(default)]
    sold: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Track {
    Intermission,
    Song { name: String, seconds: u16 },
}

fn check(record: &Resource<Record>) -> Result<(), HookError> {
    if record.data.title.is_empty() { Err("record.title required".into()) } else { Ok(()) }
}

#[derive(Debug, PartialEq)]
enum Availability {
    InStock,
    SoldOut,
}

impl StatusReport for Availability {
    const KEY: &'static str = "shop";

    fn conditions(&self) -> Vec<Condition> {
        let state = if *self == Self::InStock { State::True } else { State::False };
        vec![Condition {
            r#type: "InStock".to_owned(),
            state: state.into(),
            ..Condition::default()
        }]
    }

    fn from_conditions(conditions: &[Condition]) -> Option<Self> {
        let stock = conditions.iter().find(|condition| condition.r#type == "InStock")?;
        match stock.state() {
            State::True => Some(Self::InStock),
            State::False => Some(Self::SoldOut),
            State::Unknown => None,
        }
    }
}

/// A message of prost, of another kind than its name.
#[derive(Clone, PartialEq, prost::Message, Resource)]
#[resource(group = "net", version = "v1", kind = "Listener", scope = "cluster")]
#[resource(message = "net.v1.Port", descriptors = "&descriptors()", validate = known_port)]
struct Port {
    #[prost(uint32, tag = "1")]
    number: u32,
}

fn descriptors() -> Vec<u8> {
    let text = "syntax = 'proto3'; package net.v1; message Port { uint32 number = 1; }";
    let file = protox::file::File::from_source("port.proto", text).unwrap();
    let file = vec![file.file_descriptor_proto().clone()];
    prost::Message::encode_to_vec(&prost_types::FileDescriptorSet { file })
}

fn known_port(port: &Resource<Port>) -> Result<(), HookError> {
    if port.data.number == 0 { Err("port.number required".into()) } else { Ok(()) }
}

fn client() -> LocalClient {
    let mut registry = Registry::new().unwrap();
    registry.register_type::<Record>().unwrap();
    registry.register_type::<Port>().unwrap();
    let service = ResourceService::builder(registry, Arc::new(MemoryBackend::new()))
        .tenancies(StaticTenancies::default());
    LocalClient::new(service.build())
}

fn record() -> Record {
    Record {
        title: "Issues".to_owned(),
        year_of_release: 1999,
        rating: Some(4.5),
        tracks: vec![Track::Song { name: "Dead".to_owned(), seconds: 72 }, Track::Intermission],
        credits: BTreeMap::from([("bass".to_owned(), "Fieldy".to_owned())]),
        sold: -(1 << 53),
    }
}

#[tokio::test]
async fn a_struct_of_serde_is_stored_and_read_as_it_is() {
    let client = client();
    let records = Api::<Record>::new(client.clone());
    let written = records.apply("issues", record()).await.unwrap();
    assert_eq!(written.id.r#type.as_ref().unwrap().to_string(), "music.v1beta1.Record");
    assert_eq!(written.data, record());
    assert_eq!(records.get("issues").await.unwrap().unwrap(), written);
    assert_eq!(records.list().await.unwrap(), std::slice::from_ref(&written));
    let again = records.apply("issues", record()).await.unwrap();
    assert_eq!(again.version, written.version, "nothing to write");

    // What others see of it is an object of the protocol's own.
    let raw = client.read(written.id.clone()).await.unwrap().data.unwrap();
    assert_eq!(raw.type_url, "type.googleapis.com/google.protobuf.Struct");
    let object = <prost_types::Struct as prost::Message>::decode(&*raw.value).unwrap();
    assert_eq!(object.fields.len(), 6);
    assert_eq!(
        object.fields["yearOfRelease"].kind,
        Some(prost_types::value::Kind::NumberValue(1999.0))
    );
}

#[tokio::test]
async fn data_that_serde_or_the_check_refuses_are_invalid() {
    let client = client();
    let records = Api::<Record>::new(client.clone());
    let error = records.apply("untitled", Record::default()).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::InvalidArgument));
    assert!(error.source().unwrap().to_string().contains("record.title required"), "{error:?}");

    let raw = |fields: &str| {
        let object: BTreeMap<String, serde_json::Value> = serde_json::from_str(fields).unwrap();
        let number = |value: serde_json::Value| match value {
            serde_json::Value::Number(number) => {
                prost_types::value::Kind::NumberValue(number.as_f64().unwrap())
            }
            other => prost_types::value::Kind::StringValue(other.as_str().unwrap().to_owned()),
        };
        let fields = object
            .into_iter()
            .map(|(name, value)| (name, prost_types::Value { kind: Some(number(value)) }))
            .collect();
        let value = prost::Message::encode_to_vec(&prost_types::Struct { fields });
        pb::Resource {
            id: Some(records.id("raw")),
            data: Some(Any {
                type_url: "type.googleapis.com/google.protobuf.Struct".to_owned(),
                value,
            }),
            ..pb::Resource::default()
        }
    };
    let cases = [
        (r#"{"title": "Issues", "yearOfRelease": "1999"}"#, "data.yearOfRelease: invalid type"),
        (r#"{"title": "Issues", "yearOfRelease": 1999.5}"#, "data.yearOfRelease: invalid type"),
        (r#"{"title": "Issues", "yearOfRelease": -1}"#, "data.yearOfRelease: invalid value"),
        (r#"{"title": "Issues"}"#, "missing field `yearOfRelease`"),
        (r#"{"title": "Issues", "yearOfRelease": 1, "size": 2}"#, "data.size: unknown field"),
    ];
    for (fields, expected) in cases {
        let error = client.write(raw(fields)).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains(expected), "{fields}: {error}");
        assert!(error.message().contains("music.v1beta1.Record"), "{error}");
    }
    client.write(raw(r#"{"title": "Issues", "yearOfRelease": 1999}"#)).await.unwrap();
}

#[tokio::test]
async fn a_number_that_would_change_is_not_sent() {
    let records = Api::<Record>::new(client());
    let much = Record { sold: (1 << 53) + 1, ..record() };
    let error = records.apply("issues", much).await.unwrap_err();
    assert!(matches!(error, ApiError::Encode { .. }), "{error:?}");
    assert_eq!(error.to_string(), "cannot encode music.v1beta1.Record/default.default/issues");
    let cause = error.source().unwrap().to_string();
    assert!(cause.contains("data.sold: 9007199254740993 is beyond 2^53"), "{cause}");
    assert_eq!(records.get("issues").await.unwrap(), None);
}

#[tokio::test]
async fn a_status_is_a_rust_type() {
    let records = Api::<Record>::new(client());
    let written = records.apply("issues", record()).await.unwrap();
    assert_eq!(written.reported(), None);
    assert!(!written.is_observed());
    let reported = records.report(&written, &Availability::SoldOut).await.unwrap();
    assert_eq!(reported.reported(), Some(Availability::SoldOut));
    assert!(reported.is_observed());
    let same = records.report(&reported, &Availability::SoldOut).await.unwrap();
    assert_eq!(same.version, reported.version, "nothing to write");
    let changed =
        records.apply("issues", Record { year_of_release: 2000, ..record() }).await.unwrap();
    assert_eq!(changed.reported(), Some(Availability::SoldOut));
    assert!(!changed.is_observed(), "of the generation before");
    assert_eq!(<Record as HasStatus>::Status::KEY, "shop");
}

#[tokio::test]
async fn a_message_of_prost_has_its_scope_and_its_check() {
    assert_eq!(Port::resource_type().to_string(), "net.v1.Listener");
    assert_eq!((Port::MESSAGE, Port::SCOPE), ("net.v1.Port", Scope::Cluster));
    let ports = Api::<Port>::new(client());
    let http = ports.apply("http", Port { number: 80 }).await.unwrap();
    assert_eq!(http.id.tenancy, Some(pb::Tenancy::default()), "it has neither unit");
    assert_eq!(ports.get("http").await.unwrap().unwrap().data.number, 80);
    let error = ports.apply("none", Port { number: 0 }).await.unwrap_err();
    assert!(error.source().unwrap().to_string().contains("port.number required"), "{error:?}");
    // Beside one of another scope, over the same client.
    let records = ports.of::<Record>().in_tenancy(pb::Tenancy::new("default", "default"));
    records.apply("issues", record()).await.unwrap();
    assert_eq!(records.of::<Port>().list().await.unwrap(), [http]);
}

#[test]
fn a_type_registers_once() {
    let mut registry = Registry::new().unwrap();
    registry.register_type::<Record>().unwrap();
    let twice = registry.register_type::<Record>().unwrap_err();
    assert_eq!(twice.to_string(), "resource type music.v1beta1.Record already registered");
    assert!(Record::registration().unwrap().json_schema().is_none());
}

#[cfg(feature = "schema")]
#[test]
fn a_type_may_say_how_its_data_look_in_json() {
    #[derive(
        Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema, Resource,
    )]
    #[resource(group = "music", version = "v1", scope = "partition", schema)]
    struct Label {
        /// The name on the sleeve.
        name: String,
        founded: Option<u16>,
    }

    let registration = Label::registration().unwrap();
    let schema = registration.json_schema().unwrap();
    assert_eq!(schema["properties"]["name"]["description"], "The name on the sleeve.");
    assert_eq!(schema["required"], serde_json::json!(["name"]));
    assert_eq!(registration.scope(), Scope::Partition);
}
