//! Lists of workspaces, with the searches of the platform.

use serde_json::Value;

use super::{
    answer::{self, Answer},
    documents::workspace_document,
    query,
    route::Asked,
    state::{DEFAULT_PROJECT, State, Workspace},
};

/// Lists workspaces by name, a page at a time.
pub(super) fn list(state: &State, asked: &Asked<'_>) -> Answer {
    let search = Search::of(asked.query);
    let mut found: Vec<(&String, &Workspace)> =
        state.workspaces.iter().filter(|(_, workspace)| search.finds(state, workspace)).collect();
    found.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name));
    if query::parameter(asked.query, "sort").as_deref() == Some("-name") {
        found.reverse();
    }
    let found: Vec<Value> = found.iter().map(|(id, _)| workspace_document(state, id)).collect();
    answer::page(&found, asked.query)
}

/// Conditions of a search, all of which a workspace has to meet.
struct Search {
    part: String,
    wildcard: Option<String>,
    tags: Vec<String>,
    excluded: Vec<String>,
    tagged: Vec<(String, Option<String>)>,
    project: Option<String>,
    run_status: Vec<String>,
}

impl Search {
    fn of(text: &str) -> Self {
        Self {
            part: query::parameter(text, "search[name]").unwrap_or_default(),
            wildcard: query::parameter(text, "search[wildcard-name]"),
            tags: query::listed(text, "search[tags]"),
            excluded: query::listed(text, "search[exclude-tags]"),
            tagged: query::tagged(text),
            project: query::parameter(text, "filter[project][id]"),
            run_status: query::listed(text, "filter[current-run][status]"),
        }
    }

    fn finds(&self, state: &State, workspace: &Workspace) -> bool {
        // Keys of key-value tags count as tags, as they do at the platform.
        let has = |tag: &String| workspace.has_tag(tag);
        let current = workspace.current_run.as_ref().and_then(|id| state.runs.get(id));
        workspace.name.contains(&self.part)
            && self.wildcard.as_deref().is_none_or(|wild| matches(wild, &workspace.name))
            && self.tags.iter().all(has)
            && !self.excluded.iter().any(has)
            && self.tagged.iter().all(|(key, value)| match value {
                Some(value) => workspace.bindings.get(key) == Some(value),
                None => workspace.has_tag(key),
            })
            && self.project.as_deref().is_none_or(|wanted| {
                workspace.project.as_deref().unwrap_or(DEFAULT_PROJECT) == wanted
            })
            && (self.run_status.is_empty()
                || current.is_some_and(|run| self.run_status.contains(&run.status)))
    }
}

/// Returns `true` if a name has a pattern's form: `*` at its beginning, end or both.
fn matches(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(rest), Some(_)) => name.contains(rest.trim_end_matches('*')),
        (Some(end), None) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => name == pattern,
    }
}
