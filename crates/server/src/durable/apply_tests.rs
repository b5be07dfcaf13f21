//! Entries of rows on a core whose store is busy.

use std::sync::atomic::Ordering;

use keyspace::rows::{Changes, Family, MapStore};
use keyspace::{Expire, Tuning, Txn, View};
use replica::Ready;
use replica::entry::rows_payload;

use super::*;
use crate::cores::{Answer, Ticket};
use crate::durable::keep::Kept;
use crate::durable::one_core::{Slow, core, run_alone};

/// Proposes the rows that another replica's keyspace makes of a new string, which is not in memory here: as
/// on a leader that has thrown its memory away because it led no more, before it heard that its entry is
/// committed. Gives who waits for it.
fn propose_rows(core: &Rc<Core>, other: &mut Keyspace, key: &[u8]) -> Ticket {
    let mut home = core.home.borrow_mut();
    let region = home.region_mut(0).unwrap();
    let member = region.member.as_deref_mut().unwrap();
    let index = member.replica.last_index() + 1;
    other.begin_entry(index);
    let tuning = Tuning::default();
    Txn::new(View::one(other, 0, 1, 1, &tuning)).put_string(key, b"v", Expire::Clear);
    let (mut changes, mut rows) = (Changes::new(), Vec::new());
    other.end_entry(1, &mut changes);
    changes.encode(&mut rows);
    member.replica.propose(rows_payload(1, 0, &rows)).unwrap();
    let ticket = Ticket::new(core);
    let kept = Kept {
        changes,
        from: core.id,
        ticket: ticket.number(),
    };
    let term = member.replica.term();
    member.take_off(Flight {
        kept: Some(kept),
        ..Flight::new(index, term, 1)
    });
    // It is on disk, and so committed.
    let ready = &mut Ready::default();
    while member.replica.has_ready() {
        member.replica.ready(ready);
        if let Some(write) = ready.write.take() {
            member.replica.on_persisted(write.number);
        }
        member.committed.extend(ready.committed.drain(..));
    }
    ticket
}

fn with_region<T>(core: &Core, look: impl FnOnce(&mut Region) -> T) -> T {
    look(core.home.borrow_mut().region_mut(0).unwrap())
}

fn applied_index(core: &Core) -> u64 {
    with_region(core, |region| {
        region.member.as_deref().unwrap().replica.applied_index()
    })
}

/// Otherwise it would be refused with a word that lets sessions run it again, and reads that wait for it
/// would be let go before it is there.
#[test]
fn an_entry_of_rows_is_applied_and_answered_when_the_store_has_it() {
    run_alone(async {
        let rows = Arc::new(Slow::default());
        let core = core(rows.clone());
        let home = with_region(&core, |region| region.space.home());
        let mut other = Keyspace::durable(1, home, None, Arc::new(MapStore::new())).unwrap();
        let tickets = [b"a", b"b"].map(|key| propose_rows(&core, &mut other, key));
        let before = applied_index(&core);
        rows.is_busy.store(true, Ordering::SeqCst);
        core.apply(0);
        while rows.refused.load(Ordering::SeqCst) < 5 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(applied_index(&core), before, "nothing of it is to be seen");
        rows.is_busy.store(false, Ordering::SeqCst);
        for ticket in tickets {
            let answer = tokio::time::timeout(Duration::from_secs(60), ticket).await;
            let fate = match answer.expect("it is committed") {
                Answer::Kept(fate) => fate,
                _ => panic!("another answer"),
            };
            assert!(matches!(fate, Fate::Kept), "{fate:?}");
        }
        assert_eq!(applied_index(&core), before + 2);
        for key in [b"a", b"b"] {
            assert!(with_region(&core, |region| region.space.may_have(0, key)));
        }
        assert_eq!(rows.rows.all(Family::Metadata).len(), 2);
    });
}
