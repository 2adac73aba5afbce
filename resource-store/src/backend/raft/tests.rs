//! Tests of the parts of a node.

mod peers;
mod restoring;
mod storage;
