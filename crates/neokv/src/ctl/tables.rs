//! Rows of meta as tables.

use base::cluster::{Descriptor, META_REGION};
use meta::wire::{NodeRow, OperatorRow, RegionRow, Tables};

use crate::table::{Table, bytes, time};

pub fn nodes(tables: &Tables) -> String {
    let mut table = Table::new(&[
        "node", "state", "address", "peer", "http", "leaders", "replicas", "size", "free", "heard",
        "clock", "meta", "labels", "version",
    ]);
    for node in &tables.nodes {
        table.row([
            node.node.to_string(),
            node.state.clone(),
            node.redis.to_string(),
            node.peer.to_string(),
            node.http().map_or("-".into(), |http| http.to_string()),
            node.leaders.to_string(),
            node.replicas.to_string(),
            bytes(node.size_bytes),
            free(node),
            node.silent_ms
                .map_or("-".into(), |ms| format!("{} ago", time(ms))),
            clock(node),
            node.meta.clone(),
            node.labels.clone(),
            node.version.clone(),
        ]);
    }
    format!("{table}{}", head(tables))
}

fn free(node: &NodeRow) -> String {
    match (node.disk_full, node.disk_free_bytes) {
        (true, _) => "FULL".into(),
        (false, 0) => "-".into(),
        (false, free) => bytes(free),
    }
}

/// How wrong its clock is, if that is worth a word: the node goes by the time of the cluster then.
fn clock(node: &NodeRow) -> String {
    match node.clock_ahead_ms {
        None => "-".into(),
        Some(ms) if ms.abs() <= base::clock::APART_MS => "ok".into(),
        Some(ms) if ms > 0 => format!("{} AHEAD", time(ms.unsigned_abs())),
        Some(ms) => format!("{} BEHIND", time(ms.unsigned_abs())),
    }
}

fn head(tables: &Tables) -> String {
    format!("cluster {:016x}\n", tables.cluster)
}

pub fn regions(tables: &Tables) -> String {
    let mut table = Table::new(&[
        "region", "slots", "leader", "nodes", "term", "keys", "size", "health", "operator",
    ]);
    for region in &tables.regions {
        table.row([
            region.descriptor.region.to_string(),
            slots(&region.descriptor),
            leader(region),
            members(region),
            region.term.to_string(),
            region.keys.to_string(),
            bytes(region.size_bytes),
            region.health.clone(),
            region.operator.clone(),
        ]);
    }
    table.to_string()
}

/// `0-5460,9000`, or that it is meta.
pub fn slots(descriptor: &Descriptor) -> String {
    if descriptor.region == META_REGION {
        return "meta".into();
    }
    let ranges =
        descriptor
            .segments
            .iter()
            .map(|segment| match segment.first_slot == segment.last_slot {
                true => segment.first_slot.to_string(),
                false => format!("{}-{}", segment.first_slot, segment.last_slot),
            });
    ranges.collect::<Vec<_>>().join(",")
}

fn leader(region: &RegionRow) -> String {
    match region.leader_node {
        0 => "-".into(),
        node => node.to_string(),
    }
}

/// Nodes of the members; those that do not just vote say what they do.
fn members(region: &RegionRow) -> String {
    let names = region.members.iter().map(|member| {
        let node = member.node;
        match (member.role.as_str(), member.state.as_str()) {
            ("voter", "leader" | "follower" | "candidate") => node.to_string(),
            ("voter", state) => format!("{node}:{state}"),
            (role, _) => format!("{node}:{role}"),
        }
    });
    names.collect::<Vec<_>>().join(" ")
}

pub fn region(tables: &Tables) -> String {
    let mut text = String::new();
    for region in &tables.regions {
        let it = &region.descriptor;
        text.push_str(&format!(
            "region {} · slots {} · {}\nepoch {}.{} · term {} · leader on node {} · {} keys · {}\n\n",
            it.region,
            slots(it),
            region.health,
            it.epoch.members,
            it.epoch.segments,
            region.term,
            leader(region),
            region.keys,
            bytes(region.size_bytes),
        ));
        let mut table = Table::new(&["node", "replica", "role", "state", "applied", "lag"]);
        for member in &region.members {
            table.row([
                member.node.to_string(),
                member.replica.to_string(),
                member.role.clone(),
                member.state.clone(),
                member.applied.to_string(),
                member.lag.map_or("-".into(), |lag| lag.to_string()),
            ]);
        }
        text.push_str(&table.to_string());
    }
    if !tables.operators.is_empty() {
        text.push('\n');
        text.push_str(&operator_rows(&tables.operators));
    }
    text
}

pub fn operators(tables: &Tables) -> String {
    match tables.operators.is_empty() {
        true => "no operators: nothing is being moved or repaired\n".into(),
        false => {
            // Oldest first: those that ended long ago are left out.
            let ended = tables.operators.iter().filter(|row| row.ended).count();
            let mut skip = ended.saturating_sub(ENDED_MAX);
            let left_out = skip;
            let mut rows = tables.operators.clone();
            rows.retain(|row| {
                let keep = !row.ended || skip == 0;
                skip -= usize::from(!keep);
                keep
            });
            match left_out {
                0 => operator_rows(&rows),
                n => format!(
                    "{}and {n} before them: --json shows all\n",
                    operator_rows(&rows)
                ),
            }
        }
    }
}

const ENDED_MAX: usize = 20;

fn operator_rows(rows: &[OperatorRow]) -> String {
    let mut table = Table::new(&["region", "operator", "aim", "step", "began", "by", "is"]);
    for row in rows {
        table.row([
            row.region.to_string(),
            row.kind.clone(),
            row.aim.clone(),
            row.step.clone(),
            format!("{} ago", time(row.age_ms)),
            if row.by_hand { "hand" } else { "meta" }.into(),
            if row.ended { "ended" } else { "under way" }.into(),
        ]);
    }
    table.to_string()
}
