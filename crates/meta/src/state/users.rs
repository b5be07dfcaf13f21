//! The users of the cluster: changed as a whole by whoever knows the newest, as the catalogue of tables is.

use super::{Outcome, Refused, SetUsers, State};
use crate::wire::Catalogue;

/// They go into one entry of the log and to every node at once.
const BYTES_MAX: usize = 8 << 20;

impl State {
    /// Tried again after a lost answer, the same change is made once.
    pub(super) fn set_users(&mut self, set: &SetUsers) -> Result<Outcome, Refused> {
        if set.bytes.len() > BYTES_MAX {
            return Err(Refused::UsersTooLarge {
                bytes: set.bytes.len(),
                most: BYTES_MAX,
            });
        }
        let (version, bytes) = match &self.users {
            Some(users) => (users.version, users.bytes.as_slice()),
            None => (0, [].as_slice()),
        };
        let Some(next) = set.expected_version.checked_add(1) else {
            return Err(Refused::OtherUsers { version });
        };
        if version == next && bytes == set.bytes {
            return Ok(Outcome::UsersSet { version });
        }
        if version != set.expected_version {
            return Err(Refused::OtherUsers { version });
        }
        self.users = Some(Catalogue {
            version: next,
            bytes: set.bytes.clone(),
        });
        Ok(Outcome::UsersSet { version: next })
    }

    /// The newest users; none before the first change.
    pub fn users(&self) -> Option<&Catalogue> {
        self.users.as_ref()
    }

    /// 0 before the first change.
    pub fn users_version(&self) -> u64 {
        self.users.as_ref().map_or(0, |users| users.version)
    }

    /// The users, for somebody who has `known` of them.
    pub fn users_since(&self, known: u64) -> Option<Catalogue> {
        let newer = self.users.as_ref().filter(|users| users.version > known);
        newer.cloned()
    }
}
