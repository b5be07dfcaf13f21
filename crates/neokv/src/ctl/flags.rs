//! The command line of `neokv ctl`.

use clap::{Arg, ArgAction, ArgMatches, Command};
use meta::wire::ReplicaMove;

use super::{Options, What};

pub fn command() -> Command {
    let region = || number("region", "REGION", "Number of the region, see `regions`");
    let node = || number("node", "NODE", "Number of the node, see `nodes`");
    let ask = |name: &'static str, about: &'static str| Command::new(name).about(about);
    let moves = |name, about| ask(name, about).arg(region()).arg(node());
    Command::new("ctl")
        .about("Look at a running cluster, and give it orders")
        .long_about(
            "Look at a running cluster, and give it orders.\n\nAny node can be asked: it passes \
             the question on to the leader of the meta service. Exit status 1 if the answer is no.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(
            Arg::new("peer")
                .long("peer")
                .value_name("HOST:PORT[,…]")
                .default_value("127.0.0.1:16379")
                .env("NEOKV_CTL_PEER")
                .global(true)
                .help("Peer port of one or more nodes (the Redis port + 10000 unless set)"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .global(true)
                .help("Print JSON instead of a table"),
        )
        .arg(
            Arg::new("cluster-secret-file")
                .long("cluster-secret-file")
                .value_name("FILE")
                .env("NEOKV_CLUSTER_SECRET_FILE")
                .global(true)
                .help(
                    "File with the cluster secret, as in the data directory of every node [default: cluster-secret in \
                     ./neokv-data, ./neokv-cluster or /var/lib/neokv]",
                ),
        )
        .arg(
            Arg::new("peer-auth")
                .long("peer-auth")
                .value_name("yes|no")
                .value_parser(["yes", "no"])
                .default_value("yes")
                .env("NEOKV_PEER_AUTH")
                .global(true)
                .help("no: the nodes were started with --peer-auth no"),
        )
        .args(
            [
                (
                    "peer-tls-cert",
                    "Certificate (PEM), if the nodes use TLS between them",
                ),
                ("peer-tls-key", "Key of that certificate (PEM)"),
                ("peer-tls-ca", "Authority of the nodes' certificates (PEM)"),
            ]
            .map(|(name, help)| {
                Arg::new(name)
                    .long(name)
                    .value_name("FILE")
                    .global(true)
                    .help(help)
            }),
        )
        .subcommand(ask("nodes", "All nodes: address, state, replicas, leaders"))
        .subcommand(ask(
            "regions",
            "All regions: slots, leader, members, health",
        ))
        .subcommand(ask("region", "One region, its members and how far each is").arg(region()))
        .subcommand(ask(
            "operators",
            "Changes under way, and the last that ended",
        ))
        .subcommand(moves(
            "transfer-leader",
            "Let the replica on a node lead a region",
        ))
        .subcommand(moves("add-replica", "Make a replica of a region on a node"))
        .subcommand(moves(
            "remove-replica",
            "Remove a region's replica from a node",
        ))
        .subcommand(ask("cancel", "Give up the operator of a region").arg(region()))
        .subcommand(
            ask(
                "remove-node",
                "A dead node is gone for good: make its replicas elsewhere",
            )
            .arg(node()),
        )
        .subcommand(
            ask(
                "digest",
                "Compare the state of all replicas of a region, or of every region",
            )
            .arg(region().required(false)),
        )
        .subcommand(super::unsafe_recover::command())
        .subcommand(ask(
            "rotate-secret",
            "Replace the cluster secret on all nodes, without downtime",
        ))
}

fn number(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .value_name(value)
        .required(true)
        .value_parser(clap::value_parser!(u64))
        .help(help)
}

/// What the flags ask for, or one line that says what is wrong.
pub fn options(matches: &ArgMatches) -> Result<Options, String> {
    let Some((name, sub)) = matches.subcommand() else {
        return Err("ctl: what? (see neokv ctl --help)".into());
    };
    // Only some subcommands have these; clap has seen to it that they are there.
    let number = |of: &str| sub.try_get_one::<u64>(of).ok().flatten().copied();
    let region = number("region");
    let of = || region.unwrap_or_default();
    let node = || number("node").unwrap_or_default();
    let moved = || ReplicaMove {
        region: of(),
        node: node(),
    };
    let what = match name {
        "nodes" => What::Nodes,
        "regions" => What::Regions,
        "region" => What::Region(of()),
        "operators" => What::Operators,
        "transfer-leader" => What::TransferLeader(moved()),
        "add-replica" => What::AddReplica(moved()),
        "remove-replica" => What::RemoveReplica(moved()),
        "cancel" => What::Cancel(of()),
        "remove-node" => What::RemoveNode(node()),
        "unsafe-recover" => What::UnsafeRecover(super::unsafe_recover::options(sub)),
        "rotate-secret" => What::RotateSecret,
        _ => What::Digest(region),
    };
    let peers = sub.get_one::<String>("peer").cloned().unwrap_or_default();
    let mut addresses = Vec::new();
    for peer in peers.split(',').map(str::trim).filter(|it| !it.is_empty()) {
        let port = peer.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(1..))) {
            return Err(format!("--peer {peer}: expected host:port"));
        }
        addresses.push(peer.to_owned());
    }
    if addresses.is_empty() {
        return Err("--peer: expected host:port".into());
    }
    let tls = ["peer-tls-cert", "peer-tls-key", "peer-tls-ca"]
        .map(|name| sub.get_one::<String>(name).cloned());
    let tls = match tls {
        [None, None, None] => None,
        [Some(certificate), Some(key), Some(authority)] => Some([certificate, key, authority]),
        _ => return Err("--peer-tls-cert, --peer-tls-key and --peer-tls-ca go together".into()),
    };
    Ok(Options {
        peers: addresses,
        tls,
        secret_file: sub
            .get_one::<String>("cluster-secret-file")
            .filter(|it| !it.is_empty())
            .map(Into::into),
        peer_auth: sub
            .get_one::<String>("peer-auth")
            .is_none_or(|it| it != "no"),
        json: sub.get_flag("json"),
        what,
    })
}
