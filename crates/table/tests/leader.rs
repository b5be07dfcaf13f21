//! The leader's parts one by one: what is sent, how much at once, and who hears what.

use std::sync::Arc;

use table::entry::*;
use table::leader::*;
use table::rows::{Applied, Rows};
use table::scan::{Overlay, Scanned};
use table::{Cause, Entry, Image, Outcome, Table, Value, parse_fields};

struct Desk {
    rows: Rows,
    leader: Leader,
    now: u64,
    out: Vec<Action>,
}

fn schema(id: u32, backend: &str) -> Table {
    Table {
        id,
        name: format!("t{id}"),
        epoch: 1,
        backend: backend.into(),
        sql_name: format!("t{id}"),
        next_field: 3,
        closed: false,
        fields: parse_fields("n:int64,s:string", 1).unwrap(),
    }
}

fn limits() -> Limits {
    Limits {
        load_keys: 4,
        load_batches: 1,
        flush_rows: 4,
        flush_batches: 1,
        ..Limits::default()
    }
}

fn id(key: u32) -> RowId {
    RowId::new(1, &format!("k{key:03}"))
}

fn set(id: RowId, n: i64) -> Entry {
    Entry::Write(Write {
        id,
        op: Op::Set(vec![(1, Value::Int(n))]),
        expect: Expect::Any,
        ask: Ask::Nothing,
        request: None,
        epoch: 1,
        row_max: 1 << 20,
    })
}

impl Desk {
    fn new(limits: Limits) -> Desk {
        let rows = Rows::new();
        let leader = Leader::new(limits, 1, 1, &rows, 1000);
        let mut desk = Desk {
            rows,
            leader,
            now: 1000,
            out: Vec::new(),
        };
        desk.apply(Entry::Schema(schema(1, "main")));
        desk.apply(Entry::Schema(schema(2, "other")));
        desk.after(0);
        desk.settle();
        desk
    }

    fn apply(&mut self, entry: Entry) -> Applied {
        let index = self.rows.applied() + 1;
        let applied = self.rows.apply(index, self.now, entry);
        let (rows, out) = (&self.rows, &mut self.out);
        self.leader.on_applied(rows, &applied, self.now, out);
        applied
    }

    /// Everything proposed is in the log; the rest is returned.
    fn settle(&mut self) -> Vec<Action> {
        let mut rest = Vec::new();
        while !self.out.is_empty() {
            for action in std::mem::take(&mut self.out) {
                match action {
                    Action::Propose(entry) => drop(self.apply(entry)),
                    other => rest.push(other),
                }
            }
        }
        rest
    }

    fn after(&mut self, ms: u64) {
        self.now += ms;
        self.leader.tick(&self.rows, self.now, &mut self.out);
    }

    fn tick(&mut self, ms: u64) -> Vec<Action> {
        self.after(ms);
        self.settle()
    }

    fn want(&mut self, id: &RowId, ticket: u64) -> Result<(), Failure> {
        let deadline = self.now + 1000;
        self.leader.want(&self.rows, id, ticket, deadline, self.now)
    }

    fn loaded(&mut self, number: u64, result: Result<Vec<Read>, Fault>) -> Vec<Action> {
        let (rows, out) = (&self.rows, &mut self.out);
        self.leader.on_loaded(rows, number, result, self.now, out);
        self.settle()
    }

    fn flushed(&mut self, number: u64, result: Result<Vec<Wrote>, Fault>) -> Vec<Action> {
        let (rows, out) = (&self.rows, &mut self.out);
        self.leader.on_flushed(rows, number, result, self.now, out);
        self.settle()
    }

    fn same_after_restart(&self) {
        let dump = self.rows.dump();
        let stored: Vec<_> = dump
            .iter()
            .map(|(place, bytes)| (place.encode(), bytes))
            .collect();
        let stored = stored.iter().map(|(key, bytes)| (&key[..], &bytes[..]));
        let restored = Rows::restore(stored, self.rows.applied()).unwrap();
        assert!(restored == self.rows);
    }

    fn cache(&mut self, ids: impl IntoIterator<Item = RowId>) {
        let rows = ids.into_iter().map(|id| (id, Found::Missing)).collect();
        self.apply(Entry::Loaded { term: 1, rows });
    }
}

fn loads(actions: &[Action]) -> Vec<(u64, usize)> {
    let load = |action: &Action| match action {
        Action::Load { number, keys, .. } => Some((*number, keys.len())),
        _ => None,
    };
    actions.iter().filter_map(load).collect()
}

fn flushes(actions: Vec<Action>) -> Vec<(u64, Vec<Flush>)> {
    let flush = |action| match action {
        Action::Flush { number, rows, .. } => Some((number, rows)),
        _ => None,
    };
    actions.into_iter().filter_map(flush).collect()
}

fn done(actions: &[Action]) -> Vec<(u64, End)> {
    let done = |action: &Action| match action {
        Action::Done { ticket, end } => Some((*ticket, end.clone())),
        _ => None,
    };
    actions.iter().filter_map(done).collect()
}

fn down() -> Fault {
    Fault::Transient("connection refused".into())
}

#[test]
fn one_load_per_key_many_keys_per_load() {
    let mut desk = Desk::new(limits());
    for ticket in 0..12 {
        desk.want(&id(ticket % 6), u64::from(ticket)).unwrap();
    }
    let sent = loads(&desk.tick(1));
    assert_eq!(sent, [(0, 4)], "one batch at a time");
    assert_eq!(loads(&desk.tick(1)), []);
    // those who come while it flies wait with the others
    desk.want(&id(0), 100).unwrap();
    let found = Read::Found(Found::Missing);
    let ends = done(&desk.loaded(0, Ok(vec![found.clone(); 4])));
    assert_eq!(ends.len(), 9);
    assert!(ends.iter().all(|(_, end)| *end == End::Ready));
    assert_eq!(loads(&desk.tick(1)), [(1, 2)]);
    // twice, and never asked
    assert_eq!(desk.loaded(0, Ok(vec![found.clone(); 4])), []);
    assert_eq!(desk.loaded(77, Ok(vec![found; 4])), []);
    assert_eq!(desk.rows.len(), 4);
}

#[test]
fn a_backend_that_is_down_fails_fast_alone() {
    let mut desk = Desk::new(limits());
    for ticket in 0..6 {
        desk.want(&id(ticket), u64::from(ticket)).unwrap();
    }
    desk.tick(1);
    let ends = done(&desk.loaded(0, Err(down())));
    assert_eq!(ends.len(), 6, "those in the queue too");
    let why = Failure::Down("connection refused".into());
    assert!(ends.iter().all(|(_, end)| *end == End::Failed(why.clone())));
    assert_eq!(desk.want(&id(9), 9), Err(why));
    desk.want(&RowId::new(2, "x"), 10).unwrap();
    assert_eq!(loads(&desk.tick(1)).len(), 1, "another backend");
    // one probe, then all
    desk.now += 100;
    for ticket in 20..26 {
        desk.want(&id(ticket), u64::from(ticket)).unwrap();
    }
    let probe = loads(&desk.tick(1));
    assert_eq!(probe.len(), 1);
    let found = vec![Read::Found(Found::Missing); 4];
    desk.loaded(probe[0].0, Ok(found));
    assert_eq!(loads(&desk.tick(1)).len(), 1);
}

#[test]
fn a_backend_that_takes_a_flush_is_asked_for_rows_at_once() {
    let mut desk = Desk::new(limits());
    desk.cache([id(0)]);
    desk.apply(set(id(0), 1));
    let sent = flushes(desk.tick(60));
    desk.want(&id(1), 1).unwrap();
    let load = loads(&desk.tick(1));
    desk.loaded(load[0].0, Err(down()));
    assert!(desk.want(&id(2), 2).is_err(), "left alone");
    desk.flushed(sent[0].0, Ok(vec![Wrote::Written]));
    desk.want(&id(2), 2).unwrap();
    assert_eq!(loads(&desk.tick(1)).len(), 1);
}

/// The answer of a SELECT may be older than what was written back and kicked since.
#[test]
fn an_overtaken_load_is_ignored() {
    let mut desk = Desk::new(limits());
    desk.want(&id(1), 1).unwrap();
    assert_eq!(loads(&desk.tick(1)), [(0, 1)]);
    desk.cache([id(1)]);
    assert_eq!(done(&desk.settle()), [(1, End::Ready)]);
    desk.apply(Entry::Kick(vec![(id(1), 0)]));
    desk.want(&id(1), 2).unwrap();
    desk.now += 1; // the backend takes one at a time
    assert_eq!(desk.loaded(0, Ok(vec![Read::Found(Found::Missing)])), []);
    assert!(desk.rows.get(&id(1)).is_none());
    assert_eq!(loads(&desk.tick(1)), [(1, 1)]);
}

#[test]
fn deadlines_rows_of_strangers_and_dropped_tables() {
    let mut desk = Desk::new(limits());
    desk.want(&id(1), 1).unwrap();
    desk.tick(1);
    assert_eq!(
        done(&desk.tick(2000)),
        [(1, End::Failed(Failure::TimedOut))]
    );
    desk.want(&id(1), 2).unwrap();
    assert_eq!(loads(&desk.tick(1)), [], "it is still under way");
    let why: Box<str> = "NULL key".into();
    let ends = done(&desk.loaded(0, Ok(vec![Read::Unreadable { why: why.clone() }])));
    assert_eq!(ends, [(2, End::Failed(Failure::Unreadable(why)))]);
    desk.want(&id(1), 3).unwrap();
    desk.cache([id(2), id(3), id(4)]);
    desk.apply(set(id(3), 1));
    desk.apply(set(id(4), 1));
    let kind = DeadKind::Refused;
    let why = "".into();
    desk.apply(Entry::Dead(Dead {
        id: id(4),
        version: 1,
        kind,
        why,
    }));
    assert_eq!((desk.rows.dirty_count(), desk.rows.dead_count()), (1, 1));
    desk.apply(Entry::Drop { table: 1 });
    assert_eq!(done(&desk.settle()), [(3, End::Failed(Failure::NoTable))]);
    assert_eq!((desk.rows.len(), desk.rows.bytes()), (0, 0));
    assert_eq!((desk.rows.dirty_count(), desk.rows.dead_count()), (0, 0));
    desk.same_after_restart();
    assert_eq!(desk.want(&id(1), 4), Err(Failure::NoTable));
    desk.apply(Entry::Schema(schema(1, "main")));
    assert!(desk.rows.table(1).is_none(), "ids are not used again");
}

#[test]
fn many_changes_one_statement_and_one_at_a_time() {
    let mut desk = Desk::new(limits());
    desk.cache((0..3).map(id));
    for n in 0..50 {
        desk.apply(set(id(n as u32 % 3), n));
    }
    assert_eq!(flushes(desk.tick(1)), [], "it lingers");
    let sent = flushes(desk.tick(60));
    let (number, rows) = &sent[0];
    assert_eq!((sent.len(), rows.len()), (1, 3));
    assert_eq!((rows[0].version, rows[0].low, rows[0].high), (17, 0, 0));
    desk.apply(set(id(0), 99));
    assert_eq!(flushes(desk.tick(60)), [], "one per row");
    let ends = desk.leader.wait_sql(&desk.rows, &id(1), 17, 5, u64::MAX);
    assert_eq!(ends, Ok(()));
    let ends = desk.flushed(*number, Ok(vec![Wrote::Written; 3]));
    assert_eq!(done(&ends), [(5, End::Ready)]);
    assert_eq!(desk.rows.dirty_count(), 1);
    let sent = flushes(desk.tick(60));
    let row = &sent[0].1[0];
    assert_eq!((row.version, row.low, row.high), (18, 17, 17));
    // the answer is lost: SQL may have 17 or 18
    desk.apply(set(id(0), 100));
    desk.flushed(sent[0].0, Err(down()));
    assert_eq!(flushes(desk.tick(1)), [], "left alone for a while");
    let trouble: Vec<_> = desk.leader.tables_in_trouble().collect();
    assert_eq!(trouble, [(1, "connection refused")]);
    let sent = flushes(desk.tick(200));
    let row = &sent[0].1[0];
    assert_eq!((row.version, row.low, row.high), (19, 17, 18));
}

#[test]
fn tables_take_turns() {
    let mut desk = Desk::new(limits());
    desk.apply(Entry::Schema(schema(3, "main")));
    let other = |key: u32| RowId {
        table: 3,
        ..id(key)
    };
    desk.cache((0..20).flat_map(|key| [id(key), other(key)]));
    for key in 0..20 {
        desk.apply(set(id(key), 1));
        desk.apply(set(other(key), 1));
    }
    let mut order = Vec::new();
    for _ in 0..6 {
        let sent = desk.tick(100);
        for action in sent {
            if let Action::Flush {
                number,
                table,
                rows,
            } = action
            {
                order.push(table.id);
                desk.flushed(number, Ok(vec![Wrote::Written; rows.len()]));
            }
        }
    }
    assert_eq!(order, [1, 3, 1, 3, 1, 3]);
}

#[test]
fn a_poison_row_blocks_nobody() {
    let mut desk = Desk::new(limits());
    desk.cache((0..2).map(id));
    desk.apply(set(id(0), 1));
    desk.apply(set(id(1), 1));
    desk.leader
        .drain(&desk.rows, None, 7, u64::MAX, desk.now)
        .unwrap();
    let sent = flushes(desk.tick(60));
    let refused = Wrote::Refused {
        why: "check".into(),
    };
    desk.flushed(sent[0].0, Ok(vec![refused, Wrote::Written]));
    let ends = done(&desk.tick(1));
    assert_eq!(
        ends,
        [(
            7,
            End::Drained {
                dead: 1,
                named: vec![id(0)]
            }
        )]
    );
    let ends = desk.leader.wait_sql(&desk.rows, &id(0), 1, 8, u64::MAX);
    assert_eq!(ends, Err(End::Failed(Failure::Dead("check".into()))));
    desk.apply(set(id(0), 2));
    assert_eq!(flushes(desk.tick(100)), [], "its changes wait with it");
    // named by its version; then the newest goes
    desk.apply(Entry::Retry {
        id: id(0),
        version: 9,
        over: None,
    });
    assert_eq!(desk.rows.dead_count(), 1);
    desk.apply(Entry::Retry {
        id: id(0),
        version: 1,
        over: None,
    });
    let sent = flushes(desk.tick(100));
    assert_eq!(sent[0].1[0].version, 2);
    let numbers = desk.leader.numbers(&desk.rows, desk.now);
    assert_eq!((numbers.dirty, numbers.flying, numbers.dead), (1, 1, 0));
    assert_eq!(numbers.lag_ms, 261);
}

#[test]
fn an_edit_by_hand_is_kept_until_somebody_decides() {
    let mut desk = Desk::new(limits());
    desk.cache((0..2).map(id));
    let conflict = || Wrote::Conflict { sql_version: 40 };
    desk.apply(set(id(0), 1));
    desk.apply(set(id(1), 1));
    let sent = flushes(desk.tick(60));
    desk.flushed(sent[0].0, Ok(vec![conflict(), conflict()]));
    assert_eq!(desk.rows.dead_count(), 2);
    let why = &desk.rows.dead().next().unwrap().1.why;
    assert_eq!(&**why, "SQL has version 40 of this row; expected no row");
    // ours
    desk.apply(Entry::Retry {
        id: id(0),
        version: 1,
        over: Some(40),
    });
    let sent = flushes(desk.tick(60));
    let row = &sent[0].1[0];
    assert_eq!((row.version, row.low, row.high), (41, 40, 40));
    // theirs
    desk.apply(Entry::Discard {
        id: id(1),
        version: 1,
    });
    assert!(desk.rows.get(&id(1)).is_none());
    let image = Image::of_values(&schema(1, "main"), 40, vec![Value::Int(7)]);
    let rows = vec![(id(1), Found::Row(image))];
    desk.apply(Entry::Loaded { term: 1, rows });
    let row = desk.rows.get(&id(1)).unwrap();
    assert_eq!((row.image.version, row.is_dirty()), (40, false));
}

/// Versions in SQL went back by hand, and what had been tried before is still on its way.
#[test]
fn after_a_discard_the_count_goes_on() {
    let mut desk = Desk::new(limits());
    desk.cache([id(0), id(1)]);
    for n in 0..7 {
        desk.apply(set(id(0), n));
        desk.apply(set(id(1), n));
    }
    let conflict = Wrote::Conflict { sql_version: 3 };
    let sent = flushes(desk.tick(60));
    desk.flushed(sent[0].0, Ok(vec![conflict.clone(), conflict]));
    let image = Image::of_values(&schema(1, "main"), 3, vec![Value::Int(70)]);
    let found = [Found::Row(image), Found::Missing];
    for (key, found) in (0..2).zip(found) {
        desk.apply(Entry::Discard {
            id: id(key),
            version: 7,
        });
        assert_eq!(desk.rows.dirty_count(), key as usize);
        let rows = vec![(id(key), found)];
        desk.apply(Entry::Loaded { term: 1, rows });
    }
    let sent = flushes(desk.tick(60));
    let row = |at: usize| {
        let row = &sent[0].1[at];
        (row.version, row.low, row.high, row.values.first().cloned())
    };
    assert_eq!(row(0), (8, 3, 3, Some(Value::Int(70))));
    assert_eq!(row(1), (-8, 0, 0, None));
}

#[test]
fn what_comes_late_changes_nothing() {
    let mut desk = Desk::new(limits());
    desk.cache([id(0), id(1)]);
    desk.apply(set(id(0), 1));
    let before = desk.rows.clone();
    let image = Image::of_values(&schema(1, "main"), 9, vec![Value::Int(70)]);
    let mut worst = Image::default();
    worst.version = i64::MIN;
    let late = |id: RowId, found| Entry::Loaded {
        term: 1,
        rows: vec![(id, found)],
    };
    for entry in [
        late(id(0), Found::Row(image.clone())),
        late(id(1), Found::Row(image)),
        late(RowId::new(9, "no table"), Found::Missing),
        late(id(5), Found::Row(worst)),
        Entry::Kick(vec![(id(0), 1), (id(1), 3), (id(7), 0)]),
        Entry::Flushed(vec![Flushed {
            id: id(0),
            version: 2,
            taken: 9,
        }]),
        Entry::Flushed(vec![Flushed {
            id: id(8),
            version: 2,
            taken: 9,
        }]),
        Entry::Retry {
            id: id(0),
            version: 1,
            over: Some(7),
        },
        Entry::Discard {
            id: id(0),
            version: 1,
        },
        Entry::Schema(schema(1, "elsewhere")),
        Entry::Dead(Dead {
            id: id(1),
            version: 0,
            kind: DeadKind::Refused,
            why: "".into(),
        }),
        Entry::Lease {
            lease: Lease {
                holder: 9,
                term: 0,
                until: 9,
            },
            waited: true,
        },
        Entry::Lease {
            lease: Lease {
                holder: 9,
                term: 9,
                until: 9,
            },
            waited: false,
        },
    ] {
        desk.rows.take_changes();
        desk.rows.save(|_, _, _| {});
        desk.apply(entry.clone());
        assert_eq!(desk.rows.take_changes(), [], "{entry:?}");
        assert!(!desk.rows.has_unsaved(), "{entry:?}");
    }
    let stored: Vec<_> = before.dump();
    assert_eq!(desk.rows.dump(), stored);
    assert_eq!(
        desk.rows.apply(1, 0, set(id(0), 3)).outcome,
        None,
        "an old index"
    );
}

#[test]
fn cold_clean_rows_go_first_and_dirty_ones_never() {
    let soft = 40 * 200;
    let mut desk = Desk::new(Limits {
        soft_bytes: soft,
        hard_bytes: 2 * soft,
        ..limits()
    });
    desk.cache((0..30).map(id));
    for key in 0..10 {
        desk.apply(set(id(key), 1));
    }
    for key in 30..60 {
        desk.cache([id(key)]);
        for hot in 10..20 {
            desk.rows.touch(&id(hot));
        }
        desk.tick(1);
    }
    assert!(desk.rows.bytes() <= soft + 400, "{}", desk.rows.bytes());
    assert!((0..20).all(|key| desk.rows.get(&id(key)).is_some()));
    assert!(desk.leader.numbers(&desk.rows, desk.now).kicked > 10);
    // all dirty: nothing can go, and what grows waits
    let mut key = 100;
    while desk.leader.has_room(&desk.rows) {
        desk.cache([id(key)]);
        desk.apply(set(id(key), 1));
        key += 1;
    }
    desk.out.clear();
    assert_eq!(desk.want(&id(900), 1), Err(Failure::Full));
}

#[test]
fn no_lease_no_statement_no_kick() {
    let mut desk = Desk::new(limits());
    desk.cache((0..2).map(id));
    desk.apply(set(id(0), 1));
    // another leads
    let soft = Limits {
        soft_bytes: 1,
        ..limits()
    };
    desk.leader = Leader::new(soft.clone(), 2, 2, &desk.rows, desk.now);
    assert_eq!(desk.tick(5000), [], "the lease of the one before");
    assert_eq!(desk.rows.len(), 2);
    desk.tick(6500);
    let sent = flushes(desk.tick(1));
    assert_eq!(sent[0].1[0].version, 1);
    assert_eq!(desk.rows.len(), 1, "and now the clean one may go");
    // a clock that was far ahead
    let ahead = Lease {
        holder: 2,
        term: 2,
        until: desk.now + 3_600_000,
    };
    desk.apply(Entry::Lease {
        lease: ahead,
        waited: false,
    });
    desk.leader = Leader::new(soft, 3, 3, &desk.rows, desk.now);
    assert_eq!(desk.tick(10_500), []);
    desk.tick(600);
    assert!(desk.leader.has_lease(&desk.rows, desk.now));
    // what an older leader read is not cached any more
    desk.cache([id(50)]);
    assert!(desk.rows.get(&id(50)).is_none());
}

#[test]
fn answers_are_bounded_and_old_ones_are_not_done_again() {
    let mut desk = Desk::new(limits());
    desk.cache([id(0)]);
    let ask = |number: u64, client: u128| {
        let Entry::Write(mut write) = set(id(0), 1) else {
            unreachable!()
        };
        write.request = Some(Request { client, number });
        Entry::Write(write)
    };
    for number in 1..=200 {
        desk.apply(ask(number, 1));
    }
    let version = desk.rows.get(&id(0)).unwrap().image.version;
    let again = desk.apply(ask(190, 1)).outcome;
    assert_eq!(
        again,
        Some(Outcome::Ok {
            version: 190,
            values: vec![]
        })
    );
    let old = desk.apply(ask(3, 1)).outcome;
    assert!(matches!(old, Some(Outcome::Error(_))), "{old:?}");
    assert_eq!(desk.rows.get(&id(0)).unwrap().image.version, version);
    desk.same_after_restart();
    let bytes = desk.rows.answer_bytes();
    for client in 0..60_000 {
        desk.apply(ask(1, client));
    }
    let most = table::rows::ANSWERS_BYTES_MAX;
    assert!(desk.rows.answer_bytes() > bytes && desk.rows.answer_bytes() < most + 10_000);
    desk.same_after_restart();
}

#[test]
fn a_scan_shows_each_row_once() {
    let mut desk = Desk::new(limits());
    // SQL has the even ones, the cache every third, of which some are new and some deleted
    let mut sql: Vec<Scanned> = Vec::new();
    let mut expected = std::collections::BTreeMap::new();
    for key in 0..100u32 {
        let name: Arc<str> = id(key).key;
        let values = vec![Value::Int(0), Value::Text("".into())];
        if key % 2 == 0 {
            let version = if key % 10 == 4 { -1 } else { 1 };
            let row = Scanned {
                key: name.clone(),
                version,
                values,
            };
            expected.insert(name.clone(), version);
            sql.push(row);
        }
        if key % 3 == 0 {
            desk.cache([id(key)]);
            desk.apply(set(id(key), 5));
            desk.apply(set(id(key), 6));
            expected.insert(name.clone(), 2);
            if key % 4 == 0 {
                let Entry::Write(mut write) = set(id(key), 1) else {
                    unreachable!()
                };
                write.op = Op::Del;
                desk.apply(Entry::Write(write));
                expected.insert(name, -3);
            }
        }
    }
    expected.retain(|_, version| *version > 0);
    for limit in [1, 2, 7, 1000] {
        let mut shown = Vec::new();
        let mut after: Option<Arc<str>> = None;
        loop {
            let overlay = Overlay::new(&desk.rows, 1, after.as_deref(), limit).unwrap();
            let later = |row: &&Scanned| after.as_ref().is_none_or(|after| row.key > *after);
            let mut left = sql.iter().filter(later).cloned();
            let some: Vec<Scanned> = left.by_ref().take(overlay.limit()).collect();
            let page = overlay.page(some, left.next().is_some());
            shown.extend(page.rows.into_iter().map(|row| (row.key, row.version)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(shown, expected.clone().into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_closed_table_takes_nothing_and_is_drained_alone() {
    let mut desk = Desk::new(limits());
    let other = RowId { table: 2, ..id(1) };
    desk.cache([id(1), other.clone()]);
    desk.apply(set(id(1), 1));
    desk.apply(set(other, 1));
    desk.apply(Entry::Schema(schema(1, "main").with_closed(true)));
    let refused = desk.apply(set(id(1), 2)).outcome;
    assert_eq!(refused, Some(Outcome::Retry(Cause::Closed)));
    let drain = |desk: &mut Desk, table, ticket| {
        let (rows, now) = (&desk.rows, desk.now);
        desk.leader.drain(rows, table, ticket, now + 500, now)
    };
    drain(&mut desk, Some(1), 7).unwrap();
    drain(&mut desk, None, 8).unwrap();
    for action in desk.tick(60) {
        if let Action::Flush { number, table, .. } = action {
            let said = match table.id {
                1 => Ok(vec![Wrote::Written]),
                _ => Err(down()),
            };
            desk.flushed(number, said);
        }
    }
    let (dead, named) = (0, Vec::new());
    let drained = End::Drained { dead, named };
    assert_eq!(done(&desk.tick(1)), [(7, drained)]);
    let late = End::Failed(Failure::TimedOut);
    assert_eq!(done(&desk.tick(500)), [(8, late)], "the other is away");
    desk.apply(Entry::Schema(
        schema(1, "main").with_closed(true).with_closed(false),
    ));
    assert!(desk.apply(set(id(1), 2)).outcome.unwrap().is_ok());
    desk.same_after_restart();
}

#[test]
fn many_rows_wait_longer_unless_somebody_waits_for_them() {
    let limits = Limits::default();
    let sent_after = |count: u32, waits: bool| {
        let mut desk = Desk::new(limits.clone());
        desk.cache((0..count).map(id));
        for key in 0..count {
            desk.apply(set(id(key), 1));
        }
        if waits {
            let deadline = desk.now + 5000;
            desk.leader
                .drain(&desk.rows, None, 1, deadline, desk.now)
                .unwrap();
        }
        let mut sent = |ms: u64| {
            desk.after(ms);
            !flushes(desk.settle()).is_empty()
        };
        [0, 49, 2, 60, 380, 20]
            .iter()
            .take_while(|ms| !sent(**ms))
            .count()
    };
    assert_eq!(sent_after(1, false), 2, "after 51 ms");
    assert_eq!(sent_after(51, false), 3, "after 111 ms");
    assert_eq!(sent_after(600, false), 5, "after 511 ms");
    assert_eq!(sent_after(51, true), 2);
    assert_eq!(sent_after(600, true), 0);
}

/// Whoever sets a long time to spare SQL does not get a shorter one when there is much to spare.
#[test]
fn many_rows_never_wait_less_than_few() {
    let limits = Limits {
        linger: 3000,
        ..Limits::default()
    };
    for count in [1, 600] {
        let mut desk = Desk::new(limits.clone());
        desk.cache((0..count).map(id));
        for key in 0..count {
            desk.apply(set(id(key), 1));
        }
        desk.after(2900);
        assert!(flushes(desk.settle()).is_empty(), "{count} rows");
        desk.after(200);
        assert!(!flushes(desk.settle()).is_empty(), "{count} rows");
    }
}
