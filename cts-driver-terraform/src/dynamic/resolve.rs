//! Replaces the templates in provider blocks by their values.

use std::collections::BTreeSet;

use cts_tasks::{Literal, ProviderBlock, Task, config::find_provider};
use futures::future::try_join_all;
use secrecy::{ExposeSecret as _, SecretString};

use super::{Reference, ValueSource, Values, template::Template};
use crate::{Error, Result};

/// The blocks with every template replaced by its value; all blocks are looked
/// up at the same time.
///
/// # Errors
///
/// [`Error::Invalid`] for what is no template, and those of the source.
pub async fn resolve(
    blocks: &[ProviderBlock],
    source: &dyn ValueSource,
) -> Result<Vec<ProviderBlock>> {
    try_join_all(blocks.iter().map(|block| resolve_block(block, source))).await
}

async fn resolve_block(block: &ProviderBlock, source: &dyn ValueSource) -> Result<ProviderBlock> {
    Error::unless_empty(problems(block))?;
    let wanted = references(block);
    if wanted.is_empty() {
        return Ok(block.clone());
    }
    let values = source.look_up(&wanted).await.map_err(|error| error.of_provider(&block.id()))?;
    let mut block = block.clone();
    for value in block.arguments.values_mut() {
        fill(value, &values);
    }
    for value in block.task_env.values_mut() {
        if let Some(Ok(template)) = Template::parse(value.expose_secret()) {
            *value = SecretString::from(template.fill(&values));
        }
    }
    Ok(block)
}

/// The task with every template in its `env` replaced by its value.
///
/// # Errors
///
/// As [`resolve`], and [`Error::Invalid`] for a value that no variable can have.
pub async fn resolve_env(task: &Task, source: &dyn ValueSource) -> Result<Task> {
    Error::unless_empty(env_problems(task))?;
    let templates = task.env.iter().filter_map(|(name, value)| {
        let template = Template::parse(value.expose_secret())?.ok()?;
        Some((name.to_owned(), template))
    });
    let templates: Vec<_> = templates.collect();
    let mut task = task.clone();
    let wanted: BTreeSet<_> = templates.iter().flat_map(|(_, it)| it.references()).collect();
    if wanted.is_empty() {
        return Ok(task);
    }
    let values = source.look_up(&wanted).await?;
    for (name, template) in templates {
        let set = task.env.set(name, template.fill(&values));
        set.map_err(|error| Error::invalid(error.to_string()))?;
    }
    Ok(task)
}

/// Waits until a value that the task uses, in its providers among `blocks` or in its `env`, is
/// another one than it was; see [`ValueSource::changed`].
///
/// # Cancel safety
///
/// Dropping the future ends the wait, and nothing else.
pub async fn changed(task: &Task, blocks: &[ProviderBlock], source: &dyn ValueSource) {
    let used = task.providers.iter().filter_map(|id| find_provider(blocks, id));
    let mut wanted: BTreeSet<Reference> = used.flat_map(references).collect();
    let env = task.env.iter().filter_map(|(_, value)| {
        let template = Template::parse(value.expose_secret())?.ok()?;
        Some(template.references())
    });
    wanted.extend(env.flatten());
    if wanted.is_empty() {
        std::future::pending::<()>().await;
    }
    source.changed(&wanted).await;
}

/// Returns the mistakes in the templates of a task's `env`.
pub(crate) fn env_problems(task: &Task) -> Vec<String> {
    let each = task.env.iter().filter_map(|(name, value)| {
        let problem = Template::parse(value.expose_secret())?.err()?;
        Some(format!("env.{name} of task {}: {problem}", task.name))
    });
    each.collect()
}

/// Returns the mistakes in the templates of a block.
pub(crate) fn problems(block: &ProviderBlock) -> Vec<String> {
    let mut problems = Vec::new();
    each(block, &mut |name, text| {
        if let Some(Err(problem)) = Template::parse(text) {
            problems.push(format!("{name} of provider {}: {problem}", block.id()));
        }
    });
    problems
}

fn references(block: &ProviderBlock) -> BTreeSet<Reference> {
    let mut references = BTreeSet::new();
    each(block, &mut |_, text| {
        if let Some(Ok(template)) = Template::parse(text) {
            references.extend(template.references());
        }
    });
    references
}

/// Every string of a block, with the name of the argument or variable that it is in.
fn each(block: &ProviderBlock, visit: &mut impl FnMut(&str, &str)) {
    for (name, value) in &block.arguments {
        strings(value, &mut |text| visit(name, text));
    }
    for (name, value) in &block.task_env {
        visit(&format!("task_env.{name}"), value.expose_secret());
    }
}

fn strings(value: &Literal, visit: &mut impl FnMut(&str)) {
    match value {
        Literal::String(text) => visit(text),
        Literal::List(items) => items.iter().for_each(|item| strings(item, visit)),
        Literal::Map(members) => members.values().for_each(|member| strings(member, visit)),
        Literal::Null | Literal::Bool(_) | Literal::Number(_) => {}
    }
}

fn fill(value: &mut Literal, values: &Values) {
    match value {
        Literal::String(text) => {
            if let Some(Ok(template)) = Template::parse(text) {
                *text = template.fill(values);
            }
        }
        Literal::List(items) => items.iter_mut().for_each(|item| fill(item, values)),
        Literal::Map(members) => members.values_mut().for_each(|member| fill(member, values)),
        Literal::Null | Literal::Bool(_) | Literal::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use async_trait::async_trait;
    use secrecy::ExposeSecret as _;

    use super::{
        BTreeSet, Error, Literal, ProviderBlock, Reference, Result, ValueSource, Values,
        references, resolve,
    };

    /// Answers each reference with its own description.
    #[derive(Debug, Default)]
    struct Echo {
        calls: AtomicUsize,
    }

    #[async_trait]
    impl ValueSource for Echo {
        async fn look_up(&self, wanted: &BTreeSet<Reference>) -> Result<Values> {
            self.calls.fetch_add(1, Ordering::SeqCst);
            Ok(wanted.iter().map(|one| (one.clone(), one.to_string().into())).collect())
        }
    }

    fn block() -> ProviderBlock {
        let mut block = ProviderBlock::new("aws");
        let nested = Literal::Map(BTreeMap::from([(
            "list".to_owned(),
            Literal::List(vec![r#"{{ key "k" }}"#.into(), Literal::Bool(true), "plain".into()]),
        )]));
        block.arguments = BTreeMap::from([
            ("nested".to_owned(), nested),
            ("region".to_owned(), r#"{{ env "R" }}"#.into()),
        ]);
        block.task_env.insert("TOKEN".into(), r#"{{ env "T" }}"#.into());
        block
    }

    #[tokio::test]
    async fn lists_maps_and_the_environment_are_filled_with_one_look_up() {
        let source = Echo::default();
        let blocks = resolve(&[block(), ProviderBlock::new("plain")], &source).await.unwrap();
        assert_eq!(blocks[0].arguments["region"], "the environment variable \"R\"".into());
        let Literal::Map(nested) = &blocks[0].arguments["nested"] else { panic!("a map") };
        assert_eq!(
            nested["list"],
            Literal::List(vec!["the Consul key \"k\"".into(), Literal::Bool(true), "plain".into()])
        );
        let token = &blocks[0].task_env["TOKEN"];
        assert_eq!(token.expose_secret(), "the environment variable \"T\"");
        assert_eq!(source.calls.load(Ordering::SeqCst), 1, "the plain block asks for nothing");
        assert!(!references(&block()).is_empty() && references(&blocks[0]).is_empty());
    }

    #[tokio::test]
    async fn a_broken_template_names_its_place() {
        let mut block = ProviderBlock::new("aws");
        block.arguments.insert("x".into(), r#"{{ env "A" }}{{ end }}"#.into());
        let error = resolve(&[block], &Echo::default()).await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }));
        assert!(error.to_string().starts_with("x of provider aws: {{ end }} is not known"));
    }
}
