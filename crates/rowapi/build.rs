//! Makes the types and the service of `proto/` with a protobuf compiler in Rust: nothing to install.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = "../../proto";
    let file = format!("{folder}/neokv/table/v1/table.proto");
    println!("cargo:rerun-if-changed={file}");
    let parsed = protox::compile([&file], [folder])?;
    tonic_prost_build::configure()
        .build_transport(false)
        .btree_map(".")
        .compile_fds(parsed)?;
    Ok(())
}
