//! Tests of the parts of a node.

mod keeping;
mod peers;
mod restoring;
mod storage;
