//! Tests of the parts of a node.

mod appending;
mod joining;
mod keeping;
mod peers;
mod restoring;
mod storage;
