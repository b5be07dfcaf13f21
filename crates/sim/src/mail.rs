//! What the cores of a simulated node send each other: one queue per core, as their mailboxes are, and it
//! takes a moment.

use node::{BatchOutcome, Borrow, EffectBatch, Grant, Outcome, Place, Region, RegionBox};

use crate::bugs::Bug;
use crate::effects::Effects;
use crate::machine::Node;

pub enum Mail {
    /// Regions are wanted.
    Lend {
        from: usize,
        ticket: usize,
        regions: Vec<Place>,
    },
    Lent {
        ticket: usize,
        regions: Vec<RegionBox>,
    },
    Return(Vec<RegionBox>),
    Keep(Box<EffectBatch>),
    BatchOutcome {
        ticket: usize,
        outcome: BatchOutcome,
    },
}

impl Mail {
    /// The regions in it.
    pub fn regions(&self) -> Vec<&Region> {
        match self {
            Mail::Lend { .. } | Mail::BatchOutcome { .. } => Vec::new(),
            Mail::Lent { regions, .. } | Mail::Return(regions) => {
                regions.iter().map(|region| &**region).collect()
            }
            Mail::Keep(batch) => vec![&*batch.region],
        }
    }
}

impl Node {
    pub(crate) fn send(&mut self, core: usize, mail: Mail, out: &mut Effects) {
        self.regions.mail[core].push_back(mail);
        out.mails.push(core);
    }

    pub(crate) fn send_borrow(&mut self, from: usize, borrow: Borrow, out: &mut Effects) {
        let Borrow {
            owner,
            ticket,
            regions,
        } = borrow;
        let mail = Mail::Lend {
            from,
            ticket,
            regions,
        };
        self.send(owner, mail, out);
    }

    pub(crate) fn send_grant(&mut self, grant: Grant, out: &mut Effects) {
        let Grant {
            core,
            ticket,
            regions,
        } = grant;
        self.send(core, Mail::Lent { ticket, regions }, out);
    }

    /// The next message for a core.
    pub fn on_mail(&mut self, core: usize, true_us: u64, out: &mut Effects) {
        let Some(mail) = self.regions.mail[core].pop_front() else {
            return;
        };
        let mail = self.spoil(mail);
        self.on_regions(core, true_us, out, |owned, cx, asked| match mail {
            Mail::Lend {
                from,
                ticket,
                regions,
            } => match owned.borrow_now(&regions, cx.clock_ms) {
                Some(regions) => asked.grants.push(Grant {
                    core: from,
                    ticket,
                    regions,
                }),
                None => {
                    owned.ask_leases(&regions, cx, asked);
                    owned.borrow_later(regions, from, ticket);
                }
            },
            Mail::Lent { ticket, regions } => owned.on_lent(ticket, regions, cx, asked),
            Mail::Return(regions) => owned.take_back(regions, cx, asked),
            Mail::Keep(batch) => owned.on_effect_batch(*batch, cx, asked),
            Mail::BatchOutcome { ticket, outcome } => {
                owned.on_batch_outcome(ticket, outcome, cx, asked)
            }
        });
    }

    /// Planted bugs: a message is not what was sent.
    fn spoil(&mut self, mail: Mail) -> Mail {
        match (self.bug, mail) {
            (Bug::EffectTwice, Mail::BatchOutcome { ticket, .. }) if self.rng.u32(..4) == 0 => {
                let outcome = BatchOutcome::Failed(Outcome::TryAgain);
                Mail::BatchOutcome { ticket, outcome }
            }
            (Bug::LosePlace, Mail::BatchOutcome { ticket, .. }) => {
                let outcome = BatchOutcome::Committed;
                Mail::BatchOutcome { ticket, outcome }
            }
            (Bug::StaleEpoch, Mail::Keep(mut batch)) => {
                self.age(&mut batch.region);
                Mail::Keep(batch)
            }
            (Bug::StaleEpoch, Mail::Return(mut regions)) => {
                regions.iter_mut().for_each(|region| self.age(region));
                Mail::Return(regions)
            }
            (_, mail) => mail,
        }
    }

    /// The region forgets the members that came and went since its replica was made.
    fn age(&self, region: &mut RegionBox) {
        let place = self.places.get(&(region.id as u64));
        let member = region.member.as_deref_mut();
        let peers = member.and_then(|member| member.peers.as_deref_mut());
        if let (Some(place), Some(peers)) = (place, peers) {
            peers.record.descriptor = place.record.descriptor.clone();
        }
    }
}
