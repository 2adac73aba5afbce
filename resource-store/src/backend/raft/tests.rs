//! Tests of the parts of a node.

mod append_stream;
mod imports;
mod joining;
mod leadership;
mod peers;
mod restoring;
mod retention;
mod storage;
