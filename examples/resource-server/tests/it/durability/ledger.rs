//! What clients were told, and what is there afterwards.

use std::collections::{BTreeMap, HashMap};

use resource_store::{
    Resource, ResourceClient as _, ResourceData as _,
    backend::Consistency,
    demo::v1::RecordLabel,
    pb::{self, Tenancy},
};

use crate::{PATIENCE, store_cluster::node::Node};

pub(crate) fn tenancy() -> Tenancy {
    Tenancy::new("default", "")
}

/// The name of what owns all the others, and is never changed.
pub(crate) const OWNER: &str = "owner";

/// Content that shows by itself whether it is whole.
pub(crate) fn label(name: &str, number: u64) -> pb::Resource {
    let size = usize::try_from(number * 7919 % 12_000).unwrap();
    let mut resource = Resource::new(
        tenancy(),
        name,
        RecordLabel { name: number.to_string(), description: pattern(number, size) },
    )
    .encode();
    resource.metadata.insert("number".to_owned(), number.to_string());
    resource
}

fn pattern(number: u64, size: usize) -> String {
    format!("{number};").repeat(size / 4 + 1)
}

/// The number of content, if it is whole.
fn number_of(resource: &pb::Resource) -> Result<u64, String> {
    let broken = || format!("{} is half there: {resource:?}", resource.name());
    let data = Resource::<RecordLabel>::decode(resource).ok().ok_or_else(broken)?.data;
    let number = data.name.parse().ok().ok_or_else(broken)?;
    let whole = label(resource.name(), number);
    let same = whole.data == resource.data && whole.metadata == resource.metadata;
    if same { Ok(number) } else { Err(broken()) }
}

/// What is stored under a name: nothing, or this number with this version.
pub(crate) type State = Option<(u64, String)>;

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Write(u64),
    Delete,
}

/// What the client of a name knows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// What was acknowledged last.
    pub(crate) state: State,
    /// What was asked for then, without an answer.
    pub(crate) asked: Option<Asked>,
    pub(crate) resource: Option<pb::Resource>,
}

/// What all clients know.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) names: BTreeMap<String, Known>,
    pub(crate) next: u64,
    pub(crate) acknowledged: usize,
    pub(crate) unknown: usize,
    pub(crate) survived: usize,
    /// The content of each version of each name that was ever seen.
    pub(crate) versions: HashMap<(String, String), u64>,
}

/// What a server has.
#[derive(Debug, PartialEq)]
pub(crate) struct Stored {
    pub(crate) labels: Vec<pb::Resource>,
    pub(crate) owned: Vec<pb::Resource>,
}

impl Stored {
    /// Reads all, as fresh as can be; waits until the server can do so.
    pub(crate) async fn of(server: &Node) -> Self {
        let client = server.client(Consistency::Strong);
        let request = pb::ListRequest {
            r#type: Some(RecordLabel::resource_type()),
            tenancy: Some(tenancy()),
            name_prefix: String::new(),
        };
        let began = tokio::time::Instant::now();
        loop {
            match client.list(request.clone()).await {
                Ok(labels) => {
                    let owner = labels.iter().find(|label| label.name() == OWNER);
                    let owned = match owner.and_then(|owner| owner.id.clone()) {
                        Some(owner) => client.list_by_owner(owner).await.unwrap(),
                        None => Vec::new(),
                    };
                    return Self { labels, owned };
                }
                Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
            }
        }
    }
}

impl Ledger {
    /// Notes the content of a version. No version has two.
    pub(crate) fn saw(&mut self, resource: &pb::Resource) -> Result<u64, String> {
        let number = number_of(resource)?;
        let key = (resource.name().to_owned(), resource.version.clone());
        match self.versions.insert(key, number) {
            Some(other) if other != number => Err(format!(
                "version {} of {} was {other}, and is {number} now",
                resource.version,
                resource.name()
            )),
            _ => Ok(number),
        }
    }

    /// Compares what is there with what was acknowledged, and goes on from it.
    pub(crate) fn settle(&mut self, stored: &Stored) -> Result<(), String> {
        let mut found: HashMap<&str, &pb::Resource> =
            stored.labels.iter().map(|label| (label.name(), label)).collect();
        let owner = found.remove(OWNER).ok_or("the owner is gone, which was acknowledged")?;
        let mut owned: Vec<_> = stored.owned.iter().collect();
        let mut listed: Vec<_> = found.values().copied().collect();
        owned.sort_by_key(|label| label.name());
        listed.sort_by_key(|label| label.name());
        if owned != listed || listed.iter().any(|label| label.owner != owner.id) {
            return Err("the index by owner is not what is stored".to_owned());
        }
        for label in &listed {
            self.saw(label)?;
        }
        for (name, known) in &mut self.names {
            let present = found.remove(name.as_str());
            let now: State = match present {
                Some(label) => Some((number_of(label)?, label.version.clone())),
                None => None,
            };
            let asked = known.asked.take();
            self.unknown += usize::from(asked.is_some());
            if now != known.state {
                // The change that was under way is all there, then.
                let done = now.as_ref().map_or(Asked::Delete, |(number, _)| Asked::Write(*number));
                if asked != Some(done) {
                    return Err(format!(
                        "{name}: {:?} was acknowledged, {asked:?} was asked for then, and {now:?} \
                         is there",
                        known.state
                    ));
                }
                self.survived += 1;
            }
            known.state = now;
            known.resource = present.cloned();
        }
        match found.keys().next() {
            Some(name) => Err(format!("{name} is there, which nobody wrote")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(name: &str, number: u64, version: &str) -> pb::Resource {
        let owner = Some(owner().id.unwrap());
        pb::Resource { version: version.to_owned(), owner, ..label(name, number) }
    }

    fn owner() -> pb::Resource {
        pb::Resource { version: "1".to_owned(), ..label(OWNER, 0) }
    }

    /// `a` is 3, `b` is gone, `c` was 5 and then asked to be 6.
    fn ledger() -> Ledger {
        let known = |state: Option<(u64, &str)>, asked| Known {
            state: state.map(|(number, version)| (number, version.to_owned())),
            asked,
            resource: None,
        };
        let names = [
            ("a".to_owned(), known(Some((3, "13")), None)),
            ("b".to_owned(), known(None, None)),
            ("c".to_owned(), known(Some((5, "15")), Some(Asked::Write(6)))),
        ];
        Ledger { names: names.into(), ..Ledger::default() }
    }

    fn settled(labels: Vec<pb::Resource>) -> Result<(), String> {
        let owned = labels.clone();
        let labels = [vec![owner()], labels].concat();
        ledger().settle(&Stored { labels, owned })
    }

    #[test]
    fn what_may_be_there_is_accepted() {
        settled(vec![stored("a", 3, "13"), stored("c", 5, "15")]).unwrap();
        settled(vec![stored("a", 3, "13"), stored("c", 6, "16")]).unwrap();
    }

    #[test]
    fn planted_faults_are_found() {
        let a = || stored("a", 3, "13");
        let c = || stored("c", 5, "15");
        let half = pb::Resource { data: label("a", 4).data, ..a() };
        for (labels, text) in [
            (vec![c()], "a: Some((3, \"13\")) was acknowledged"),
            (vec![stored("a", 2, "12"), c()], "a: Some((3, \"13\")) was acknowledged"),
            (vec![a(), stored("b", 4, "14"), c()], "b: None was acknowledged"),
            (vec![a()], "c: Some((5, \"15\")) was acknowledged"),
            (vec![a(), stored("c", 7, "17")], "c: Some((5, \"15\")) was acknowledged"),
            (vec![half, c()], "a is half there"),
            (vec![a(), c(), stored("d", 1, "18")], "d is there, which nobody wrote"),
        ] {
            let found = settled(labels).unwrap_err();
            assert!(found.contains(text), "{found}");
        }
        let labels = vec![owner(), a(), c()];
        let found = ledger().settle(&Stored { labels, owned: vec![a()] }).unwrap_err();
        assert!(found.contains("index by owner"), "{found}");
        let mut ledger = ledger();
        ledger.saw(&stored("a", 1, "9")).unwrap();
        let found = ledger.saw(&stored("a", 2, "9")).unwrap_err();
        assert!(found.contains("version 9 of a was 1, and is 2 now"), "{found}");
    }
}
