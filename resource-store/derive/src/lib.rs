//! `#[derive(Resource)]` of `resource-store`, which re-exports it with its feature
//! `derive` and documents it there.

#![forbid(unsafe_code)]

mod attributes;
mod expand;

use proc_macro::TokenStream;

/// Makes a struct the data of a resource type: implements `ResourceData` and
/// `ResourceType`, and `HasStatus` where a status is named.
///
/// The documentation of `resource_store::Resource` shows its use and its attributes.
#[proc_macro_derive(Resource, attributes(resource))]
pub fn derive_resource(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
