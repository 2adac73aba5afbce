//! Files in HCL: what they come to, and what is said of wrong ones.

use resource_store::{
    Resource,
    demo::v2::{Artist, Festival, Genre},
    pb::{Id, Tenancy, Type},
};

use super::{complaint, read};

const ARTIST: &str = "hashicorp.consul.internal.demo.v2.Artist";

fn korn() -> Id {
    let tenancy = Tenancy::new("default", "default");
    Id::new(Type::new("demo", "v2", "Artist"), tenancy, "korn")
}

#[test]
fn blocks_with_gvk_data_and_metadata() {
    let resource = read(
        r#"ID {
  Type = gvk("demo.v2.Artist")
  Name = "korn"
  Tenancy {
    Partition = "default"
    Namespace = "default"
  }
}
Data {
  Name  = "Korn"
  Genre = "GENRE_METAL"
  GroupMembers = { "Jonathan" = "vocals" }
}
Metadata = { "foo" = "bar" }
"#,
    )
    .unwrap();
    assert_eq!(resource.id, Some(korn()));
    assert_eq!(resource.metadata["foo"], "bar");
    assert_eq!(resource.data.as_ref().unwrap().type_url, ARTIST, "the bare name, as upstream");
    let artist = Resource::<Artist>::decode(&resource).unwrap().data;
    assert_eq!((artist.name.as_str(), artist.genre()), ("Korn", Genre::Metal));
    assert_eq!(artist.group_members["Jonathan"], "vocals");
}

#[test]
fn attributes_with_data_first() {
    let resource = read(
        r#"Data = { Name = "Korn", Genre = "GENRE_METAL" }
ID = {
  Type = gvk("demo.v2.Artist")
  Name = "korn"
  Tenancy = { Partition = "default", Namespace = "default" }
}"#,
    )
    .unwrap();
    assert_eq!(resource.id, Some(korn()));
    assert_eq!(Resource::<Artist>::decode(&resource).unwrap().data.genre(), Genre::Metal);
}

#[test]
fn a_type_may_be_a_block() {
    let resource = read(
        r#"Data { Name = "Korn" }
ID {
  Type {
    Group        = "demo"
    GroupVersion = "v2"
    Kind         = "Artist"
  }
  Name = "korn"
}"#,
    )
    .unwrap();
    assert_eq!(resource.resource_type(), Some(&Type::new("demo", "v2", "Artist")));
}

#[test]
fn an_owner_and_no_data() {
    let resource = read(
        r#"ID {
  Type = gvk("demo.v2.Album")
  Name = "issues"
}
Version = "7"
Owner {
  Type = gvk("demo.v2.Artist")
  Name = "korn"
  UID  = null
}"#,
    );
    let unknown = "f:9,3-6: Unsupported argument; An argument named \"UID\" is not expected here.";
    assert_eq!(resource.unwrap_err().to_string(), unknown, "it is Uid: four names are upper case");
    let resource = read(
        "ID {\n  Type = gvk(\"demo.v2.Album\")\n  Name = \"issues\"\n}\nVersion = \"7\"\n\
         Owner {\n  Type = gvk(\"demo.v2.Artist\")\n  Name = \"korn\"\n  Uid = null\n}",
    )
    .unwrap();
    assert_eq!((resource.version.as_str(), &resource.data), ("7", &None));
    assert_eq!(resource.owner.unwrap().name, "korn");
}

#[test]
fn repeated_messages_as_blocks_and_as_lists() {
    let id = "ID {\n  Type = gvk(\"demo.v2.Festival\")\n  Name = \"f\"\n}\n";
    let blocks = "Data {\n  Genres = [\"GENRE_JAZZ\", \"GENRE_FOLK\"]\n  \
        Artists {\n    Name = \"a\"\n    GroupMembers = { x = \"y\" }\n  }\n  Artists { Name = \"b\" }\n}\n";
    let list = "Data = {\n  Genres = [\"GENRE_JAZZ\", \"GENRE_FOLK\"]\n  \
        Artists = [{ Name = \"a\", GroupMembers = { x = \"y\" } }, { Name = \"b\" }]\n}\n";
    let festival = |data: &str| {
        let resource = read(&format!("{id}{data}")).unwrap();
        Resource::<Festival>::decode(&resource).unwrap().data
    };
    assert_eq!(festival(blocks), festival(list));
    let names: Vec<_> = festival(list).artists.into_iter().map(|artist| artist.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(
        complaint(&format!("{id}Data {{\n  Artists \"a\" {{ Name = \"a\" }}\n}}")),
        "f:6,3-10: repeated protobuf fields must not have HCL block labels"
    );
    assert_eq!(
        complaint(&format!(
            "{id}Data = {{\n  Artists = [{{ Name = \"a\" }}, {{ Nome = \"a\" }}]\n}}"
        )),
        "f:5,8-7,2: Unsupported argument; An argument named \"Nome\" is not expected here."
    );
}

/// Golden cases of the specification: file and complaint.
#[test]
fn wrong_files_say_where_and_why() {
    for (text, expected) in [
        (
            "ID {\n  Type = gvk()\n}",
            "f:2,14-15: Not enough function arguments; Function \"gvk\" expects 1 argument(s). \
             Missing value for \"GVK String\".",
        ),
        (
            "ID {\n  Type = gvk(\"nope\")\n}",
            "f:2,10-14: Error in function call; Call to function \"gvk\" failed: GVK string must be \
             in the form <Group>.<GroupVersion>.<Kind>, got: nope.",
        ),
        (
            "ID {\n Type {\n    Group = 1234\n }\n}",
            "f:3,13-17: Failed to unmarshal argument Group: expected value of type string but actual \
             type is number",
        ),
        (
            "ID {\n  Type = gvk(\"demo.v2.Artist\")\n  Name = \"korn\"\n}\n\nMetadata = {\n  \
             \"foo\" = [\"bar\"]\n}",
            "f:6,12-8,2: Failed to unmarshal argument Metadata[\"foo\"]: expected value of type string \
             but actual type is tuple",
        ),
        (
            "ID {\n  Foo = \"bar\"\n}",
            "f:2,3-6: Unsupported argument; An argument named \"Foo\" is not expected here.",
        ),
        (
            "ID = {\n  Foo = \"bar\"\n}",
            "f:1,6-3,2: Unsupported argument; An argument named \"Foo\" is not expected here.",
        ),
    ] {
        assert_eq!(complaint(text), expected, "{text}");
    }
}

#[test]
fn types_of_data_have_to_be_known() {
    let data = "Data { Name = \"Korn\" }\n";
    assert_eq!(
        complaint(&format!("{data}ID {{\n  Type = gvk(\"a.v1.B\")\n}}")),
        "f:1,1-5: error getting type for Any field: unknown resource type: a.v1.B"
    );
    assert_eq!(complaint(data), "f:1,1-5: error getting type for Any field: ID.Type is nil");
    assert_eq!(
        complaint("Data = { Name = \"Korn\" }"),
        "f:1,8-25: error getting type for Any field: ID.Type is nil"
    );
}

#[test]
fn other_mistakes() {
    let with_data = |data: &str| {
        let id = "ID {\n  Type = gvk(\"demo.v2.Artist\")\n}\n";
        complaint(&format!("{id}Data {{\n  {data}\n}}"))
    };
    for (data, expected) in [
        (
            "Genre = \"GENRE_NOISE\"",
            "f:5,11-24: Failed to unmarshal argument Genre: unknown value \
          \"GENRE_NOISE\" of hashicorp.consul.internal.demo.v2.Genre",
        ),
        (
            "Genre = 4",
            "f:5,11-12: Failed to unmarshal argument Genre: expected value of type string \
          but actual type is number",
        ),
        (
            "Name = true",
            "f:5,10-14: Failed to unmarshal argument Name: expected value of type string \
          but actual type is bool",
        ),
        ("Name = who", "f:5,10-13: Variables not allowed; Variables may not be used here."),
        ("Name = var.who", "f:5,10-17: Variables not allowed; Variables may not be used here."),
        (
            "Name = upper(\"x\")",
            "f:5,10-15: Call to unknown function; There is no function named \
          \"upper\"; the only one is gvk.",
        ),
        (
            "Name = gvk(\"a.b.c\", 1)",
            "f:5,23-24: Too many function arguments; Function \"gvk\" expects \
          only 1 argument(s).",
        ),
        (
            "Name = gvk(1)",
            "f:5,14-15: Invalid function argument; Invalid value for \"GVK String\" \
          parameter: string required.",
        ),
        (
            "Name = 1 + 2",
            "f:5,10-15: Unsupported expression; Only literals and \
          gvk(\"group.version.Kind\") may be used here.",
        ),
        (
            "GroupMembers { a = \"b\" }",
            "f:5,3-15: Unsupported block type; Blocks of type \
          \"GroupMembers\" are not expected here. Did you mean to define argument \"GroupMembers\"? If \
          so, use the equals sign to assign it a value.",
        ),
        (
            "GroupMembers = [\"a\"]",
            "f:5,18-23: Failed to unmarshal argument GroupMembers: expected \
          value of type object but actual type is tuple",
        ),
        (
            "GroupMembers = { a = null }",
            "f:5,18-30: Failed to unmarshal argument GroupMembers[\"a\"]: \
          expected value of type string but actual type is null",
        ),
    ] {
        assert_eq!(with_data(data), expected, "{data}");
    }
    assert!(with_data("Name = \"a ${b}\"").contains("A string may not hold ${…} or %{…} here"));
    assert_eq!(
        complaint("ID {}\nID {}"),
        "f:2,1-3: only one HCL block may be specified for a non-repeated protobuf Message"
    );
    assert_eq!(
        complaint("ID = {}\nID {}"),
        "f:2,1-3: only one HCL block may be specified for a non-repeated protobuf Message"
    );
    assert_eq!(
        complaint("ID \"x\" {}"),
        "f:1,1-3: Extraneous label for ID; No labels are expected for ID blocks."
    );
    assert_eq!(
        complaint("D {}"),
        "f:1,1-2: Unsupported block type; Blocks of type \"D\" are not expected here."
    );
}

#[test]
fn text_that_is_no_hcl_says_where() {
    assert!(complaint("ID {\n  Name = \n}").starts_with("f:2,10: "));
    assert!(complaint("= 1").starts_with("f:1,1: "));
    let error = resource_store::file::read_resource(
        "korn.hcl",
        b"ID {\n  Name = \"\xff\"\n}",
        &crate::support::demo_registry(),
    );
    assert_eq!(error.unwrap_err().to_string(), "korn.hcl:2,11: the file is not UTF-8 text");
}

#[test]
fn strings_may_be_heredocs_and_escape_templates() {
    let resource = read(
        "ID {\n  Type = gvk(\"demo.v2.Artist\")\n}\nData {\n  Name = <<-END\n    two\n    lines\n  END\n  \
         GroupMembers = { a = \"$${b}\", \"c d\" = (\"e\") }\n}",
    )
    .unwrap();
    let artist = Resource::<Artist>::decode(&resource).unwrap().data;
    assert_eq!(artist.name, "two\nlines\n");
    assert_eq!(artist.group_members["a"], "${b}");
    assert_eq!(artist.group_members["c d"], "e");
}
