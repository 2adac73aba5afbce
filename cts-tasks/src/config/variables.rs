//! Input variables of a task, its own and those of variable files.

use std::{collections::BTreeMap, fs, ops::Range, path::Path, sync::Arc};

use hcl_edit::{Span as _, structure::Structure};

use super::{
    decode::{Findings, Spanned},
    environment::Environment,
    files,
    raw::RawTask,
};
use crate::{Diagnostic, Literal, Place, Source};

/// The task's input variables: those of `variables`, then those of each file
/// of `variable_files`; the last value of a name counts.
pub(super) fn finalize(
    raw: &RawTask,
    environment: &Environment,
    findings: &mut Findings,
) -> BTreeMap<String, Literal> {
    let mut variables = BTreeMap::new();
    for (name, expression) in raw.variables.iter().flat_map(|map| &map.entries) {
        match expression.value.parse::<Literal>() {
            Ok(literal) => {
                variables.insert(name.clone(), literal);
            }
            Err(error) => findings.error_help(
                format!("variable {name:?}: {error}"),
                expression.place.clone(),
                "a string needs quotes within the quotes: \"\\\"text\\\"\"",
            ),
        }
    }
    for file in raw.variable_files.iter().flat_map(|files| &files.items) {
        match read(file, environment) {
            Ok(read) => variables.extend(read),
            Err(errors) => findings.errors.extend(errors),
        }
    }
    variables
}

fn read(
    file: &Spanned<String>,
    environment: &Environment,
) -> Result<BTreeMap<String, Literal>, Vec<Diagnostic>> {
    let path = environment.resolve(&file.value);
    let bytes = fs::read(&path).map_err(|error| {
        let message = format!("unable to read variable file {}: {error}", path.display());
        vec![
            Diagnostic::error(message)
                .at(file.place.clone())
                .help("relative paths start at the working directory of this process"),
        ]
    })?;
    let source = files::text(Path::new(&file.value), bytes).map_err(|error| vec![error])?;
    parse(&source)
}

/// Reads a `.tfvars` file: assignments of literal values.
///
/// # Errors
///
/// Every place that is anything else.
pub(super) fn parse(source: &Arc<Source>) -> Result<BTreeMap<String, Literal>, Vec<Diagnostic>> {
    let place = |range: Range<usize>| Place::new(Arc::clone(source), range).of_variables();
    let body = hcl_edit::parser::parse_body(&source.text).map_err(|error| {
        let offset = error.location().offset();
        let message = format!("not a list of variables: {}", error.message());
        vec![
            Diagnostic::error(message)
                .at(place(offset..offset + 1))
                .help("a variable file holds name = value, one on a line"),
        ]
    })?;
    let mut variables = BTreeMap::new();
    let mut errors = Vec::new();
    for structure in &body {
        let at = structure.span().map(place);
        match structure {
            Structure::Attribute(attribute) => {
                let name = attribute.key.as_str();
                match Literal::from_expression(&attribute.value) {
                    Ok(literal) => {
                        variables.insert(name.to_owned(), literal);
                    }
                    Err(error) => errors.push(
                        Diagnostic::error(format!("variable {name:?}: {error}"))
                            .at(error.span().map(place).or(at))
                            .help("only literal values are allowed: no variables, functions or templates"),
                    ),
                }
            }
            Structure::Block(block) => errors.push(
                Diagnostic::error(format!("unexpected block {:?}", block.ident.as_str()))
                    .at(at)
                    .help("a variable file holds name = value, without blocks"),
            ),
        }
    }
    if errors.is_empty() { Ok(variables) } else { Err(errors) }
}
