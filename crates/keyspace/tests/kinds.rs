//! A kind of value is one folder and one line: outside `kind/` nothing may depend on which kinds there are.
//!
//! The compiler keeps other crates from matching all kinds (the enums are `non_exhaustive`). This test
//! reads the sources for what it cannot keep: see `docs/internals/kinds.md`.

use std::fs;
use std::path::{Path, PathBuf};

use keyspace::Kind;

/// Lines a `match` over all kinds takes at most.
const MATCH_LINES: usize = 30;

/// Every kind with a folder of its own type: all but strings.
fn collections() -> Vec<String> {
    let kinds = Kind::ALL.iter().filter(|kind| **kind != Kind::String);
    kinds.map(|kind| format!("{kind:?}")).collect()
}

/// Rust files below a folder, those of tests left out.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.contains("tests") {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// The lines of a file that are code, up to its tests.
fn code(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).expect("a source file");
    let lines: Vec<&str> = text.lines().collect();
    let begins_tests = |pair: &[&str]| matches!(pair, ["#[cfg(test)]", module] if module.starts_with("mod ") && module.ends_with('{'));
    let end = lines.windows(2).position(begins_tests);
    lines[..end.unwrap_or(lines.len())]
        .iter()
        .map(|line| line.split("//").next().unwrap_or_default().to_string())
        .filter(|line| !line.trim_start().starts_with("#[derive("))
        .collect()
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}

#[test]
fn keyspace_names_no_collection_outside_the_folders_of_kinds() {
    let mut files = Vec::new();
    sources(Path::new("src"), &mut files);
    files.retain(|path| !path.starts_with("src/kind"));
    assert!(files.len() > 50, "the sources are not where they were");
    let collections = collections();
    let mut wrong = Vec::new();
    for path in files {
        for (number, line) in (1..).zip(code(&path)) {
            if words(&line).any(|word| collections.iter().any(|name| name == word)) {
                wrong.push(format!("{}:{number}: {}", path.display(), line.trim()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "kinds are named outside src/kind:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn no_kind_names_another() {
    let collections = collections();
    let mut wrong = Vec::new();
    for name in &collections {
        let folder = PathBuf::from("src/kind").join(name.to_lowercase());
        let mut files = Vec::new();
        sources(&folder, &mut files);
        for path in files {
            for (number, line) in (1..).zip(code(&path)) {
                let is_other = |word| collections.iter().any(|it| it == word && it != name);
                if words(&line).any(is_other) {
                    wrong.push(format!("{}:{number}: {}", path.display(), line.trim()));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "kinds that know others:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn other_crates_do_not_match_all_kinds() {
    let mut files = Vec::new();
    for entry in fs::read_dir("..").expect("the folder of crates") {
        let path = entry.expect("an entry").path();
        let src = path.join("src");
        if !path.ends_with("keyspace") && src.is_dir() {
            sources(&src, &mut files);
        }
    }
    assert!(files.len() > 300, "the crates are not where they were");
    let collections = collections();
    for path in files {
        // By kind, the last line that names it.
        let mut last: Vec<Option<usize>> = vec![None; collections.len()];
        for (number, line) in (1..).zip(code(&path)) {
            for path in paths(&line) {
                let mut ends = path.rsplit("::");
                if let (Some(kind), Some("Kind" | "Value" | "ValueRef")) =
                    (ends.next(), ends.next())
                    && let Some(at) = collections.iter().position(|it| it == kind)
                {
                    last[at] = Some(number);
                }
            }
            let is_near = |last: &Option<usize>| last.is_some_and(|at| at + MATCH_LINES > number);
            assert!(
                !last.iter().all(is_near),
                "{}:{number}: a match over all kinds; ask the value instead (keyspace/src/kind/dispatch.rs)",
                path.display()
            );
        }
    }
}

/// As [`words`], paths being one word.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':')
}

/// What a new kind has to have: the files that the page names.
#[test]
fn every_kind_is_a_folder_with_the_same_files() {
    for kind in Kind::ALL {
        let folder = PathBuf::from("src/kind").join(format!("{kind:?}").to_lowercase());
        for file in ["mod.rs", "edit.rs", "rows.rs", "rdb.rs", "digest.rs"] {
            let path = folder.join(file);
            assert!(path.is_file(), "{} is missing", path.display());
        }
    }
}

/// Dumps are no part of what a value is: what is about them uses the kind and the format only.
#[test]
fn dumps_use_what_is_public() {
    for kind in Kind::ALL {
        let folder = PathBuf::from("src/kind").join(format!("{kind:?}").to_lowercase());
        for line in code(&folder.join("rdb.rs")) {
            let allowed = [
                "use crate::dumped::",
                "use crate::Part;",
                "use crate::{Part, Tuning};",
            ];
            let is_import = line.starts_with("use crate::");
            assert!(
                !is_import || allowed.iter().any(|it| line.starts_with(it)),
                "{kind:?}: {line}"
            );
        }
    }
}

#[test]
fn the_page_names_every_kind() {
    let page = fs::read_to_string("../../docs/internals/kinds.md").expect("the page about kinds");
    for kind in Kind::ALL {
        let name = format!("`{}`", kind.name());
        assert!(page.contains(&name), "{name} is not in kinds.md");
    }
}
