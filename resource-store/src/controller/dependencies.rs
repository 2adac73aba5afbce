//! Which types controllers derive from which.

use std::collections::{BTreeMap, BTreeSet};

use super::builder::Controller;
use crate::pb::Type;

/// Two types depend on each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("circular dependency between \"{0}\" and \"{1}\"")]
pub struct CircularDependency(String, String);

/// For each managed type the types that its controllers watch.
///
/// Names are `group/version/kind` in lower case.
///
/// Source: `internal/controller/dependencies.go`, Consul 1.21.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dependencies {
    watched: BTreeMap<String, BTreeSet<String>>,
}

impl Dependencies {
    /// The dependencies of some controllers.
    pub fn of<'a>(controllers: impl IntoIterator<Item = &'a Controller>) -> Self {
        let mut all = Self::default();
        for controller in controllers {
            all.add(controller.managed_type(), controller.watched_types());
        }
        all
    }

    fn add<'a>(&mut self, managed: &Type, watched: impl Iterator<Item = &'a Type>) {
        self.watched.entry(name(managed)).or_default().extend(watched.map(name));
    }

    /// Adds a type that may have no controller.
    pub fn add_type(&mut self, ty: &Type) {
        self.add(ty, std::iter::empty());
    }

    /// Finds two types that depend on each other. Longer circles are fine, as
    /// upstream has some.
    ///
    /// # Errors
    ///
    /// The first such pair.
    pub fn validate(&self) -> Result<(), CircularDependency> {
        for (from, to) in self.edges() {
            if from < to && self.watched.get(to).is_some_and(|back| back.contains(from)) {
                return Err(CircularDependency(from.to_owned(), to.to_owned()));
            }
        }
        Ok(())
    }

    /// Every circle of any length, each as the types on it.
    ///
    /// Deviation: upstream finds those of two types only.
    pub fn circles(&self) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        for start in self.watched.keys() {
            self.walk(start, &mut vec![start.clone()], &mut found);
        }
        found
    }

    /// Follows edges to types not smaller than the start, so that each circle
    /// is found once, from its smallest type.
    fn walk(&self, start: &str, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
        let Some(next) = path.last().and_then(|last| self.watched.get(last)) else { return };
        for ty in next {
            if ty == start {
                found.push(path.clone());
            } else if ty.as_str() > start && !path.contains(ty) {
                path.push(ty.clone());
                self.walk(start, path, found);
                path.pop();
            }
        }
    }

    fn edges(&self) -> impl Iterator<Item = (&str, &str)> {
        self.watched
            .iter()
            .flat_map(|(from, to)| to.iter().map(move |to| (from.as_str(), to.as_str())))
    }

    /// The graph in the language of Mermaid.
    pub fn to_mermaid(&self) -> String {
        let mut lines: Vec<_> =
            self.edges().map(|(from, to)| format!("  {from} --> {to}")).collect();
        lines.extend(self.alone().map(|ty| format!("  {ty}")));
        lines.sort();
        lines.insert(0, "flowchart TD".to_owned());
        lines.join("\n")
    }

    /// The graph in the language of Graphviz.
    pub fn to_dot(&self) -> String {
        let edges = self.edges().map(|(from, to)| format!("  {from:?} -> {to:?};\n"));
        let alone = self.alone().map(|ty| format!("  {ty:?};\n"));
        format!("digraph controllers {{\n{}}}\n", edges.chain(alone).collect::<String>())
    }

    fn alone(&self) -> impl Iterator<Item = &str> {
        self.watched.iter().filter(|(_, to)| to.is_empty()).map(|(ty, _)| ty.as_str())
    }
}

fn name(ty: &Type) -> String {
    format!("{}/{}/{}", ty.group, ty.group_version, ty.kind).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &[&str])]) -> Dependencies {
        let watched = edges
            .iter()
            .map(|(from, to)| ((*from).to_owned(), to.iter().map(|to| (*to).to_owned()).collect()));
        Dependencies { watched: watched.collect() }
    }

    /// Spec: RS84
    #[test]
    fn graphs_print_and_pairs_are_found() {
        let four = graph(&[("t1", &["t2", "t3"]), ("t2", &["t4"]), ("t4", &["t1"])]);
        assert_eq!(
            four.to_mermaid(),
            "flowchart TD\n  t1 --> t2\n  t1 --> t3\n  t2 --> t4\n  t4 --> t1"
        );
        assert_eq!(four.validate(), Ok(()));
        assert_eq!(four.circles(), [["t1", "t2", "t4"]]);
        let pair = graph(&[("t2", &["t1"]), ("t1", &["t2"])]);
        assert_eq!(
            pair.validate().unwrap_err().to_string(),
            "circular dependency between \"t1\" and \"t2\""
        );
    }

    #[test]
    fn types_without_controller_stand_alone() {
        let mut graph = graph(&[("demo/v2/artist", &["demo/v2/album"])]);
        graph.add_type(&Type::new("demo", "v1", "Concept"));
        assert_eq!(
            graph.to_mermaid(),
            "flowchart TD\n  demo/v1/concept\n  demo/v2/artist --> demo/v2/album"
        );
        assert_eq!(
            graph.to_dot(),
            "digraph controllers {\n  \"demo/v2/artist\" -> \"demo/v2/album\";\n  \"demo/v1/concept\";\n}\n"
        );
    }
}
