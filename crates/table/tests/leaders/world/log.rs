//! The log, and replicas that apply it and start again.

use super::*;

impl World {
    pub(super) fn propose(&mut self, entry: Entry) {
        self.pending.push_back(entry);
    }

    pub(super) fn commit_some(&mut self) {
        let count = self.dice.below(6);
        (0..count).for_each(|_| self.commit());
    }

    /// The oldest proposal is in the log, and the leader applies it.
    pub(super) fn commit(&mut self) {
        let Some(entry) = self.pending.pop_front() else {
            return;
        };
        if let Entry::Loaded { .. } = &entry {
            self.old_loads.push(entry.clone());
        }
        self.log.push((self.clock, entry.encode()));
        self.apply_all(self.region.node);
    }

    pub(super) fn apply_all(&mut self, node: usize) {
        while let Some(applied) = self.apply(node) {
            if node == self.region.node {
                let mut out = Vec::new();
                let rows = &self.replicas[node].rows;
                self.region
                    .leader
                    .on_applied(rows, &applied, self.clock, &mut out);
                self.obey(out, false);
            }
        }
    }

    pub(super) fn apply(&mut self, node: usize) -> Option<Applied> {
        let replica = &mut self.replicas[node];
        let at = replica.rows.applied() as usize;
        let (stamp, bytes) = self.log.get(at)?;
        let entry = Entry::decode(bytes).unwrap();
        assert_eq!(&entry.encode(), bytes);
        let applied = replica.rows.apply(at as u64 + 1, *stamp, entry.clone());
        let again = replica
            .rows
            .clone()
            .apply(at as u64 + 1, *stamp, entry.clone());
        assert_eq!(again.what, What::Nothing);
        // What several entries have changed may be stored together.
        if self.dice.once_in(2) {
            self.store(node);
        }
        let first = !self.outcomes.contains_key(&at);
        let known = self
            .outcomes
            .entry(at)
            .or_insert_with(|| applied.outcome.clone());
        assert_eq!(known, &applied.outcome, "replicas answer differently");
        if first {
            self.check(node, &entry, &applied);
        }
        Some(applied)
    }

    fn store(&mut self, node: usize) {
        let replica = &mut self.replicas[node];
        for change in &changes_of(&mut replica.rows) {
            if self.plant == Plant::ForgetChange && self.dice.once_in(50) {
                continue;
            }
            match change {
                Change::Put(place, bytes) => {
                    assert_eq!(Place::decode(&place.encode()).as_ref(), Ok(place));
                    replica.stored.insert(place.encode(), bytes.clone());
                }
                Change::Remove(place) => {
                    replica.stored.remove(&place.encode());
                }
                Change::RemoveRows(table) => {
                    let prefix = Place::rows_of(*table);
                    replica.stored.retain(|key, _| !key.starts_with(&prefix));
                }
            }
        }
    }

    /// Of the first replica that applies an entry.
    pub(super) fn check(&mut self, node: usize, entry: &Entry, applied: &Applied) {
        let rows = self.replicas[node].rows.clone();
        match entry {
            Entry::Write(write) => {
                let table = rows.table(1).unwrap();
                self.model
                    .write(table, write, applied.outcome.as_ref().unwrap());
                self.writes += 1;
            }
            Entry::Dead(dead) => {
                self.deads += 1;
                let refused = dead.kind == DeadKind::Refused;
                let edited = self.ever_edited.contains(&dead.id);
                assert!(refused || edited, "a conflict nobody made: {dead:?}");
            }
            Entry::Retry {
                id, over: Some(_), ..
            } => {
                // the version may have been raised, nothing else
                if let Some(row) = rows.get(id) {
                    self.model.rows.entry(id.clone()).or_default().0 = row.image.version;
                }
                if applied.what == (What::Retried { strict: true }) {
                    self.sql.edited.remove(id);
                }
            }
            _ => {}
        }
        let written = match entry {
            Entry::Write(write) => Some(&write.id),
            _ => None,
        };
        for id in applied.rows.iter().chain(written) {
            let Some(row) = rows.get(id) else {
                self.kicks += u64::from(applied.what == What::Kicked);
                if !rows.is_forgotten(id) && !self.sql.edited.contains(id) {
                    self.check_sql(&rows, id);
                }
                continue;
            };
            assert_eq!(row.since == 0, !row.is_dirty());
            let table = rows.table(1).unwrap();
            let shown = (row.state == State::Present).then(|| {
                let ids = table.fields.iter().map(|field| field.id);
                ids.zip(row.image.values(table)).collect::<BTreeMap<_, _>>()
            });
            let is = (row.image.version, shown);
            if applied.what == What::Loaded && self.edits_are_taken(id, &is) {
                self.model.rows.insert(id.clone(), is);
                continue;
            }
            let (version, mut values) = self.model.get(id);
            if let Some(values) = &mut values {
                for field in &table.fields {
                    values.entry(field.id).or_insert(field.default.clone());
                }
            }
            assert_eq!(is, (version, values), "{id:?} after {:?}", applied.what);
        }
    }

    /// SQL has the row as the model has it.
    pub(super) fn check_sql(&self, rows: &Rows, id: &RowId) {
        let table = rows.table(1).unwrap();
        let all = |mut values: BTreeMap<u16, Value>| {
            for field in &table.fields {
                values.entry(field.id).or_insert(field.default.clone());
            }
            values
        };
        let (version, values) = self.model.get(id);
        let sql = self.sql.rows.get(id).cloned();
        let has = sql.map_or((0, None), |(version, values)| {
            (version, (version >= 0).then_some(values))
        });
        let has = (has.0, has.1.map(all));
        assert_eq!(has, (version, values.map(all)), "{id:?} is not in SQL");
    }

    /// Whether the row loaded is what a hand made of it, or what is left after a discard.
    pub(super) fn edits_are_taken(
        &mut self,
        id: &RowId,
        is: &(i64, Option<BTreeMap<u16, Value>>),
    ) -> bool {
        let discarded = self.model.get(id).0 == i64::MAX;
        if self.sql.version(id) == is.0 {
            self.sql.edited.remove(id);
        }
        // perhaps an edit that was edited since
        discarded || self.edits.remove(&(id.clone(), is.0))
    }

    pub(super) fn catch_up(&mut self) {
        let node = self.dice.below(3) as usize;
        for _ in 0..self.dice.below(60) {
            if node != self.region.node && self.apply(node).is_none() {
                return;
            }
        }
    }

    pub(super) fn restart(&mut self) {
        let node = self.dice.below(3) as usize;
        self.store(node);
        let replica = &mut self.replicas[node];
        let stored = replica
            .stored
            .iter()
            .map(|(key, bytes)| (&key[..], &bytes[..]));
        let rows = Rows::restore(stored.clone(), replica.rows.applied()).unwrap();
        assert!(rows == replica.rows, "what is stored is not what was");
        let dumped: BTreeMap<_, _> = rows
            .dump()
            .into_iter()
            .map(|(place, bytes)| (place.encode(), bytes))
            .collect();
        assert_eq!(dumped, replica.stored);
        if node != self.region.node {
            replica.rows = rows;
            if self.plant == Plant::ApplyTwice {
                let applied = replica.rows.applied().saturating_sub(1);
                replica.rows = Rows::restore(stored, applied).unwrap();
            }
        }
    }
}

/// All that is to be stored now.
fn changes_of(rows: &mut Rows) -> Vec<Change> {
    let mut changes = rows.take_changes();
    rows.save(|_, id, bytes| {
        let place = Place::Row(id.clone());
        changes.push(match bytes {
            Some(bytes) => Change::Put(place, bytes.into()),
            None => Change::Remove(place),
        });
    });
    changes
}
