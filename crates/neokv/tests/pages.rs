//! The generated pages of the documentation are what the program prints.
//! After a change: `NEOKV_WRITE_PAGES=1 cargo test -p neokv --test pages`.

use std::path::Path;
use std::process::Command;

fn check(page: &str, file: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_neokv"))
        .args(["page", page])
        .output()
        .unwrap();
    assert!(output.status.success());
    let fresh = String::from_utf8(output.stdout).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(file);
    if std::env::var_os("NEOKV_WRITE_PAGES").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &fresh).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == fresh,
        "{file} is stale; run: NEOKV_WRITE_PAGES=1 cargo test -p neokv --test pages"
    );
}

#[test]
fn commands_page() {
    check("commands", "docs/commands.md");
}

#[test]
fn configuration_page() {
    check("configuration", "docs/operations/configuration.md");
}
