//! A member that is alone: it founds, answers, keeps its record and starts again from it.

use keyspace::rows::{Family, MapStore, RowSource, Tier};
use meta::limits::Limits;
use meta::state::Settings;
use meta::wire::{Address, Heartbeat, Join, Profile, Standing};
use prost::Message;
use replica::MapLog;

use super::*;
use crate::{MetaAnswer, MetaCall, Unobserved};

const CLUSTER: u64 = 0xC1;
const KEEP_AFTER: u64 = 3;

fn founding() -> Found {
    let address = |port| Address::new("one", port);
    let profile = Profile {
        redis: address(6379),
        peer: address(7000),
        stores: true,
        metas: true,
        format: 1,
        ..Profile::default()
    };
    Found {
        cluster: CLUSTER,
        settings: Settings {
            replicas: 1,
            regions: 1,
            meta_replicas: 1,
        },
        join: Join {
            token: 5,
            start_count: 1,
            profile,
            ..Join::default()
        },
    }
}

/// A node whose log is synced at once.
#[derive(Default)]
struct Node {
    rows: MapStore,
    log: MapLog,
    clock_ms: u64,
}

impl Node {
    fn open(&self, founder: Option<Found>) -> MetaMember<u64> {
        let kept = MetaRecord::read(&self.rows).unwrap().unwrap();
        let open = OpenMeta {
            log: &self.log,
            node: 1,
            founder,
            pace: Pace::default(),
            keep_after: KEEP_AFTER,
            clock_ms: self.clock_ms,
            seed: 1,
        };
        open.open(kept, |_| {}).unwrap()
    }

    fn run(
        &self,
        member: &mut MetaMember<u64>,
        what: impl FnOnce(&mut MetaMember<u64>, &MetaContext<'_>, &mut MetaEffects<u64>),
    ) -> MetaEffects<u64> {
        let cx = MetaContext {
            is_log_stalled: false,
            now_ms: 1_000_000 + self.clock_ms,
            clock_ms: self.clock_ms,
            limits: Limits::default(),
            rows: &self.rows,
            log: &self.log,
            pause: || {},
            observer: &Unobserved,
        };
        let mut out = MetaEffects::default();
        what(member, &cx, &mut out);
        member.drive(&cx, &mut out);
        while !out.writes.is_empty() {
            for write in std::mem::take(&mut out.writes) {
                let number = write.number;
                self.log.write(&[write], true).unwrap();
                member.on_persisted(number);
            }
            member.drive(&cx, &mut out);
        }
        member.keep_when_due(&cx, &mut out);
        assert_eq!(out.failure, None);
        out
    }

    fn tick(&mut self, member: &mut MetaMember<u64>) {
        self.clock_ms += 100;
        self.run(member, |member, cx, out| member.on_tick(cx, out));
    }

    fn call(&self, member: &mut MetaMember<u64>, call: MetaCall) -> MetaAnswer {
        let out = self.run(member, |member, cx, out| member.on_call(call, 9, cx, out));
        let mut answers = out.answers.into_iter();
        let (ticket, answer) = answers.next().unwrap();
        assert_eq!((ticket, answers.count()), (9, 0));
        answer
    }
}

#[test]
fn a_founder_founds_and_starts_again_from_its_record_and_its_log() {
    let mut node = Node {
        clock_ms: 10_000,
        ..Node::default()
    };
    MetaRecord::of_founder().keep(&node.rows, || {}).unwrap();
    assert_eq!(MetaRecord::is_founding(&node.rows), Ok(true));
    let mut member = node.open(Some(founding()));
    for _ in 0..100 {
        node.tick(&mut member);
    }
    assert_eq!(member.state().cluster(), CLUSTER);

    let beat = Heartbeat {
        cluster: CLUSTER,
        node: 1,
        start_count: 1,
        number: 1,
        wall_ms: 7_000_000,
        ..Heartbeat::default()
    };
    let MetaAnswer::Heartbeat(answer) = node.call(&mut member, MetaCall::Heartbeat(beat)) else {
        panic!("no answer to a heartbeat");
    };
    assert_eq!(answer.standing(), Standing::Accepted);
    assert_eq!(answer.wall_ms, 7_000_000, "the only clock is the median");

    let join = |token| Join {
        token,
        node: 0,
        ..founding().join
    };
    for token in 10..14 {
        let join = Join {
            profile: Profile {
                redis: Address::new("other", token as u16),
                peer: Address::new("other", 100 + token as u16),
                ..join(token).profile
            },
            ..join(token)
        };
        let MetaAnswer::Join(answer) = node.call(&mut member, MetaCall::Join(join)) else {
            panic!("no answer to a join");
        };
        assert_eq!((answer.cluster, answer.refused.as_str()), (CLUSTER, ""));
        assert!(answer.node > 1);
    }
    assert_eq!(MetaRecord::is_founding(&node.rows), Ok(false));
    let kept = MetaRecord::read(&node.rows).unwrap().unwrap();
    assert!(member.applied - kept.applied < KEEP_AFTER);

    let mut again = node.open(None);
    for _ in 0..100 {
        node.tick(&mut again);
    }
    for known in member.state().nodes() {
        assert_eq!(again.state().node(known.id).map(|it| it.id), Some(known.id));
    }
}

#[test]
fn who_waits_is_told_when_the_member_leads_no_more() {
    let mut node = Node {
        clock_ms: 10_000,
        ..Node::default()
    };
    MetaRecord::of_founder().keep(&node.rows, || {}).unwrap();
    let mut member = node.open(Some(founding()));
    for _ in 0..100 {
        node.tick(&mut member);
    }
    let mut out = MetaEffects::default();
    let last = member.replica.last_index();
    member.waiting.insert(last + 1, (1, Waiting::Join(9)));
    member
        .waiting
        .insert(last + 2, (1, Waiting::Admin(10, Box::default())));
    member.stop_leading(&mut out);
    let tickets: Vec<u64> = out.answers.iter().map(|(ticket, _)| *ticket).collect();
    assert_eq!(tickets, [9, 10]);
    assert!(matches!(out.answers[1].1, MetaAnswer::Refused(_)));
}

#[test]
fn the_row_has_the_same_bytes_as_ever() {
    let record = MetaRecord {
        applied: 5,
        applied_term: 3,
        state: Bytes::from_static(b"ab"),
        ..MetaRecord::of_founder()
    };
    let inner = record.record.encode_to_vec();
    let mut bytes = vec![0x0a, inner.len() as u8];
    bytes.extend(inner);
    bytes.extend([0x10, 5, 0x1a, 2, b'a', b'b', 0x20, 3]);
    let rows = MapStore::new();
    record.keep(&rows, || {}).unwrap();
    let mut kept = Vec::new();
    rows.get(Family::Info, b"meta", Tier::All, &mut |row| {
        kept = row.to_vec();
    })
    .unwrap();
    assert_eq!(kept, bytes);
}
