//! The command line of `neokv cluster`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{Options, Shape, What};

const FOLDER: &str = "neokv-cluster";

pub fn command() -> Command {
    let dir = || {
        Arg::new("dir")
            .long("dir")
            .value_name("FOLDER")
            .default_value(FOLDER)
            .help("Folder of the playground: data, logs and what runs")
    };
    let number = || {
        Arg::new("node")
            .value_name("NODE")
            .required(true)
            .value_parser(clap::value_parser!(u32).range(1..))
            .help("Number of the node, from 1")
    };
    Command::new("cluster")
        .about("A cluster on this machine, to try things with")
        .after_help(
            "The nodes run in the background; their data and logs are in ./neokv-cluster, or where \
             --dir says.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(up(dir()))
        .subcommand(
            Command::new("down")
                .about("Stop all nodes; the data stays")
                .arg(dir())
                .arg(
                    Arg::new("wipe")
                        .long("wipe")
                        .action(ArgAction::SetTrue)
                        .help("Remove data and logs as well"),
                ),
        )
        .subcommand(
            Command::new("status")
                .about("What runs, and who serves what")
                .arg(dir())
                .arg(
                    Arg::new("json")
                        .long("json")
                        .action(ArgAction::SetTrue)
                        .help("Print JSON instead of a table"),
                ),
        )
        .subcommand(
            Command::new("kill")
                .about("Kill one node at once (SIGKILL), to see the others take over")
                .arg(number())
                .arg(dir()),
        )
        .subcommand(
            Command::new("start")
                .about("Start one node again, with its data")
                .arg(number())
                .arg(dir()),
        )
}

fn up(dir: Arg) -> Command {
    let number = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("N")
            .value_parser(clap::value_parser!(u32).range(1..))
            .help(help)
    };
    Command::new("up")
        .about("Start a cluster in the background")
        .long_about(
            "Start a cluster in the background and wait until all of it is served.\n\nIf the \
             folder has one already, the nodes that do not run are started, with their data; with \
             a larger --nodes, new nodes join it.",
        )
        .arg(
            number(
                "nodes",
                "How many nodes [default: 3, or as many as there are]",
            )
            .value_parser(clap::value_parser!(u32).range(1..=100)),
        )
        .arg(dir)
        .arg(
            Arg::new("port")
                .long("port")
                .value_name("PORT")
                .value_parser(clap::value_parser!(u16).range(1..))
                .help(
                    "Redis port of node 1; the others have the following ones. Peers talk on \
                     ports higher by 10000, HTTP on ports higher by 1379 [default: 7000]",
                ),
        )
        .arg(number(
            "replicas",
            "Copies of every key [default: 3, or one per node if there are fewer]",
        ))
        .arg(number(
            "regions",
            "Parts the slots are divided into [default: four per replica]",
        ))
        .arg(number("shards", "Cores of each node [default: 1]"))
        .arg(
            Arg::new("flags")
                .value_name("FLAGS")
                .last(true)
                .num_args(0..)
                .help("After `--`: further flags of `neokv server`, for every node"),
        )
}

/// What the flags ask for.
pub fn options(matches: &ArgMatches) -> Result<Options, String> {
    let Some((name, sub)) = matches.subcommand() else {
        return Err("cluster: what? (see neokv cluster --help)".into());
    };
    let dir = sub.get_one::<String>("dir").map(PathBuf::from);
    let number = |of: &str| sub.get_one::<u32>(of).copied();
    let what = match name {
        "up" => {
            let flags: Option<Vec<String>> = sub
                .get_many::<String>("flags")
                .map(|flags| flags.cloned().collect());
            What::Up(Shape {
                nodes: number("nodes"),
                port: sub.get_one::<u16>("port").copied(),
                regions: number("regions"),
                replicas: number("replicas"),
                shards: number("shards"),
                flags,
            })
        }
        "down" => What::Down {
            wipe: sub.get_flag("wipe"),
        },
        "status" => What::Status {
            json: sub.get_flag("json"),
        },
        "kill" => What::Kill(number("node").unwrap_or_default()),
        _ => What::Start(number("node").unwrap_or_default()),
    };
    Ok(Options {
        dir: dir.unwrap_or_else(|| FOLDER.into()),
        what,
    })
}
