//! Waiting until SQL rows are cached, for commands that read them and for those on held regions.

use std::rc::Rc;

use base::slot::slot_of;
use base::{DbIndex, Refusal};
use command::{CommandSpec, Traits};
use node::{Unserved, refusal_of};
use resp::Args;
use table::RowId;
use table::leader::End;

use super::ask::{Ask, TableAnswer};
use crate::cores::{Answer, Core, Place, Ticket};

/// How long a row may take to come from SQL.
const LOAD_MS: u64 = 5_000;

impl Core {
    /// Waits until rows of a region of this core are cached; those that cannot be had, and why.
    pub(crate) async fn load_rows(
        self: &Rc<Self>,
        region: Place,
        rows: Vec<RowId>,
    ) -> Vec<(RowId, Refusal)> {
        self.follow_catalogue(region).await;
        let mut failed = Vec::new();
        let mut waiting: Vec<(RowId, Ticket)> = Vec::new();
        while !self.want_rows(region, &rows, &mut waiting, &mut failed) {
            self.region_changes(region).await;
        }
        self.advance(region);
        for (id, ticket) in waiting {
            if let Answer::Table(Some(End::Failed(failure))) = ticket.await {
                failed.push((id, refusal_of(failure)));
            }
        }
        failed
    }

    /// False while the region is lent.
    fn want_rows(
        self: &Rc<Self>,
        region: Place,
        rows: &[RowId],
        waiting: &mut Vec<(RowId, Ticket)>,
        failed: &mut Vec<(RowId, Refusal)>,
    ) -> bool {
        self.advance(region);
        let mut owned = self.regions.borrow_mut();
        if owned.region_mut(region).is_none() {
            return !owned.is_used(region);
        }
        let Some(region) = owned.region_mut(region) else {
            return true;
        };
        let cached = region.space.table_rows();
        let member = region.member.as_deref_mut();
        let write_back = member.and_then(|member| member.write_back.as_deref_mut());
        let (Some(write_back), Some(cached)) = (write_back, cached) else {
            // Only a leader loads rows: who wants to read them goes there.
            let catalogue = self.shared.catalogue.load();
            let slot = |id: &RowId| {
                let name = catalogue.tables.get(&id.table);
                let name = name.map_or("", |table| &table.name);
                slot_of(format!("{name}:{}", id.key).as_bytes())
            };
            let slots: Vec<u16> = rows.iter().map(slot).collect();
            drop(owned); // looked at for who leads
            for (id, slot) in rows.iter().zip(slots) {
                failed.push((id.clone(), self.unserved(slot, Unserved::Elsewhere)));
            }
            return true;
        };
        let now_ms = self.now_ms();
        for id in rows {
            if cached.get(id).is_some() {
                continue;
            }
            let ticket = Ticket::new(self);
            let number = ticket.number() as u64;
            let deadline_ms = now_ms + LOAD_MS;
            let leader = &mut write_back.leader;
            match leader.want(cached, id, number, deadline_ms, now_ms) {
                Ok(()) => {
                    write_back.waiting.insert(number);
                    waiting.push((id.clone(), ticket));
                }
                Err(failure) => {
                    ticket.close();
                    failed.push((id.clone(), refusal_of(failure)));
                }
            }
        }
        true
    }

    /// Waits until the leader's region knows all tables this node knows.
    pub(crate) async fn follow_catalogue(self: &Rc<Self>, region: Place) {
        loop {
            self.advance(region);
            let version = self.shared.catalogue_version();
            let is_catalogue_old = match self.regions.borrow_mut().region_mut(region) {
                Some(region) => region.is_catalogue_old(version),
                None => true,
            };
            let is_used = self.regions.borrow_mut().is_used(region);
            if !is_catalogue_old || !is_used || self.is_stopping() {
                return;
            }
            self.region_changes(region).await;
        }
    }

    /// Loads the rows that commands name, wherever their regions are: before these are held, because
    /// nothing can be loaded then.
    pub async fn load_named_rows<'a>(
        self: &Rc<Self>,
        commands: impl Iterator<Item = (&'a CommandSpec, DbIndex, Args<'a>)>,
    ) {
        if self.shared.catalogue_version() == 0 {
            return;
        }
        let catalogue = self.shared.catalogue.load_full();
        let mut wanted: Vec<(Place, RowId)> = Vec::new();
        for (spec, db, args) in commands {
            spec.each_key(db, &args, &mut |db, key| {
                if db == 0
                    && !spec.is(Traits::RELEASES_ROW)
                    && let Some(id) = catalogue.row_of(key)
                {
                    wanted.push((self.shared.map.region_of(key), id));
                }
            });
        }
        wanted.sort();
        wanted.dedup();
        for of_region in wanted.chunk_by(|a, b| a.0 == b.0) {
            let rows = of_region.iter().map(|(_, id)| id.clone()).collect();
            let Some((region, _)) = of_region.first() else {
                continue;
            };
            // What cannot be had is told by the command itself.
            let _: Result<TableAnswer, Refusal> = self.ask_table(*region, Ask::Load(rows)).await;
        }
    }
}
