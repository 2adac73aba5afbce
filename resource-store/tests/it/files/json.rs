//! Files in JSON: what they come to, and what is said of wrong ones.

use resource_store::{JsonCodec, ResourceData as _, demo, demo::v2::Artist};

use super::{complaint, read};

#[test]
fn what_a_server_shows_reads_back() {
    let mut resource = demo::artist("korn").encode();
    resource.owner = Some(demo::artist("owner").id.with_uid("01HQ0000000000000000000000"));
    resource.version = "7".to_owned();
    resource.generation = "01HQ0000000000000000000000".to_owned();
    resource.metadata.insert("foo".to_owned(), "bar".to_owned());
    resource.status.insert("c".to_owned(), resource_store::pb::Status::default());
    let schema = Artist::schema().unwrap();
    let mut value = JsonCodec::new().unwrap().resource(&resource, &schema).unwrap();
    assert_eq!(read(&serde_json::to_string_pretty(&value).unwrap()).unwrap(), resource);
    value["data"]["@type"] = schema.type_url().into();
    assert_eq!(read(&value.to_string()).unwrap(), resource);
    value["data"]["@type"] = "type.googleapis.com/hashicorp.consul.internal.demo.v2.Album".into();
    let error = read(&value.to_string()).unwrap_err();
    assert!(error.message().contains("not hashicorp.consul.internal.demo.v2.Artist"), "{error}");
}

#[test]
fn lists_of_messages_and_no_data() {
    let festival = r#"
        {"id": {"name": "f", "type": {"group": "demo", "group_version": "v2", "kind": "Festival"}},
         "data": {"genres": ["GENRE_JAZZ"], "artists": [{"name": "a"}, {"name": "b"}]}}"#;
    let festival = read(festival).unwrap();
    let data = resource_store::decode_data::<demo::v2::Festival>(&festival).unwrap();
    assert_eq!(data.artists.len(), 2);
    let bare =
        r#"{"id": {"name": "f", "type": {"group": "a", "groupVersion": "v1", "kind": "B"}}}"#;
    assert_eq!(read(bare).unwrap().data, None);
}

#[test]
fn wrong_files_say_where_and_why() {
    let artist =
        r#""id": {"name": "k", "type": {"group": "demo", "groupVersion": "v2", "kind": "Artist"}}"#;
    for (text, expected) in [
        ("{}".to_owned(), "f: \"id\" field need to be provided".to_owned()),
        ("{\"data\": {}}".to_owned(), "f: \"id\" field need to be provided".to_owned()),
        (
            "{\n  \"id\": {\"name\": \"k\"},\n  \"data\": {}\n}".to_owned(),
            "f:3,11-13: \"id.type\" field need to be provided".to_owned(),
        ),
        (
            "{\"id\": {\"type\": {\"group\": \"a\", \"groupVersion\": \"v1\", \"kind\": \"B\"}},\n\"data\": {}}"
                .to_owned(),
            "f:2,9-11: unknown resource type: a.v1.B".to_owned(),
        ),
        (
            "{\"id\": {\"type\": \"\"}}".to_owned(),
            "f:1,18: invalid type: string \"\", expected a map".to_owned(),
        ),
        (
            format!("{{\n{artist},\n\"data\": {{\n  \"nome\": \"x\"}}}}"),
            "f:4,8: unrecognized field name 'nome'".to_owned(),
        ),
        (format!("{{{artist},\n\"data\": []}}"), "f:2,9-11: not a JSON object".to_owned()),
        (
            format!("{{{artist}, \"dada\": {{}}}}"),
            String::new(),
        ),
        ("{\"id\": {},\n".to_owned(), "f:2,1: EOF while parsing a value".to_owned()),
        ("{\"id\": {}} {".to_owned(), "f:1,12: trailing characters".to_owned()),
    ] {
        let found = complaint(&text);
        if expected.is_empty() {
            assert!(found.contains("unknown field `dada`, expected one of `id`"), "{found}");
        } else {
            assert_eq!(found, expected, "{text}");
        }
    }
}
