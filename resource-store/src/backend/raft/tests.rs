//! Tests of the parts of a node.

mod peers;
mod storage;
