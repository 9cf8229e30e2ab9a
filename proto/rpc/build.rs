//! Compiles `weft/v1/*.proto`, and P4Runtime where it is asked for, in Rust: no `protoc` is needed,
//! and nothing is fetched.

use std::error::Error;
use std::path::PathBuf;

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    let files = ["common", "worker", "node", "status"].map(|stem| format!("weft/v1/{stem}.proto"));
    for file in &files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(&files, ["."])?;
    tonic_prost_build::configure().btree_map(".").compile_fds(descriptors)?;
    if std::env::var_os("CARGO_FEATURE_P4").is_some() {
        compile_p4()?;
    }
    Ok(())
}

/// P4Runtime, and what reads a p4info's text.
fn compile_p4() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=p4");
    let descriptors = protox::compile(["p4/p4/v1/p4runtime.proto"], ["p4"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("p4.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
