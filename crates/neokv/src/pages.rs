//! Generated pages: the tables of commands and of settings as Markdown, and a sample of the configuration file.
//! `tests/pages.rs` fails when the files in `docs/` differ from what is printed here, and starts a node with the sample.

use std::fmt::Write;

use command::{Arity, CommandSpec, Group};
use server::settings::kind::Kind;
use server::settings::{Change, Setting, list};

use crate::config::{default_shown, env_name};

pub enum Page {
    Commands,
    Configuration,
    Sample,
}

impl Page {
    pub fn text(&self) -> String {
        match self {
            Page::Commands => commands(),
            Page::Configuration => configuration(),
            Page::Sample => sample(),
        }
    }
}

const GROUPS: &[(Group, &str)] = &[
    (Group::Generic, "Keys"),
    (Group::String, "Strings"),
    (Group::Bitmap, "Bitmaps"),
    (Group::Hash, "Hashes"),
    (Group::List, "Lists"),
    (Group::Set, "Sets"),
    (Group::SortedSet, "Sorted sets"),
    (Group::Row, "Rows of SQL tables"),
    (Group::Transactions, "Transactions"),
    (Group::Connection, "Connection"),
    (Group::Cluster, "Cluster"),
    (Group::Scripting, "Functions"),
    (Group::Server, "Server"),
];

fn commands() -> String {
    let table = server::commands().specs;
    let specs: Vec<&CommandSpec> = table.table.listed().collect();
    let ours = specs.iter().filter(|spec| spec.group == Group::Row).count();
    let mut page = format!(
        "# Commands\n\nGenerated from the command table by `neokv page commands`; do not edit.\n\n\
         {} commands as in Redis 7.0, and {ours} of our own (`ROW.*`). *Arity* counts the name; −2 means two or more. \
         `[x]` may be left out, of `a|b` one is given, `<x y>` belong together, `x...` may be repeated (`WORD x*`: with the word).\n",
        specs.len() - ours
    );
    for (group, title) in GROUPS {
        let specs: Vec<&CommandSpec> = specs
            .iter()
            .copied()
            .filter(|spec| spec.group == *group)
            .collect();
        if specs.is_empty() {
            continue;
        }
        let _ = write!(
            page,
            "\n## {title}\n\n| command | arity | since | complexity | what it does |\n|---|---|---|---|---|\n"
        );
        for spec in specs {
            line(&mut page, spec);
            for sub in spec.subcommands {
                line(&mut page, sub);
            }
        }
    }
    page
}

fn line(page: &mut String, spec: &CommandSpec) {
    let name = spec.name.to_ascii_uppercase().replace('|', " ");
    let arity = match spec.arity {
        Arity::Exactly(n) => n.to_string(),
        Arity::AtLeast(n) => format!("−{n}"),
    };
    let _ = writeln!(
        page,
        "| `{}` | {arity} | {} | {} | {} |",
        cell(format!("{name} {}", spec.syntax).trim_end()),
        spec.since,
        cell(spec.complexity),
        cell(spec.summary)
    );
}

/// Text that cannot end a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn configuration() -> String {
    let mut page = String::from(
        "# Configuration\n\nGenerated from the list of settings by `neokv page configuration`; do not edit.\n\n\
         Each setting is a flag of `neokv server` (`--redis-port 7000`, `--redis_port=7000`), a key of the TOML file\n\
         given by `--config` (`redis-port = 7000`), and an environment variable (`NEOKV_REDIS_PORT=7000`). A flag goes\n\
         before the variable, the variable before the file. `--set name=value` gives any setting by its `CONFIG` name.\n\n\
         *Change*: `yes` by `CONFIG SET` at any time; `protected` if `enable-protected-configs` allows it; `start` only when\n\
         the node starts. `CONFIG REWRITE` writes the present values into the file, comments kept.\n\n\
         | setting | values | default | change | what it does |\n|---|---|---|---|---|\n",
    );
    for setting in list::ALL {
        let mut names = format!("`{}`", setting.flag());
        for other in setting.names().filter(|name| *name != setting.flag()) {
            let _ = write!(names, ", `{other}`");
        }
        let default = match default_shown(setting) {
            "" => "empty".to_string(),
            text => format!("`{text}`"),
        };
        let change = match setting.change {
            Change::Always => "yes",
            Change::Protected => "protected",
            Change::Start | Change::Never => "start",
        };
        let _ = writeln!(
            page,
            "| {names}<br>`{}` | {} | {default} | {change} | {} |",
            env_name(setting),
            cell(&setting.kind.describe()),
            cell(setting.doc)
        );
    }
    page
}

/// Every setting with its default, commented out.
fn sample() -> String {
    let mut page = String::from(
        "# Configuration of neokv: neokv server --config FILE. Every setting is here with its default.\n\
         # Remove the # before a line to change it. Flags and variables (NEOKV_REDIS_PORT) go before this file.\n",
    );
    for setting in list::ALL {
        page.push('\n');
        for line in wrapped(setting.doc) {
            let _ = writeln!(page, "# {line}");
        }
        let _ = writeln!(page, "# Values: {}", setting.kind.describe());
        let _ = writeln!(page, "#{} = {}", setting.flag(), toml(setting));
    }
    page
}

/// The default as a value of TOML.
fn toml(setting: &Setting) -> String {
    let text = default_shown(setting);
    match setting.kind {
        Kind::Int { .. } => text.into(),
        Kind::Bool | Kind::Off(_) => (text == "yes").to_string(),
        _ => toml_edit::Value::from(text).to_string(),
    }
}

/// Lines of at most a hundred characters, broken at blanks.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + word.chars().count() < 100 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}
