//! STYLE as a test: files stay small, have a head that explains them, and bear a name that says
//! something.

use std::collections::BTreeMap;
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

/// Words that said nothing to an engineer who came from etcd, TiKV or Redis, and have been replaced: ARCHITECTURE.md has
/// the glossary. No identifier has them.
const REPLACED_WORDS: &[&str] = &[
    "chair",
    "composer",
    "desk",
    "hush",
    "nudge",
    "office",
    "patience",
    "rehearse",
    "rehearsal",
    "seat",
    "seats",
    "stray",
    "strays",
    "tend",
    "whither",
    "wish",
    "wishes",
];

#[test]
fn replaced_words_do_not_come_back() {
    let mut wrong = Vec::new();
    for path in sources() {
        if path.ends_with("shape.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            for identifier in identifiers(line) {
                if words(&identifier).any(|word| REPLACED_WORDS.contains(&word.as_str())) {
                    let place = format!("{}:{}", path.display(), number + 1);
                    wrong.push(format!("{place}: {identifier}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The identifiers of a line, without those in comments and strings.
fn identifiers(line: &str) -> Vec<String> {
    let code: String = line.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let code = code.split("//").next().unwrap_or_default();
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
        .map(str::to_owned)
        .collect()
}

/// The words of an identifier, in small letters.
fn words(identifier: &str) -> impl Iterator<Item = String> {
    let mut spaced = String::new();
    for c in identifier.chars() {
        if c.is_uppercase() {
            spaced.push('_');
        }
        spaced.extend(c.to_lowercase());
    }
    let words: Vec<String> = spaced.split('_').map(str::to_owned).collect();
    words.into_iter()
}

/// Lines of a crate without its tests. `keyspace` has one folder per kind of value and is larger.
const CRATE_LINES_MAX: usize = 12_000;

#[test]
fn crates_are_small() {
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for path in sources() {
        let relative = path.strip_prefix(root()).unwrap_or(&path);
        let parts: Vec<String> = relative
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        let is_test = |part: &String| part == "tests" || part.ends_with("tests.rs");
        let [folder, name, source, rest @ ..] = parts.as_slice() else {
            continue;
        };
        if folder != "crates" || source != "src" || rest.iter().any(is_test) {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source file");
        let shipped = text.lines().take_while(|line| *line != "#[cfg(test)]");
        *lines.entry(name.clone()).or_default() += shipped.count();
    }
    assert!(lines.len() > 10, "looking in the wrong place");
    let is_large = |(name, lines): &(&String, &usize)| {
        **lines > CRATE_LINES_MAX && name.as_str() != "keyspace"
    };
    let wrong: Vec<_> = lines.iter().filter(is_large).collect();
    assert!(wrong.is_empty(), "above {CRATE_LINES_MAX} lines: {wrong:?}");
}

/// Cargo finds tests by itself only inside their package.
#[test]
fn every_black_box_test_is_a_target() {
    let manifest = std::fs::read_to_string("Cargo.toml").expect("the manifest of this package");
    let mut wrong = Vec::new();
    for path in sources() {
        let relative = path.strip_prefix(root()).unwrap_or(&path);
        let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
        let is_target = match parts.as_slice() {
            [folder, _] => folder == "tests",
            [folder, _, file] => folder == "tests" && file == "main.rs",
            _ => false,
        };
        let line = format!("path = \"{}\"", path.display());
        if is_target && !manifest.lines().any(|it| it == line) {
            wrong.push(line);
        }
    }
    assert!(
        wrong.is_empty(),
        "not in crates/neokv/Cargo.toml: {wrong:?}"
    );
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

/// What is special about a command is a property in its row: outside crate `command` nobody compares names of commands.
#[test]
fn names_of_commands_are_compared_in_crate_command_only() {
    let mut wrong = Vec::new();
    for path in sources() {
        let relative = path.strip_prefix(root()).unwrap_or(&path);
        let is_exempt = |part: &str| relative.iter().any(|it| it == part);
        if relative.starts_with("crates/command") || is_exempt("tests") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source file");
        let compared = comparisons_of_names(&text);
        wrong.extend(compared.map(|line| format!("{}: {line}", relative.display())));
    }
    let told = "a command's name is compared; give its row in crate `command` a property instead";
    assert!(wrong.is_empty(), "{told}:\n{}", wrong.join("\n"));
}

#[test]
fn comparisons_of_names_are_found() {
    for text in [
        "row.name == \"exec\"",
        "call.row.name != \"exec\"",
        "\"exec\" == row.name",
        "match row.name {",
        "match (row.name, number) {",
        "matches!(\n    call.row.name,\n    \"exec\"",
        "STORE.contains(&row.name)",
        "row.name.starts_with(\"row.\")",
        "args.is(0, \"exec\")",
        "table.find(b\"exec\")",
    ] {
        assert_eq!(comparisons_of_names(text).count(), 1, "{text}");
    }
    for text in [
        "reply.bulk(row.name.as_bytes())",
        "subs.position(|sub| sub.name == row.name)",
        "setting.name == \"dir\"",
        "args.is(2, \"FILTERBY\")",
    ] {
        assert_eq!(comparisons_of_names(text).count(), 0, "{text}");
    }
}

/// The places of a source text where the name of a command's row, or the first argument of a command, is compared with a text.
fn comparisons_of_names(text: &str) -> impl Iterator<Item = String> {
    const NAME: &str = "row.name";
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    for (at, _) in text.match_indices(NAME) {
        let is_in_path = |c: char| c.is_alphanumeric() || "._&*".contains(c);
        let before = text[..at].trim_end_matches(is_in_path).trim_end();
        let behind = text[at + NAME.len()..].trim_start();
        let starts = [
            "== \"",
            "!= \"",
            ".starts_with(\"",
            ".ends_with(\"",
            ".eq_ignore_ascii_case(\"",
        ];
        let ends = [
            "match",
            "match (",
            "matches!(",
            "matches!( ",
            ".contains(",
            "\" ==",
            "\" !=",
        ];
        if starts.iter().any(|it| behind.starts_with(it))
            || ends.iter().any(|it| before.ends_with(it))
        {
            found.push(at);
        }
    }
    for call in ["args.is(0, \"", ".find(b\""] {
        found.extend(text.match_indices(call).map(|(at, _)| at));
    }
    let shown = move |at: usize| text[at..].chars().take(60).collect();
    found.into_iter().map(shown)
}

fn root() -> PathBuf {
    PathBuf::from("../..")
}

/// Every Rust file under `crates/` and `tests/`.
fn sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().join("crates"), root().join("tests")];
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
