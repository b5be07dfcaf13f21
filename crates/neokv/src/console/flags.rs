//! The command line of `neokv cli`. Its flags are the commonest of redis-cli, so `-h` is the host; help is `--help`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::Options;
use crate::client::secure;

pub fn command() -> Command {
    secure::with_flags(plain(), false)
}

fn plain() -> Command {
    Command::new("cli")
        .about("Talk to a node: one command, commands from a pipe, or a prompt")
        .long_about(
            "Talk to a node: one command, commands from a pipe (one per line), or a prompt if standard input is a \
             terminal.\n\nFlags are the commonest of redis-cli, and the output is as there: numbered and quoted on a \
             terminal, raw otherwise. Without -a, the password is that of the first of the variables \
             NEOKV_PASSWORD, REDISCLI_AUTH and NEOKV_REQUIREPASS (which also sets a server's own) that is not empty. Exit status 1 if an answer is an error, or if there is none.",
        )
        .disable_help_flag(true)
        .arg(value("host", 'h', "HOST", "Host of the node").default_value("127.0.0.1"))
        .arg(
            value("port", 'p', "PORT", "Redis port of the node")
                .value_parser(clap::value_parser!(u16).range(1..))
                .default_value("6379"),
        )
        .arg(
            value("password", 'a', "TEXT", "Password; better given by NEOKV_PASSWORD, REDISCLI_AUTH or NEOKV_REQUIREPASS")
                .aliases(["pass"])
                .allow_hyphen_values(true),
        )
        .arg(Arg::new("user").long("user").value_name("NAME").help("User, if not `default`"))
        .arg(
            value("db", 'n', "N", "Number of the database")
                .value_parser(clap::value_parser!(u32))
                .default_value("0"),
        )
        .arg(switch("cluster", "Go where a cluster's node says that the key is").short('c'))
        .arg(switch("resp3", "Speak RESP3").short('3'))
        .arg(switch("resp2", "Speak RESP2, as it does anyway").short('2').hide(true))
        .arg(switch("stdin", "Read the last argument from standard input").short('x'))
        .arg(switch("errors", "As it is anyway: exit status 1 after an error").short('e').hide(true))
        .arg(switch("raw", "Print answers as they are").long("raw"))
        .arg(
            switch("no-raw", "Print answers numbered and quoted")
                .long("no-raw")
                .overrides_with("raw"),
        )
        .arg(
            Arg::new("help")
                .long("help")
                .action(ArgAction::Help)
                .help("Print help"),
        )
        .arg(
            Arg::new("words")
                .value_name("COMMAND")
                .num_args(0..)
                .value_parser(clap::value_parser!(OsString))
                .trailing_var_arg(true)
                .allow_hyphen_values(true)
                .help("The command and its arguments"),
        )
}

fn value(name: &'static str, short: char, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .short(short)
        .long(name)
        .value_name(value)
        .help(help)
}

fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).action(ArgAction::SetTrue).help(help)
}

/// What the flags ask for, or one line that says what is wrong.
pub fn options(matches: &ArgMatches) -> Result<Options, String> {
    secure::take(matches)?;
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let words = matches.get_many::<OsString>("words").into_iter().flatten();
    let words: Vec<Vec<u8>> = words.cloned().map(OsStringExt::into_vec).collect();
    if let Some([b'-', ..]) = words.first().map(Vec::as_slice) {
        let flag = String::from_utf8_lossy(words.first().map(Vec::as_slice).unwrap_or_default());
        return Err(format!(
            "unexpected argument '{flag}' (see neokv cli --help)"
        ));
    }
    let last_from_stdin = matches.get_flag("stdin");
    if last_from_stdin && words.is_empty() {
        return Err("-x: of which command? (see neokv cli --help)".into());
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
    let raw = match (matches.get_flag("raw"), matches.get_flag("no-raw")) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    };
    Ok(Options {
        host: text("host").unwrap_or_default(),
        port: matches.get_one::<u16>("port").copied().unwrap_or(6379),
        user: text("user"),
        password: text("password")
            .or_else(|| variable("NEOKV_PASSWORD"))
            .or_else(|| variable("REDISCLI_AUTH"))
            .or_else(|| variable("NEOKV_REQUIREPASS")),
        db: matches.get_one::<u32>("db").copied().unwrap_or(0),
        cluster: matches.get_flag("cluster"),
        resp3: matches.get_flag("resp3"),
        raw,
        last_from_stdin,
        words,
    })
}
