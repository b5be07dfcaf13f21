//! At most one leader in a term.

use std::collections::BTreeMap;

use super::Broken;

#[derive(Debug, Default)]
pub struct Terms {
    leaders: BTreeMap<(u64, u64), u64>,
}

impl Terms {
    pub fn on_leads(&mut self, region: u64, term: u64, replica: u64) -> Result<(), Broken> {
        let first = *self.leaders.entry((region, term)).or_insert(replica);
        if first != replica {
            return Err(Broken::new(
                "terms",
                format!("region {region}: replicas {first} and {replica} both lead in term {term}"),
            ));
        }
        Ok(())
    }

    /// Elections so far.
    pub fn count(&self) -> usize {
        self.leaders.len()
    }
}
