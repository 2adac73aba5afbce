//! Compiles the proto files with protox, so that no `protoc` is needed.
//!
//! Writes the Rust types and, for reflection and the JSON mapping, the encoded
//! descriptor set with all its options.

use std::{env, error::Error, fs, path::PathBuf};

const FILES: [&str; 7] = [
    "annotations/ratelimit/ratelimit.proto",
    "pbresource/annotations.proto",
    "pbresource/resource.proto",
    "private/pbdemo/v1/demo.proto",
    "private/pbdemo/v2/demo.proto",
    "private/pbpeer/peer.proto",
    "private/pbstorage/raft.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // With comments for the Rust types, without them for use at run time.
    let described = compile(true)?.file_descriptor_set();
    fs::write(out.join("descriptors.bin"), compile(false)?.encode_file_descriptor_set())?;

    let feature = |name: &str| env::var_os(format!("CARGO_FEATURE_{name}")).is_some();
    tonic_prost_build::configure()
        .build_server(feature("GRPC"))
        .build_client(feature("CLIENT"))
        .build_transport(false)
        .btree_map(".")
        .bytes(".resource_store.peer")
        .codec_path("crate::codec::SmallBuffers")
        .compile_well_known_types(false)
        .include_file("packages.rs")
        .compile_fds(described)?;
    if feature("ETCD") {
        etcd(feature("TESTING"))?;
    }
    Ok(())
}

/// Compiles etcd's API apart, because it is none of this crate's: it has no
/// place in the descriptors that reflection shows.
fn etcd(server: bool) -> Result<(), Box<dyn Error>> {
    let described = protox::compile(["etcd/etcd.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_server(server)
        .build_client(true)
        .build_transport(false)
        .compile_fds(described)?;
    Ok(())
}

fn compile(comments: bool) -> Result<protox::Compiler, protox::Error> {
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(comments).open_files(FILES)?;
    Ok(compiler)
}
