//! STYLE as a test: files stay small, have a head that explains them, and bear a name that says
//! something.

use std::path::PathBuf;

/// Lines of a file that may be there before a `#[cfg(test)]` module begins.
const LINES_MAX: usize = 1000;

/// Names that gather unrelated things.
const EMPTY_NAMES: &[&str] = &[
    "util", "utils", "common", "helper", "helpers", "manager", "misc", "impl", "v2",
];

#[test]
fn files_are_small_and_explained() {
    let mut wrong = Vec::new();
    for path in sources() {
        let shown = path.display();
        let text = std::fs::read_to_string(&path).expect("a source file");
        let lines = text
            .lines()
            .take_while(|line| *line != "#[cfg(test)]")
            .count();
        if lines > LINES_MAX {
            wrong.push(format!(
                "{shown}: {lines} lines; cut it by operation (max {LINES_MAX})"
            ));
        }
        if !text.trim_start().starts_with("//!") {
            wrong.push(format!("{shown}: no `//!` head that says what it is for"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn names_say_something() {
    let mut wrong = Vec::new();
    for path in sources() {
        let relative = path.strip_prefix(root()).unwrap_or(&path);
        for part in relative.iter() {
            let part = part.to_string_lossy();
            let stem = part.trim_end_matches(".rs");
            if stem
                .split(['_', '-'])
                .any(|word| EMPTY_NAMES.contains(&word))
            {
                wrong.push(format!("{}: the name {stem} says nothing", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Clones share compiled tests (`~/.cache/neokv/target`): a path that is compiled in may name a clone that is gone. Tests run in
/// their package's folder.
#[test]
fn no_path_of_this_clone_is_compiled_in() {
    let compiled_in = concat!("env!(\"CARGO_MANIFEST", "_DIR\")");
    let is_wrong = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).expect("a source file");
        text.contains(compiled_in)
    };
    let wrong: Vec<PathBuf> = sources().into_iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{compiled_in} in {wrong:?}");
}

fn root() -> PathBuf {
    PathBuf::from("../..")
}

/// Every Rust file under `crates/`.
fn sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                if !path.ends_with("target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                files.push(path);
            }
        }
    }
    assert!(files.len() > 10, "looking in the wrong place");
    files
}

/// Words of a decision, its title and status included.
const DECISION_WORDS_MAX: usize = 300;

#[test]
fn decisions_are_short_and_have_a_status() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in std::fs::read_dir(root().join("docs/decisions")).expect("a folder of decisions") {
        let path = entry.expect("an entry").path();
        if path.ends_with("README.md") {
            continue;
        }
        count += 1;
        let shown = path.display();
        let text = std::fs::read_to_string(&path).expect("a decision");
        let words = text.split_whitespace().count();
        if words > DECISION_WORDS_MAX {
            wrong.push(format!(
                "{shown}: {words} words (max {DECISION_WORDS_MAX}); figures belong to docs/benchmarks"
            ));
        }
        let status = text.lines().find_map(|line| line.strip_prefix("Status: "));
        if !status.is_some_and(is_decision_status) {
            wrong.push(format!(
                "{shown}: no line `Status: accepted`, `Status: accepted, changed by N` or `Status: replaced by N`"
            ));
        }
    }
    assert!(count > 10, "looking in the wrong place");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn is_decision_status(status: &str) -> bool {
    let later = status
        .strip_prefix("accepted, changed by ")
        .or_else(|| status.strip_prefix("replaced by "));
    status == "accepted" || later.is_some_and(|numbers| numbers.starts_with(char::is_numeric))
}
