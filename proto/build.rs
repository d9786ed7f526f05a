//! Compiles the `.proto` files without `protoc` and keeps the descriptor set for reflection.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

const FILES: [&str; 3] =
    ["roster/agent/v1/agent.proto", "roster/registry/v1/registry.proto", "roster/executor/v1/executor.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=roster");

    let descriptors = protox::compile(FILES, ["."])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;

    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
