//! The state row of a region: how far the log is applied, and what its databases are.
//!
//! ```text
//!   1:u8  applied_index:u64  stamp_ms:u64  generation:u64  next_index_id:u64
//!   { db:u8  index_id:u64  keys:u64  with_deadline:u64 } …    databases that are not as at the start
//!
//!   2:u8  applied_index:u64  stamp_ms:u64  generation:u64  next_index_id:u64
//!   applied_term:u64  length:u32  descriptor                  what a member of a cluster has besides
//!   { db … } …
//! ```
//!
//! It is written with every entry, hence short: most regions use one database. The second form is
//! written only where there is a term or a descriptor, so the rows of a single node stay as they were.
//! What the descriptor says (`base::cluster::Descriptor`) is no matter of the rows: bytes here.

use base::limits::DATABASES;

const VERSION: u8 = 1;
const WITH_DESCRIPTOR: u8 = 2;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub applied_index: u64,
    /// The term of that entry; 0 where nobody has said.
    pub applied_term: u64,
    pub stamp_ms: u64,
    /// The last generation given to a collection.
    pub generation: u64,
    /// The index id the next flushed database gets.
    pub next_index_id: u64,
    pub dbs: Vec<DbState>,
    /// Slots and members of the region as of this entry, for whoever knows how to read it.
    pub descriptor: Box<[u8]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DbState {
    pub index_id: u64,
    pub keys: u64,
    pub with_deadline: u64,
}

impl DbState {
    fn first(db: u8) -> DbState {
        DbState {
            index_id: 1 + u64::from(db),
            keys: 0,
            with_deadline: 0,
        }
    }
}

impl Default for State {
    /// A region that has nothing.
    fn default() -> Self {
        State {
            applied_index: 0,
            applied_term: 0,
            stamp_ms: 0,
            generation: 0,
            next_index_id: 1 + u64::from(DATABASES),
            dbs: (0..DATABASES).map(DbState::first).collect(),
            descriptor: Box::default(),
        }
    }
}

impl State {
    pub fn push(&self, out: &mut Vec<u8>) {
        let is_member = self.applied_term != 0 || !self.descriptor.is_empty();
        out.push(if is_member { WITH_DESCRIPTOR } else { VERSION });
        let words = [
            self.applied_index,
            self.stamp_ms,
            self.generation,
            self.next_index_id,
        ];
        words
            .iter()
            .for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
        if is_member {
            out.extend_from_slice(&self.applied_term.to_be_bytes());
            out.extend_from_slice(&(self.descriptor.len() as u32).to_be_bytes());
            out.extend_from_slice(&self.descriptor);
        }
        for (db, state) in (0..).zip(&self.dbs) {
            if *state != DbState::first(db) {
                out.push(db);
                let words = [state.index_id, state.keys, state.with_deadline];
                words
                    .iter()
                    .for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
            }
        }
    }

    /// `None`: not the value of a state row, or one of a later version.
    pub fn parse(value: &[u8]) -> Option<State> {
        let (&version, mut rest) = value.split_first()?;
        let rest = &mut rest;
        if !matches!(version, VERSION | WITH_DESCRIPTOR) {
            return None;
        }
        let mut state = State {
            applied_index: word(rest)?,
            stamp_ms: word(rest)?,
            generation: word(rest)?,
            next_index_id: word(rest)?,
            ..State::default()
        };
        if version == WITH_DESCRIPTOR {
            state.applied_term = word(rest)?;
            let (len, behind) = rest.split_first_chunk()?;
            let (descriptor, behind) = behind.split_at_checked(u32::from_be_bytes(*len) as usize)?;
            state.descriptor = descriptor.into();
            *rest = behind;
        }
        while let Some((&db, behind)) = rest.split_first() {
            *rest = behind;
            *state.dbs.get_mut(usize::from(db))? = DbState {
                index_id: word(rest)?,
                keys: word(rest)?,
                with_deadline: word(rest)?,
            };
        }
        Some(state)
    }
}

fn word(rest: &mut &[u8]) -> Option<u64> {
    let (word, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u64::from_be_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_come_back_and_damage_is_refused() {
        let mut state = State {
            applied_index: 258,
            stamp_ms: 5,
            generation: 1,
            next_index_id: 18,
            ..State::default()
        };
        state.dbs[3] = DbState {
            index_id: 17,
            keys: 2,
            with_deadline: 1,
        };
        let mut value = Vec::new();
        state.push(&mut value);
        let text: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            text,
            "01000000000000010200000000000000050000000000000001000000000000001203\
             000000000000001100000000000000020000000000000001"
                .replace(' ', "")
        );
        assert_eq!(State::parse(&value), Some(state));
        for cut in [0, 1, 32, 34, value.len() - 1] {
            assert_eq!(State::parse(&value[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn a_member_of_a_cluster_has_a_term_and_a_descriptor() {
        let mut state = State {
            applied_index: 258,
            applied_term: 9,
            descriptor: (*b"who is in it").into(),
            ..State::default()
        };
        state.dbs[0].keys = 1;
        let mut value = Vec::new();
        state.push(&mut value);
        assert_eq!(value[0], WITH_DESCRIPTOR);
        assert_eq!(State::parse(&value), Some(state.clone()));
        for cut in [1, 33, 40, 44, 50, value.len() - 1] {
            assert_eq!(State::parse(&value[..cut]), None, "{cut}");
        }
        (state.applied_term, state.descriptor) = (0, Box::default());
        value.clear();
        state.push(&mut value);
        assert_eq!(
            value[0], VERSION,
            "a single node writes what it always wrote"
        );
    }
}
