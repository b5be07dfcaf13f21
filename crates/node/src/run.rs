//! Running a command on a region at hand, without the log: every command of a node without one, and
//! reads of a durable node. Nothing here waits.

use base::{DbIndex, Refusal};
use command::CommandSpec;
use keyspace::rows::ColdRows;
use keyspace::{Tuning, View};
use resp::{Args, Reply};

use crate::{Place, Region, Seeds, unreadable};

/// What became of a command. Its reply, or its refusal, is written unless it was `Empty`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ran {
    Done,
    Refused,
    /// A blocking command found nothing; nothing is written.
    Empty,
}

/// Why a command cannot run now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absent {
    /// A region it needs is lent.
    Lent,
    /// The region has to pass the read barrier first (cluster).
    Unconfirmed(Place),
    /// It looked for something that is not in memory; nothing is written.
    Cold(Box<Cold>),
}

/// What a command needs that is not in memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cold {
    pub region: Place,
    pub keys: Vec<(DbIndex, Box<[u8]>)>,
    pub rows: Vec<ColdRows>,
    /// SQL rows.
    pub table_rows: Vec<table::RowId>,
    /// Whether the region has to learn first which tables there are.
    pub is_catalogue_old: bool,
    /// For the next attempt.
    pub again: Again,
}

impl Cold {
    /// Whether it lacks SQL rows, or the knowledge which tables there are.
    pub fn is_about_tables(&self) -> bool {
        !self.table_rows.is_empty() || self.is_catalogue_old
    }
}

/// A command that is run again, because of what it missed the last time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Again {
    /// How often it met cold rows.
    tries: u8,
    /// It makes the same choices as before: other rows would be cold again.
    seed: Option<u64>,
}

/// Rows that were read may be gone again when the command runs: after so many attempts it waits for the
/// disk itself.
const COLD_TRIES: u8 = 16;

impl Again {
    #[inline]
    pub fn tries(self) -> u8 {
        self.tries
    }

    /// Whether reads are to stop where memory ends.
    #[inline]
    pub fn stops(self) -> bool {
        self.tries < COLD_TRIES
    }

    /// For a command whose every attempt makes the same choices.
    #[inline]
    pub fn chosen(seed: u64) -> Again {
        Again {
            tries: 0,
            seed: Some(seed),
        }
    }

    /// Randomness for this attempt.
    #[inline]
    pub fn seed(self, seeds: &Seeds) -> u64 {
        self.seed.unwrap_or_else(|| seeds.next())
    }

    #[inline]
    pub fn next(self) -> Again {
        Again {
            tries: self.tries.saturating_add(1),
            ..self
        }
    }
}

/// A command and the moment it runs at.
pub struct Access<'a> {
    pub spec: &'a CommandSpec,
    pub db: DbIndex,
    pub args: &'a Args<'a>,
    pub now_ms: u64,
    pub tuning: &'a Tuning,
    pub again: Again,
    /// By the clock of leases; `None` on a node that has no peers.
    pub clock_ms: Option<u64>,
    /// The read barrier was passed for it.
    pub is_confirmed: bool,
    pub catalogue_version: u64,
}

impl Region {
    /// Runs a command by `invoke`, unless it may not be run here or meets something that is not in memory:
    /// then nothing has happened, and nothing is written.
    #[inline]
    pub fn run(
        &mut self,
        access: &Access<'_>,
        seeds: &Seeds,
        reply: &mut Reply,
        invoke: impl FnOnce(View<'_>, &mut Reply) -> Ran,
    ) -> Result<Ran, Absent> {
        if let Some(clock_ms) = access.clock_ms
            && !self.may_read(access.is_confirmed, clock_ms)
        {
            return Err(Absent::Unconfirmed(self.id));
        }
        if self.lacks_tables(access.catalogue_version) {
            return Err(Absent::Cold(Box::new(Cold {
                region: self.id,
                is_catalogue_old: true,
                ..Cold::default()
            })));
        }
        let before = reply.len();
        let seed = access.again.seed(seeds);
        let space = &mut self.space;
        space.read_cached(access.again.stops());
        let view = View::one(space, access.db, access.now_ms, seed, access.tuning);
        let ran = invoke(view, reply);
        space.read_cached(false);
        if space.has_missing_rows() || space.has_missing() {
            reply.truncate(before);
            return match self.missed(access, seed) {
                Ok(cold) => Err(Absent::Cold(cold)),
                Err(refusal) => {
                    reply.refusal(&refusal);
                    Ok(Ran::Refused)
                }
            };
        }
        Ok(ran)
    }

    /// What a command looked for in vain; an error if that cannot be read.
    #[cold]
    fn missed(&mut self, access: &Access<'_>, seed: u64) -> Result<Box<Cold>, Refusal> {
        let space = &mut self.space;
        let mut cold = Cold {
            region: self.id,
            ..Cold::default()
        };
        if space.has_missing_rows() {
            cold.table_rows = space.take_missing_rows();
            return Ok(Box::new(cold));
        }
        cold.rows = space.take_cold();
        cold.keys = space.take_missing();
        let mut keys = cold.keys.iter();
        let refusal = match space.take_failure() {
            Some(why) => Some(Refusal::text_of(format!("ERR rows cannot be read: {why}"))),
            None => keys
                .find_map(|(db, key)| space.unreadable(*db, key))
                .or_else(|| unreadable::refusal(space, access.spec, access.db, access.args)),
        };
        if let Some(refusal) = refusal {
            space.forget_unreadable();
            self.quarantine(&refusal);
            return Err(refusal);
        }
        if !cold.keys.is_empty() {
            // All keys of the command come together: one by one, the next could push out the last.
            let keys = &mut cold.keys;
            let spec = access.spec;
            spec.each_key(access.db, access.args, &mut |db, key| {
                keys.push((db, key.into()));
            });
        }
        cold.again = Again {
            tries: access.again.tries + u8::from(!cold.rows.is_empty()),
            seed: Some(seed),
        };
        Ok(Box::new(cold))
    }
}
