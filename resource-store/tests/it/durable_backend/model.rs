//! Random changes, with restarts among them, against the memory backend.

use proptest::prelude::*;
use resource_store::backend::memory::MemoryBackend;

use super::*;

#[derive(Debug, Clone)]
enum Operation {
    Write { name: u8, uid: u8, version: Known, owner: Option<u8>, size: u16 },
    Delete { name: u8, uid: u8, version: Known },
    ListByOwner { name: u8 },
    List { prefix: String },
    Restore { keep: u8 },
    Reopen,
}

/// Which version a change expects.
#[derive(Debug, Clone, Copy)]
enum Known {
    Current,
    None,
    Wrong,
}

fn operation() -> impl Strategy<Value = Operation> {
    let known =
        prop_oneof![6 => Just(Known::Current), 2 => Just(Known::None), 1 => Just(Known::Wrong)];
    let known = move || known.clone();
    let uid = || prop_oneof![9 => Just(0_u8), 1 => Just(1)];
    prop_oneof![
        8 => (0..6_u8, uid(), known(), proptest::option::of(0..3_u8), 0..9000_u16)
            .prop_map(|(name, uid, version, owner, size)| Operation::Write { name, uid, version, owner, size }),
        4 => (0..6_u8, uid(), known())
            .prop_map(|(name, uid, version)| Operation::Delete { name, uid, version }),
        2 => (0..3_u8).prop_map(|name| Operation::ListByOwner { name }),
        2 => "(name-[0-6]?)?".prop_map(|prefix| Operation::List { prefix }),
        1 => (0..3_u8).prop_map(|keep| Operation::Restore { keep }),
        1 => Just(Operation::Reopen),
    ]
}

fn named(name: u8, uid: u8) -> Id {
    other_id(&format!("name-{name}")).with_uid(&format!("uid-{uid}"))
}

/// Both stores, whose versions differ: what matters is which of them are equal.
struct Both {
    folder: TempDir,
    file: DurableBackend,
    memory: MemoryBackend,
}

/// What is comparable of resources.
fn plain(resources: &[Arc<Resource>]) -> Vec<Resource> {
    let plain =
        |resource: &Arc<Resource>| Resource { version: String::new(), ..Resource::clone(resource) };
    resources.iter().map(plain).collect()
}

fn told<T>(result: Result<T, Error>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

impl Both {
    /// The version of each store that a change is to expect.
    async fn expected(&self, id: &Id, known: Known) -> [String; 2] {
        let current = |stored: Result<Arc<Resource>, Error>| {
            stored.map_or_else(|_| String::new(), |stored| stored.version.clone())
        };
        let id = id.clone().without_uid();
        match known {
            Known::Current => [
                current(self.file.read(Consistency::Strong, &id).await),
                current(self.memory.read(Consistency::Strong, &id).await),
            ],
            Known::None => Default::default(),
            Known::Wrong => ["wrong".to_owned(), "wrong".to_owned()],
        }
    }

    async fn run(&mut self, operation: Operation) {
        match operation {
            Operation::Write { name, uid, version, owner, size } => {
                let id = named(name, uid);
                let [in_file, in_memory] = self.expected(&id, version).await;
                let metadata = [("k".to_owned(), "x".repeat(size.into()))].into();
                let owner = owner.map(|name| named(name, 0));
                let resource = Resource { owner, metadata, ..Resource::new(id) };
                let write = |version| Resource { version, ..resource.clone() };
                let file = told(self.file.write_cas(write(in_file)).await);
                let memory = told(self.memory.write_cas(write(in_memory)).await);
                assert_eq!(file.map(|r| plain(&[r])), memory.map(|r| plain(&[r])));
            }
            Operation::Delete { name, uid, version } => {
                let id = named(name, uid);
                let [in_file, in_memory] = self.expected(&id, version).await;
                let file = told(self.file.delete_cas(&id, &in_file).await);
                assert_eq!(file, told(self.memory.delete_cas(&id, &in_memory).await));
            }
            Operation::ListByOwner { name } => {
                let file = self.file.list_by_owner(&named(name, 0)).await.unwrap();
                let memory = self.memory.list_by_owner(&named(name, 0)).await.unwrap();
                assert_eq!(plain(&file), plain(&memory));
            }
            Operation::List { prefix } => {
                let kind = other_id("").r#type.unwrap().group_kind();
                let query = Query::new(kind, demo::default_tenancy()).with_name_prefix(&prefix);
                let file = self.file.list(Consistency::Strong, &query).await.unwrap();
                let memory = self.memory.list(Consistency::Strong, &query).await.unwrap();
                assert_eq!(plain(&file), plain(&memory));
            }
            Operation::Restore { keep } => {
                for backend in [&self.file as &dyn Backend, &self.memory] {
                    let kept = contents(backend).await.into_iter().take(keep.into()).map(Ok);
                    backend.restore(futures::stream::iter(kept).boxed()).await.unwrap();
                }
            }
            Operation::Reopen => {
                self.file.close().await.unwrap();
                self.file = open(&self.folder).await;
            }
        }
        assert_eq!(plain(&contents(&self.file).await), plain(&contents(&self.memory).await));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn does_what_the_memory_backend_does(
        operations in proptest::collection::vec(operation(), 1..60)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let file = open(&folder).await;
            let mut both = Both { folder, file, memory: MemoryBackend::new() };
            for operation in operations {
                both.run(operation).await;
            }
        });
    }
}
