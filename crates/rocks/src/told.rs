//! What is alive, as told: by whoever looked at all regions, and by those who make, replace and remove
//! single ones.
//!
//! The first reads the states of all regions, waits for a checkpoint and then tells; meanwhile a region
//! may have come, gone, or got other databases. Taking its word for these would let filters drop the
//! rows of a living region. So what single regions were told counts more until the next look has surely
//! begun after it: the second checkpoint from there (the look that ends with the first may have begun
//! before).

use std::collections::BTreeMap;

use crate::filter::Alive;

#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Nothing is dropped before all regions were told of once.
    is_known: bool,
    homes: BTreeMap<u64, Home>,
    /// Checkpoints so far.
    checkpoints: u64,
}

#[derive(Debug, Default)]
struct Home {
    /// Its index ids in use; none: it is gone.
    ids: Vec<u64>,
    is_guarded: bool,
    /// Checkpoints when it was told of by itself, plus one; 0: with all others.
    since: u64,
}

impl Told {
    pub fn checkpoint_begins(&mut self) {
        self.checkpoints += 1;
    }

    /// All homes there are, as of before the last checkpoint began.
    pub fn replace(&mut self, alive: &[(u64, u64)]) {
        self.is_known = true;
        let last = self.checkpoints;
        self.homes
            .retain(|_, home| home.is_guarded || home.since >= last.max(1));
        let kept: Vec<u64> = self.homes.keys().copied().collect();
        for &(home, id) in alive {
            if kept.binary_search(&home).is_err() {
                self.homes.entry(home).or_default().ids.push(id);
            }
        }
    }

    /// A region is here, with these index ids; it is guarded no more.
    pub fn tell(&mut self, home: u64, ids: Vec<u64>) {
        let told = Home {
            ids,
            is_guarded: false,
            since: self.checkpoints + 1,
        };
        self.homes.insert(home, told);
    }

    /// Nothing of this home is dropped until it is told of.
    pub fn guard(&mut self, home: u64) {
        let home = self.homes.entry(home).or_default();
        home.is_guarded = true;
    }

    /// Nothing of this home is here any more.
    pub fn forget(&mut self, home: u64) {
        self.tell(home, Vec::new());
    }

    /// `None`: not known yet.
    pub fn alive(&self) -> Option<Alive> {
        let pairs = self
            .homes
            .iter()
            .flat_map(|(&home, told)| told.ids.iter().map(move |&id| (home, id)));
        let guarded = self.homes.iter().filter(|(_, told)| told.is_guarded);
        self.is_known
            .then(|| Alive::new(pairs, guarded.map(|(&home, _)| home)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(told: &Told, home: u64) -> Vec<u64> {
        told.homes
            .get(&home)
            .map_or(Vec::new(), |it| it.ids.clone())
    }

    #[test]
    fn who_looked_before_a_region_came_or_went_does_not_count_for_it() {
        let mut told = Told::default();
        told.tell(9, vec![1]);
        assert!(told.alive().is_none(), "not all are known");
        told.replace(&[(1, 1), (2, 1), (9, 1)]);
        // A look at 1, 2; then 3 comes, 2 goes, 1 gets other databases; then the checkpoint.
        let look = [(1, 1), (2, 1), (9, 1)];
        told.tell(3, vec![1]);
        told.forget(2);
        told.tell(1, vec![5, 6]);
        told.checkpoint_begins();
        told.replace(&look);
        assert_eq!(ids(&told, 1), [5, 6]);
        assert_eq!(ids(&told, 2), []);
        assert_eq!(ids(&told, 3), [1]);
        assert_eq!(ids(&told, 9), [1]);
        // The next look began later.
        told.checkpoint_begins();
        told.replace(&[(1, 6), (1, 7), (9, 1)]);
        assert_eq!(ids(&told, 1), [6, 7]);
        assert_eq!(ids(&told, 3), []);
        // Guarded until told of, however long that takes.
        told.guard(1);
        for _ in 0..3 {
            told.checkpoint_begins();
            told.replace(&[(9, 1)]);
        }
        assert!(told.homes.contains_key(&1));
        told.tell(1, vec![2]);
        assert_eq!(ids(&told, 1), [2]);
    }
}
