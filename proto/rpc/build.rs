//! Compiles `weft/v1/*.proto` in Rust: no `protoc` is needed, and nothing is fetched.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let files = ["common", "worker", "node", "status"].map(|stem| format!("weft/v1/{stem}.proto"));
    for file in &files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(&files, ["."])?;
    tonic_prost_build::configure().btree_map(".").compile_fds(descriptors)?;
    Ok(())
}
