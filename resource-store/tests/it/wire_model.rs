//! The messages, numbers and options of the wire, as clients of Consul have
//! them. A change of anything here breaks them.

use prost_reflect::{
    DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor,
    ReflectMessage as _, Value,
};
use resource_store::pb::FILE_DESCRIPTOR_SET;

const RESOURCE: &str = "
Type: 1 group string, 2 group_version string, 3 kind string
Tenancy: 1 partition string, 2 namespace string
ID: 1 uid string, 2 name string, 3 type Type, 4 tenancy Tenancy
Resource: 1 id ID, 2 owner ID, 3 version string, 4 generation string, \
5 metadata map<string, string>, 6 status map<string, Status>, 7 data google.protobuf.Any
Status: 1 observed_generation string, 2 conditions repeated Condition, \
3 updated_at google.protobuf.Timestamp
Condition: 1 type string, 2 state Condition.State, 3 reason string, 4 message string, \
5 resource Reference
Reference: 1 type Type, 2 tenancy Tenancy, 3 name string, 4 section string
Tombstone: 1 owner ID
ReadRequest: 1 id ID
ReadResponse: 1 resource Resource
ListRequest: 1 type Type, 2 tenancy Tenancy, 3 name_prefix string
ListResponse: 1 resources repeated Resource
ListByOwnerRequest: 1 owner ID
ListByOwnerResponse: 1 resources repeated Resource
WriteRequest: 1 resource Resource
WriteResponse: 1 resource Resource
WriteStatusRequest: 1 id ID, 2 version string, 3 key string, 4 status Status
WriteStatusResponse: 1 resource Resource
DeleteRequest: 1 id ID, 2 version string
DeleteResponse:
WatchListRequest: 1 type Type, 2 tenancy Tenancy, 3 name_prefix string
WatchEvent: 1 upsert WatchEvent.Upsert of event, 2 delete WatchEvent.Delete of event, \
3 end_of_snapshot WatchEvent.EndOfSnapshot of event
WatchEvent.Upsert: 1 resource Resource
WatchEvent.Delete: 1 resource Resource
WatchEvent.EndOfSnapshot:
MutateAndValidateRequest: 1 resource Resource
MutateAndValidateResponse: 1 resource Resource
";

const DEMO_V1: &str = "
Executive: 1 position string
RecordLabel: 1 name string, 2 description string
Artist: 1 name string, 2 description string, 3 genre Genre, 4 group_members int32
Album: 1 name string, 2 year_of_release int32, 3 critically_acclaimed bool, 4 tracks repeated string
Concept:
";

/// `critically_aclaimed` is misspelt upstream, and so in the JSON of clients.
const DEMO_V2: &str = "
Artist: 1 name string, 2 genre Genre, 3 group_members map<string, string>
Album: 1 title string, 2 year_of_release int32, 3 critically_aclaimed bool, 4 tracks repeated string
Festival: 1 name string, 2 genres repeated Genre, 3 artists repeated Artist, \
4 bound_references repeated hashicorp.consul.resource.Reference
";

fn pool() -> DescriptorPool {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap()
}

/// A name as the messages of a package write it.
fn local<'a>(name: &'a str, package: &str) -> &'a str {
    name.strip_prefix(package).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name)
}

fn kind(kind: &Kind, package: &str) -> String {
    match kind {
        Kind::Message(message) => local(message.full_name(), package).to_owned(),
        Kind::Enum(choice) => local(choice.full_name(), package).to_owned(),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

fn field(field: &FieldDescriptor, package: &str) -> String {
    let own = field.kind();
    let ty = match own.as_message().filter(|_| field.is_map()) {
        Some(entry) => format!(
            "map<{}, {}>",
            kind(&entry.map_entry_key_field().kind(), package),
            kind(&entry.map_entry_value_field().kind(), package)
        ),
        None if field.is_list() => format!("repeated {}", kind(&own, package)),
        None => kind(&own, package),
    };
    let oneof = field.containing_oneof().map(|o| format!(" of {}", o.name())).unwrap_or_default();
    format!("{} {} {ty}{oneof}", field.number(), field.name())
}

fn message(message: &MessageDescriptor, package: &str) -> String {
    let mut fields: Vec<_> = message.fields().collect();
    fields.sort_by_key(FieldDescriptor::number);
    let fields: Vec<_> = fields.iter().map(|f| field(f, package)).collect();
    format!("{}: {}", local(message.full_name(), package), fields.join(", ")).trim_end().to_owned()
}

fn assert_messages(package: &str, expected: &str, left_out: &[&str]) {
    let pool = pool();
    let found = pool.all_messages().filter(|m| m.package_name() == package && !m.is_map_entry());
    let mut found: Vec<_> = found.map(|m| message(&m, package)).collect();
    found.retain(|line| !left_out.iter().any(|name| line.starts_with(&format!("{name}:"))));
    let mut expected: Vec<_> = expected.trim().lines().collect();
    found.sort();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn messages_have_their_fields() {
    // What options are made of is asked for below.
    assert_messages("hashicorp.consul.resource", RESOURCE, &["ResourceTypeSpec"]);
    assert_messages("hashicorp.consul.internal.demo.v1", DEMO_V1, &[]);
    assert_messages("hashicorp.consul.internal.demo.v2", DEMO_V2, &[]);
    let tenancy = pool().get_message_by_name("hashicorp.consul.resource.Tenancy").unwrap();
    assert!(tenancy.reserved_ranges().any(|range| range.contains(&3)), "once the peer's name");
}

fn values(choice: &EnumDescriptor, prefix: &str) -> Vec<(i32, String)> {
    let own = |name: &str| name.strip_prefix(prefix).unwrap().to_owned();
    choice.values().map(|value| (value.number(), own(value.name()))).collect()
}

fn assert_values(name: &str, prefix: &str, expected: &str) {
    let found = values(&pool().get_enum_by_name(name).unwrap(), prefix);
    let expected: Vec<_> = expected.split(' ').map(str::to_owned).collect();
    assert_eq!(found, (0..).zip(expected).collect::<Vec<_>>(), "{name}");
}

#[test]
fn enums_have_their_numbers() {
    let genres =
        "UNSPECIFIED JAZZ FOLK POP METAL PUNK BLUES R_AND_B COUNTRY DISCO SKA HIP_HOP INDIE";
    let demo = "hashicorp.consul.internal.demo";
    assert_values(&format!("{demo}.v1.Genre"), "GENRE_", genres);
    assert_values(&format!("{demo}.v2.Genre"), "GENRE_", &format!("{genres} ROCK"));
    let resource = "hashicorp.consul.resource";
    assert_values(&format!("{resource}.Condition.State"), "STATE_", "UNKNOWN TRUE FALSE");
    assert_values(&format!("{resource}.Scope"), "SCOPE_", "UNDEFINED CLUSTER PARTITION NAMESPACE");
    let limit = "hashicorp.consul.internal.ratelimit";
    assert_values(
        &format!("{limit}.OperationType"),
        "OPERATION_TYPE_",
        "UNSPECIFIED EXEMPT READ WRITE",
    );
    assert_values(
        &format!("{limit}.OperationCategory"),
        "OPERATION_CATEGORY_",
        "UNSPECIFIED ACL PEER_STREAM CONNECT_CA PARTITION PEERING SERVER_DISCOVERY DATAPLANE DNS \
         SUBSCRIBE OPERATOR RESOURCE CONFIGENTRY",
    );
}

/// The number of an option's extension, and the names of the enum values in it.
fn option(options: &DynamicMessage, extension: &str, fields: &[&str]) -> (u32, Vec<String>) {
    let extension = pool().get_extension_by_name(extension).unwrap();
    let value = options.get_extension(&extension);
    let message = value.as_message().unwrap();
    let names = fields.iter().map(|name| {
        let field = message.descriptor().get_field_by_name(name).unwrap();
        let Value::EnumNumber(number) = *message.get_field(&field) else { panic!("no enum") };
        field.kind().as_enum().unwrap().get_value(number).unwrap().name().to_owned()
    });
    (extension.number(), names.collect())
}

#[test]
fn methods_have_their_messages_and_limits() {
    let pool = pool();
    let service = pool.get_service_by_name("hashicorp.consul.resource.ResourceService").unwrap();
    let found: Vec<_> = service
        .methods()
        .map(|method| {
            let extension = "hashicorp.consul.internal.ratelimit.spec";
            let fields = ["operation_type", "operation_category"];
            let (number, limit) = option(&method.options(), extension, &fields);
            assert_eq!((number, limit[1].as_str()), (8300, "OPERATION_CATEGORY_RESOURCE"));
            assert!(!method.is_client_streaming());
            let (input, output) = (method.input(), method.output());
            let stream = if method.is_server_streaming() { "stream " } else { "" };
            let (name, limit) = (method.name(), &limit[0]);
            format!("{name}({}) -> {stream}{} {limit}", input.name(), output.name())
        })
        .collect();
    let expected = [
        "Read(ReadRequest) -> ReadResponse OPERATION_TYPE_READ",
        "Write(WriteRequest) -> WriteResponse OPERATION_TYPE_WRITE",
        "WriteStatus(WriteStatusRequest) -> WriteStatusResponse OPERATION_TYPE_WRITE",
        "List(ListRequest) -> ListResponse OPERATION_TYPE_READ",
        "ListByOwner(ListByOwnerRequest) -> ListByOwnerResponse OPERATION_TYPE_READ",
        "Delete(DeleteRequest) -> DeleteResponse OPERATION_TYPE_WRITE",
        "WatchList(WatchListRequest) -> stream WatchEvent OPERATION_TYPE_READ",
        "MutateAndValidate(MutateAndValidateRequest) -> MutateAndValidateResponse \
         OPERATION_TYPE_READ",
    ];
    assert_eq!(found, expected);
}

#[test]
fn data_messages_say_their_scope() {
    let pool = pool();
    for (name, scope) in [
        ("hashicorp.consul.resource.Tombstone", "SCOPE_UNDEFINED"),
        ("hashicorp.consul.internal.demo.v1.Executive", "SCOPE_CLUSTER"),
        ("hashicorp.consul.internal.demo.v1.RecordLabel", "SCOPE_PARTITION"),
        ("hashicorp.consul.internal.demo.v1.Artist", "SCOPE_NAMESPACE"),
        ("hashicorp.consul.internal.demo.v1.Album", "SCOPE_NAMESPACE"),
        ("hashicorp.consul.internal.demo.v1.Concept", "SCOPE_NAMESPACE"),
        ("hashicorp.consul.internal.demo.v2.Artist", "SCOPE_NAMESPACE"),
        ("hashicorp.consul.internal.demo.v2.Album", "SCOPE_NAMESPACE"),
        ("hashicorp.consul.internal.demo.v2.Festival", "SCOPE_NAMESPACE"),
    ] {
        let options = pool.get_message_by_name(name).unwrap().options();
        let found = option(&options, "hashicorp.consul.resource.spec", &["scope"]);
        assert_eq!(found, (8500, vec![scope.to_owned()]), "{name}");
    }
}
