//! An adversary who does not rely on chance: he sees what is said, and strikes at the one moment that
//! matters.

use replica::{Message, MessageType};

use crate::event::Event;
use crate::faults::Fault;
use crate::world::World;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    /// The leader A and C do not hear each other; B, who has just promised to help nobody but A,
    /// starts anew and does not hear A any more either when C asks it for its vote. A serves by its
    /// lease, which counts on B, for most of a second.
    ForgottenPromise,
}

/// Where the script is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scene {
    #[default]
    Before,
    /// What was written gets to all: B would not vote for a C that lacks anything.
    Settling,
    /// Until C asks B.
    Waiting {
        a: u64,
        b: u64,
        c: u64,
    },
    After,
}

/// B is back before what is on its way to it arrives.
const RESTART_US: u64 = 200;
/// Writes begin again so much later: A still has its lease, and reads of A show what it missed.
const WRITES_US: u64 = 20_000;
const SETTLE_US: u64 = 500_000;
const APART_US: u64 = 3_000_000;
const AGAIN_US: u64 = 6_000_000;

impl World {
    pub(crate) fn on_script(&mut self) {
        if self.scene != Scene::Settling {
            self.scene = Scene::Settling;
            self.reads_only_us = u64::MAX;
            self.after(SETTLE_US, Event::Script);
            return;
        }
        self.after(AGAIN_US, Event::Script);
        let Some(a) = self.leader_of(1) else {
            return;
        };
        let (b, c) = match self.nemesis.bool() {
            true => (a % 3 + 1, (a + 1) % 3 + 1),
            false => ((a + 1) % 3 + 1, a % 3 + 1),
        };
        self.say(&[107, a, b, c], || {
            format!("node {a} leads; it and node {c} do not hear each other from now on")
        });
        self.network.cut(a, c);
        self.network.cut(c, a);
        self.scene = Scene::Waiting { a, b, c };
    }

    /// The adversary hears everything.
    pub(crate) fn overhear(&mut self, from: u64, to: u64, message: &Message) {
        let Scene::Waiting { a, b, c } = self.scene else {
            return;
        };
        let asks = message.get_msg_type() == MessageType::MsgRequestPreVote;
        if !asks || (from, to) != (c, b) {
            return;
        }
        self.say(&[108, b], || {
            format!("node {b} starts anew, without node {a}")
        });
        self.scene = Scene::After;
        self.reads_only_us = self.now_us + WRITES_US;
        let cuts = vec![(a, b), (b, a), (a, c), (c, a)];
        for &(from, to) in &cuts {
            self.network.cut(from, to);
        }
        self.after(APART_US, Event::Mend(Fault::Cut(cuts)));
        self.crash(b, RESTART_US);
    }
}
