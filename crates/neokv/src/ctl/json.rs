//! Rows of meta as JSON. Ids of clusters are hexadecimal texts: they need more bits than some
//! readers of JSON have in a number.

use meta::wire::{MemberRow, NodeRow, OperatorRow, RegionRow, Tables};
use serde_json::{Value, json};

pub fn nodes(tables: &Tables) -> Value {
    let nodes: Vec<Value> = tables.nodes.iter().map(node).collect();
    json!({ "cluster": cluster(tables), "nodes": nodes })
}

pub fn regions(tables: &Tables) -> Value {
    let regions: Vec<Value> = tables.regions.iter().map(region_row).collect();
    json!({ "cluster": cluster(tables), "regions": regions })
}

pub fn region(tables: &Tables) -> Value {
    let mut value = tables.regions.first().map(region_row).unwrap_or_default();
    value["operators"] = tables.operators.iter().map(operator).collect();
    value
}

pub fn operators(tables: &Tables) -> Value {
    let operators: Vec<Value> = tables.operators.iter().map(operator).collect();
    json!({ "cluster": cluster(tables), "operators": operators })
}

fn cluster(tables: &Tables) -> String {
    format!("{:016x}", tables.cluster)
}

fn node(row: &NodeRow) -> Value {
    json!({
        "node": row.node,
        "state": row.state,
        "redis": row.redis.to_string(),
        "peer": row.peer.to_string(),
        "http": row.http().map(|http| http.to_string()),
        "labels": row.labels,
        "version": row.version,
        "replicas": row.replicas,
        "leaders": row.leaders,
        "size_bytes": row.size_bytes,
        "disk_free_bytes": row.disk_free_bytes,
        "disk_full": row.disk_full,
        "silent_ms": row.silent_ms,
        "start_count": row.start_count,
        "meta": row.meta,
        "load": row.load,
        "clock_ahead_ms": row.clock_ahead_ms,
    })
}

fn region_row(row: &RegionRow) -> Value {
    let segments: Vec<Value> = row
        .descriptor
        .segments
        .iter()
        .map(
            |it| json!({ "home": it.home, "first_slot": it.first_slot, "last_slot": it.last_slot }),
        )
        .collect();
    let members: Vec<Value> = row.members.iter().map(member).collect();
    let epoch = &row.descriptor.epoch;
    json!({
        "region": row.descriptor.region,
        "epoch": { "members": epoch.members, "segments": epoch.segments },
        "segments": segments,
        "leader_node": (row.leader_node != 0).then_some(row.leader_node),
        "leader_replica": (row.leader_replica != 0).then_some(row.leader_replica),
        "term": row.term,
        "keys": row.keys,
        "size_bytes": row.size_bytes,
        "members": members,
        "health": row.health,
        "operator": row.operator,
        "load": row.load,
    })
}

fn member(row: &MemberRow) -> Value {
    json!({
        "replica": row.replica,
        "node": row.node,
        "role": row.role,
        "state": row.state,
        "applied": row.applied,
        "lag": row.lag,
    })
}

fn operator(row: &OperatorRow) -> Value {
    json!({
        "region": row.region,
        "kind": row.kind,
        "aim": row.aim,
        "step": row.step,
        "age_ms": row.age_ms,
        "ended": row.ended,
        "by_hand": row.by_hand,
    })
}
