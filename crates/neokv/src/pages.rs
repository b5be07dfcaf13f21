//! Generated pages of the documentation: the tables of commands and of settings as Markdown.
//! `tests/pages.rs` fails when the files in `docs/` differ from what is printed here.

use std::fmt::Write;

use command::{Arity, Command, Group};
use server::settings::{Change, list};

use crate::config::env_name;

pub enum Page {
    Commands,
    Configuration,
}

impl Page {
    pub fn text(&self) -> String {
        match self {
            Page::Commands => commands(),
            Page::Configuration => configuration(),
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
    let table = server::Commands::new();
    let rows: Vec<&Command> = table.table.listed().collect();
    let ours = rows
        .iter()
        .filter(|row| row.name.starts_with("row."))
        .count();
    let mut page = format!(
        "# Commands\n\nGenerated from the command table by `neokv page commands`; do not edit.\n\n\
         {} commands as in Redis 7.0, and {ours} of our own (`ROW.*`). *Arity* counts the name; −2 means two or more. \
         `[x]` may be left out, of `a|b` one is given, `<x y>` belong together, `x...` may be repeated (`WORD x*`: with the word).\n",
        rows.len() - ours
    );
    for (group, title) in GROUPS {
        let rows: Vec<&Command> = rows
            .iter()
            .copied()
            .filter(|row| row.group == *group)
            .collect();
        if rows.is_empty() {
            continue;
        }
        let _ = write!(
            page,
            "\n## {title}\n\n| command | arity | since | complexity | what it does |\n|---|---|---|---|---|\n"
        );
        for row in rows {
            line(&mut page, row);
            for sub in row.subcommands {
                line(&mut page, sub);
            }
        }
    }
    page
}

fn line(page: &mut String, row: &Command) {
    let name = row.name.to_ascii_uppercase().replace('|', " ");
    let arity = match row.arity {
        Arity::Exactly(n) => n.to_string(),
        Arity::AtLeast(n) => format!("−{n}"),
    };
    let _ = writeln!(
        page,
        "| `{}` | {arity} | {} | {} | {} |",
        cell(format!("{name} {}", row.syntax).trim_end()),
        row.since,
        cell(row.complexity),
        cell(row.summary)
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
        let default = match setting.default {
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
