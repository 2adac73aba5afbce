//! Files, directories, merging.

use super::support::{errors, load, loader, short, show};

#[test]
fn the_worked_example_loads() {
    let config = load(include_str!("../../data/worked-example.hcl"));
    assert_eq!(config.tasks.len(), 2);
}
