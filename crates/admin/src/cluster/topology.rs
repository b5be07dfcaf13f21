//! Which nodes there are and which slots each serves: CLUSTER NODES, SLOTS, SHARDS, REPLICAS.

use base::{Refusal, Slot};
use meta::route::SlotRange;
use meta::wire::RouteNode;
use resp::{Args, Reply};
use runtime::cluster::Cluster;
use session::Session;

use super::{cluster_of, id_of};

/// Slots as `CLUSTER NODES` writes them.
fn written(slots: &std::ops::RangeInclusive<Slot>) -> String {
    match slots.start() == slots.end() {
        true => slots.start().to_string(),
        false => format!("{}-{}", slots.start(), slots.end()),
    }
}

pub(super) fn nodes(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let cluster = cluster_of(session)?;
    let routes = cluster.routes();
    let mut text = String::new();
    for node in routes.nodes() {
        let myself = if node.node == cluster.node {
            "myself,"
        } else {
            ""
        };
        let is_up = node.alive || node.node == cluster.node;
        let address = node.for_client(session.client.is_tls);
        let slots: Vec<String> = routes.led_by(node.node).iter().map(written).collect();
        text.push_str(&format!(
            "{} {}:{}@{} {myself}master{} - 0 0 {} {}{}{}\n",
            id_of(cluster, node.node),
            address.host,
            address.port,
            node.peer.port,
            if is_up { "" } else { ",fail" },
            routes.version(),
            if is_up { "connected" } else { "disconnected" },
            if slots.is_empty() { "" } else { " " },
            slots.join(" "),
        ));
    }
    reply.verbatim(&text);
    Ok(())
}

/// The nodes to name for a range: its leader first.
fn nodes_of(cluster: &Cluster, range: &SlotRange) -> Vec<RouteNode> {
    let routes = cluster.routes();
    let followers = match cluster.follower_read {
        true => &range.followers[..],
        false => &[],
    };
    let ids = range.leader.iter().chain(followers);
    ids.filter_map(|&node| routes.node(node).cloned()).collect()
}

pub(super) fn slots(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let cluster = cluster_of(session)?;
    let ranges: Vec<(SlotRange, Vec<RouteNode>)> = cluster
        .ranges()
        .into_iter()
        .map(|range| {
            let nodes = nodes_of(cluster, &range);
            (range, nodes)
        })
        .filter(|(range, nodes)| range.leader.is_some() && !nodes.is_empty())
        .collect();
    reply.array(ranges.len());
    for (range, nodes) in ranges {
        reply.array(2 + nodes.len());
        reply.int(i64::from(*range.slots.start()));
        reply.int(i64::from(*range.slots.end()));
        for node in nodes {
            reply.array(4);
            let address = node.for_client(session.client.is_tls);
            reply.bulk(address.host.as_bytes());
            reply.int(i64::from(address.port));
            reply.bulk(id_of(cluster, node.node).as_bytes());
            reply.array(0);
        }
    }
    Ok(())
}

pub(super) fn shards(
    session: &mut Session,
    _: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let cluster = cluster_of(session)?;
    let routes = cluster.routes();
    let nodes: Vec<&RouteNode> = routes.nodes().collect();
    reply.array(nodes.len());
    for node in nodes {
        let led = routes.led_by(node.node);
        let health = if node.alive { "online" } else { "fail" };
        reply.map(2);
        reply.bulk(b"slots");
        reply.array(2 * led.len());
        for slots in led {
            reply.int(i64::from(*slots.start()));
            reply.int(i64::from(*slots.end()));
        }
        reply.bulk(b"nodes");
        reply.array(1);
        // As in Redis: each port a node has, under its own name.
        let ports = [
            ("port", node.redis.port, !node.is_tls_only()),
            ("tls-port", node.tls_port, node.tls_port != 0),
        ];
        let ports = ports.into_iter().filter(|(_, _, is_there)| *is_there);
        reply.map(6 + ports.clone().count());
        let texts = [
            ("id", id_of(cluster, node.node)),
            ("ports", String::new()),
            ("ip", node.redis.host.clone()),
            ("endpoint", node.redis.host.clone()),
            ("role", "master".into()),
            ("replication-offset", String::new()),
            ("health", health.into()),
        ];
        for (name, text) in texts {
            if name == "ports" {
                for (name, port, _) in ports.clone() {
                    reply.bulk(name.as_bytes());
                    reply.int(i64::from(port));
                }
                continue;
            }
            reply.bulk(name.as_bytes());
            match name {
                "replication-offset" => reply.int(routes.version() as i64),
                _ => reply.bulk(text.as_bytes()),
            }
        }
    }
    Ok(())
}

/// A node that this one knows, by its id as clients know it.
pub(super) fn find(cluster: &Cluster, id: &[u8]) -> Result<RouteNode, Refusal> {
    let unknown = || {
        let id = String::from_utf8_lossy(id);
        Refusal::text_of(format!("ERR Unknown node {id}"))
    };
    let routes = cluster.routes();
    let mut nodes = routes.nodes();
    let node = nodes.find(|node| id_of(cluster, node.node).as_bytes() == id);
    node.cloned().ok_or_else(unknown)
}

pub(super) fn replicas(
    session: &mut Session,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    find(cluster_of(session)?, args.at(2))?;
    reply.array(0);
    Ok(())
}
