//! All regions of this node asked at once: numbers, drain, dead letters.
//!
//! Regions that are led elsewhere are left out: whoever wants to know of a whole cluster asks every node, and
//! adds up the slots that were answered for.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use base::{Refusal, SLOT_COUNT};
use table::RowId;
use table::leader::Numbers;
use table::rows::{Counts, DeadLetter};

use super::{Ask, TableAnswer};
use crate::clock::now_ms;
use crate::cores::{Core, NOWHERE, Place};

/// For a region to say something; one without a majority does not.
const TIMEOUT: Duration = Duration::from_secs(3);

/// What the leaders here know about their rows.
#[derive(Debug, Default)]
pub struct Status {
    pub regions: usize,
    /// Of these regions.
    pub slots: usize,
    /// Regions that may write back now.
    pub leases: usize,
    /// Sums; the lag is the largest.
    pub numbers: Numbers,
    /// By table id.
    pub tables: BTreeMap<u32, Counts>,
    /// Why tables cannot be written back, by id; in how many regions.
    pub troubles: BTreeMap<u32, (String, usize)>,
    /// Backends that are not asked for rows at present; by how many regions.
    pub down: BTreeMap<String, (String, usize)>,
    /// Regions that could not say, because they are about to be led by another.
    pub unsettled: usize,
}

/// SQL has all that was changed before, but these.
#[derive(Debug, Default)]
pub struct Drained {
    pub slots: usize,
    pub dead: usize,
    /// The first of them.
    pub named: Vec<RowId>,
}

pub async fn status(core: &Rc<Core>) -> Status {
    let mut status = Status::default();
    for (slots, told) in ask_all(core, &Ask::Numbers, TIMEOUT).await {
        let Ok(TableAnswer::Numbers(region)) = told else {
            status.unsettled += 1;
            continue;
        };
        status.regions += 1;
        status.slots += slots;
        status.leases += usize::from(region.has_lease);
        add(&mut status.numbers, &region.numbers);
        for (table, counts) in region.tables {
            count(status.tables.entry(table).or_default(), counts);
        }
        for (table, why) in region.troubles {
            let trouble = status.troubles.entry(table).or_insert((why, 0));
            trouble.1 += 1;
        }
        for (backend, why) in region.down {
            let down = status.down.entry(backend).or_insert((why, 0));
            down.1 += 1;
        }
    }
    status
}

/// Adds what a region has of a table.
pub fn count(sum: &mut Counts, one: Counts) {
    sum.rows += one.rows;
    sum.dirty += one.dirty;
    sum.dead += one.dead;
}

fn add(sum: &mut Numbers, one: &Numbers) {
    sum.lag_ms = sum.lag_ms.max(one.lag_ms);
    sum.dirty += one.dirty;
    sum.queued += one.queued;
    sum.flying += one.flying;
    sum.dead += one.dead;
    sum.rows += one.rows;
    sum.bytes += one.bytes;
    sum.waiting += one.waiting;
    sum.loads += one.loads;
    sum.loaded += one.loaded;
    sum.flushes += one.flushes;
    sum.flushed += one.flushed;
    sum.kicked += one.kicked;
    sum.faults += one.faults;
}

/// Waits until SQL has everything (of one table) of the regions led here; refused if one cannot say so in time.
pub async fn drain(
    core: &Rc<Core>,
    table: Option<u32>,
    deadline_ms: u64,
) -> Result<Drained, Refusal> {
    let mut drained = Drained::default();
    let mut refused = None;
    let left = Duration::from_millis(deadline_ms.saturating_sub(now_ms()));
    let timeout = left.saturating_add(TIMEOUT);
    let ask = Ask::Drain { table, deadline_ms };
    for (slots, told) in ask_all(core, &ask, timeout).await {
        match told {
            Ok(TableAnswer::Drained { dead, named }) => {
                drained.slots += slots;
                drained.dead += dead;
                drained.named.extend(named);
            }
            Ok(_) => drained.slots += slots,
            Err(refusal) => refused = refused.or(Some(refusal)),
        }
    }
    match refused {
        Some(refusal) => Err(refusal),
        None => Ok(drained),
    }
}

/// Up to so many dead letters, and how many there are.
pub async fn dead_letters(
    core: &Rc<Core>,
    limit: usize,
) -> Result<(Vec<(RowId, DeadLetter)>, usize), Refusal> {
    let mut letters = Vec::new();
    for (_, told) in ask_all(core, &Ask::Dead { limit }, TIMEOUT).await {
        if let TableAnswer::Dead(some) = told? {
            letters.extend(some);
        }
    }
    let count = letters.len().max(status(core).await.numbers.dead);
    letters.sort_by(|a, b| a.0.cmp(&b.0));
    letters.truncate(limit);
    Ok((letters, count))
}

/// The answers of all regions led here, and how many slots each has.
async fn ask_all(
    core: &Rc<Core>,
    ask: &Ask,
    timeout: Duration,
) -> Vec<(usize, Result<TableAnswer, Refusal>)> {
    let until = tokio::time::Instant::now() + timeout;
    let asked: Vec<_> = places(core)
        .into_iter()
        .map(|(region, slots)| {
            let (core, ask) = (core.clone(), ask.clone());
            let told = tokio::task::spawn_local(async move { core.ask_table(region, ask).await });
            (slots, told)
        })
        .collect();
    let mut answers = Vec::with_capacity(asked.len());
    for (slots, told) in asked {
        let told = match tokio::time::timeout_at(until, told).await {
            Ok(Ok(told)) => told,
            Ok(Err(_)) => Err(Refusal::new("ERR internal error")),
            Err(_) => Err(Refusal::new(
                "TRYAGAIN a region does not answer: it has no majority, or a transaction holds it",
            )),
        };
        let elsewhere = |refusal: &Refusal| refusal.code() == "MOVED";
        if !told.as_ref().is_err_and(elsewhere) {
            answers.push((slots, told));
        }
    }
    answers
}

/// The regions of this node and their slots.
fn places(core: &Core) -> BTreeMap<Place, usize> {
    let mut places = BTreeMap::new();
    for slot in 0..SLOT_COUNT {
        let region = core.shared.map.region_of_slot(slot);
        if region != NOWHERE {
            *places.entry(region).or_default() += 1;
        }
    }
    places
}
