//! The leader's parts one by one: what is sent, how much at once, and who hears what.

use std::sync::Arc;

use table::entry::*;
use table::leader::*;
use table::rows::{Applied, Rows};
use table::scan::{Overlay, Scanned};
use table::{Cause, Entry, Image, Outcome, Table, Value, parse_fields};

struct Bench {
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

impl Bench {
    fn new(limits: Limits) -> Bench {
        let rows = Rows::new();
        let leader = Leader::new(limits, 1, 1, &rows, 1000);
        let mut bench = Bench {
            rows,
            leader,
            now: 1000,
            out: Vec::new(),
        };
        bench.apply(Entry::Schema(schema(1, "main")));
        bench.apply(Entry::Schema(schema(2, "other")));
        bench.after(0);
        bench.settle();
        bench
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
    let mut bench = Bench::new(limits());
    for ticket in 0..12 {
        bench.want(&id(ticket % 6), u64::from(ticket)).unwrap();
    }
    let sent = loads(&bench.tick(1));
    assert_eq!(sent, [(0, 4)], "one batch at a time");
    assert_eq!(loads(&bench.tick(1)), []);
    // those who come while it flies wait with the others
    bench.want(&id(0), 100).unwrap();
    let found = Read::Found(Found::Missing);
    let ends = done(&bench.loaded(0, Ok(vec![found.clone(); 4])));
    assert_eq!(ends.len(), 9);
    assert!(ends.iter().all(|(_, end)| *end == End::Ready));
    assert_eq!(loads(&bench.tick(1)), [(1, 2)]);
    // twice, and never asked
    assert_eq!(bench.loaded(0, Ok(vec![found.clone(); 4])), []);
    assert_eq!(bench.loaded(77, Ok(vec![found; 4])), []);
    assert_eq!(bench.rows.len(), 4);
}

#[test]
fn a_backend_that_is_down_fails_fast_alone() {
    let mut bench = Bench::new(limits());
    for ticket in 0..6 {
        bench.want(&id(ticket), u64::from(ticket)).unwrap();
    }
    bench.tick(1);
    let ends = done(&bench.loaded(0, Err(down())));
    assert_eq!(ends.len(), 6, "those in the queue too");
    let why = Failure::Down("connection refused".into());
    assert!(ends.iter().all(|(_, end)| *end == End::Failed(why.clone())));
    assert_eq!(bench.want(&id(9), 9), Err(why));
    bench.want(&RowId::new(2, "x"), 10).unwrap();
    assert_eq!(loads(&bench.tick(1)).len(), 1, "another backend");
    // one probe, then all
    bench.now += 100;
    for ticket in 20..26 {
        bench.want(&id(ticket), u64::from(ticket)).unwrap();
    }
    let probe = loads(&bench.tick(1));
    assert_eq!(probe.len(), 1);
    let found = vec![Read::Found(Found::Missing); 4];
    bench.loaded(probe[0].0, Ok(found));
    assert_eq!(loads(&bench.tick(1)).len(), 1);
}

#[test]
fn a_backend_that_takes_a_flush_is_asked_for_rows_at_once() {
    let mut bench = Bench::new(limits());
    bench.cache([id(0)]);
    bench.apply(set(id(0), 1));
    let sent = flushes(bench.tick(60));
    bench.want(&id(1), 1).unwrap();
    let load = loads(&bench.tick(1));
    bench.loaded(load[0].0, Err(down()));
    assert!(bench.want(&id(2), 2).is_err(), "left alone");
    bench.flushed(sent[0].0, Ok(vec![Wrote::Written]));
    bench.want(&id(2), 2).unwrap();
    assert_eq!(loads(&bench.tick(1)).len(), 1);
}

/// The answer of a SELECT may be older than what was written back and kicked since.
#[test]
fn an_overtaken_load_is_ignored() {
    let mut bench = Bench::new(limits());
    bench.want(&id(1), 1).unwrap();
    assert_eq!(loads(&bench.tick(1)), [(0, 1)]);
    bench.cache([id(1)]);
    assert_eq!(done(&bench.settle()), [(1, End::Ready)]);
    bench.apply(Entry::Kick(vec![(id(1), 0)]));
    bench.want(&id(1), 2).unwrap();
    bench.now += 1; // the backend takes one at a time
    assert_eq!(bench.loaded(0, Ok(vec![Read::Found(Found::Missing)])), []);
    assert!(bench.rows.get(&id(1)).is_none());
    assert_eq!(loads(&bench.tick(1)), [(1, 1)]);
}

#[test]
fn deadlines_rows_of_strangers_and_dropped_tables() {
    let mut bench = Bench::new(limits());
    bench.want(&id(1), 1).unwrap();
    bench.tick(1);
    assert_eq!(
        done(&bench.tick(2000)),
        [(1, End::Failed(Failure::TimedOut))]
    );
    bench.want(&id(1), 2).unwrap();
    assert_eq!(loads(&bench.tick(1)), [], "it is still under way");
    let why: Box<str> = "NULL key".into();
    let ends = done(&bench.loaded(0, Ok(vec![Read::Unreadable { why: why.clone() }])));
    assert_eq!(ends, [(2, End::Failed(Failure::Unreadable(why)))]);
    bench.want(&id(1), 3).unwrap();
    bench.cache([id(2), id(3), id(4)]);
    bench.apply(set(id(3), 1));
    bench.apply(set(id(4), 1));
    let kind = DeadKind::Refused;
    let why = "".into();
    bench.apply(Entry::Dead(Dead {
        id: id(4),
        version: 1,
        kind,
        why,
    }));
    assert_eq!((bench.rows.dirty_count(), bench.rows.dead_count()), (1, 1));
    bench.apply(Entry::Drop { table: 1 });
    assert_eq!(done(&bench.settle()), [(3, End::Failed(Failure::NoTable))]);
    assert_eq!((bench.rows.len(), bench.rows.bytes()), (0, 0));
    assert_eq!((bench.rows.dirty_count(), bench.rows.dead_count()), (0, 0));
    bench.same_after_restart();
    assert_eq!(bench.want(&id(1), 4), Err(Failure::NoTable));
    bench.apply(Entry::Schema(schema(1, "main")));
    assert!(bench.rows.table(1).is_none(), "ids are not used again");
}

#[test]
fn many_changes_one_statement_and_one_at_a_time() {
    let mut bench = Bench::new(limits());
    bench.cache((0..3).map(id));
    for n in 0..50 {
        bench.apply(set(id(n as u32 % 3), n));
    }
    assert_eq!(flushes(bench.tick(1)), [], "it lingers");
    let sent = flushes(bench.tick(60));
    let (number, rows) = &sent[0];
    assert_eq!((sent.len(), rows.len()), (1, 3));
    assert_eq!((rows[0].version, rows[0].low, rows[0].high), (17, 0, 0));
    bench.apply(set(id(0), 99));
    assert_eq!(flushes(bench.tick(60)), [], "one per row");
    let ends = bench.leader.wait_sql(&bench.rows, &id(1), 17, 5, u64::MAX);
    assert_eq!(ends, Ok(()));
    let ends = bench.flushed(*number, Ok(vec![Wrote::Written; 3]));
    assert_eq!(done(&ends), [(5, End::Ready)]);
    assert_eq!(bench.rows.dirty_count(), 1);
    let sent = flushes(bench.tick(60));
    let row = &sent[0].1[0];
    assert_eq!((row.version, row.low, row.high), (18, 17, 17));
    // the answer is lost: SQL may have 17 or 18
    bench.apply(set(id(0), 100));
    bench.flushed(sent[0].0, Err(down()));
    assert_eq!(flushes(bench.tick(1)), [], "left alone for a while");
    let trouble: Vec<_> = bench.leader.tables_in_trouble().collect();
    assert_eq!(trouble, [(1, "connection refused")]);
    let sent = flushes(bench.tick(200));
    let row = &sent[0].1[0];
    assert_eq!((row.version, row.low, row.high), (19, 17, 18));
}

#[test]
fn tables_take_turns() {
    let mut bench = Bench::new(limits());
    bench.apply(Entry::Schema(schema(3, "main")));
    let other = |key: u32| RowId {
        table: 3,
        ..id(key)
    };
    bench.cache((0..20).flat_map(|key| [id(key), other(key)]));
    for key in 0..20 {
        bench.apply(set(id(key), 1));
        bench.apply(set(other(key), 1));
    }
    let mut order = Vec::new();
    for _ in 0..6 {
        let sent = bench.tick(100);
        for action in sent {
            if let Action::Flush {
                number,
                table,
                rows,
            } = action
            {
                order.push(table.id);
                bench.flushed(number, Ok(vec![Wrote::Written; rows.len()]));
            }
        }
    }
    assert_eq!(order, [1, 3, 1, 3, 1, 3]);
}

#[test]
fn a_poison_row_blocks_nobody() {
    let mut bench = Bench::new(limits());
    bench.cache((0..2).map(id));
    bench.apply(set(id(0), 1));
    bench.apply(set(id(1), 1));
    bench
        .leader
        .drain(&bench.rows, None, 7, u64::MAX, bench.now)
        .unwrap();
    let sent = flushes(bench.tick(60));
    let refused = Wrote::Refused {
        why: "check".into(),
    };
    bench.flushed(sent[0].0, Ok(vec![refused, Wrote::Written]));
    let ends = done(&bench.tick(1));
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
    let ends = bench.leader.wait_sql(&bench.rows, &id(0), 1, 8, u64::MAX);
    assert_eq!(ends, Err(End::Failed(Failure::Dead("check".into()))));
    bench.apply(set(id(0), 2));
    assert_eq!(flushes(bench.tick(100)), [], "its changes wait with it");
    // named by its version; then the newest goes
    bench.apply(Entry::Retry {
        id: id(0),
        version: 9,
        over: None,
    });
    assert_eq!(bench.rows.dead_count(), 1);
    bench.apply(Entry::Retry {
        id: id(0),
        version: 1,
        over: None,
    });
    let sent = flushes(bench.tick(100));
    assert_eq!(sent[0].1[0].version, 2);
    let numbers = bench.leader.numbers(&bench.rows, bench.now);
    assert_eq!((numbers.dirty, numbers.flying, numbers.dead), (1, 1, 0));
    assert_eq!(numbers.lag_ms, 261);
}

#[test]
fn an_edit_by_hand_is_kept_until_somebody_decides() {
    let mut bench = Bench::new(limits());
    bench.cache((0..2).map(id));
    let conflict = || Wrote::Conflict { sql_version: 40 };
    bench.apply(set(id(0), 1));
    bench.apply(set(id(1), 1));
    let sent = flushes(bench.tick(60));
    bench.flushed(sent[0].0, Ok(vec![conflict(), conflict()]));
    assert_eq!(bench.rows.dead_count(), 2);
    let why = &bench.rows.dead().next().unwrap().1.why;
    assert_eq!(&**why, "SQL has version 40 of this row; expected no row");
    // ours
    bench.apply(Entry::Retry {
        id: id(0),
        version: 1,
        over: Some(40),
    });
    let sent = flushes(bench.tick(60));
    let row = &sent[0].1[0];
    assert_eq!((row.version, row.low, row.high), (41, 40, 40));
    // theirs
    bench.apply(Entry::Discard {
        id: id(1),
        version: 1,
    });
    assert!(bench.rows.get(&id(1)).is_none());
    let image = Image::of_values(&schema(1, "main"), 40, vec![Value::Int(7)]);
    let rows = vec![(id(1), Found::Row(image))];
    bench.apply(Entry::Loaded { term: 1, rows });
    let row = bench.rows.get(&id(1)).unwrap();
    assert_eq!((row.image.version, row.is_dirty()), (40, false));
}

/// Versions in SQL went back by hand, and what had been tried before is still on its way.
#[test]
fn after_a_discard_the_count_goes_on() {
    let mut bench = Bench::new(limits());
    bench.cache([id(0), id(1)]);
    for n in 0..7 {
        bench.apply(set(id(0), n));
        bench.apply(set(id(1), n));
    }
    let conflict = Wrote::Conflict { sql_version: 3 };
    let sent = flushes(bench.tick(60));
    bench.flushed(sent[0].0, Ok(vec![conflict.clone(), conflict]));
    let image = Image::of_values(&schema(1, "main"), 3, vec![Value::Int(70)]);
    let found = [Found::Row(image), Found::Missing];
    for (key, found) in (0..2).zip(found) {
        bench.apply(Entry::Discard {
            id: id(key),
            version: 7,
        });
        assert_eq!(bench.rows.dirty_count(), key as usize);
        let rows = vec![(id(key), found)];
        bench.apply(Entry::Loaded { term: 1, rows });
    }
    let sent = flushes(bench.tick(60));
    let row = |at: usize| {
        let row = &sent[0].1[at];
        (row.version, row.low, row.high, row.values.first().cloned())
    };
    assert_eq!(row(0), (8, 3, 3, Some(Value::Int(70))));
    assert_eq!(row(1), (-8, 0, 0, None));
}

#[test]
fn what_comes_late_changes_nothing() {
    let mut bench = Bench::new(limits());
    bench.cache([id(0), id(1)]);
    bench.apply(set(id(0), 1));
    let before = bench.rows.clone();
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
        bench.rows.take_changes();
        bench.rows.save(|_, _, _| {});
        bench.apply(entry.clone());
        assert_eq!(bench.rows.take_changes(), [], "{entry:?}");
        assert!(!bench.rows.has_unsaved(), "{entry:?}");
    }
    let stored: Vec<_> = before.dump();
    assert_eq!(bench.rows.dump(), stored);
    assert_eq!(
        bench.rows.apply(1, 0, set(id(0), 3)).outcome,
        None,
        "an old index"
    );
}

#[test]
fn cold_clean_rows_go_first_and_dirty_ones_never() {
    let soft = 40 * 200;
    let mut bench = Bench::new(Limits {
        soft_bytes: soft,
        hard_bytes: 2 * soft,
        ..limits()
    });
    bench.cache((0..30).map(id));
    for key in 0..10 {
        bench.apply(set(id(key), 1));
    }
    for key in 30..60 {
        bench.cache([id(key)]);
        for hot in 10..20 {
            bench.rows.touch(&id(hot));
        }
        bench.tick(1);
    }
    assert!(bench.rows.bytes() <= soft + 400, "{}", bench.rows.bytes());
    assert!((0..20).all(|key| bench.rows.get(&id(key)).is_some()));
    assert!(bench.leader.numbers(&bench.rows, bench.now).kicked > 10);
    // all dirty: nothing can go, and what grows waits
    let mut key = 100;
    while bench.leader.has_room(&bench.rows) {
        bench.cache([id(key)]);
        bench.apply(set(id(key), 1));
        key += 1;
    }
    bench.out.clear();
    assert_eq!(bench.want(&id(900), 1), Err(Failure::Full));
}

#[test]
fn no_lease_no_statement_no_kick() {
    let mut bench = Bench::new(limits());
    bench.cache((0..2).map(id));
    bench.apply(set(id(0), 1));
    // another leads
    let soft = Limits {
        soft_bytes: 1,
        ..limits()
    };
    bench.leader = Leader::new(soft.clone(), 2, 2, &bench.rows, bench.now);
    assert_eq!(bench.tick(5000), [], "the lease of the one before");
    assert_eq!(bench.rows.len(), 2);
    bench.tick(6500);
    let sent = flushes(bench.tick(1));
    assert_eq!(sent[0].1[0].version, 1);
    assert_eq!(bench.rows.len(), 1, "and now the clean one may go");
    // a clock that was far ahead
    let ahead = Lease {
        holder: 2,
        term: 2,
        until: bench.now + 3_600_000,
    };
    bench.apply(Entry::Lease {
        lease: ahead,
        waited: false,
    });
    bench.leader = Leader::new(soft, 3, 3, &bench.rows, bench.now);
    assert_eq!(bench.tick(10_500), []);
    bench.tick(600);
    assert!(bench.leader.has_lease(&bench.rows, bench.now));
    // what an older leader read is not cached any more
    bench.cache([id(50)]);
    assert!(bench.rows.get(&id(50)).is_none());
}

#[test]
fn answers_are_bounded_and_old_ones_are_not_done_again() {
    let mut bench = Bench::new(limits());
    bench.cache([id(0)]);
    let ask = |number: u64, client: u128| {
        let Entry::Write(mut write) = set(id(0), 1) else {
            unreachable!()
        };
        write.request = Some(Request { client, number });
        Entry::Write(write)
    };
    for number in 1..=200 {
        bench.apply(ask(number, 1));
    }
    let version = bench.rows.get(&id(0)).unwrap().image.version;
    let again = bench.apply(ask(190, 1)).outcome;
    assert_eq!(
        again,
        Some(Outcome::Ok {
            version: 190,
            values: vec![]
        })
    );
    let old = bench.apply(ask(3, 1)).outcome;
    assert!(matches!(old, Some(Outcome::Error(_))), "{old:?}");
    assert_eq!(bench.rows.get(&id(0)).unwrap().image.version, version);
    bench.same_after_restart();
    let bytes = bench.rows.answer_bytes();
    for client in 0..60_000 {
        bench.apply(ask(1, client));
    }
    let most = table::rows::ANSWERS_BYTES_MAX;
    assert!(bench.rows.answer_bytes() > bytes && bench.rows.answer_bytes() < most + 10_000);
    bench.same_after_restart();
}

#[test]
fn a_scan_shows_each_row_once() {
    let mut bench = Bench::new(limits());
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
            bench.cache([id(key)]);
            bench.apply(set(id(key), 5));
            bench.apply(set(id(key), 6));
            expected.insert(name.clone(), 2);
            if key % 4 == 0 {
                let Entry::Write(mut write) = set(id(key), 1) else {
                    unreachable!()
                };
                write.op = Op::Del;
                bench.apply(Entry::Write(write));
                expected.insert(name, -3);
            }
        }
    }
    expected.retain(|_, version| *version > 0);
    for limit in [1, 2, 7, 1000] {
        let mut shown = Vec::new();
        let mut after: Option<Arc<str>> = None;
        loop {
            let overlay = Overlay::new(&bench.rows, 1, after.as_deref(), limit).unwrap();
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
    let mut bench = Bench::new(limits());
    let other = RowId { table: 2, ..id(1) };
    bench.cache([id(1), other.clone()]);
    bench.apply(set(id(1), 1));
    bench.apply(set(other, 1));
    bench.apply(Entry::Schema(schema(1, "main").with_closed(true)));
    let refused = bench.apply(set(id(1), 2)).outcome;
    assert_eq!(refused, Some(Outcome::Retry(Cause::Closed)));
    let drain = |bench: &mut Bench, table, ticket| {
        let (rows, now) = (&bench.rows, bench.now);
        bench.leader.drain(rows, table, ticket, now + 500, now)
    };
    drain(&mut bench, Some(1), 7).unwrap();
    drain(&mut bench, None, 8).unwrap();
    for action in bench.tick(60) {
        if let Action::Flush { number, table, .. } = action {
            let said = match table.id {
                1 => Ok(vec![Wrote::Written]),
                _ => Err(down()),
            };
            bench.flushed(number, said);
        }
    }
    let (dead, named) = (0, Vec::new());
    let drained = End::Drained { dead, named };
    assert_eq!(done(&bench.tick(1)), [(7, drained)]);
    let late = End::Failed(Failure::TimedOut);
    assert_eq!(done(&bench.tick(500)), [(8, late)], "the other is away");
    bench.apply(Entry::Schema(
        schema(1, "main").with_closed(true).with_closed(false),
    ));
    assert!(bench.apply(set(id(1), 2)).outcome.unwrap().is_ok());
    bench.same_after_restart();
}

#[test]
fn many_rows_wait_longer_unless_somebody_waits_for_them() {
    let limits = Limits::default();
    let sent_after = |count: u32, waits: bool| {
        let mut bench = Bench::new(limits.clone());
        bench.cache((0..count).map(id));
        for key in 0..count {
            bench.apply(set(id(key), 1));
        }
        if waits {
            let deadline = bench.now + 5000;
            bench
                .leader
                .drain(&bench.rows, None, 1, deadline, bench.now)
                .unwrap();
        }
        let mut sent = |ms: u64| {
            bench.after(ms);
            !flushes(bench.settle()).is_empty()
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
        let mut bench = Bench::new(limits.clone());
        bench.cache((0..count).map(id));
        for key in 0..count {
            bench.apply(set(id(key), 1));
        }
        bench.after(2900);
        assert!(flushes(bench.settle()).is_empty(), "{count} rows");
        bench.after(200);
        assert!(!flushes(bench.settle()).is_empty(), "{count} rows");
    }
}
