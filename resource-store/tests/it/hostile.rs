//! Whatever comes in, there is an answer, and never a panic.

use proptest::{collection, option, prelude::*, sample::select};
use resource_store::{
    Code, JsonCodec, ResourceData as _,
    demo::{self, v1, v2},
    pb::{self, Any, Condition, Id, Reference, Resource, Status, Tenancy, Type},
};

use crate::support::*;

/// Names that are fine, nearly fine, or hostile.
fn word() -> BoxedStrategy<String> {
    prop_oneof![
        4 => select(vec!["", "default", "korn", "a-b", "*", "consul.io/x"]).prop_map(str::to_owned),
        1 => Just("a".repeat(64)),
        1 => Just("x\0y".to_owned()),
        2 => ".{0,70}",
        1 => "[A-Za-z0-9._/ -]{0,12}",
    ]
    .boxed()
}

fn ty() -> impl Strategy<Value = Type> {
    let known = [
        v1::Executive::resource_type(),
        v1::RecordLabel::resource_type(),
        v1::Artist::resource_type(),
        v2::Artist::resource_type(),
        v2::Festival::resource_type(),
        resource_store::registry::tombstone_type(),
    ];
    prop_oneof![
        4 => select(known.to_vec()),
        1 => (word(), word(), word()).prop_map(|(g, v, k)| Type::new(&g, &v, &k)),
    ]
}

fn tenancy() -> impl Strategy<Value = Tenancy> {
    (word(), word()).prop_map(|(partition, namespace)| Tenancy { partition, namespace })
}

fn id() -> BoxedStrategy<Id> {
    (word(), word(), option::weighted(0.9, ty()), option::weighted(0.8, tenancy()))
        .prop_map(|(uid, name, r#type, tenancy)| Id { uid, name, r#type, tenancy })
        .boxed()
}

fn data() -> impl Strategy<Value = Any> {
    let urls = vec![
        "type.googleapis.com/hashicorp.consul.internal.demo.v2.Artist",
        "hashicorp.consul.internal.demo.v2.Artist",
        "type.googleapis.com/hashicorp.consul.internal.demo.v2.Festival",
        "",
    ];
    let url = prop_oneof![select(urls).prop_map(str::to_owned), word()];
    let valid = Just(demo::artist("korn").encode().data.unwrap().value);
    let value = prop_oneof![valid, collection::vec(any::<u8>(), 0..64)];
    (url, value).prop_map(|(type_url, value)| Any { type_url, value })
}

fn status() -> BoxedStrategy<Status> {
    let reference = (option::of(ty()), option::of(tenancy()), word(), word())
        .prop_map(|(r#type, tenancy, name, section)| Reference { r#type, tenancy, name, section });
    let condition =
        (word(), any::<i32>(), option::of(reference)).prop_map(|(r#type, state, resource)| {
            Condition { r#type, state, resource, ..Condition::default() }
        });
    let generation = prop_oneof![Just("01ARZ3NDEKTSV4RRFFQ69G5FAV".to_owned()), word()];
    (generation, collection::vec(condition, 0..3))
        .prop_map(|(observed_generation, conditions)| Status {
            observed_generation,
            conditions,
            updated_at: None,
        })
        .boxed()
}

fn resource() -> BoxedStrategy<Resource> {
    let metadata = collection::btree_map(
        prop_oneof![
            select(vec!["deletionTimestamp", "finalizers"]).prop_map(str::to_owned),
            word()
        ],
        word(),
        0..3,
    );
    let statuses = collection::btree_map(word(), status(), 0..2);
    (
        option::weighted(0.95, id()),
        option::weighted(0.2, id()),
        word(),
        metadata,
        statuses,
        option::of(data()),
    )
        .prop_map(|(id, owner, version, metadata, status, data)| Resource {
            id,
            owner,
            version,
            generation: String::new(),
            metadata,
            status,
            data,
        })
        .boxed()
}

/// A failure of the request, not of the service.
fn assert_blames_the_caller<T>(result: Result<T, resource_store::RpcError>) {
    if let Err(error) = result {
        let hook = error.message().starts_with("failed mutate hook")
            || error.message().starts_with("failed read: resource was requested with GroupVersion");
        assert!(hook || error.code() != Code::Internal, "{error}");
        assert!(!error.message().is_empty());
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_gets_an_answer(
        first in resource(), second in resource(), wanted in id(), status in option::of(status()),
        r#type in option::of(ty()), tenancy in option::of(tenancy()), prefix in word(),
        version in word(), key in word(),
    ) {
        block_on(async {
            let (service, at) = (service(), &anonymous());
            assert_blames_the_caller(service.put(artist("korn")).await);
            assert_blames_the_caller(service.put(first.clone()).await);
            assert_blames_the_caller(service.dry_run(first).await);
            assert_blames_the_caller(service.put(second).await);
            assert_blames_the_caller(service.get(&wanted).await);
            assert_blames_the_caller(service.children(&wanted).await);
            let request = pb::WriteStatusRequest { id: Some(wanted.clone()), version: version.clone(), key, status };
            assert_blames_the_caller(service.write_status(at, request).await);
            let list = pb::ListRequest { r#type: r#type.clone(), tenancy: tenancy.clone(), name_prefix: prefix.clone() };
            assert_blames_the_caller(service.list(at, list).await);
            let watch = pb::WatchListRequest { r#type, tenancy, name_prefix: prefix };
            assert_blames_the_caller(service.watch_list(at, watch).await);
            assert_blames_the_caller(service.remove(&wanted, &version).await);
        });
    }

    #[test]
    fn any_bytes_decode_or_fail(bytes in collection::vec(any::<u8>(), 0..200)) {
        use resource_store::prost::Message as _;
        if let Ok(resource) = Resource::decode(bytes.as_slice()) {
            let codec = JsonCodec::new().unwrap();
            drop(codec.resource(&resource, &v2::Artist::schema().unwrap()));
            block_on(async { assert_blames_the_caller(service().put(resource).await) });
        }
        drop(v2::Festival::decode_data(&bytes));
    }

    #[test]
    fn mutated_json_reads_or_fails(place in 0_usize..400, byte in any::<u8>(), cut in 0_usize..400) {
        let codec = JsonCodec::new().unwrap();
        let schema = || v2::Artist::schema().unwrap();
        let value = codec.resource(&demo::artist("korn").encode(), &schema()).unwrap();
        let mut bytes = serde_json::to_vec(&value).unwrap();
        let length = bytes.len();
        bytes[place % length] = byte;
        bytes.truncate(length - cut % length);
        if let Ok(value) = serde_json::from_slice(&bytes) {
            drop(codec.read_resource(&value, |_| Some(schema())));
            drop(codec.read_id(&value));
        }
    }
}

#[cfg(feature = "http")]
mod over_http {
    use axum::{
        Router,
        body::{Body, to_bytes},
        http::{Method, Request, StatusCode},
    };
    use resource_store::http::HttpApi;
    use tower::ServiceExt as _;

    use super::*;

    /// Text as a segment of a path or a part of a query may carry it.
    fn encoded(text: &str) -> String {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    }

    /// Paths that name a resource or a list, nearly do, or do not.
    fn path() -> impl Strategy<Value = String> {
        let fixed = select(vec!["demo", "v2", "v1", "artist", "concept", "korn", "", ".", "%ff"]);
        let segment = prop_oneof![
            4 => fixed.prop_map(str::to_owned),
            1 => word().prop_map(|text| encoded(&text)),
        ];
        let begun = select(vec!["/api/demo/v2/artist", "/api/demo/v2/festival", "/api"]);
        (begun, collection::vec(segment, 0..4))
            .prop_map(|(begun, rest)| rest.iter().fold(begun.to_owned(), |path, s| path + "/" + s))
    }

    fn query() -> impl Strategy<Value = String> {
        let key = select(vec![
            "partition",
            "namespace",
            "ns",
            "version",
            "name_prefix",
            "consistent",
            "token",
            "%",
        ]);
        let pair = (key, word()).prop_map(|(key, value)| format!("{key}={}", encoded(&value)));
        collection::vec(pair, 0..4).prop_map(|pairs| pairs.join("&"))
    }

    /// Bodies that are fine, nearly fine, or bytes.
    fn body() -> impl Strategy<Value = Vec<u8>> {
        let pieces = select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "null",
            "1e999",
            "\"data\"",
            "\"owner\"",
            "\"metadata\"",
            "\"name\"",
            "\"finalizers\"",
            "\"@type\"",
            "\"\\ud800\"",
            "{\"data\": {}}",
        ]);
        let valid = r#"{"metadata": {"a": "b"}, "data": {"name": "x", "genre": "GENRE_JAZZ"}}"#;
        prop_oneof![
            2 => Just(valid.as_bytes().to_vec()),
            2 => collection::vec(pieces, 0..12).prop_map(|pieces| pieces.concat().into_bytes()),
            1 => collection::vec(any::<u8>(), 0..64),
            1 => (0..valid.len(), any::<u8>()).prop_map(|(place, byte)| {
                let mut bytes = valid.as_bytes().to_vec();
                bytes[place] = byte;
                bytes
            }),
        ]
    }

    async fn answer(router: &Router, request: Request<Body>) -> (StatusCode, Vec<u8>) {
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        (status, to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_request_gets_an_answer(
            method in select(vec![Method::GET, Method::PUT, Method::DELETE, Method::POST]),
            path in path(), query in query(), body in body(),
        ) {
            block_on(async {
                let service = service();
                service.put(artist("korn")).await.unwrap();
                let router = HttpApi::new(service).unwrap().into_router();
                let uri = format!("{path}?{query}");
                let request = Request::builder().method(method).uri(&uri).body(Body::from(body));
                let (status, body) = answer(&router, request.unwrap()).await;
                let text = String::from_utf8(body).unwrap();
                let known = match status.as_u16() {
                    200 => serde_json::from_str::<serde_json::Value>(&text).is_ok(),
                    204 | 307 | 405 if text.is_empty() => true,
                    404 if text.starts_with("404 page not found") => true,
                    400 if text.starts_with("Request body ") => true,
                    // A version that is named and refused: 409; a uid cannot be named.
                    400 | 404 | 409 => text.starts_with("rpc error: code = "),
                    _ => false,
                };
                assert!(known, "{uri}: {status} {text}");
            });
        }
    }
}
