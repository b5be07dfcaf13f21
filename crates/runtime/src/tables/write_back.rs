//! The write-back of regions meets SQL and time: what it decides is in [`node`]'s `write_back.rs`.

use std::rc::Rc;
use std::time::Duration;

use node::{RowsRequest, Said};
use table::Table;
use table::leader::Action;

use crate::cores::{Answer, Core, Message, Place};

/// Between two looks at the regions: while rows wait for something, and else.
const BUSY: Duration = Duration::from_millis(5);
const IDLE: Duration = Duration::from_millis(100);

/// An answer of SQL, on its way to the core that asked.
pub struct SqlAnswer {
    place: Place,
    /// The write-back that asked, and the number of its request.
    write_back: u64,
    number: u64,
    said: Said,
}

impl Core {
    /// Gives SQL a request of a region.
    pub(crate) fn ask_sql(self: &Rc<Self>, request: RowsRequest) {
        let RowsRequest {
            place,
            write_back,
            action,
        } = request;
        let (core, shared) = (self.id, self.shared.clone());
        let tell = move |number, said| {
            if let Some(mailbox) = shared.mailboxes.get(core) {
                mailbox.send(Message::Table(Box::new(SqlAnswer {
                    place,
                    write_back,
                    number,
                    said,
                })));
            }
        };
        match action {
            Action::Propose(_) => {}
            Action::Load {
                number,
                table,
                keys,
            } => {
                let done = move |result| tell(number, Said::Loaded(result));
                self.shared.sql.load(table, keys, Box::new(done));
            }
            Action::Flush {
                number,
                table,
                rows,
            } => {
                let done = move |result| tell(number, Said::Flushed(result));
                let known = self.shared.clone();
                let is_meant = move |table: &Table| !known.catalogue.load().has_dropped(table);
                let sql = &self.shared.sql;
                sql.flush(table, rows, Box::new(is_meant), Box::new(done));
            }
            Action::Done { ticket, end } => {
                let answer = Answer::Table(Some(end));
                let _ = self.tickets().deliver(ticket as usize, answer);
            }
        }
    }

    /// SQL has answered.
    pub(crate) fn on_sql(self: &Rc<Self>, answer: SqlAnswer) {
        self.begin_batch();
        let SqlAnswer {
            place,
            write_back,
            number,
            said,
        } = answer;
        let kept = self.on_regions(|regions, cx, out| {
            regions.on_sql((place, write_back, number), said, cx, out)
        });
        if let Some(said) = kept {
            // The region is lent: it hears of it when it is back.
            self.sql_answers.borrow_mut().push(SqlAnswer {
                place,
                write_back,
                number,
                said,
            });
        }
    }

    /// What SQL said while regions were lent. Answers for a region that still is are kept again, so the
    /// list must be free while they are handled.
    pub(crate) fn hear_sql(self: &Rc<Self>) {
        if self.sql_answers.borrow().is_empty() {
            return;
        }
        let answers = std::mem::take(&mut *self.sql_answers.borrow_mut());
        for answer in answers {
            self.on_sql(answer);
        }
    }

    /// Tends every region of this core; whether time will bring something soon.
    fn advance_all(self: &Rc<Self>) -> bool {
        // A node of a cluster may not have heard of tables that its regions have.
        if self.shared.catalogue_version() == 0 && self.shared.cluster.is_none() {
            return false;
        }
        self.hear_sql();
        let places: Vec<Place> = self.regions.borrow().places().collect();
        let mut is_busy = false;
        for place in places {
            self.advance(place);
            let mut owned = self.regions.borrow_mut();
            let Some(region) = owned.region_mut(place) else {
                continue;
            };
            let member = region.member.as_deref();
            let write_back = member.and_then(|member| member.write_back.as_deref());
            if let (Some(write_back), Some(rows)) = (write_back, region.space.table_rows()) {
                is_busy |= write_back.is_busy(rows);
            }
        }
        is_busy
    }

    /// The task that lets time pass for SQL rows.
    pub(crate) async fn run_tables(self: Rc<Self>) {
        while !self.is_stopping() {
            self.begin_batch();
            let pause = match self.advance_all() {
                true => BUSY,
                false => IDLE,
            };
            tokio::time::sleep(pause).await;
        }
    }
}
