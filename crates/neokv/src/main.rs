//! The `neokv` binary: the library's `run`, with a counting allocator.

use std::process::ExitCode;

/// The allocator, counted: `maxmemory` and `INFO memory` go by what is allocated.
#[global_allocator]
static ALLOCATOR: server::memory::Counting<mimalloc::MiMalloc> =
    server::memory::Counting(mimalloc::MiMalloc);

fn main() -> ExitCode {
    neokv::run()
}
