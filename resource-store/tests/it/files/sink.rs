//! Every kind of field, in HCL.

use prost_reflect::{DescriptorPool, DynamicMessage};
use resource_store::{Registration, Registry, Schema, Scope, pb::Type};
use serde_json::{Value, json};

use super::read_with;

fn descriptors() -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    let set = protox::compile(["sink.proto"], [folder]).unwrap();
    prost::Message::encode_to_vec(&set)
}

fn registry() -> Registry {
    let mut registry = Registry::new().unwrap();
    let schema = Schema::from_descriptor_set(&descriptors(), "test.sink.Sink").unwrap();
    let ty = Type::new("test", "v1", "Sink");
    registry.register(Registration::new(ty, schema, Scope::Cluster)).unwrap();
    registry
}

fn file(data: &str) -> String {
    format!("ID {{\n  Type = gvk(\"test.v1.Sink\")\n}}\nData {{\n  {data}\n}}")
}

/// The data in proto3 JSON.
fn read(data: &str) -> Value {
    let resource = read_with(&file(data), &registry()).unwrap();
    let pool = DescriptorPool::decode(descriptors().as_slice()).unwrap();
    let sink = pool.get_message_by_name("test.sink.Sink").unwrap();
    let value = resource.data.unwrap().value;
    serde_json::to_value(DynamicMessage::decode(sink, value.as_slice()).unwrap()).unwrap()
}

fn complaint(data: &str) -> String {
    read_with(&file(data), &registry()).unwrap_err().to_string()
}

#[test]
fn numbers_are_exact_and_in_range() {
    assert_eq!(
        read("Flag = true\n  Small = -2147483648\n  Large = 18446744073709551615\n  Single = 1.5"),
        json!({"flag": true, "small": i32::MIN, "large": u64::MAX.to_string(), "single": 1.5})
    );
    assert_eq!(
        read("Small = 1e3\n  Precise = 3\n  Wide = -9223372036854775808"),
        json!({
            "small": 1000, "precise": 3.0, "wide": i64::MIN.to_string()
        })
    );
    let range = "value must be a whole number, between -2147483648 and 2147483647 inclusive";
    for small in ["2147483648", "1.5", "-1e30"] {
        assert!(complaint(&format!("Small = {small}")).ends_with(range), "{small}");
    }
    assert!(complaint("Large = -1").contains("between 0 and 18446744073709551615"));
    assert!(complaint("Single = 1e300").contains("out of range"));
    assert!(
        complaint("Flag = 1").contains("expected value of type bool but actual type is number")
    );
    assert!(
        complaint("Small = \"1\"")
            .contains("expected value of type number but actual type is string")
    );
}

#[test]
fn bytes_are_base64() {
    assert_eq!(read("Raw = \"aGVsbG8=\""), json!({"raw": "aGVsbG8="}));
    assert!(complaint("Raw = \"!\"").contains("bytes are written in base64"));
}

#[test]
fn well_known_messages_are_attributes() {
    let value = read(
        "Duration = \"1m30s\"\n  Time = \"2024-02-27T01:02:03.5+01:00\"\n  Text = \"\"\n  Number = 7\n  \
         Struct = { a = [1, null, { b = true }], c = \"d\" }\n  Empty {}",
    );
    assert_eq!(
        value,
        json!({
            "duration": "90s", "time": "2024-02-27T00:02:03.500Z", "text": "", "number": 7,
            "struct": {"a": [1.0, null, {"b": true}], "c": "d"}, "empty": {}
        })
    );
    assert_eq!(read("Empty = {}"), json!({"empty": {}}));
    assert!(complaint("Duration = \"90\"").contains("\"90\" is no duration, such as 1m30s"));
    assert!(complaint("Time = \"noon\"").contains("\"noon\" is no time in RFC 3339"));
    assert!(complaint("Time {}").contains("Did you mean to define argument \"Time\"?"));
    assert!(complaint("Number = \"7\"").contains("expected value of type number"));
    assert!(complaint("Struct = 1").contains("Failed to unmarshal argument Struct: "));
}

#[test]
fn null_leaves_a_field_unset() {
    assert_eq!(read("Flag = null\n  Leaf = null\n  Text = null\n  Words = null"), json!({}));
}

#[test]
fn maps_of_messages_take_labels() {
    let blocks = read("Leaves \"a\" { Name = \"x\" }\n  Leaves \"b\" {}");
    assert_eq!(blocks, json!({"leaves": {"a": {"name": "x"}, "b": {}}}));
    assert_eq!(read("Leaves = { a = { Name = \"x\" }, b = {} }"), blocks);
    let labels = "f:5,3-9: protobuf map fields must have 1 HCL block label";
    assert_eq!(complaint("Leaves { Name = \"x\" }"), labels);
    assert_eq!(complaint("Leaves \"a\" \"b\" { Name = \"x\" }"), labels);
    assert!(complaint("Numbered = { 1 = \"a\" }").contains("Invalid key; A key must be a string"));
    assert!(
        complaint("Numbered = { a = \"a\" }").contains("only be written with strings for keys")
    );
    assert_eq!(
        complaint("Leaves = { a = { Name = [] } }"),
        "f:5,12-33: Failed to unmarshal argument Leaves[\"a\"].Name: expected value of type string \
         but actual type is tuple"
    );
}

#[test]
fn lists_take_their_items_in_order() {
    assert_eq!(read("Words = [\"a\", \"b\"]"), json!({"words": ["a", "b"]}));
    assert_eq!(
        complaint("Words = [\"a\", 1]"),
        "f:5,11-19: Failed to unmarshal argument Words[1]: expected value of type string but actual \
         type is number"
    );
    assert_eq!(
        complaint("Words = \"a\""),
        "f:5,11-14: Failed to unmarshal argument Words: expected value of type list but actual type \
         is string"
    );
}

#[test]
fn a_nested_any_names_its_message() {
    let leaf = json!({"any": {"@type": "test.sink.Leaf", "name": "x"}});
    let named = read_any("Any {\n    Name = \"x\"\n    Type = \"test.sink.Leaf\"\n  }");
    assert_eq!(named, leaf);
    let object = read_any("Any = { Type = \"type.googleapis.com/test.sink.Leaf\", Name = \"x\" }");
    assert_eq!(object, leaf);
    assert_eq!(
        complaint("Any { Name = \"x\" }"),
        "f:5,3-6: error getting type for Any field: a nested Any needs Type = \"<full name of its message>\""
    );
    assert_eq!(
        complaint("Any = { Type = \"a.B\" }"),
        "f:5,9-25: error getting type for Any field: unknown message: a.B"
    );
}

/// Like [`read`], where the URL of the `Any` is shown as it is stored.
fn read_any(data: &str) -> Value {
    let resource = read_with(&file(data), &registry()).unwrap();
    let pool = DescriptorPool::decode(descriptors().as_slice()).unwrap();
    let message = |name: &str, bytes: &[u8]| {
        DynamicMessage::decode(pool.get_message_by_name(name).unwrap(), bytes).unwrap()
    };
    let sink = message("test.sink.Sink", &resource.data.unwrap().value);
    let any = sink.get_field_by_name("any").unwrap();
    let any = any.as_message().unwrap();
    let url = any.get_field_by_number(1).unwrap().as_str().unwrap().to_owned();
    let value = any.get_field_by_number(2).unwrap().as_bytes().unwrap().clone();
    let mut inner = serde_json::to_value(message(&url, &value)).unwrap();
    inner["@type"] = json!(url);
    json!({"any": inner})
}

#[test]
fn one_of_several_is_chosen() {
    assert_eq!(read("One = \"a\""), json!({"one": "a"}));
    assert_eq!(
        complaint("One = \"a\"\n  Other { Name = \"b\" }"),
        "f:6,3-8: Cannot set \"Other\" because \"One\" was previously set. Only one of \"One\" and \
         \"Other\" may be set."
    );
    assert_eq!(
        complaint("Other {}\n  One = \"a\""),
        "f:6,3-6: Cannot set \"One\" because \"Other\" was previously set. Only one of \"Other\" and \
         \"One\" may be set."
    );
}

#[test]
fn abbreviations_are_upper_case() {
    assert_eq!(read("TCP { Name = \"x\" }"), json!({"tcp": {"name": "x"}}));
    assert!(complaint("Tcp {}").contains("Blocks of type \"Tcp\" are not expected here"));
}

#[test]
fn nesting_ends_somewhere() {
    let deep = |levels: usize| {
        let open = "Leaf = { Inner = ".to_owned() + &"{ Inner = ".repeat(levels);
        file(&format!("{open}null{}", " }".repeat(levels + 1)))
    };
    assert!(read_with(&deep(40), &registry()).is_ok());
    assert!(read_with(&deep(100_000), &registry()).is_err());
    let blocks = "Leaf {\n".to_owned() + &"Inner {\n".repeat(100_000);
    assert!(read_with(&file(&blocks), &registry()).is_err());
    let json = |levels: usize| {
        let id = r#""id": {"type": {"group": "test", "groupVersion": "v1", "kind": "Sink"}}"#;
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!(r#"{{{id}, "data": {{"struct": {{"a": {open}{close}}}}}}}"#)
    };
    assert!(read_with(&json(40), &registry()).is_ok());
    let error = read_with(&json(100_000), &registry()).unwrap_err();
    assert!(error.message().contains("recursion limit exceeded"), "{error}");
}
