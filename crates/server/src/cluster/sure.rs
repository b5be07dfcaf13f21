//! Whether a region may be read here, and waiting until it may.
//!
//! A leader answers under its lease; without one it proves its leadership first, once for all who
//! wait; a follower (READONLY, `enable-follower-read`) asks the leader how far it must be. Memory that
//! is ahead of the log is read by nobody.

use std::rc::Rc;
use std::time::{Duration, Instant};

use replica::Read;

use super::clock_ms;
use super::peers::{PATIENCE_MS, Wait};
use crate::cores::{Answer, Core, Region, RegionId, Ticket};

/// Why a region cannot be read here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unserved {
    /// Somebody else leads, or the region has left this node.
    Elsewhere,
    /// Nobody leads, or no majority is to be reached.
    Down,
}

/// How far a region is from being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serving {
    Now,
    /// Later: it has to be asked (`sure`), or something has to be finished.
    Later,
    /// Another replica leads, or none.
    No,
}

impl Region {
    /// For a read, or to be held.
    pub fn serving(&self) -> Serving {
        match self.member.as_deref() {
            Some(member) if member.peers.is_some() => match &member.replica {
                _ if member.failed => Serving::No,
                replica if !replica.is_leader() => Serving::No,
                _ if member.ahead.is_some() => Serving::Later,
                replica if replica.may_serve(clock_ms()) => Serving::Now,
                _ => Serving::Later,
            },
            _ => Serving::Now,
        }
    }
}

impl Core {
    pub(crate) fn is_led_elsewhere(&self, id: RegionId) -> bool {
        self.shared.cluster.is_some()
            && self
                .home
                .borrow_mut()
                .region_mut(id)
                .is_some_and(|region| region.is_led_elsewhere())
    }

    /// Whether a command that reads may run on a region of this core, at the clock of this batch.
    #[inline]
    pub(crate) fn may_read(&self, region: &Region) -> bool {
        let is_sure = self.is_sure.take();
        let Some(member) = region.member.as_deref() else {
            return true;
        };
        if member.ahead.is_some() || member.peers.as_deref().is_some_and(|it| it.is_installing) {
            // Also for who is sure: it may have come to this since he was told.
            return false;
        }
        is_sure
            || member.replica.may_serve(self.boot_ms())
                && member.replica.applied_index() >= member.replica.committed_index()
    }

    /// Waits until a region of this core may be read. `anywhere`: also where it is not led.
    pub(crate) async fn sure(
        self: &Rc<Self>,
        id: RegionId,
        anywhere: bool,
    ) -> Result<(), Unserved> {
        let until = Instant::now() + Duration::from_millis(PATIENCE_MS);
        if self.has_failed() {
            return Err(Unserved::Elsewhere);
        }
        loop {
            let ticket = Ticket::new(self);
            {
                let mut home = self.home.borrow_mut();
                // Lent: those who hold it need no more than a moment, then it is looked at again.
                let Some(region) = home.region_mut(id) else {
                    return match home.is_used(id) {
                        true => Ok(()),
                        false => Err(Unserved::Elsewhere),
                    };
                };
                let Some(member) = region.member.as_deref_mut() else {
                    return Ok(());
                };
                let Some(peers) = member.peers.as_deref_mut() else {
                    return Ok(());
                };
                if member.failed {
                    return Err(Unserved::Down);
                }
                let now_ms = clock_ms();
                let read = match anywhere {
                    true => member.replica.read_here(now_ms),
                    false => member.replica.read(now_ms),
                };
                match read {
                    Read::Now if member.ahead.is_none() => return Ok(()),
                    Read::Now => peers.wait(Wait::Kept, ticket.number()),
                    Read::Wait(number) => peers.wait(Wait::Round(number), ticket.number()),
                    Read::NotLeader { leader: Some(_) } => return Err(Unserved::Elsewhere),
                    Read::NotLeader { leader: None } => peers.wait(Wait::Leader, ticket.number()),
                }
            }
            self.drive(id);
            self.end_turn();
            match tokio::time::timeout_at(until.into(), ticket).await {
                Ok(Answer::Sure(true)) => return Ok(()),
                Ok(_) => {}
                Err(_) => return Err(Unserved::Down),
            }
        }
    }

    /// Regions that somebody wants to hold and that have no lease get one.
    pub(crate) fn ask_lease(self: &Rc<Self>, regions: &[RegionId]) {
        if self.shared.cluster.is_none() {
            return;
        }
        for &id in regions {
            let asked = {
                let mut home = self.home.borrow_mut();
                let region = home.region_mut(id);
                let member = region.and_then(|region| region.member.as_deref_mut());
                member.is_some_and(|member| {
                    let now_ms = clock_ms();
                    let replica = &mut member.replica;
                    replica.is_leader()
                        && !replica.may_serve(now_ms)
                        && matches!(replica.read(now_ms), Read::Wait(_))
                })
            };
            if asked {
                self.drive(id);
            }
        }
        self.end_turn();
    }
}
