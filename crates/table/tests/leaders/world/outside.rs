//! Leaders, those who believe to be, and what becomes of their statements.

use super::*;

impl World {
    pub(super) fn obey(&mut self, actions: Vec<Action>, zombie: bool) {
        let region = if zombie {
            self.zombie.as_ref()
        } else {
            Some(&self.region)
        };
        let Some((node, region)) = region.map(|region| (region.node, region.number)) else {
            return;
        };
        for action in actions {
            let (number, ask) = match action {
                Action::Propose(_) if zombie => continue,
                Action::Propose(entry) => {
                    self.propose(entry);
                    continue;
                }
                Action::Done {
                    end: End::Drained { dead, named },
                    ..
                } => {
                    assert_eq!(dead, named.len());
                    self.drained = true;
                    continue;
                }
                Action::Done { .. } => continue,
                Action::Load {
                    number,
                    table,
                    keys,
                } => (number, Ask::Load(table, keys)),
                Action::Flush {
                    number,
                    table,
                    rows,
                } => {
                    let (last, at) = self.wrote;
                    // a margin on both sides
                    let apart = node == last || self.clock >= at + 2 * 60;
                    assert!(apart || at == 0, "two leaders write back");
                    self.wrote = (node, self.clock);
                    self.flushes += 1;
                    for row in &rows {
                        let key = |other: &&Flush| other.key == row.key;
                        let under_way = self
                            .statements
                            .iter()
                            .filter(|other| other.region == region);
                        let same = under_way.filter(|other| match &other.ask {
                            Ask::Flush(_, rows) => rows.iter().any(|row| key(&row)),
                            Ask::Load(..) => false,
                        });
                        assert_eq!(same.count(), 0, "two statements for {}", row.key);
                    }
                    (number, Ask::Flush(table, rows))
                }
            };
            self.statements.push(Statement {
                region,
                number,
                ask,
            });
        }
    }

    /// Some statement runs, or does not; its answer arrives, or does not.
    pub(super) fn statement(&mut self) {
        if self.statements.is_empty() {
            return;
        }
        let at = self.dice.below(self.statements.len() as u64) as usize;
        let statement = self.statements.remove(at);
        let fault = Fault::Transient("gone".into());
        let runs = !self.sql.down && !self.dice.once_in(8);
        let lost = !runs || self.dice.once_in(8);
        let mut out = Vec::new();
        let node = self.region.node;
        let ours = statement.region == self.region.number;
        match &statement.ask {
            Ask::Load(table, keys) => {
                let ids = keys.iter().map(|key| RowId {
                    table: table.id,
                    key: key.clone(),
                });
                let reads: Vec<Read> = ids.map(|id| self.sql.load(table, &id)).collect();
                let result = if lost { Err(fault) } else { Ok(reads) };
                if ours {
                    let rows = &self.replicas[node].rows;
                    let leader = &mut self.region.leader;
                    leader.on_loaded(rows, statement.number, result, self.clock, &mut out);
                }
            }
            Ask::Flush(table, flushes) => {
                let lie = self.plant == Plant::FalseWritten && self.dice.once_in(10);
                let mut wrote = Vec::new();
                if runs {
                    wrote = flushes
                        .iter()
                        .map(|row| match lie {
                            true => Wrote::Written,
                            false => self.sql.flush(table, row),
                        })
                        .collect();
                }
                if ours {
                    let result = if lost { Err(fault) } else { Ok(wrote) };
                    let rows = &self.replicas[node].rows;
                    let leader = &mut self.region.leader;
                    leader.on_flushed(rows, statement.number, result, self.clock, &mut out);
                } else if let Some(zombie) = &mut self.zombie
                    && zombie.number == statement.region
                {
                    // it tries again until its lease is over; what it proposes nobody hears
                    let result = if lost { Err(fault) } else { Ok(wrote) };
                    let rows = zombie.frozen.as_ref().unwrap();
                    let mut unheard = Vec::new();
                    let leader = &mut zombie.leader;
                    leader.on_flushed(rows, statement.number, result, self.clock, &mut unheard);
                }
                if lost && self.dice.once_in(2) {
                    // given up by the node, but still on its way to the database
                    self.statements.push(Statement {
                        region: u64::MAX,
                        ..statement
                    });
                }
            }
        }
        self.obey(out, false);
    }

    pub(super) fn tick(&mut self) {
        let mut out = Vec::new();
        let region = &mut self.region;
        let rows = &mut self.replicas[region.node].rows;
        region.leader.tick(rows, self.clock, &mut out);
        self.obey(out, false);
        let mut out = Vec::new();
        if let Some(zombie) = &mut self.zombie {
            let rows = zombie.frozen.as_mut().unwrap();
            let lease = rows.lease();
            if self.plant == Plant::NoLease && lease.holder == zombie.node as u64 {
                let until = self.clock + 700;
                let lease = Lease { until, ..lease };
                let waited = false;
                rows.run(self.clock, Entry::Lease { lease, waited });
            }
            zombie.leader.tick(rows, self.clock, &mut out);
        }
        self.obey(out, true);
        if self.plant == Plant::LateLoad && self.dice.once_in(10) && !self.old_loads.is_empty() {
            let at = self.dice.below(self.old_loads.len() as u64) as usize;
            if let Entry::Loaded { rows, .. } = self.old_loads[at].clone() {
                self.propose(Entry::Loaded {
                    term: self.term,
                    rows,
                });
            }
        }
    }

    /// Another leads: some of what was proposed is in its log, the rest is lost.
    pub(super) fn depose(&mut self) {
        for _ in 0..self.dice.below(4) {
            self.commit();
        }
        self.pending.clear();
        self.term += 1;
        self.regions += 1;
        let node = self.dice.below(3) as usize;
        self.apply_all(node);
        let rows = &self.replicas[node].rows;
        let region = Region {
            node,
            number: self.regions,
            leader: Leader::new(
                self.limits.clone(),
                node as u64,
                self.term,
                rows,
                self.clock,
            ),
            frozen: None,
        };
        let mut old = std::mem::replace(&mut self.region, region);
        if old.node != node {
            old.frozen = Some(self.replicas[old.node].rows.clone());
            self.zombie = Some(old);
        } else {
            // a node answers for one region at a time; what it had under way runs late
            self.zombie = None;
        }
    }

    pub(super) fn edit(&mut self) {
        let id = self.any_id();
        if self.model.get(&id).0 == i64::MAX {
            return;
        }
        let version = self.sql.version(&id).abs().max(self.model.get(&id).0.abs()) + 1000;
        let values = BTreeMap::from([(1, Value::Int(77))]);
        self.sql.rows.insert(id.clone(), (version, values));
        self.edits.insert((id.clone(), version));
        self.ever_edited.insert(id.clone());
        self.sql.edited.insert(id);
    }
}
