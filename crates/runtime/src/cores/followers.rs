//! How many followers of a region have its log up to an index: what WAIT asks on a cluster node.
//!
//! Asked of the core that holds the region, as [`super::tally`] does: nothing is held, nobody has to prove that it leads.
//! The leader's view of its followers is a lower bound of what they have, so an old leader never promises too much.

use std::rc::Rc;

use node::OwnedRegions;

use super::mailbox::Message;
use super::tickets::{Answer, Ticket};
use super::{Core, Place};

/// What is asked about a region, and the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Followers {
    pub region: Place,
    /// The index that counts; 0 asks for the one that covers all that was acknowledged by now, which the answer names.
    pub index: u64,
    pub standing: FollowersStanding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowersStanding {
    /// The region is lent: ask again.
    Unknown,
    /// The region is not led by this node.
    NotLed,
    /// So many of all followers that vote have the index.
    Led { have: usize, all: usize },
}

impl Followers {
    pub fn of(region: Place) -> Followers {
        Followers {
            region,
            index: 0,
            standing: FollowersStanding::Unknown,
        }
    }
}

impl Followers {
    /// Answers the question from the regions of its core.
    fn fill(&mut self, regions: &mut OwnedRegions) {
        let asked = self;
        let is_used = regions.is_used(asked.region);
        let Some(region) = regions.region_mut(asked.region) else {
            asked.standing = match is_used {
                true => FollowersStanding::Unknown,
                false => FollowersStanding::NotLed,
            };
            return;
        };
        let replica = region.member.as_deref().map(|member| &member.replica);
        let Some(replica) = replica.filter(|it| it.is_leader()) else {
            asked.standing = FollowersStanding::NotLed;
            return;
        };
        if asked.index == 0 {
            asked.index = replica.acknowledged_index();
        }
        let (members, progress) = (replica.members(), replica.progress());
        let voters = progress.iter().filter(|it| members.is_voter(it.replica));
        let (mut have, mut all) = (0, 0);
        for follower in voters {
            all += 1;
            have += usize::from(follower.matched >= asked.index);
        }
        asked.standing = FollowersStanding::Led { have, all };
    }
}

impl Core {
    /// Answers each question, on the core of its region.
    pub async fn followers(self: &Rc<Self>, asked: Vec<Followers>) -> Vec<Followers> {
        let map = &self.shared.map;
        let mut answers = Vec::with_capacity(asked.len());
        for owner in 0..map.cores() {
            let ours = asked.iter().filter(|it| map.core_of(it.region) == owner);
            let ours: Vec<Followers> = ours.copied().collect();
            if ours.is_empty() {
                continue;
            }
            if owner == self.id {
                answers.extend(self.followers_here(ours));
                continue;
            }
            self.credit(owner).await;
            let ticket = Ticket::new(self);
            let message = Message::Followers {
                from: self.id,
                ticket: ticket.number(),
                asked: ours,
            };
            self.send(owner, message);
            if let Answer::Followers(told) = ticket.await {
                answers.extend(told);
            }
        }
        answers
    }

    pub(super) fn followers_here(&self, mut asked: Vec<Followers>) -> Vec<Followers> {
        let mut owned = self.regions.borrow_mut();
        asked.iter_mut().for_each(|it| it.fill(&mut owned));
        asked
    }
}
