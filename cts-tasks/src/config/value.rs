use crate::Place;

/// A raw value of a configuration file, with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigValue {
    /// What it is.
    pub kind: ValueKind,
    /// Where it stands; `None` when it comes from elsewhere (the environment, an API).
    pub place: Option<Place>,
}

/// What a [`ConfigValue`] is.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueKind {
    /// `null`, in JSON.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as its decimal text.
    Number(crate::Number),
    /// A string.
    String(String),
    /// A list.
    List(Vec<ConfigValue>),
    /// A block's body or an object: entries in the order of the file. A key may
    /// stand more than once, as blocks do.
    Object(Vec<Entry>),
}

/// One entry of an object or a block's body.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key stands.
    pub key_place: Option<Place>,
    /// Labels between the key and the body of a block.
    pub labels: Vec<String>,
    /// Whether it is a block (`key { … }`) and not an attribute (`key = …`).
    pub block: bool,
    /// The value.
    pub value: ConfigValue,
}
