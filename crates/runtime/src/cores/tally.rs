//! Sums over all regions that this node leads, asked of each core: what INFO and DBSIZE tell on a cluster node.
//!
//! Nothing is held and no replica is asked to prove that it leads: whoever looks every second would
//! keep every idle region awake, with heartbeats and a round for each. So the regions are not
//! counted at one moment, and the price of a [`Tally::Sure`] answer is this: of a region that is
//! quiet, what counts is that it leads as far as it knows. A leader that is cut off learns that its
//! peers are gone within `down_after`, and is quiet no more then.

use std::rc::Rc;
use std::time::{Duration, Instant};

use node::{OwnedRegions, Region};

use super::mailbox::Message;
use super::tickets::{Answer, Ticket};
use super::{Core, CoreId, Place, Totals};

/// A region that is lent, or whose leader has just begun, is looked at again so soon.
const PAUSE: Duration = Duration::from_millis(1);
/// Then they are held (`Sure`), or left out.
const TIMEOUT: Duration = Duration::from_millis(200);

/// Which regions count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tally {
    /// Those that are led here.
    Led,
    /// Those that are led here, with every write that was acknowledged before and none that may not last.
    Sure,
}

/// What a core answers: sums, and the regions that could not be counted now.
pub type Counted = (Totals, Vec<Place>);

/// `None`: not now. `Some(false)`: it is not led here.
fn counts(region: &Region, tally: Tally, now_ms: u64) -> Option<bool> {
    let Some(member) = region.member.as_deref() else {
        return Some(true);
    };
    let replica = &member.replica;
    if member.peers.is_none() {
        return Some(true);
    }
    if member.failed || !replica.is_leader() {
        return Some(false);
    }
    // A read may have said already that a key is gone whose removal is still on its way.
    let is_confirmed = member.uncommitted.is_none()
        && !member.is_expiring()
        && replica.is_serving()
        && replica.applied_index() >= replica.committed_index()
        && (replica.is_quiet() || replica.may_serve(now_ms));
    (tally == Tally::Led || is_confirmed).then_some(true)
}

fn count(owned: &mut OwnedRegions, regions: Vec<Place>, tally: Tally, now_ms: u64) -> Counted {
    let (mut totals, mut rest) = (Totals::default(), Vec::new());
    for id in regions {
        if !owned.is_used(id) {
            continue;
        }
        match owned.region_mut(id) {
            Some(region) => match counts(region, tally, now_ms) {
                Some(true) => totals.add(&region.space),
                Some(false) => {}
                None => rest.push(id),
            },
            None => rest.push(id),
        }
    }
    (totals, rest)
}

impl Core {
    /// Sums over all regions of the node.
    pub async fn tally(self: &Rc<Self>, tally: Tally) -> Totals {
        let map = &self.shared.map;
        let until = Instant::now() + TIMEOUT;
        let mut totals = Totals::default();
        let mut left: Vec<Place> = (0..map.regions()).collect();
        loop {
            let mut rest = Vec::new();
            for owner in 0..map.cores() {
                let ours = left.iter().filter(|&&id| map.core_of(id) == owner);
                let ours: Vec<Place> = ours.copied().collect();
                if !ours.is_empty() {
                    let (sums, mut others) = self.tally_at(owner, ours, tally).await;
                    totals.merge(&sums);
                    rest.append(&mut others);
                }
            }
            rest.sort_unstable();
            left = rest;
            if left.is_empty() || Instant::now() > until {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        if !left.is_empty() && tally == Tally::Sure {
            let mut held = self.hold(&left).await;
            held.spaces().for_each(|space| totals.add(space));
        }
        self.begin_batch();
        totals
    }

    async fn tally_at(
        self: &Rc<Self>,
        owner: CoreId,
        regions: Vec<Place>,
        tally: Tally,
    ) -> Counted {
        if owner == self.id {
            return self.tally_here(regions, tally);
        }
        self.credit(owner).await;
        let ticket = Ticket::new(self);
        let message = Message::Tally {
            from: self.id,
            ticket: ticket.number(),
            regions,
            tally,
        };
        self.send(owner, message);
        match ticket.await {
            Answer::Counted(counted) => *counted,
            _ => Counted::default(),
        }
    }

    pub(super) fn tally_here(&self, regions: Vec<Place>, tally: Tally) -> Counted {
        let now_ms = crate::clock::clock_ms();
        count(&mut self.regions.borrow_mut(), regions, tally, now_ms)
    }
}
