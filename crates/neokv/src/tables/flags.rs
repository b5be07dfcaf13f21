//! The command line of `neokv table`.

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{Options, What, drain};
use crate::client::secure;

pub fn command() -> Command {
    secure::with_flags(plain(), true)
}

fn plain() -> Command {
    let ask = |name: &'static str, about: &'static str| Command::new(name).about(about);
    let table = || word("name", "TABLE", "Name of the table, see `list`");
    let key = || word("key", "TABLE:KEY", "The row, see `dead list`");
    Command::new("table")
        .about("Declare tables over SQL, change them, and see how their rows fare")
        .long_about(
            "Declare tables over SQL, change them, and see how their rows fare.\n\nThe rows of a \
             table `users` are the keys `users:…`: any Redis client reads and writes them as hashes, \
             and the SQL database receives every change. Exit status 1 if the answer is no.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(
            Arg::new("address")
                .long("address")
                .value_name("HOST:PORT")
                .default_value("127.0.0.1:6379")
                .env("NEOKV_ADDRESS")
                .global(true)
                .help("Redis port of a node; of a cluster, any"),
        )
        .arg(
            Arg::new("password")
                .long("password")
                .value_name("TEXT")
                .env("NEOKV_PASSWORD")
                .hide_env_values(true)
                .global(true)
                .help("Password of the node (requirepass); better given by the variable"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .global(true)
                .help("Print JSON instead of text"),
        )
        .subcommand(
            ask("create", "Declare a table; makes the SQL table, or takes one that fits")
                .arg(table())
                .arg(
                    Arg::new("fields")
                        .long("fields")
                        .value_name("FIELD:KIND[=DEFAULT],…")
                        .required(true)
                        .help("Kinds: int64, uint64, float64, string, blob. Texts may be in 'quotes', blobs are 0x…"),
                )
                .arg(option("backend", "NAME", "The SQL database, see `backends`; else `main`, or the only one"))
                .arg(option("sql-name", "NAME", "Name of the table in SQL, if not its own"))
                .arg(switch("adopt", "Only over an SQL table that is there already")),
        )
        .subcommand(ask("list", "All tables"))
        .subcommand(ask("show", "One table: its fields, and where it is in SQL").arg(table()))
        .subcommand(
            ask("add-field", "Add a field and its column").arg(table()).arg(word(
                "field",
                "FIELD:KIND[=DEFAULT]",
                "As in `create --fields`",
            )),
        )
        .subcommand(
            ask("drop-field", "Drop a field and its column")
                .arg(table())
                .arg(word("field", "FIELD", "Name of the field"))
                .arg(switch("keep-sql", "Leave the column in SQL")),
        )
        .subcommand(
            ask("drop", "Drop a table with all its rows, in SQL too")
                .arg(table())
                .arg(switch("keep-sql", "Leave the SQL table, once it has everything")),
        )
        .subcommand(ask("backends", "The SQL databases, whether they answer, and what was asked of them"))
        .subcommand(ask("status", "Rows cached, rows that SQL lacks, and since when"))
        .subcommand(
            ask("open", "Let a table take changes again, after a drop with --keep-sql that was cut off").arg(table()),
        )
        .subcommand(
            ask("drain", "Wait until SQL has everything that was written until now")
                .arg(option("table", "NAME", "Only of this table"))
                .arg(
                Arg::new("timeout")
                    .long("timeout")
                    .value_name("SECONDS")
                    .value_parser(clap::value_parser!(u64).range(1..=86_400))
                    .help("Give up after so long [default: 600]"),
            ),
        )
        .subcommand(
            ask("dead", "Rows that SQL did not take")
                .subcommand_required(true)
                .arg_required_else_help(true)
                .subcommand(ask("list", "All of them, and why"))
                .subcommand(
                    ask("retry", "Write a row again").arg(key()).arg(
                        Arg::new("over")
                            .long("over")
                            .value_name("VERSION")
                            .value_parser(clap::value_parser!(u64))
                            .help("After a conflict: over this version in SQL, whatever put it there"),
                    ),
                )
                .subcommand(ask("drop", "Give up what SQL did not take: the row is what SQL has").arg(key())),
        )
}

fn word(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).value_name(value).required(true).help(help)
}

fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn switch(name: &'static str, help: &'static str) -> Arg {
    let arg = Arg::new(name).long(name).help(help);
    arg.action(ArgAction::SetTrue)
}

/// What the flags ask for, or one line that says what is wrong.
pub fn options(matches: &ArgMatches) -> Result<Options, String> {
    let Some((name, sub)) = matches.subcommand() else {
        return Err("table: what? (see neokv table --help)".into());
    };
    let (what, last) = match name {
        "dead" => match sub.subcommand() {
            Some((name, last)) => (dead(name, last), last),
            None => return Err("dead: what? (see neokv table dead --help)".into()),
        },
        name => (what(name, sub), sub),
    };
    secure::take(last)?;
    let address = text(last, "address");
    let port = address
        .rsplit_once(':')
        .map(|(_, port)| port.parse::<u16>());
    if !matches!(port, Some(Ok(1..))) {
        return Err(format!("--address {address}: expected host:port"));
    }
    Ok(Options {
        address,
        password: last.get_one::<String>("password").cloned(),
        json: last.get_flag("json"),
        what,
    })
}

fn text(of: &ArgMatches, name: &str) -> String {
    of.get_one::<String>(name).cloned().unwrap_or_default()
}

fn what(name: &str, sub: &ArgMatches) -> What {
    let of = |name: &str| text(sub, name);
    // Only some subcommands have these; clap has seen to it that they are there.
    let table = || of("name");
    match name {
        "create" => {
            let mut words = vec!["CREATE".into(), table(), "FIELDS".into(), of("fields")];
            for (flag, word) in [("backend", "BACKEND"), ("sql-name", "SQLNAME")] {
                if let Some(value) = sub.get_one::<String>(flag) {
                    words.extend([word.to_owned(), value.clone()]);
                }
            }
            if sub.get_flag("adopt") {
                words.push("ADOPT".into());
            }
            What::Change(words, format!("created {}", table()))
        }
        "list" => What::List,
        "show" => What::Show(table()),
        "add-field" => {
            let words = vec!["ADDFIELD".into(), table(), of("field")];
            What::Change(words, format!("added {} to {}", of("field"), table()))
        }
        "drop-field" => {
            let mut words = vec!["DROPFIELD".into(), table(), of("field")];
            if sub.get_flag("keep-sql") {
                words.push("KEEPSQL".into());
            }
            What::Change(words, format!("dropped {} of {}", of("field"), table()))
        }
        "drop" if sub.get_flag("keep-sql") => What::DropKeepingSql(table()),
        "drop" => {
            let words = vec!["DROP".into(), table()];
            What::Change(words, format!("dropped {} and its SQL table", table()))
        }
        "open" => {
            let words = vec!["OPEN".into(), table()];
            What::Change(words, format!("{} takes changes", table()))
        }
        "backends" => What::Backends,
        "status" => What::Status,
        _ => {
            let seconds = sub.get_one::<u64>("timeout").copied();
            let seconds = seconds.unwrap_or(drain::SECONDS);
            let table = sub.get_one::<String>("table").cloned();
            What::Drain { table, seconds }
        }
    }
}

fn dead(name: &str, sub: &ArgMatches) -> What {
    if name == "list" {
        return What::DeadList;
    }
    let key = text(sub, "key");
    if name == "drop" {
        let said = format!("{key} is what SQL has");
        return What::DeadSettle(vec!["DEAD".into(), "DROP".into(), key], said);
    }
    let said = format!("{key} is being written again; see `neokv table dead list`");
    let mut words = vec!["DEAD".into(), "RETRY".into(), key];
    if let Some(over) = sub.get_one::<u64>("over") {
        words.extend(["OVER".to_owned(), over.to_string()]);
    }
    What::DeadSettle(words, said)
}
