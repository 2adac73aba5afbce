//! Tests of the parts of a node.

mod appending;
mod joining;
mod keeping;
mod leading;
mod peers;
mod restoring;
mod storage;
