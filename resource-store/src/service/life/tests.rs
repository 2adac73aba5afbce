//! Walks a resource of a real service through its life, beside the table.

use std::{collections::BTreeSet, sync::Arc};

use proptest::{prelude::*, sample::select};

use super::State;
use crate::{
    ResourceService,
    backend::{Consistency, memory::MemoryBackend},
    demo,
    metadata::DELETION_TIMESTAMP,
    pb::{DeleteRequest, Id, Resource, WriteRequest},
    registry::Registry,
    service::RequestContext,
};

const EVENTS: [&str; 9] = [
    "create",
    "create held",
    "create marked",
    "delete",
    "change data",
    "hold",
    "let go",
    "mark",
    "unmark",
];

/// A row of the table.
struct Row {
    state: &'static str,
    event: &'static str,
    next: &'static str,
    refused: bool,
}

fn rows() -> Vec<Row> {
    include_str!("../life.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//! | "))
        .map(|line| line.trim_end_matches(" |").split(" | ").collect::<Vec<_>>())
        .filter(|cells| cells[0] != "state")
        .map(|cells| Row {
            state: cells[0],
            event: cells[1],
            next: cells[2],
            refused: cells[3].starts_with("refuse"),
        })
        .collect()
}

/// A service with one resource, whose life it is.
struct Life {
    service: ResourceService,
    /// Differs from write to write, so that none of them changes nothing.
    count: usize,
}

impl Life {
    fn begin() -> Self {
        let mut registry = Registry::new().unwrap();
        demo::register(&mut registry).unwrap();
        let backend = Arc::new(MemoryBackend::new());
        Self { service: ResourceService::builder(registry, backend).build(), count: 0 }
    }

    fn id() -> Id {
        demo::artist("korn").encode().id.unwrap()
    }

    async fn stored(&self) -> Option<Resource> {
        let backend = self.service.backend();
        backend.read(Consistency::Strong, &Self::id()).await.ok().map(Arc::unwrap_or_clone)
    }

    async fn state(&self) -> &'static str {
        match self.stored().await.map(|stored| State::of(&stored)) {
            None => "absent",
            Some(State::Live) => "live",
            Some(State::Held) => "held",
            Some(State::Marked) => "marked",
            Some(State::Released) => "released",
        }
    }

    /// Returns `true` if the service refuses the event; `None` if it cannot happen now.
    async fn happens(&mut self, event: &str) -> Option<bool> {
        let stored = self.stored().await;
        if event == "delete" {
            let request = DeleteRequest { id: Some(Self::id()), version: String::new() };
            let answer = self.service.delete(&RequestContext::anonymous(), request).await;
            return Some(answer.is_err());
        }
        if stored.is_none() != event.starts_with("create") {
            return None;
        }
        let mut wanted = stored.unwrap_or_else(|| demo::artist("korn").encode());
        let finalizers = wanted.finalizers().len();
        match event {
            "create held" => wanted.add_finalizer("first"),
            "hold" => wanted.add_finalizer(&format!("more-{}", self.count)),
            "create marked" | "mark" => {
                let mark = "2026-01-02T03:04:05Z".to_owned();
                if wanted.metadata.insert(DELETION_TIMESTAMP.to_owned(), mark).is_some() {
                    return None;
                }
            }
            "unmark" => {
                wanted.metadata.remove(DELETION_TIMESTAMP)?;
            }
            "let go" if finalizers == 0 => return None,
            "let go" => {
                wanted.metadata.remove(crate::metadata::FINALIZERS);
            }
            "change data" => {
                wanted.data = demo::artist(&format!("korn {}", self.count)).encode().data;
            }
            _ => {}
        }
        self.count += 1;
        let request = WriteRequest { resource: Some(wanted) };
        Some(self.service.write(&RequestContext::anonymous(), request).await.is_err())
    }

    async fn tombstones(&self) -> usize {
        let id = Self::id();
        let request = crate::pb::ListRequest {
            r#type: Some(crate::registry::tombstone_type()),
            tenancy: id.tenancy,
            name_prefix: String::new(),
        };
        self.service.list(&RequestContext::anonymous(), request).await.unwrap().len()
    }
}

proptest! {
    /// Every event in every state does what its row says, and changes no state if there is none.
    #[test]
    fn a_life_follows_the_table(events in prop::collection::vec(select(&EVENTS[..]), 1..40)) {
        let rows = rows();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut life, mut deleted) = (Life::begin(), 0);
            for event in events {
                let before = life.state().await;
                let Some(refused) = life.happens(event).await else { continue };
                let row = rows.iter().find(|row| (row.state, row.event) == (before, event));
                let after = life.state().await;
                prop_assert_eq!(after, row.map_or(before, |row| row.next), "{}: {}", before, event);
                prop_assert_eq!(refused, row.is_some_and(|row| row.refused), "{}: {}", before, event);
                deleted += usize::from(before != "absent" && after == "absent");
                prop_assert_eq!(life.tombstones().await, deleted, "one for each deletion");
            }
            Ok(())
        })?;
    }
}

/// A row that names no state or event would never be looked at.
#[test]
fn the_table_names_known_states_and_events() {
    let states = BTreeSet::from(["absent", "live", "held", "marked", "released"]);
    let rows = rows();
    assert_eq!(rows.len(), 16);
    for row in rows {
        assert!(states.contains(row.state) && states.contains(row.next), "{}", row.state);
        assert!(EVENTS.contains(&row.event), "{}", row.event);
        assert!(!row.refused || row.state == row.next, "{}: {}", row.state, row.event);
    }
}
