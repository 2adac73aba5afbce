//! What every store must do, on the one in memory.

use cts_tasks::{MemoryStore, testing::store};

macro_rules! cases {
    ($($case:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $case() {
            store::$case(&MemoryStore::default()).await;
        }
    )*};
}

cases! {
    nothing_is_loaded_at_first,
    what_was_committed_is_loaded,
    changes_are_applied_in_order,
    a_task_put_again_keeps_its_place,
    only_the_newest_events_are_kept,
    a_deleted_task_leaves_nothing,
    a_deletion_waits_with_its_task,
    removing_the_unknown_is_no_error,
    an_empty_batch_does_nothing,
}
