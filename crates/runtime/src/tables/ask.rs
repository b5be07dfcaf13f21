//! Questions to the leader of a region about its rows, from any core of its node.

use std::rc::Rc;

use base::Refusal;
use base::slot::slot_of;
use node::{Unserved, WriteBack, refusal_of, try_again};
use table::entry::Entry;
use table::leader::{End, Numbers};
use table::rows::{Counts, DeadLetter};
use table::scan::Overlay;
use table::{RowId, Rows};

use crate::cores::{Answer, Core, CoreId, Message, Place, Ticket};

#[derive(Debug, Clone)]
pub enum Ask {
    /// Rows are to be cached.
    Load(Vec<RowId>),
    /// Until SQL has this version (without sign), or the one the row has now.
    WaitSql {
        id: RowId,
        version: Option<u64>,
        deadline_ms: u64,
    },
    /// Until SQL has all that was changed before, of one table or all.
    Drain {
        table: Option<u32>,
        deadline_ms: u64,
    },
    Numbers,
    /// Dead letters, at most so many.
    Dead {
        limit: usize,
    },
    /// A dead letter is to be tried again; over this version in SQL, after a conflict.
    Retry {
        id: RowId,
        over: Option<u64>,
    },
    /// A dead letter is to be given up.
    Discard {
        id: RowId,
    },
    /// What the cache has of a table after a key.
    Overlay {
        table: u32,
        after: Option<Box<str>>,
        limit: usize,
        /// Of the region.
        slot: u16,
    },
}

#[derive(Debug)]
pub enum TableAnswer {
    Done,
    /// SQL has this version of the row, without sign, or a newer one.
    Version(u64),
    Drained {
        dead: usize,
        named: Vec<RowId>,
    },
    Numbers(Box<RegionNumbers>),
    Dead(Vec<(RowId, DeadLetter)>),
    /// `None`: no such table.
    Overlay(Option<Overlay>),
}

/// What the leader of a region knows about its rows.
#[derive(Debug, Clone, Default)]
pub struct RegionNumbers {
    pub region: Place,
    pub numbers: Numbers,
    pub has_lease: bool,
    /// By table id.
    pub tables: Vec<(u32, Counts)>,
    /// Tables that cannot be written back, by id.
    pub troubles: Vec<(u32, String)>,
    /// Backends that are not asked at present, and why.
    pub down: Vec<(String, String)>,
}

/// A question and where its answer goes.
pub struct Asked {
    region: Place,
    ask: Ask,
    from: CoreId,
    ticket: usize,
}

/// What can be said at once, or who will be told.
enum Now {
    Answer(Result<TableAnswer, Refusal>),
    Later(Ticket, Option<u64>),
    /// This node does not lead the region (of this slot, if one was named). Who does is looked up when the regions are not borrowed.
    Elsewhere(Option<base::Slot>),
    Lent,
}

impl Core {
    /// Asks the leader of a region of this node; refused with where to go if it is led elsewhere.
    pub async fn ask_table(
        self: &Rc<Self>,
        region: Place,
        ask: Ask,
    ) -> Result<TableAnswer, Refusal> {
        let owner = self.shared.map.core_of(region);
        if owner == self.id {
            return self.answer_table(region, ask).await;
        }
        let ticket = Ticket::new(self);
        let asked = Asked {
            region,
            ask,
            from: self.id,
            ticket: ticket.number(),
        };
        self.send(owner, Message::TableAsk(Box::new(asked)));
        match ticket.await {
            Answer::TableAnswer(told) => *told,
            _ => Err(Refusal::new("ERR internal error")),
        }
    }

    /// A question from another core.
    pub(crate) fn on_table_ask(self: &Rc<Self>, asked: Asked) {
        let core = self.clone();
        tokio::task::spawn_local(async move {
            core.begin_batch();
            let told = core.answer_table(asked.region, asked.ask).await;
            let ticket = asked.ticket;
            core.send(
                asked.from,
                Message::TableAnswered {
                    ticket,
                    told: Box::new(told),
                },
            );
        });
    }

    async fn answer_table(
        self: &Rc<Self>,
        region: Place,
        ask: Ask,
    ) -> Result<TableAnswer, Refusal> {
        if let Ask::Load(rows) = ask {
            let failed = self.load_rows(region, rows).await;
            return match failed.into_iter().next() {
                Some((_, refusal)) => Err(refusal),
                None => Ok(TableAnswer::Done),
            };
        }
        self.follow_catalogue(region).await;
        loop {
            match self.answer_now(region, &ask) {
                Now::Answer(told) => return told,
                Now::Later(ticket, version) => {
                    self.advance(region);
                    return told_of(ticket.await, version);
                }
                Now::Elsewhere(slot) => {
                    return Err(match slot {
                        Some(slot) => self.unserved(slot, Unserved::Elsewhere),
                        None => self.unserved_region(region),
                    });
                }
                Now::Lent => self.region_changes(region).await,
            }
            self.begin_batch();
        }
    }

    fn answer_now(self: &Rc<Self>, id: Place, ask: &Ask) -> Now {
        let now_ms = self.now_ms();
        let mut owned = self.regions.borrow_mut();
        let is_used = owned.is_used(id);
        let Some(region) = owned.region_mut(id) else {
            return match is_used {
                true => Now::Lent,
                false => Now::Elsewhere(None),
            };
        };
        let slot = match ask {
            Ask::WaitSql { id, .. } | Ask::Retry { id, .. } | Ask::Discard { id } => {
                let rows = region.space.table_rows();
                let table = rows.and_then(|rows| rows.table(id.table));
                table.map(|table| slot_of(format!("{}:{}", table.name, id.key).as_bytes()))
            }
            Ask::Overlay { slot, .. } => Some(*slot),
            _ => None,
        };
        let numbers = region.table_numbers(now_ms);
        let rows = region.space.table_rows();
        let member = region.member.as_deref_mut();
        let write_back = member.and_then(|member| member.write_back.as_deref_mut());
        let (Some(write_back), Some(rows)) = (write_back, rows) else {
            return Now::Elsewhere(slot);
        };
        match ask {
            Ask::Numbers => Now::Answer(Ok(TableAnswer::Numbers(Box::new(RegionNumbers {
                region: id,
                numbers: numbers.unwrap_or_default(),
                has_lease: write_back.leader.has_lease(rows, now_ms),
                tables: rows.counts().collect(),
                troubles: troubles(write_back),
                down: {
                    let down = write_back.leader.backends_down(now_ms);
                    down.map(|(name, why)| (name.into(), why.into())).collect()
                },
            })))),
            Ask::Dead { limit } => {
                let dead = rows.dead().take(*limit);
                let dead = dead.map(|(id, letter)| (id.clone(), letter.clone()));
                Now::Answer(Ok(TableAnswer::Dead(dead.collect())))
            }
            Ask::Overlay {
                table,
                after,
                limit,
                ..
            } => {
                let overlay = Overlay::new(rows, *table, after.as_deref(), *limit);
                Now::Answer(Ok(TableAnswer::Overlay(overlay)))
            }
            Ask::WaitSql {
                id,
                version,
                deadline_ms,
            } => self.wait_sql(write_back, rows, id, *version, *deadline_ms),
            Ask::Drain { table, deadline_ms } => {
                let ticket = Ticket::new(self);
                let number = ticket.number() as u64;
                let leader = &mut write_back.leader;
                match leader.drain(rows, *table, number, *deadline_ms, now_ms) {
                    Ok(()) => {
                        write_back.waiting.insert(number);
                        Now::Later(ticket, None)
                    }
                    Err(failure) => {
                        ticket.close();
                        Now::Answer(Err(refusal_of(failure)))
                    }
                }
            }
            Ask::Retry { id, over } => {
                self.settle_letter(write_back, rows, id, |version| Entry::Retry {
                    id: id.clone(),
                    version,
                    over: *over,
                })
            }
            Ask::Discard { id } => {
                self.settle_letter(write_back, rows, id, |version| Entry::Discard {
                    id: id.clone(),
                    version,
                })
            }
            Ask::Load(_) => Now::Answer(Ok(TableAnswer::Done)),
        }
    }

    fn wait_sql(
        self: &Rc<Self>,
        write_back: &mut WriteBack,
        rows: &Rows,
        id: &RowId,
        version: Option<u64>,
        deadline_ms: u64,
    ) -> Now {
        let has = rows.get(id).map(|row| row.version());
        let Some(wanted) = version.or(has) else {
            return Now::Answer(Ok(TableAnswer::Version(0))); // not cached: SQL has whatever there is
        };
        let ticket = Ticket::new(self);
        let number = ticket.number() as u64;
        match write_back
            .leader
            .wait_sql(rows, id, wanted, number, deadline_ms)
        {
            Ok(()) => {
                write_back.waiting.insert(number);
                Now::Later(ticket, Some(wanted))
            }
            Err(end) => {
                ticket.close();
                Now::Answer(told_of(Answer::Table(Some(end)), Some(wanted)))
            }
        }
    }

    /// Something is to be done about the dead letter of a row.
    fn settle_letter(
        self: &Rc<Self>,
        write_back: &mut WriteBack,
        rows: &Rows,
        id: &RowId,
        entry: impl FnOnce(i64) -> Entry,
    ) -> Now {
        let letter = rows.get(id).and_then(|row| row.dead.as_deref());
        let Some(letter) = letter else {
            let text = "ERR this row is no dead letter; see ROW.TABLE DEAD LIST";
            return Now::Answer(Err(Refusal::new(text)));
        };
        let ticket = Ticket::new(self);
        write_back.propose(entry(letter.version));
        write_back.letters.push((id.clone(), ticket.number()));
        Now::Later(ticket, None)
    }
}

fn troubles(write_back: &WriteBack) -> Vec<(u32, String)> {
    let troubles = write_back.leader.tables_in_trouble();
    troubles.map(|(table, why)| (table, why.into())).collect()
}

fn told_of(answer: Answer, version: Option<u64>) -> Result<TableAnswer, Refusal> {
    match answer {
        Answer::Table(Some(End::Ready)) => Ok(match version {
            Some(version) => TableAnswer::Version(version),
            None => TableAnswer::Done,
        }),
        Answer::Table(Some(End::Drained { dead, named })) => {
            Ok(TableAnswer::Drained { dead, named })
        }
        Answer::Table(Some(End::Failed(table::leader::Failure::TimedOut))) => {
            Err(Refusal::new("TIMEOUT SQL does not have it yet"))
        }
        Answer::Table(Some(End::Failed(failure))) => Err(refusal_of(failure)),
        _ => Err(try_again()),
    }
}
