//! Who belongs to a region, as Raft counts.
//!
//! Kept by the state machine: a replica gets it at its start and hands out the next one when a
//! change is applied ([`Replica::apply_members`](crate::Replica::apply_members)), so that it is
//! durable together with the applied index. Ids are replica ids, never reused.
//!
//! While a change of several members is under way there are two sets of voters (joint consensus):
//! `voters` as it will be, `voters_outgoing` as it was, and a majority is a majority of both.

use raft::eraftpb::ConfState;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    pub voters: Vec<u64>,
    pub learners: Vec<u64>,
    /// Not empty: a change of several members is half done.
    pub voters_outgoing: Vec<u64>,
    /// Voters that become learners when it is done.
    pub learners_next: Vec<u64>,
    /// The leader ends it by itself.
    pub auto_leave: bool,
}

impl Members {
    pub fn of_voters(voters: impl Into<Vec<u64>>) -> Members {
        Members {
            voters: voters.into(),
            ..Members::default()
        }
    }

    /// Of a replica that was just created: it learns them with its first snapshot.
    pub fn is_empty(&self) -> bool {
        self.voters.is_empty() && self.learners.is_empty() && self.voters_outgoing.is_empty()
    }

    /// A change of several members is half done.
    pub fn is_joint(&self) -> bool {
        !self.voters_outgoing.is_empty()
    }

    pub fn is_voter(&self, id: u64) -> bool {
        self.voters.contains(&id) || self.voters_outgoing.contains(&id)
    }

    pub fn contains(&self, id: u64) -> bool {
        self.is_voter(id) || self.learners.contains(&id)
    }

    /// Everybody, ascending.
    pub fn all(&self) -> Vec<u64> {
        let lists = [&self.voters, &self.learners, &self.voters_outgoing];
        let mut all: Vec<u64> = lists.into_iter().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Its own vote and its own disk decide everything.
    #[inline]
    pub fn is_only_voter(&self, id: u64) -> bool {
        self.voters_outgoing.is_empty() && matches!(*self.voters, [voter] if voter == id)
    }

    /// The largest number that a majority has reached; of both majorities in a joint state.
    pub(crate) fn reached(&self, of: impl Fn(u64) -> u64) -> u64 {
        let majority = |voters: &[u64]| {
            let mut numbers: Vec<u64> = voters.iter().map(|&id| of(id)).collect();
            numbers.sort_unstable_by(|a, b| b.cmp(a));
            // Nobody is a majority of nobody, so it does not hold the others back.
            numbers.get(voters.len() / 2).copied().unwrap_or(u64::MAX)
        };
        if self.voters.is_empty() {
            return 0;
        }
        majority(&self.voters).min(majority(&self.voters_outgoing))
    }

    /// raft-rs stops the process over members that make no sense, so they are looked at first.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.is_empty() {
            let rest = self.learners_next.is_empty() && !self.auto_leave;
            return rest.then_some(()).ok_or("members: nobody, but a change");
        }
        if self.voters.is_empty() {
            return Err("members: no voter");
        }
        for list in [
            &self.voters,
            &self.learners,
            &self.voters_outgoing,
            &self.learners_next,
        ] {
            let mut sorted = list.clone();
            sorted.sort_unstable();
            sorted.dedup();
            if sorted.len() != list.len() || list.contains(&raft::INVALID_ID) {
                return Err("members: an id twice, or zero");
            }
        }
        if self.learners.iter().any(|&id| self.is_voter(id)) {
            return Err("members: both voter and learner");
        }
        let leaves = |id: &u64| self.voters_outgoing.contains(id) && !self.voters.contains(id);
        if !self.learners_next.iter().all(leaves) {
            return Err("members: a next learner that was no voter");
        }
        if !self.is_joint() && self.auto_leave {
            return Err("members: nothing to leave");
        }
        Ok(())
    }

    pub(crate) fn from_raft(state: &ConfState) -> Members {
        // raft-rs keeps sets; the order must not depend on their hashing.
        let sorted = |list: &[u64]| {
            let mut list = list.to_vec();
            list.sort_unstable();
            list
        };
        Members {
            voters: sorted(state.get_voters()),
            learners: sorted(state.get_learners()),
            voters_outgoing: sorted(state.get_voters_outgoing()),
            learners_next: sorted(state.get_learners_next()),
            auto_leave: state.auto_leave,
        }
    }

    pub(crate) fn to_raft(&self) -> ConfState {
        let mut state = ConfState::default();
        state.set_voters(self.voters.clone());
        state.set_learners(self.learners.clone());
        state.set_voters_outgoing(self.voters_outgoing.clone());
        state.set_learners_next(self.learners_next.clone());
        state.auto_leave = self.auto_leave;
        state
    }
}

#[cfg(test)]
mod tests {
    use super::Members;

    #[test]
    fn a_majority_is_one_of_both_sets() {
        let reached = |members: &Members, numbers: &[u64]| {
            members.reached(|id| numbers.get(id as usize - 1).copied().unwrap_or(0))
        };
        let three = Members::of_voters([1, 2, 3]);
        assert_eq!(reached(&three, &[9, 5, 7]), 7);
        let four = Members::of_voters([1, 2, 3, 4]);
        assert_eq!(reached(&four, &[9, 5, 7, 1]), 5);
        let joint = Members {
            voters_outgoing: vec![3, 4, 5],
            ..three.clone()
        };
        assert_eq!(reached(&joint, &[9, 8, 7, 2, 1]), 2);
        assert_eq!(reached(&Members::of_voters([2]), &[0, 4]), 4);
        assert_eq!(reached(&Members::default(), &[]), 0);
    }

    #[test]
    fn members_that_make_no_sense() {
        let three = Members::of_voters([1, 2, 3]);
        assert!(three.check().is_ok());
        assert!(Members::default().check().is_ok());
        for wrong in [
            Members::of_voters([1, 1]),
            Members::of_voters([0]),
            Members {
                learners: vec![1],
                ..three.clone()
            },
            Members {
                learners: vec![1],
                ..Members::default()
            },
            Members {
                auto_leave: true,
                ..three.clone()
            },
            Members {
                learners_next: vec![3],
                ..three.clone()
            },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
