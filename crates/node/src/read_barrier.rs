//! Whether a region may be read here, and waiting until it may.
//!
//! A leader answers under its lease; without one it proves its leadership first, once for all who wait
//! (ReadIndex); a follower (READONLY, `enable-follower-read`) asks the leader how far it must be. Memory
//! that is ahead of the log is read by nobody.

use replica::Read;

use crate::effects::Effects;
use crate::peers::Wait;
use crate::{Context, OwnedRegions, Place, Region, Unserved};

/// How far a region is from being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serving {
    Now,
    /// Later: it has to prove its leadership, or something has to be finished.
    Later,
    /// Another replica leads, or none.
    No,
}

/// What stands between a task and reading a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    /// Nothing; or the region is lent for a moment, and looked at again then.
    None,
    /// The task's ticket is answered.
    Wait,
    Unserved(Unserved),
}

impl Region {
    /// For a read, or to be held.
    pub fn serving(&self, clock_ms: u64) -> Serving {
        match self.member.as_deref() {
            Some(member) if member.peers.is_some() => match &member.replica {
                _ if member.failed => Serving::No,
                replica if !replica.is_leader() => Serving::No,
                _ if member.uncommitted.is_some() => Serving::Later,
                replica if replica.may_serve(clock_ms) => Serving::Now,
                _ => Serving::Later,
            },
            _ => Serving::Now,
        }
    }

    /// Whether a command that reads may run now. `is_confirmed`: the barrier was passed for it.
    #[inline]
    pub fn may_read(&self, is_confirmed: bool, clock_ms: u64) -> bool {
        let Some(member) = self.member.as_deref() else {
            return true;
        };
        if member.uncommitted.is_some()
            || member.peers.as_deref().is_some_and(|it| it.is_installing)
        {
            // Also for who was confirmed: it may have come to this since.
            return false;
        }
        is_confirmed
            || member.replica.may_serve(clock_ms)
                && member.replica.applied_index() >= member.replica.committed_index()
    }
}

impl OwnedRegions {
    /// Asks whether a region of this core may be read. `anywhere`: also where it is not led. The ticket is
    /// answered by [`Effects::reads`] if it has to wait.
    pub fn read_barrier(
        &mut self,
        place: Place,
        anywhere: bool,
        ticket: usize,
        cx: &Context<'_>,
        out: &mut Effects,
    ) -> Barrier {
        let Some(region) = self.slots.region_mut(place) else {
            return match self.is_used(place) {
                true => Barrier::None,
                false => Barrier::Unserved(Unserved::Elsewhere),
            };
        };
        let Some(member) = region.member.as_deref_mut() else {
            return Barrier::None;
        };
        let Some(peers) = member.peers.as_deref_mut() else {
            return Barrier::None;
        };
        if member.failed {
            return Barrier::Unserved(Unserved::Down);
        }
        let read = match anywhere {
            true => member.replica.read_here(cx.clock_ms),
            false => member.replica.read(cx.clock_ms),
        };
        match read {
            Read::Now if member.uncommitted.is_none() => return Barrier::None,
            Read::Now => peers.wait(Wait::Commit, ticket),
            Read::Wait(number) => peers.wait(Wait::Round(number), ticket),
            Read::NotLeader { leader: Some(_) } => {
                return Barrier::Unserved(Unserved::Elsewhere);
            }
            Read::NotLeader { leader: None } => peers.wait(Wait::Leader, ticket),
        }
        self.drive(place, cx, out);
        Barrier::Wait
    }

    /// Regions that somebody wants to hold and that have no lease get one.
    pub fn ask_leases(&mut self, regions: &[Place], cx: &Context<'_>, out: &mut Effects) {
        if !cx.is_cluster {
            return;
        }
        for &place in regions {
            let asked = self.member_mut(place).is_some_and(|member| {
                let replica = &mut member.replica;
                replica.is_leader()
                    && !replica.may_serve(cx.clock_ms)
                    && matches!(replica.read(cx.clock_ms), Read::Wait(_))
            });
            if asked {
                self.drive(place, cx, out);
            }
        }
    }
}
