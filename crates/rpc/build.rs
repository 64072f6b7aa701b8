//! Generates the messages and services of `/proto`, without a protobuf compiler on the machine.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use prost::Message;

const FILES: [&str; 6] = [
    "tidegate/v1/batch.proto",
    "tidegate/v1/table.proto",
    "tidegate/v1/cluster.proto",
    "tidegate/internal/v1/raft.proto",
    "tidegate/internal/v1/work.proto",
    "tidegate/internal/v1/group.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let descriptors = protox::compile(FILES, [&root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .btree_map(".")
        .compile_fds(descriptors)?;
    Ok(())
}
