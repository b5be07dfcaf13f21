//! Commands about all keys, of sessions that forward: KEYS, DBSIZE, RANDOMKEY, SCAN, FLUSHALL.
//!
//! Every node answers for the slots it leads; a plain client means the keys of all. So this node asks
//! all that lead something and puts their answers together. SCAN goes from node to node; the upper bits of
//! its cursor say which one it is at. While a slot changes its leader, it may be counted by both or
//! by none.

use std::time::Duration;

use base::Refusal;
use base::cluster::NodeId;
use bytes::Bytes;
use command::{Keys, Merge};
use keyspace::CURSOR_BITS;
use resp::Protocol;
use runtime::cores::Place;

use super::remote_reply::write_remote;
use super::upstream::{Introduction, encode, encode_args};
use crate::Session;
use crate::connection::{Connection, Ended};
use crate::slow::{scan_count, split_scan, with_cursor};

/// Bits of a cursor below those that name the node: a position, and one of 2^16 places.
const NODE_SHIFT: u32 = CURSOR_BITS + 16;
const NODE_MASK: u64 = (1 << (64 - NODE_SHIFT)) - 1;
/// A node that says nothing for so long is given up.
const SILENT: Duration = Duration::from_secs(30);

impl Connection {
    pub(crate) async fn run_on_all_nodes(&mut self, stat: usize) -> Result<(), Ended> {
        let core = self.work.session.core.clone();
        let spec = core.shared.commands.spec(stat);
        if spec.keys == Keys::Cursor {
            self.scan_all_nodes(stat).await;
            return Ok(());
        }
        let bytes = self.input.buffer.get(self.input.at..).unwrap_or_default();
        let args = self.input.parser.args(bytes);
        let mut request = Vec::new();
        encode_args(&args, &mut request);
        let start = self.work.out.len();
        let all: Vec<Place> = (0..core.shared.map.regions()).collect();
        self.run_held(stat, &all).await;
        let start = start.min(self.work.out.len());
        let own = self.work.out.buffer_mut().split_off(start);
        let mut replies = vec![Bytes::from(own)];
        for (node, address) in self.work.session.others() {
            match self.ask_node(&address, &request).await {
                Some(reply) => replies.push(reply),
                None => return self.unreachable(node, &address),
            }
        }
        core.begin_batch();
        let merged = merge(spec.merge, &replies, core.next_seed());
        match merged {
            Some(merged) => write_remote(&mut self.work.out, &merged),
            None => core.refuse(&Refusal::new("ERR internal error"), &mut self.work.out),
        }
        Ok(())
    }

    async fn ask_node(&mut self, address: &str, request: &[u8]) -> Option<Bytes> {
        let session = &mut self.work.session;
        let introduction = session.introduction();
        let gives_up = |silent: Duration| silent > SILENT;
        let upstreams = session.upstreams();
        let asked = upstreams.ask(address, &introduction, request, 1, gives_up);
        asked.await.replies.pop()
    }

    fn unreachable(&mut self, node: NodeId, address: &str) -> Result<(), Ended> {
        let core = self.work.session.core.clone();
        core.begin_batch();
        let text = format!(
            "CLUSTERDOWN node {node} ({address}) leads some slots and does not answer; what this \
             command changes may be changed at other nodes"
        );
        core.refuse(&Refusal::text_of(text), &mut self.work.out);
        Ok(())
    }

    /// As [`Connection::scan`], a node that ends before COUNT keys are found is followed by the next at
    /// once.
    async fn scan_all_nodes(&mut self, stat: usize) {
        let bytes = self.input.buffer.get(self.input.at..).unwrap_or_default();
        let args = self.input.parser.args(bytes);
        let core = self.work.session.core.clone();
        let Some(cluster) = core.shared.cluster.clone() else {
            return;
        };
        let Some(cursor) = base::number::parse_u64(args.at(1)) else {
            // The command itself says what is wrong with the cursor.
            return self.scan(stat, None).await;
        };
        let enough = scan_count(&args);
        let command = with_cursor(&args, "0");
        let mut nodes = self.work.session.others();
        nodes.push((cluster.node, String::new()));
        nodes.sort_unstable();
        let bits = cursor >> NODE_SHIFT;
        // A node that leads nothing any more is passed over.
        let first = nodes.partition_point(|&(node, _)| node & NODE_MASK < bits);
        let (mut keys, mut found, mut next) = (Vec::new(), 0, 0);
        for (at, (node, address)) in nodes.iter().enumerate().skip(first) {
            let inner = match node & NODE_MASK == bits {
                true => cursor & ((1 << NODE_SHIFT) - 1),
                false => 0,
            };
            let reply = if *node == cluster.node {
                let start = self.work.out.len();
                self.scan(stat, Some(inner)).await;
                let start = start.min(self.work.out.len());
                Bytes::from(self.work.out.buffer_mut().split_off(start))
            } else {
                let mut request = Vec::new();
                let command = with_cursor(&command.args(0), &inner.to_string());
                encode_args(&command.args(0), &mut request);
                match self.ask_node(address, &request).await {
                    Some(reply) => reply,
                    None => {
                        let _ = self.unreachable(*node, address);
                        return;
                    }
                }
            };
            let Some(step) = split_scan(&reply) else {
                return write_remote(&mut self.work.out, &reply);
            };
            keys.extend_from_slice(step.keys);
            found += step.found;
            next = match (step.cursor, nodes.get(at + 1)) {
                (0, None) => 0,
                (0, Some((next, _))) => (next & NODE_MASK) << NODE_SHIFT,
                (inner, _) => (node & NODE_MASK) << NODE_SHIFT | inner,
            };
            if step.cursor != 0 || found >= enough {
                break;
            }
        }
        core.begin_batch();
        let out = &mut self.work.out;
        out.array(2);
        out.bulk(next.to_string().as_bytes());
        out.array(found);
        out.raw(&keys);
    }
}

impl Session {
    /// The other nodes that lead something.
    fn others(&self) -> Vec<(NodeId, String)> {
        let Some(cluster) = &self.shared().cluster else {
            return Vec::new();
        };
        let routes = cluster.routes();
        let mut nodes: Vec<NodeId> = routes
            .regions()
            .filter(|region| region.descriptor.region != base::cluster::META_REGION)
            .filter_map(|region| region.leader_node())
            .filter(|&node| node != cluster.node)
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
            .into_iter()
            .filter_map(|node| Some((node, routes.node(node)?.redis.to_string())))
            .collect()
    }

    /// What the other nodes that lead something say to a command, in RESP2, by address; `None`: nothing.
    pub async fn ask_others(
        &mut self,
        words: &[&[u8]],
        timeout: Duration,
    ) -> Vec<(String, Option<Bytes>)> {
        let mut request = Vec::new();
        encode(words.iter().copied(), &mut request);
        let who = Introduction {
            protocol: Protocol::Resp2,
            ..self.introduction()
        };
        let mut answers = Vec::new();
        for (_, address) in self.others() {
            let gave_up = |silent: Duration| silent > timeout;
            let asked = self.upstreams().ask(&address, &who, &request, 1, gave_up);
            let reply = asked.await.replies.pop();
            answers.push((address, reply));
        }
        self.core.begin_batch();
        answers
    }
}

/// The answers of all nodes as one.
fn merge(how: Merge, replies: &[Bytes], seed: u64) -> Option<Vec<u8>> {
    if let Some(refused) = replies.iter().find(|reply| reply.starts_with(b"-")) {
        return Some(refused.to_vec());
    }
    let count = |reply: &Bytes| -> Option<(u64, usize)> {
        let end = reply.iter().position(|&b| b == b'\r')?;
        Some((base::number::parse_u64(reply.get(1..end)?)?, end + 2))
    };
    match how {
        Merge::Sum => {
            let counts = replies.iter().map(|reply| Some(count(reply)?.0));
            let sum: u64 = counts.sum::<Option<u64>>()?;
            Some(format!(":{sum}\r\n").into_bytes())
        }
        Merge::Concatenate => {
            let (mut found, mut keys) = (0, Vec::new());
            for reply in replies {
                let (n, start) = count(reply)?;
                found += n;
                keys.extend_from_slice(reply.get(start..)?);
            }
            let mut whole = format!("*{found}\r\n").into_bytes();
            whole.append(&mut keys);
            Some(whole)
        }
        Merge::OneKey => {
            let is_key = |reply: &&Bytes| reply.starts_with(b"$") && !reply.starts_with(b"$-");
            let found: Vec<&Bytes> = replies.iter().filter(is_key).collect();
            let nth = (seed >> 33) as usize % found.len().max(1);
            let chosen = found.get(nth).copied().or(replies.first());
            chosen.map(|reply| reply.to_vec())
        }
        Merge::First => replies.first().map(|reply| reply.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_put_together() {
        let all = |replies: &[&'static [u8]]| -> Vec<Bytes> {
            replies.iter().map(|it| Bytes::from_static(it)).collect()
        };
        let merged = |how, replies: &[&'static [u8]]| merge(how, &all(replies), 7).unwrap();
        assert_eq!(merged(Merge::Sum, &[b":2\r\n", b":40\r\n"]), b":42\r\n");
        let keys: [&'static [u8]; 2] = [b"*1\r\n$1\r\na\r\n", b"*0\r\n"];
        assert_eq!(merged(Merge::Concatenate, &keys), b"*1\r\n$1\r\na\r\n");
        let random: [&'static [u8]; 2] = [b"$-1\r\n", b"$1\r\nb\r\n"];
        assert_eq!(merged(Merge::OneKey, &random), b"$1\r\nb\r\n");
        assert_eq!(merged(Merge::First, &[b"+OK\r\n", b"-NO\r\n"]), b"-NO\r\n");
    }
}
