//! The crate's own checks of a configuration give upstream's texts; a JSON Schema of the same
//! tables proves that they accept and refuse the same documents.

use ecs_mesh_init::{
    Config, Error,
    config::{Generation, Violations},
};
use jsonschema::Validator;
use proptest::prelude::*;
use serde_json::{Value, json};

struct Subject {
    generation: Generation,
    validator: Validator,
    /// A document that has every key.
    full: Value,
}

fn subject(generation: Generation) -> Subject {
    let (schema, full) = match generation {
        Generation::Early => (
            include_str!("../data/config/early.schema.json"),
            include_str!("../data/config/early.json"),
        ),
        Generation::Current => (
            include_str!("../data/config/current.schema.json"),
            include_str!("../data/config/current.json"),
        ),
    };
    let schema: Value = serde_json::from_str(schema).unwrap();
    let validator = jsonschema::draft7::new(&schema).unwrap();
    Subject { generation, validator, full: serde_json::from_str(full).unwrap() }
}

impl Subject {
    fn violations(&self, document: &Value) -> Option<Violations> {
        match Config::parse_as(self.generation, &document.to_string()) {
            Err(Error::Config { violations }) => Some(violations),
            Ok(_) | Err(Error::Input { .. }) => None,
            Err(other) => panic!("{other}"),
        }
    }

    /// What the two say of a document, when they judge it differently.
    fn disagreement(&self, document: &Value) -> Option<String> {
        let ours = self.violations(document);
        let theirs: Vec<String> =
            self.validator.iter_errors(document).map(|error| error.to_string()).collect();
        let alike = ours.is_none() == theirs.is_empty();
        (!alike).then(|| format!("{document}\nours: {ours:?}\nthe schema's: {theirs:?}"))
    }

    fn agrees(&self, document: &Value) {
        assert_eq!(self.disagreement(document), None);
    }
}

const BOTH: [Generation; 2] = [Generation::Early, Generation::Current];

/// Every place of a document: the paths of its members and items.
fn places(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                places(value, &format!("{path}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                places(item, &format!("{path}/{at}"), found);
            }
        }
        _ => {}
    }
}

fn values() -> Vec<Value> {
    let large = 4_294_967_296_u64;
    vec![
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(1.5),
        json!(101),
        json!(70000),
        json!(large),
        json!(8080.0),
        json!(""),
        json!("x"),
        json!("Upper"),
        json!("-x"),
        json!("INFO"),
        json!("service"),
        json!("local"),
        json!("mesh-gateway"),
        json!([]),
        json!(["a"]),
        json!(["a", "a"]),
        json!([1, 1]),
        json!([null]),
        json!({}),
        json!({"unknown": 1}),
        json!({"a": "b"}),
        json!({"a": null}),
        json!({"mode": "x"}),
    ]
}

/// Removes a member, or adds an unknown one.
fn reshape(document: &mut Value, path: &str, add: bool) {
    if add {
        if let Some(Value::Object(members)) = document.pointer_mut(path) {
            members.insert("unknown".to_owned(), json!(1));
        }
    } else if let Some((parent, name)) = path.rsplit_once('/')
        && let Some(Value::Object(members)) = document.pointer_mut(parent)
    {
        members.remove(name);
    }
}

#[test]
fn the_full_documents_are_valid() {
    for generation in BOTH {
        let subject = subject(generation);
        assert!(subject.validator.is_valid(&subject.full), "{generation:?}");
        assert!(subject.violations(&subject.full).is_none(), "{generation:?}");
    }
}

#[test]
fn a_schema_that_differs_is_noticed() {
    let mut subject = subject(Generation::Current);
    let mut schema: Value =
        serde_json::from_str(include_str!("../data/config/current.schema.json")).unwrap();
    schema["properties"]["bootstrapDir"] = json!({"type": "string"});
    subject.validator = jsonschema::draft7::new(&schema).unwrap();
    let mut document = subject.full.clone();
    document["bootstrapDir"] = json!("");
    assert!(subject.disagreement(&document).is_some());
}

/// Each place with each value, without its member, and with an unknown one: all of them.
#[test]
fn one_change_is_judged_alike() {
    for generation in BOTH {
        let subject = subject(generation);
        let mut all = Vec::new();
        places(&subject.full, "", &mut all);
        let mut refused = 0;
        for path in &all {
            for value in values() {
                let mut document = subject.full.clone();
                *document.pointer_mut(path).unwrap() = value;
                subject.agrees(&document);
                refused += usize::from(!subject.validator.is_valid(&document));
            }
            for add in [false, true] {
                let mut document = subject.full.clone();
                reshape(&mut document, path, add);
                subject.agrees(&document);
            }
        }
        assert!(refused > all.len(), "the changes break something: {refused} of {}", all.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn several_changes_are_judged_alike(
        early in any::<bool>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..4_u8), 2..5),
    ) {
        let subject = subject(if early { Generation::Early } else { Generation::Current });
        let mut document = subject.full.clone();
        for (place, value, how) in changes {
            let mut all = Vec::new();
            places(&document, "", &mut all);
            let path = place.get(&all).clone();
            match how {
                0 => reshape(&mut document, &path, false),
                1 => reshape(&mut document, &path, true),
                _ => *document.pointer_mut(&path).unwrap() = value.get(&values()).clone(),
            }
        }
        subject.agrees(&document);
    }
}
