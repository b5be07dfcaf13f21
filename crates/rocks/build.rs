//! Compiles `src/files/take_in.cc`: the one thing RocksDB can do that its C interface does not offer.

use std::env;
use std::path::PathBuf;

fn main() {
    let source = "src/files/take_in.cc";
    println!("cargo::rerun-if-changed={source}");
    // Said by the crate that compiles or finds RocksDB; relative to itself if it compiles it.
    let of_rocksdb = |name: &str| env::var_os(name).map(PathBuf::from).unwrap_or_default();
    let headers =
        of_rocksdb("DEP_ROCKSDB_CARGO_MANIFEST_DIR").join(of_rocksdb("DEP_ROCKSDB_INCLUDE"));
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        // As the library itself: its classes have no type information to refer to.
        .flag_if_supported("-fno-rtti")
        .define("NDEBUG", None)
        .warnings(false)
        .include(headers)
        .file(source)
        .compile("neokv_take_in");
}
