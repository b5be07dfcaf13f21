//! The command line. The flags of `neokv server` are made from the list of settings, so that each
//! setting is a flag, a key of the configuration file and an environment variable of one name.
//!
//! `_` in a flag's name means `-`: `--num_shards=4` is `--num-shards 4`. Not so for `neokv cli`, whose arguments are a
//! Redis command.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};
use server::settings::{Setting, kind::Kind, list};

use crate::config::{Given, default_shown, env_name};
use crate::feed::{Wanted, parse_position};
use crate::generate::Files;
use crate::pages::Page;
use crate::{console, ctl, playground, tables};

/// What the command line asks for.
pub enum Asked {
    Server(Given),
    Playground(playground::Options),
    Ctl(ctl::Options),
    Tables(tables::Options),
    Console(console::Options),
    Feed(Wanted),
    AcceptLostLog(PathBuf),
    Page(Page),
    Generate(Files, PathBuf),
    /// Help or version: to be printed.
    Text(String),
    /// One line that says what is wrong.
    Wrong(String),
}

/// Flags shown by `-h`; `--help` shows all.
const MAIN: &[&str] = &[
    "engine",
    "num-shards",
    "port",
    "bind",
    "requirepass",
    "maxmemory",
    "maxmemory-policy",
    "dir",
    "dbfilename",
    "import",
    "save",
];

pub fn parse(args: impl IntoIterator<Item = OsString>) -> Asked {
    let mut args: Vec<OsString> = args.into_iter().collect();
    if args.get(1).is_none_or(|word| word != "cli") {
        args = args.into_iter().map(with_dashes).collect();
    }
    let help = help_of(&args);
    match command().try_get_matches_from(args) {
        Ok(matches) => match matches.subcommand() {
            Some((name @ ("server" | "meta" | "store"), flags)) => match given(name, flags) {
                Ok(given) => Asked::Server(given),
                Err(line) => Asked::Wrong(line),
            },
            Some(("cluster", sub)) => match playground::options(sub) {
                Ok(options) => Asked::Playground(options),
                Err(line) => Asked::Wrong(line),
            },
            Some(("ctl", sub)) => match ctl::options(sub) {
                Ok(options) => Asked::Ctl(options),
                Err(line) => Asked::Wrong(line),
            },
            Some(("table", sub)) => match tables::options(sub) {
                Ok(options) => Asked::Tables(options),
                Err(line) => Asked::Wrong(line),
            },
            Some(("cli", sub)) => match console::options(sub) {
                Ok(options) => Asked::Console(options),
                Err(line) => Asked::Wrong(line),
            },
            Some(("feed", sub)) => wanted(sub),
            Some(("accept-lost-log", sub)) => {
                let dir = sub.get_one::<String>("data-dir").cloned();
                Asked::AcceptLostLog(dir.unwrap_or_default().into())
            }
            Some(("page", sub)) => match sub.get_one::<String>("name").map(String::as_str) {
                Some("configuration") => Asked::Page(Page::Configuration),
                Some("sample") => Asked::Page(Page::Sample),
                _ => Asked::Page(Page::Commands),
            },
            Some(("generate", sub)) => {
                let files = match sub.get_one::<String>("files").map(String::as_str) {
                    Some("completions") => Files::Completions,
                    _ => Files::Man,
                };
                let folder = sub.get_one::<String>("folder").cloned();
                Asked::Generate(files, folder.unwrap_or_default().into())
            }
            _ => Asked::Text(command().render_long_help().to_string()),
        },
        Err(error) if is_help(&error) => Asked::Text(error.render().to_string()),
        Err(error) => {
            let text = error.render().to_string();
            // What is missing is listed in lines of its own.
            let lines = text
                .lines()
                .map(str::trim)
                .take_while(|line| !line.is_empty());
            let line = lines.collect::<Vec<_>>().join(" ");
            let line = line.strip_prefix("error: ").unwrap_or(&line);
            Asked::Wrong(format!("{line} (see {help})"))
        }
    }
}

fn is_help(error: &clap::Error) -> bool {
    let kind = error.kind();
    !error.use_stderr() || kind == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// Where to read about the command that was meant.
fn help_of(args: &[OsString]) -> String {
    let words = args.iter().skip(1).map(|word| word.to_str().unwrap_or("-"));
    let mut command = &command();
    let mut shown = String::from("neokv");
    for word in words.take_while(|word| *word != "--") {
        // Others are flags and their values.
        if let Some(sub) = command.find_subcommand(word) {
            shown = format!("{shown} {word}");
            command = sub;
        }
    }
    format!("{shown} --help")
}

/// The settings that flags of `neokv server` are about: name and as it was written.
pub fn settings_of(flags: &[String]) -> Result<Vec<(&'static str, String)>, String> {
    let named = given_of(flags)?
        .flags
        .into_iter()
        .filter_map(|(row, written, _)| Some((list::ALL.get(row)?.name, written)));
    Ok(named.collect())
}

/// Settings as `neokv server` would have them with these flags, of which none is `--data-dir`.
pub fn settings_with(flags: &[String]) -> Result<server::Settings, String> {
    // Otherwise the default folder would be made.
    let here = ["--data-dir", "."].map(String::from);
    let given = given_of(&[&here, flags].concat())?;
    let settings = crate::config::load(&given, |name| std::env::var(name).ok());
    settings.map_err(|error| error.to_string())
}

fn given_of(flags: &[String]) -> Result<Given, String> {
    let words = ["neokv", "server"].into_iter();
    let words = words.chain(flags.iter().map(String::as_str));
    match parse(words.map(OsString::from)) {
        Asked::Server(given) => Ok(given),
        Asked::Wrong(line) => Err(line),
        _ => Err("flags of `neokv server` are expected".into()),
    }
}

/// `--some_flag=a_b` as `--some-flag=a_b`.
fn with_dashes(arg: OsString) -> OsString {
    let Some(text) = arg.to_str().filter(|text| text.starts_with("--")) else {
        return arg;
    };
    match text.split_once('=') {
        Some((name, value)) => format!("{}={value}", name.replace('_', "-")).into(),
        None => text.replace('_', "-").into(),
    }
}

pub fn command() -> Command {
    Command::new("neokv")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A multi-core server that speaks the Redis protocol")
        .subcommand_required(false)
        .subcommand(node("server", "Start a node"))
        .subcommand(node(
            "store",
            "Start a node of a cluster that holds data: server --roles store",
        ))
        .subcommand(node(
            "meta",
            "Start a node of a cluster that places the data: server --roles meta",
        ))
        .subcommand(playground::command())
        .subcommand(ctl::command())
        .subcommand(tables::command())
        .subcommand(console::command())
        .subcommand(feed())
        .subcommand(accept_lost_log())
        .subcommand(
            Command::new("page")
                .about("Print a generated page of the documentation")
                .hide(true)
                .arg(Arg::new("name").value_parser(["commands", "configuration", "sample"])),
        )
        .subcommand(
            Command::new("generate")
                .about("Write files that are installed beside the program")
                .hide(true)
                .arg(
                    Arg::new("files")
                        .value_parser(["man", "completions"])
                        .required(true),
                )
                .arg(Arg::new("folder").value_name("FOLDER").required(true)),
        )
}

/// A command that starts a node.
fn node(name: &'static str, about: &'static str) -> Command {
    let mut node = Command::new(name)
        .about(about)
        .long_about(format!(
            "{about}.\n\nEvery flag is also a key of the configuration file (--config) and an \
             environment variable (--redis-port: NEOKV_REDIS_PORT). A flag goes before the \
             variable, the variable before the file."
        ))
        .args_override_self(true)
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .help("Configuration file (TOML) [env: NEOKV_CONFIG]"),
        )
        .arg(
            Arg::new("set")
                .long("set")
                .value_name("NAME=VALUE")
                .action(ArgAction::Append)
                .help("Any setting, by the name CONFIG SET knows; may be repeated"),
        );
    for setting in list::ALL {
        node = node.arg(flag(setting));
    }
    node
}

fn data_dir() -> Arg {
    Arg::new("data-dir")
        .long("data-dir")
        .alias("dir")
        .value_name("FOLDER")
        .required(true)
        .help("Folder of the data")
}

fn accept_lost_log() -> Command {
    Command::new("accept-lost-log")
        .about(
            "Give up acknowledged writes that a damaged log has lost; no node may run on the folder",
        )
        .arg(data_dir())
}

fn feed() -> Command {
    Command::new("feed")
        .about("Print the changes kept by --binlog, one per line; no node may run on the folder")
        .arg(data_dir())
        .arg(
            Arg::new("from")
                .long("from")
                .value_name("REGION:INDEX")
                .action(ArgAction::Append)
                .help("Begin with this entry of a region; may be repeated, one for each region"),
        )
}

/// What of the feed is to be printed.
fn wanted(matches: &ArgMatches) -> Asked {
    let mut from = Vec::new();
    for text in matches.get_many::<String>("from").into_iter().flatten() {
        match parse_position(text) {
            Some(position) => from.push(position),
            None => return Asked::Wrong(format!("--from {text}: expected region:index")),
        }
    }
    let dir = matches.get_one::<String>("data-dir");
    let dir = dir.cloned().unwrap_or_default().into();
    Asked::Feed(Wanted { dir, from })
}

fn flag(setting: &'static Setting) -> Arg {
    let mut help = setting.doc.to_string();
    let default = default_shown(setting);
    if !default.is_empty() {
        help.push_str(&format!(" [default: {default}]"));
    }
    help.push_str(&format!(" [env: {}]", env_name(setting)));
    let others: Vec<&str> = setting
        .names()
        .filter(|name| *name != setting.flag())
        .collect();
    Arg::new(setting.name)
        .long(setting.flag())
        .aliases(others)
        .value_name(value_name(setting.kind))
        .action(ArgAction::Append)
        .allow_hyphen_values(true)
        .hide_short_help(!MAIN.contains(&setting.name))
        .help(help)
}

fn value_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool | Kind::Off(_) => "yes|no",
        Kind::Int { .. } => "N",
        Kind::Bytes { .. } => "BYTES",
        Kind::Choice(_) => "WORD",
        Kind::Folder => "FOLDER",
        Kind::FileName | Kind::Path => "FILE",
        Kind::Addresses => "ADDRESS",
        Kind::Backends => "NAME=URL",
        Kind::Save => "SECONDS CHANGES",
        Kind::Text | Kind::Empty(_) | Kind::OutputLimits | Kind::Percentiles => "TEXT",
        Kind::LogLevels => "LEVEL[,MODULE=LEVEL]",
    }
}

/// The flags as they were given, values not looked at yet. The roles are part of some commands' name.
fn given(command: &str, matches: &ArgMatches) -> Result<Given, String> {
    let mut given = Given {
        config: matches.get_one::<String>("config").cloned(),
        ..Given::default()
    };
    for (row, setting) in list::ALL.iter().enumerate() {
        let Some(values) = matches.get_many::<String>(setting.name) else {
            continue;
        };
        let values: Vec<&str> = values.map(String::as_str).collect();
        // Lists may be given in pieces; of other settings the last one counts.
        let text = match setting.kind {
            Kind::Save | Kind::Addresses | Kind::Backends | Kind::OutputLimits => values.join(" "),
            _ => values.last().copied().unwrap_or_default().to_string(),
        };
        given
            .flags
            .push((row, format!("--{}", setting.flag()), text));
    }
    if command != "server" {
        let row = crate::config::find("roles").ok_or("there is no setting roles")?;
        if given.flags.iter().any(|(it, _, _)| *it == row) {
            return Err(format!(
                "--roles: `neokv {command}` is `neokv server --roles {command}`"
            ));
        }
        given
            .flags
            .push((row, format!("neokv {command}"), command.into()));
        given.is_of_cluster = true;
    }
    for pair in matches.get_many::<String>("set").into_iter().flatten() {
        let (name, text) = pair
            .split_once('=')
            .ok_or_else(|| format!("--set {pair}: expected name=value"))?;
        let row = crate::config::find(name.trim())
            .ok_or_else(|| format!("--set {}: no such setting", name.trim()))?;
        given
            .flags
            .push((row, format!("--set {}", name.trim()), text.trim().into()));
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(line: &[&str]) -> Vec<(usize, String, String)> {
        let args = ["neokv", "server"].iter().chain(line).map(Into::into);
        match parse(args) {
            Asked::Server(given) => given.flags,
            Asked::Wrong(line) => panic!("{line}"),
            _ => panic!("not a server"),
        }
    }

    #[test]
    fn clap_accepts_the_flags() {
        command().debug_assert();
    }

    #[test]
    fn names_of_the_original_design_work() {
        for line in [["--redis_port=7"], ["--port=7"], ["--redis-port=7"]] {
            assert_eq!(flags(&line)[0].2, "7");
            assert_eq!(flags(&line)[0].1, "--redis-port");
        }
        assert_eq!(flags(&["--num_shards", "4"])[0].2, "4");
        assert_eq!(flags(&["--dir", "a_b"])[0].2, "a_b");
        assert_eq!(flags(&["--list-max-listpack-size", "-2"])[0].2, "-2");
    }

    #[test]
    fn lists_come_in_pieces_and_the_last_word_counts() {
        assert_eq!(
            flags(&["--save", "900 1", "--save", "60 2"])[0].2,
            "900 1 60 2"
        );
        assert_eq!(flags(&["--hz", "1", "--hz", "2"])[0].2, "2");
        assert_eq!(flags(&["--set", "maxmemory = 1gb"])[0].2, "1gb");
    }
}
