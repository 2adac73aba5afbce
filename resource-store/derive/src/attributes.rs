//! Reading `#[resource(…)]`.

use proc_macro2::Span;
use quote::ToTokens;
use syn::{
    DeriveInput, Error, Expr, LitStr, Path, Result, Token, Type,
    meta::ParseNestedMeta,
    parse::{Parse, ParseStream},
    spanned::Spanned as _,
};

/// The attributes that there are, for who misspells one.
const KNOWN: &str = "`group`, `version`, `kind`, `scope`, `validate`, `status`, `schema`, \
                     `message`, `descriptors` or `crate`";

/// The content of the attributes.
pub(crate) struct Attributes {
    pub(crate) group: LitStr,
    pub(crate) version: LitStr,
    pub(crate) kind: LitStr,
    pub(crate) scope: Scope,
    /// A function that checks a resource.
    pub(crate) validate: Option<Path>,
    pub(crate) status: Option<Type>,
    /// The place of `schema`, if it is there.
    pub(crate) schema: Option<Span>,
    pub(crate) form: Form,
    /// The path of `resource_store`.
    pub(crate) library: Path,
}

/// The form in which the data are stored.
pub(crate) enum Form {
    /// The object that serde makes of them.
    Serde,
    /// A message that prost encodes.
    Message {
        /// The full name of the message.
        name: LitStr,
        /// The bytes of a set of descriptors that describes it.
        descriptors: Box<Expr>,
    },
}

/// The variant of `resource_store::Scope`, and the place where it was given.
pub(crate) struct Scope {
    pub(crate) variant: &'static str,
    pub(crate) span: Span,
}

impl Scope {
    fn parse(text: &LitStr) -> Result<Self> {
        let variant = match text.value().as_str() {
            "cluster" => "Cluster",
            "partition" => "Partition",
            "namespace" => "Namespace",
            other => {
                let text_of_error = format!(
                    "unknown scope {other:?}; expected \"cluster\", \"partition\" or \"namespace\""
                );
                return Err(Error::new(text.span(), text_of_error));
            }
        };
        Ok(Self { variant, span: text.span() })
    }
}

/// Code, as it is or within quotes.
struct Code<T>(T);

impl<T: Parse> Parse for Code<T> {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(LitStr) && (input.peek2(Token![,]) || input.peek2(syn::parse::End)) {
            return input.parse::<LitStr>()?.parse().map(Self);
        }
        input.parse().map(Self)
    }
}

/// The attributes that were read so far.
#[derive(Default)]
struct Given {
    group: Option<LitStr>,
    version: Option<LitStr>,
    kind: Option<LitStr>,
    scope: Option<Scope>,
    validate: Option<Path>,
    status: Option<Type>,
    schema: Option<Span>,
    message: Option<LitStr>,
    descriptors: Option<Expr>,
    library: Option<Path>,
}

impl Given {
    fn take(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let key = meta.path.to_token_stream().to_string();
        match key.as_str() {
            "group" => set(&mut self.group, meta, text(meta)?),
            "version" => set(&mut self.version, meta, text(meta)?),
            "kind" => set(&mut self.kind, meta, text(meta)?),
            "scope" => set(&mut self.scope, meta, Scope::parse(&text(meta)?)?),
            "validate" => set(&mut self.validate, meta, code(meta)?),
            "status" => set(&mut self.status, meta, code(meta)?),
            "schema" => set(&mut self.schema, meta, meta.path.span()),
            "message" => set(&mut self.message, meta, text(meta)?),
            "descriptors" => set(&mut self.descriptors, meta, code(meta)?),
            "crate" => set(&mut self.library, meta, code(meta)?),
            other => Err(meta.error(format!("unknown attribute `{other}`; expected {KNOWN}"))),
        }
    }

    fn form(message: Option<LitStr>, descriptors: Option<Expr>) -> Result<Form> {
        match (message, descriptors) {
            (None, None) => Ok(Form::Serde),
            (Some(name), Some(descriptors)) => {
                Ok(Form::Message { name, descriptors: Box::new(descriptors) })
            }
            (Some(name), None) => Err(Error::new(
                name.span(),
                "`message` needs `descriptors` beside it: the bytes of an encoded \
                 `FileDescriptorSet` that describes the message",
            )),
            (None, Some(descriptors)) => Err(Error::new(
                descriptors.span(),
                "`descriptors` needs `message` beside it: the full name of the protobuf message",
            )),
        }
    }
}

fn set<T>(place: &mut Option<T>, meta: &ParseNestedMeta<'_>, value: T) -> Result<()> {
    if place.is_some() {
        let key = meta.path.to_token_stream();
        return Err(meta.error(format!("`{key}` is given twice")));
    }
    *place = Some(value);
    Ok(())
}

/// Reads a text, which must not be empty.
fn text(meta: &ParseNestedMeta<'_>) -> Result<LitStr> {
    let text: LitStr = meta.value()?.parse()?;
    if text.value().is_empty() {
        return Err(Error::new(text.span(), "must not be empty"));
    }
    Ok(text)
}

fn code<T: Parse>(meta: &ParseNestedMeta<'_>) -> Result<T> {
    Ok(meta.value()?.parse::<Code<T>>()?.0)
}

/// Reads the attributes of a struct.
///
/// # Errors
///
/// At the attribute that is wrong, or at the name of the struct where one is missing.
pub(crate) fn read(input: &DeriveInput) -> Result<Attributes> {
    let mut given = Given::default();
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("resource")) {
        attribute.parse_nested_meta(|meta| given.take(&meta))?;
    }
    let missing = |what: &str| {
        let text = format!("missing `{what}` in `#[resource(…)]`");
        Error::new(input.ident.span(), text)
    };
    let form = Given::form(given.message, given.descriptors)?;
    let name = || LitStr::new(&input.ident.to_string(), input.ident.span());
    Ok(Attributes {
        group: given.group.ok_or_else(|| missing("group = \"…\""))?,
        version: given.version.ok_or_else(|| missing("version = \"…\""))?,
        kind: given.kind.unwrap_or_else(name),
        scope: given
            .scope
            .ok_or_else(|| missing("scope = \"cluster\", \"partition\" or \"namespace\""))?,
        validate: given.validate,
        status: given.status,
        schema: given.schema,
        form,
        library: given.library.unwrap_or_else(|| syn::parse_quote!(::resource_store)),
    })
}
