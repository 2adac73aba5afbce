//! Writing the implementations.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Data, DeriveInput, Error, Fields, LitStr, Result, spanned::Spanned as _};

use crate::attributes::{self, Attributes, Form};

/// Writes what the derive stands for.
///
/// # Errors
///
/// If the attributes are wrong, or the type is no struct with named fields.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    check_struct(input)?;
    let attributes = attributes::read(input)?;
    let checks = type_checks(&attributes);
    let data = data(&input.ident, &attributes);
    let resource_type = resource_type(&input.ident, &attributes);
    let status = status(&input.ident, &attributes);
    Ok(quote!(#checks #data #resource_type #status))
}

fn check_struct(input: &DeriveInput) -> Result<()> {
    let refused = |span, text| Err(Error::new(span, text));
    match &input.data {
        Data::Struct(data) if matches!(data.fields, Fields::Named(_)) => {}
        _ => {
            let text = "the data of a resource is a struct with named fields";
            return refused(input.ident.span(), text);
        }
    }
    if !input.generics.params.is_empty() {
        let text = "a resource type has one Rust type, without parameters";
        return refused(input.generics.span(), text);
    }
    Ok(())
}

/// Has the compiler check the parts of the type by the rules of the registry, so that they
/// stand in one place.
fn type_checks(attributes: &Attributes) -> TokenStream {
    let library = &attributes.library;
    let check = |part: &LitStr, rule: &str, text: &str| {
        let rule = Ident::new(rule, Span::call_site());
        quote_spanned!(part.span()=>
            const _: () = ::core::assert!(#library::derived::#rule(#part), #text);
        )
    };
    let group = check(&attributes.group, "is_valid_group", "`group` must be in snake_case");
    let version = check(
        &attributes.version,
        "is_valid_group_version",
        "`version` must be lowercase, start with `v`, and end with a number, as `v2` or `v2beta1`",
    );
    let kind = check(&attributes.kind, "is_valid_kind", "`kind` must be in PascalCase");
    quote!(#group #version #kind)
}

fn data(name: &Ident, attributes: &Attributes) -> TokenStream {
    let Attributes { group, version, kind, scope, library, .. } = attributes;
    let scope = Ident::new(scope.variant, scope.span);
    let (message, schema, encode, decode) = match &attributes.form {
        Form::Serde => (
            quote!(#library::derived::STRUCT),
            quote!(::core::result::Result::Ok(#library::derived::schema())),
            quote!(#library::derived::encode::<Self>(self)),
            quote!(#library::derived::decode::<Self>(bytes)),
        ),
        Form::Message { name: message, descriptors } => (
            quote!(#message),
            quote!(#library::Schema::from_descriptor_set(#descriptors, #message)),
            quote!(::core::result::Result::Ok(#library::prost::Message::encode_to_vec(self))),
            quote!(#library::derived::decode_message::<Self>(bytes)),
        ),
    };
    quote! {
        #[automatically_derived]
        impl #library::ResourceData for #name {
            const MESSAGE: &'static str = #message;
            const SCOPE: #library::Scope = #library::Scope::#scope;

            fn resource_type() -> #library::pb::Type {
                #library::pb::Type::new(#group, #version, #kind)
            }

            fn schema() -> ::core::result::Result<#library::Schema, #library::SchemaError> {
                #schema
            }

            fn encode_data(
                &self,
            ) -> ::core::result::Result<::std::vec::Vec<u8>, #library::DataError> {
                #encode
            }

            fn decode_data(bytes: &[u8]) -> ::core::result::Result<Self, #library::DataError> {
                #decode
            }
        }
    }
}

fn resource_type(name: &Ident, attributes: &Attributes) -> TokenStream {
    let library = &attributes.library;
    let base = match attributes.form {
        Form::Serde => quote!(#library::derived::registration::<Self>()?),
        Form::Message { .. } => quote!(#library::Registration::of::<Self>(
            <Self as #library::ResourceData>::SCOPE,
        )?),
    };
    let validate = attributes
        .validate
        .as_ref()
        .map(|path| quote_spanned!(path.span()=> .validate_decoded::<Self>(#path)));
    let schema = attributes.schema.map(
        |span| quote_spanned!(span=> .with_json_schema(#library::derived::json_schema::<Self>())),
    );
    quote! {
        #[automatically_derived]
        impl #library::ResourceType for #name {
            fn registration() -> ::core::result::Result<
                #library::Registration,
                #library::SchemaError,
            > {
                let registration = #base;
                ::core::result::Result::Ok(registration #validate #schema)
            }
        }
    }
}

fn status(name: &Ident, attributes: &Attributes) -> Option<TokenStream> {
    let (library, status) = (&attributes.library, attributes.status.as_ref()?);
    Some(quote! {
        #[automatically_derived]
        impl #library::HasStatus for #name {
            type Status = #status;
        }
    })
}

#[cfg(test)]
mod tests {
    use proc_macro2::LineColumn;

    use super::*;

    /// Expands a struct with these attributes.
    fn of(attributes: &str) -> Result<String> {
        let text = format!("#[resource({attributes})]\nstruct Album {{ title: String }}");
        expand(&syn::parse_str(&text)?).map(|tokens| tokens.to_string())
    }

    /// Returns what is marked as wrong, and why.
    #[track_caller]
    fn refused(attributes: &str) -> (String, String) {
        let error = of(attributes).unwrap_err();
        (error.span().source_text().unwrap_or_default(), error.to_string())
    }

    const SOUND: &str = r#"group = "demo", version = "v1", scope = "namespace""#;

    #[test]
    fn the_kind_is_the_name_of_the_struct_unless_given() {
        assert!(of(SOUND).unwrap().contains(r#"Type :: new ("demo" , "v1" , "Album")"#));
        let named = of(&format!(r#"{SOUND}, kind = "Record""#)).unwrap();
        assert!(named.contains(r#"Type :: new ("demo" , "v1" , "Record")"#), "{named}");
    }

    #[test]
    fn paths_are_taken_with_quotes_and_without() {
        let bare = of(&format!("{SOUND}, validate = checks::album, status = State")).unwrap();
        let quoted =
            of(&format!(r#"{SOUND}, validate = "checks::album", status = "State""#)).unwrap();
        assert_eq!(bare, quoted);
        assert!(bare.contains("validate_decoded :: < Self > (checks :: album)"), "{bare}");
        assert!(bare.contains("type Status = State"), "{bare}");
    }

    #[test]
    fn a_fault_is_shown_at_the_attribute_that_has_it() {
        let cases = [
            (r#"group = "demo", size = 3"#, "size", "unknown attribute `size`; expected `group`"),
            (r#"group = "a", group = "b""#, "group", "`group` is given twice"),
            (r#"group = """#, r#""""#, "must not be empty"),
            ("group = 3", "3", "expected string literal"),
            (
                r#"scope = "global""#,
                r#""global""#,
                "unknown scope \"global\"; expected \"cluster\"",
            ),
            (r#"validate = "no path""#, r#""no path""#, "unexpected token"),
            (r#"message = "a.B""#, r#""a.B""#, "`message` needs `descriptors`"),
            ("descriptors = &BYTES", "&", "`descriptors` needs `message`"),
        ];
        for (attributes, place, text) in cases {
            let (at, said) = refused(attributes);
            assert!(
                at.starts_with(place) && said.starts_with(text),
                "{attributes}: {at:?}: {said}"
            );
        }
    }

    #[test]
    fn what_is_missing_is_named_at_the_struct() {
        let cases = [
            (r#"version = "v1", scope = "cluster""#, "group"),
            (r#"group = "demo", scope = "cluster""#, "version"),
            (r#"group = "demo", version = "v1""#, "scope"),
        ];
        for (attributes, missing) in cases {
            let (at, said) = refused(attributes);
            assert_eq!(at, "Album");
            assert!(said.starts_with(&format!("missing `{missing} = ")), "{said}");
        }
    }

    #[test]
    fn only_structs_with_named_fields_and_without_parameters_are_data() {
        for (text, column) in [
            ("enum Album { One }", 5),
            ("struct Album;", 7),
            ("struct Album(String);", 7),
            ("struct Album<T> { title: T }", 12),
        ] {
            let error = expand(&syn::parse_str(text).unwrap()).unwrap_err();
            assert_eq!(error.span().start(), LineColumn { line: 1, column }, "{text}: {error}");
        }
    }
}
