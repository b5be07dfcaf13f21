//! CLUSTER: where slots are. READONLY, READWRITE, ASKING: how this session wants to be served.
//!
//! Every node answers from its own route table, so all of this works while the meta service is down.
//! Each node leads some slots: to clients all are masters. Followers are named only when they answer
//! reads (`enable-follower-read`).

mod keys;
mod topology;

use base::slot::slot_of;
use base::{Refusal, SLOT_COUNT};
use command::{Arity, Categories, CommandSpec, Flags, Group, Secrets};
use resp::{Args, Reply};
use runtime::cluster::Cluster;
use session::Session;
use session::SessionCommand;
use session::SessionRun;

use self::topology::{find, nodes, replicas, shards, slots};
use super::specs::{self, ANYTIME, SERVER, sub};

const CLUSTER: CommandSpec = CommandSpec {
    group: Group::Cluster,
    ..SERVER
};

const ADMIN_READ: Flags = Flags::ADMIN.union(Flags::STALE);
const CHANGES: Flags = ADMIN_READ.union(Flags::NO_ASYNC_LOADING);

const SUBCOMMANDS: &[CommandSpec] = &[
    sub(
        CLUSTER,
        "cluster|count-failure-reports",
        "node-id",
        Arity::Exactly(3),
        ADMIN_READ,
        "3.0.0",
        "Returns how many nodes say that a node has failed.",
    )
    .with_tips(&["nondeterministic_output"]),
    sub(
        CLUSTER,
        "cluster|countkeysinslot",
        "slot",
        Arity::Exactly(3),
        Flags::STALE,
        "3.0.0",
        "Counts the keys of a slot that this node leads.",
    ),
    sub(
        CLUSTER,
        "cluster|getkeysinslot",
        "slot count",
        Arity::Exactly(4),
        Flags::STALE,
        "3.0.0",
        "Returns keys of a slot that this node leads.",
    )
    .with_tips(&["nondeterministic_output"]),
    sub(
        CLUSTER,
        "cluster|info",
        "",
        Arity::Exactly(2),
        Flags::STALE,
        "3.0.0",
        "Tells how the cluster stands.",
    )
    .with_tips(&["nondeterministic_output"]),
    sub(
        CLUSTER,
        "cluster|keyslot",
        "key:string",
        Arity::Exactly(3),
        Flags::STALE,
        "3.0.0",
        "Returns the slot of a key.",
    ),
    sub(
        CLUSTER,
        "cluster|links",
        "",
        Arity::Exactly(2),
        Flags::STALE,
        "7.0.0",
        "Lists the connections to other nodes.",
    )
    .with_tips(&["nondeterministic_output"]),
    sub(
        CLUSTER,
        "cluster|myid",
        "",
        Arity::Exactly(2),
        Flags::STALE,
        "3.0.0",
        "Returns the id of this node.",
    ),
    sub(
        CLUSTER,
        "cluster|myshardid",
        "",
        Arity::Exactly(2),
        Flags::STALE,
        "7.2.0",
        "Returns the id of this node's shard: each node is one.",
    ),
    sub(
        CLUSTER,
        "cluster|nodes",
        "",
        Arity::Exactly(2),
        Flags::STALE,
        "3.0.0",
        "Lists the nodes of the cluster.",
    )
    .with_tips(&["nondeterministic_output"]),
    CommandSpec {
        secrets: Secrets::BehindSubcommand,
        ..sub(
            CLUSTER,
            "cluster|redirects",
            "[token]",
            Arity::AtLeast(2),
            Flags::STALE.union(Flags::NO_AUTH),
            "7.0.0",
            "Redirects this session, even if the node forwards for others; nodes show each other a token.",
        )
    },
    sub(
        CLUSTER,
        "cluster|replicas",
        "node-id",
        Arity::Exactly(3),
        ADMIN_READ,
        "5.0.0",
        "Lists the replicas of a node: none, every node leads.",
    )
    .with_tips(&["nondeterministic_output"]),
    sub(
        CLUSTER,
        "cluster|saveconfig",
        "",
        Arity::Exactly(2),
        CHANGES,
        "3.0.0",
        "Does nothing: what a node knows is on disk.",
    ),
    sub(
        CLUSTER,
        "cluster|shards",
        "",
        Arity::Exactly(2),
        Flags::STALE,
        "7.0.0",
        "Lists slots with the nodes that hold them.",
    )
    .with_tips(&["nondeterministic_output"]),
    sub(
        CLUSTER,
        "cluster|slaves",
        "node-id",
        Arity::Exactly(3),
        ADMIN_READ,
        "3.0.0",
        "As CLUSTER REPLICAS.",
    )
    .with_tips(&["nondeterministic_output"]),
    sub(
        CLUSTER,
        "cluster|slots",
        "",
        Arity::Exactly(2),
        Flags::STALE,
        "3.0.0",
        "Lists slots with the nodes to ask for them.",
    )
    .with_tips(&["nondeterministic_output"]),
    sub(
        CLUSTER,
        "cluster|help",
        "",
        Arity::Exactly(2),
        ANYTIME,
        "5.0.0",
        "Tells about the subcommands.",
    ),
    not_here("cluster|addslots", "slot...", Arity::AtLeast(3), "3.0.0"),
    not_here(
        "cluster|addslotsrange",
        "<start-slot end-slot>...",
        Arity::AtLeast(4),
        "7.0.0",
    ),
    not_here("cluster|bumpepoch", "", Arity::Exactly(2), "3.0.0")
        .with_tips(&["nondeterministic_output"]),
    not_here("cluster|delslots", "slot...", Arity::AtLeast(3), "3.0.0"),
    not_here(
        "cluster|delslotsrange",
        "<start-slot end-slot>...",
        Arity::AtLeast(4),
        "7.0.0",
    ),
    not_here(
        "cluster|failover",
        "[FORCE|TAKEOVER]",
        Arity::AtLeast(2),
        "3.0.0",
    ),
    not_here("cluster|flushslots", "", Arity::Exactly(2), "3.0.0"),
    not_here("cluster|forget", "node-id", Arity::Exactly(3), "3.0.0"),
    not_here(
        "cluster|meet",
        "ip port [cluster_bus_port]",
        Arity::AtLeast(4),
        "3.0.0",
    ),
    not_here("cluster|replicate", "node-id", Arity::Exactly(3), "3.0.0"),
    CommandSpec {
        flags: ADMIN_READ.union(Flags::NOSCRIPT),
        ..not_here("cluster|reset", "[HARD|SOFT]", Arity::AtLeast(2), "3.0.0")
    },
    not_here(
        "cluster|set-config-epoch",
        "config-epoch",
        Arity::Exactly(3),
        "3.0.0",
    ),
    not_here(
        "cluster|setslot",
        "slot <IMPORTING node-id|MIGRATING node-id|NODE node-id|STABLE>",
        Arity::AtLeast(4),
        "3.0.0",
    ),
];

/// A subcommand that says what to do instead.
const fn not_here(
    name: &'static str,
    syntax: &'static str,
    arity: Arity,
    since: &'static str,
) -> CommandSpec {
    sub(
        CLUSTER,
        name,
        syntax,
        arity,
        CHANGES,
        since,
        "Is done by the cluster itself, or by `neokv ctl`.",
    )
}

const FAST: Flags = Flags::FAST.union(ANYTIME);

pub const SPECS: &[SessionCommand] = &[
    SessionCommand {
        spec: specs::container(CLUSTER, "cluster", "3.0.0", "Where slots are.", SUBCOMMANDS),
        run: SessionRun::Subcommands(&[
            (
                "cluster|count-failure-reports",
                SessionRun::Now(failure_reports),
            ),
            (
                "cluster|countkeysinslot",
                SessionRun::Later(keys::count_keys),
            ),
            ("cluster|getkeysinslot", SessionRun::Later(keys::get_keys)),
            ("cluster|info", SessionRun::Now(info)),
            ("cluster|keyslot", SessionRun::Now(keyslot)),
            ("cluster|links", SessionRun::Now(links)),
            ("cluster|myid", SessionRun::Now(my_id)),
            ("cluster|myshardid", SessionRun::Now(my_shard_id)),
            ("cluster|nodes", SessionRun::Now(nodes)),
            ("cluster|redirects", SessionRun::Now(redirects)),
            ("cluster|replicas", SessionRun::Now(replicas)),
            ("cluster|saveconfig", SessionRun::Now(save_config)),
            ("cluster|shards", SessionRun::Now(shards)),
            ("cluster|slaves", SessionRun::Now(replicas)),
            ("cluster|slots", SessionRun::Now(slots)),
            ("cluster|help", SessionRun::Now(help)),
            ("cluster|addslots", SessionRun::Now(instead)),
            ("cluster|addslotsrange", SessionRun::Now(instead)),
            ("cluster|bumpepoch", SessionRun::Now(instead)),
            ("cluster|delslots", SessionRun::Now(instead)),
            ("cluster|delslotsrange", SessionRun::Now(instead)),
            ("cluster|failover", SessionRun::Now(instead)),
            ("cluster|flushslots", SessionRun::Now(instead)),
            ("cluster|forget", SessionRun::Now(instead)),
            ("cluster|meet", SessionRun::Now(instead)),
            ("cluster|replicate", SessionRun::Now(instead)),
            ("cluster|reset", SessionRun::Now(instead)),
            ("cluster|set-config-epoch", SessionRun::Now(instead)),
            ("cluster|setslot", SessionRun::Now(instead)),
        ]),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "readonly",
            arity: Arity::Exactly(1),
            flags: FAST,
            since: "3.0.0",
            summary: "Lets replicas that do not lead answer this session's reads.",
            categories: Some(Categories::CONNECTION),
            ..CLUSTER
        },
        run: SessionRun::Now(readonly),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "readwrite",
            arity: Arity::Exactly(1),
            flags: FAST,
            since: "3.0.0",
            summary: "Ends READONLY.",
            categories: Some(Categories::CONNECTION),
            ..CLUSTER
        },
        run: SessionRun::Now(readwrite),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "asking",
            arity: Arity::Exactly(1),
            flags: Flags::FAST,
            since: "3.0.0",
            summary: "Lets the next command run where a slot is moving to.",
            categories: Some(Categories::CONNECTION),
            ..CLUSTER
        },
        run: SessionRun::Now(asking),
    },
];

fn cluster_of(session: &Session) -> Result<&Cluster, Refusal> {
    let cluster = session.shared().cluster.as_deref();
    cluster.ok_or(Refusal::new(
        "ERR This instance has cluster support disabled",
    ))
}

/// As clients know a node: forty hexadecimal digits, the same for as long as it lives.
fn id_of(cluster: &Cluster, node: u64) -> String {
    format!("{:016x}{node:024x}", cluster.id)
}

fn info(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let cluster = cluster_of(session)?;
    let routes = cluster.routes();
    let (mut assigned, mut served) = (0u32, 0u32);
    let is_alive = |node| routes.node(node).is_some_and(|node| node.alive);
    for range in routes.ranges() {
        let count = u32::from(*range.slots.end()) - u32::from(*range.slots.start()) + 1;
        assigned += count;
        if range.leader.is_some_and(is_alive) {
            served += count;
        }
    }
    let mut leaders: Vec<u64> = routes.regions().filter_map(|it| it.leader_node()).collect();
    leaders.sort_unstable();
    leaders.dedup();
    let is_ok = served == u32::from(SLOT_COUNT);
    let messages: (u64, u64) = cluster
        .transport
        .counters()
        .iter()
        .fold((0, 0), |sum, (_, it)| {
            (sum.0 + it.sent_messages, sum.1 + it.received_messages)
        });
    let text = format!(
        "cluster_state:{}\r\ncluster_slots_assigned:{assigned}\r\n\
         cluster_slots_ok:{served}\r\ncluster_slots_pfail:0\r\ncluster_slots_fail:{}\r\n\
         cluster_known_nodes:{}\r\ncluster_size:{}\r\ncluster_current_epoch:{}\r\n\
         cluster_my_epoch:{}\r\ncluster_stats_messages_sent:{}\r\n\
         cluster_stats_messages_received:{}\r\ntotal_cluster_links_buffer_limit_exceeded:0\r\n",
        if is_ok { "ok" } else { "fail" },
        assigned - served,
        routes.nodes().count(),
        leaders.len(),
        routes.version(),
        routes.version(),
        messages.0,
        messages.1,
    );
    reply.verbatim(&text);
    Ok(())
}

fn keyslot(_: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.int(i64::from(slot_of(args.at(2))));
    Ok(())
}

fn my_id(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let cluster = cluster_of(session)?;
    reply.bulk(id_of(cluster, cluster.node).as_bytes());
    Ok(())
}

/// Every node leads and counts as a shard of its own; the id is another than the node's.
fn my_shard_id(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let cluster = cluster_of(session)?;
    let id = format!("{:024x}{:016x}", cluster.node, cluster.id);
    reply.bulk(id.as_bytes());
    Ok(())
}

fn failure_reports(
    session: &mut Session,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let node = find(cluster_of(session)?, args.at(2))?;
    reply.int_bool(!node.alive);
    Ok(())
}

fn save_config(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    cluster_of(session)?;
    reply.ok();
    Ok(())
}

/// What Redis Cluster has people do, and who does it here.
fn instead(session: &mut Session, args: &Args<'_>, _: &mut Reply) -> Result<(), Refusal> {
    cluster_of(session)?;
    let name = String::from_utf8_lossy(args.at(1)).to_ascii_uppercase();
    let what = match &*name {
        "MEET" => "a node joins by being started with `neokv server --join host:peer-port`",
        "FORGET" => "a node that is gone is replaced by itself, see `neokv ctl nodes`",
        "FAILOVER" => "a region's leader is moved with `neokv ctl transfer-leader`",
        "REPLICATE" => "a region's replicas are changed with `neokv ctl add-replica`",
        "RESET" => "stop the node, remove its data directory and let it join again",
        "BUMPEPOCH" | "SET-CONFIG-EPOCH" => "epochs are counted by the cluster itself",
        _ => "slots belong to regions, which the cluster places itself, see `neokv ctl regions`",
    };
    Err(Refusal::text_of(format!(
        "ERR CLUSTER {name} is not done here: {what}"
    )))
}

/// This session follows redirects itself.
fn redirects(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    cluster_of(session)?;
    match args.len() {
        2 if session.authenticated => {}
        3 => session.trust_by_token(args.at(2))?,
        _ => return Err(Refusal::new("NOAUTH Authentication required.")),
    }
    session.redirects = true;
    reply.ok();
    Ok(())
}

fn links(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let cluster = cluster_of(session)?;
    let peers = cluster.transport.peers();
    reply.array(peers.len());
    for (node, _) in peers {
        reply.map(6);
        reply.bulk(b"direction");
        reply.bulk(b"to");
        reply.bulk(b"node");
        reply.bulk(id_of(cluster, node).as_bytes());
        reply.bulk(b"create-time");
        reply.int(session.shared().started_at_ms as i64);
        reply.bulk(b"events");
        reply.bulk(if cluster.transport.is_up(node) {
            b"rw"
        } else {
            b""
        });
        reply.bulk(b"send-buffer-allocated");
        reply.int(0);
        reply.bulk(b"send-buffer-used");
        reply.int(0);
    }
    Ok(())
}

fn help(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    specs::help(
        reply,
        "CLUSTER",
        &[
            "COUNT-FAILURE-REPORTS <node-id>",
            "    Return 1 if <node-id> has not been heard of lately.",
            "COUNTKEYSINSLOT <slot>",
            "    Return the number of keys in <slot>.",
            "GETKEYSINSLOT <slot> <count>",
            "    Return key names stored by current node in a slot.",
            "INFO",
            "    Return information about the cluster.",
            "KEYSLOT <key>",
            "    Return the hash slot for <key>.",
            "LINKS",
            "    Return information about all network links between this node and its peers.",
            "MYID",
            "    Return the node id.",
            "MYSHARDID",
            "    Return the node's shard id.",
            "NODES",
            "    Return cluster configuration seen by node.",
            "REDIRECTS",
            "    Redirect this session, even if the node forwards for others.",
            "REPLICAS <node-id>",
            "    Return <node-id> replicas: every node leads, so there are none.",
            "SHARDS",
            "    Return information about slot range mappings and the nodes associated with them.",
            "SLOTS",
            "    Return information about slots range mappings.",
        ],
    )
}

fn readonly(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    session.readonly = cluster_of(session)?.follower_read;
    reply.ok();
    Ok(())
}

fn readwrite(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    cluster_of(session)?;
    session.readonly = false;
    reply.ok();
    Ok(())
}

/// No slot is handed over command by command here: there is nothing to allow.
fn asking(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    cluster_of(session)?;
    reply.ok();
    Ok(())
}
