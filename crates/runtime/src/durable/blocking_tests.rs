//! Tests of blocking commands that find nothing, on a core (`node::blocking`).

use std::sync::Arc;

use keyspace::rows::{Changes, MapStore};
use keyspace::{Expire, Tuning, Txn, View};
use node::{Peers, ReplicaRecord, Requester};
use resp::Protocol;

use super::one_core::{core, run_alone};
use crate::cores::{Answer, Batch, BatchBox, Claim, CommandList, Core, Ticket, Waiter};

/// A blocking command, with its waiter.
fn blocking(core: &Core, words: &[&[u8]], ticket: usize) -> BatchBox {
    let name = std::str::from_utf8(words[0]).unwrap();
    let mut rows = core.shared.commands.each_row();
    let (stat, _) = rows.find(|(_, row)| row.name == name).unwrap();
    let client = Arc::new(Requester::new(1));
    let mut batch = Batch::new(0, 0, client);
    batch.writes = true;
    batch.commands.push_all(words.iter().copied());
    batch.heads.push((stat as u16, 0));
    let mut command = CommandList::default();
    command.push_all(words.iter().copied());
    batch.waiter = Some(Arc::new(Waiter {
        claim: Claim::default(),
        core: core.id,
        ticket,
        stat,
        command,
        db: 0,
        protocol: Protocol::Resp2,
    }));
    batch
}

/// A key whose time has come is for an entry to remove, on all replicas alike.
#[test]
fn a_look_leaves_due_keys_to_the_log() {
    run_alone(async {
        let core = core(Arc::new(MapStore::new()));
        core.begin_batch();
        let deadline_ms = core.now_ms() - 1;
        {
            let mut owned = core.regions.borrow_mut();
            let space = &mut owned.region_mut(0).unwrap().space;
            space.begin_entry(space.applied_index() + 1);
            let tuning = Tuning::default();
            let mut txn = Txn::new(View::one(space, 0, 1, 1, &tuning));
            for key in [b"list", b"text"] {
                txn.put_string(key, b"v", Expire::At(deadline_ms));
            }
            space.end_entry(1, &mut Changes::new());
        }
        for words in [
            [&b"blpop"[..], b"list", b"text", b"0"],
            [b"brpop", b"text", b"list", b"0"],
            [b"bzpopmin", b"text", b"list", b"0"],
        ] {
            let ticket = Ticket::new(&core);
            let mut batch = blocking(&core, &words, 0);
            batch.ticket = ticket.number();
            core.on_batch(batch);
            let Answer::Batch(batch) = ticket.await else {
                panic!("another answer");
            };
            assert!(batch.replies.as_bytes().is_empty(), "it waits in line");
            assert!(!batch.waiter.unwrap().claim.is_over());
            let mut owned = core.regions.borrow_mut();
            let region = owned.region_mut(0).unwrap();
            assert!(!region.space.has_changes(), "no entry has brought any");
            let tuning = Tuning::default();
            assert_eq!(View::one(&mut region.space, 0, 1, 1, &tuning).len(), 2);
            let member = region.member.as_deref().unwrap();
            assert!(member.is_expiring(), "their removal is proposed");
        }
    });
}

/// It was claimed when those in line were told that another node leads: nobody else would tell it.
#[test]
fn who_finds_nothing_where_another_node_leads_by_now_is_told() {
    run_alone(async {
        let core = core(Arc::new(MapStore::new()));
        let key = &b"list"[..];
        for is_led_here in [true, false] {
            let ticket = Ticket::new(&core);
            let batch = blocking(&core, &[b"blpop", key, b"0"], ticket.number());
            let waiter = batch.waiter.unwrap();
            assert!(waiter.claim.serve());
            core.on_regions(|regions, cx, out| {
                let region = regions.region_mut(0).unwrap();
                let member = region.member.as_deref_mut().unwrap();
                member.peers = Some(Box::new(Peers::new(ReplicaRecord::default())));
                member.failed = !is_led_here;
                region.put_back(waiter.clone(), 0, key, cx, out);
                let interest = region.interest_mut(0, key);
                let line = interest.map(|it| std::mem::take(&mut it.waiters));
                assert_eq!(line.unwrap_or_default().len(), usize::from(is_led_here));
            });
            assert_eq!(waiter.claim.is_over(), !is_led_here);
            if is_led_here {
                ticket.close();
                continue;
            }
            let Answer::Served(Some(reply)) = ticket.await else {
                panic!("another answer");
            };
            assert!(reply.as_bytes().starts_with(b"-UNBLOCKED "));
        }
    });
}
