//! Clients, and those who look after dead letters and schemas.

use super::*;

impl World {
    pub(super) fn any_id(&mut self) -> RowId {
        RowId::new(1, &format!("k{}", self.dice.below(24)))
    }

    pub(super) fn client(&mut self) {
        let id = self.any_id();
        if self.dice.once_in(4) && !self.requests.is_empty() {
            // once more: perhaps the answer was lost
            let back = self.dice.below(self.requests.len().min(20) as u64) as usize;
            let write = self.requests[self.requests.len() - 1 - back].clone();
            return self.propose(Entry::Write(write));
        }
        let node = self.region.node;
        self.replicas[node].rows.touch(&id);
        let Some(table) = self.rows().table(1).cloned() else {
            return;
        };
        if self.rows().get(&id).is_none() {
            self.tickets += 1;
            let (ticket, deadline) = (self.tickets, self.clock + self.dice.below(200));
            let rows = &self.replicas[node].rows;
            let _ = self
                .region
                .leader
                .want(rows, &id, ticket, deadline, self.clock);
            return;
        }
        if self.dice.once_in(20) {
            let version = self.model.get(&id).0;
            return self.propose(Entry::Kick(vec![(id, version)]));
        }
        let write = self.some_write(id, &table);
        if !self.region.leader.takes(self.rows(), &write) {
            return;
        }
        if write.request.is_some() {
            self.requests.push(write.clone());
        }
        self.propose(Entry::Write(write));
    }

    pub(super) fn some_write(&mut self, id: RowId, table: &Table) -> Write {
        let n = Value::Int(self.dice.below(4) as i64);
        let poison = if self.dice.once_in(12) { POISON } else { 5 };
        let last = table.fields.last().unwrap().id;
        let extra = if last > 2 {
            (last, Value::Int(self.dice.below(9) as i64))
        } else {
            (2, Value::Text("yy".into()))
        };
        let op = match self.dice.below(8) {
            0 | 1 => Op::Set(vec![(1, n), extra]),
            2 => Op::Set(vec![(1, Value::Int(poison))]),
            3 => Op::SetNx(vec![extra]),
            4 => Op::Cas {
                when: vec![(1, n.clone())],
                set: vec![(1, n), extra],
            },
            5 => Op::CasNx {
                when: vec![(1, n)],
                set: vec![extra],
            },
            6 => Op::Incr {
                field: 1,
                by: Amount::Integer(i128::from(self.dice.below(9)) - 4),
            },
            _ => Op::Del,
        };
        let expect = match self.dice.below(8) {
            0 => Expect::Present,
            1 => Expect::Version(self.dice.below(9) as i64 - 3),
            2 => Expect::Version(self.model.get(&id).0),
            _ => Expect::Any,
        };
        let request = self.dice.once_in(2).then(|| {
            self.next_request += 1;
            Request {
                client: u128::from(self.dice.below(3)),
                number: self.next_request,
            }
        });
        Write {
            id,
            op,
            expect,
            ask: table::entry::Ask::All,
            request,
            epoch: table.epoch,
            row_max: 1 << 20,
        }
    }

    /// Somebody does something about dead letters.
    pub(super) fn wake(&mut self) {
        let dead = self
            .rows()
            .dead()
            .next()
            .map(|(id, letter)| (id.clone(), letter.clone()));
        let Some((id, letter)) = dead else {
            return;
        };
        let version = letter.version;
        let entry = match self.dice.below(3) {
            0 => Entry::Retry {
                id,
                version,
                over: None,
            },
            1 => Entry::Retry {
                id: id.clone(),
                version,
                over: Some(self.sql.version(&id).unsigned_abs()),
            },
            _ => Entry::Discard { id, version },
        };
        self.resolve(entry);
    }

    /// At once, so that nothing happens to SQL in between.
    pub(super) fn resolve(&mut self, entry: Entry) {
        while !self.pending.is_empty() {
            self.commit();
        }
        let (Entry::Retry { id, version, .. } | Entry::Discard { id, version }) = &entry else {
            return;
        };
        let it = |letter: &table::rows::DeadLetter| letter.version == *version;
        let still = self
            .rows()
            .get(id)
            .and_then(|row| row.dead.as_deref())
            .is_some_and(it);
        if !still {
            return;
        }
        if let Entry::Discard { id, .. } = &entry {
            self.model.rows.insert(id.clone(), (i64::MAX, None));
            self.sql.edited.remove(id);
        }
        self.propose(entry);
        self.commit();
    }

    pub(super) fn schema(&mut self) {
        let Some(table) = self.rows().table(1).cloned() else {
            return;
        };
        if self.dice.once_in(4) && table.epoch < 3 && self.pending.is_empty() {
            let field = parse_fields(&format!("f{}:int64=3", table.epoch), 0)
                .unwrap()
                .remove(0);
            self.propose(Entry::Schema(table.with_field(field).unwrap()));
        }
    }
}
