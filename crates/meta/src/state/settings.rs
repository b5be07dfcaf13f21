//! Settings of the cluster, and the format it writes.

use super::{ChangeSettings, Outcome, RaiseFormat, Refused, Settings, State};

/// More voters than this only cost.
const REPLICAS_MAX: u32 = 9;

impl Settings {
    pub(super) fn check(&self) -> Result<(), Refused> {
        if !(1..=REPLICAS_MAX).contains(&self.replicas) {
            return Err(Refused::BadSettings("replicas must be 1 to 9"));
        }
        if !(1..=u32::from(base::SLOT_COUNT)).contains(&self.regions) {
            return Err(Refused::BadSettings("regions must be 1 to 16384"));
        }
        if !(1..=REPLICAS_MAX).contains(&self.meta_replicas) || self.meta_replicas.is_multiple_of(2)
        {
            return Err(Refused::BadSettings(
                "meta-replicas must be 1, 3, 5, 7 or 9",
            ));
        }
        Ok(())
    }
}

impl State {
    pub(super) fn change_settings(&mut self, change: &ChangeSettings) -> Result<Outcome, Refused> {
        let settings = Settings {
            replicas: change.replicas.unwrap_or(self.settings.replicas),
            meta_replicas: change.meta_replicas.unwrap_or(self.settings.meta_replicas),
            ..self.settings
        };
        settings.check()?;
        if settings == self.settings {
            return Ok(Outcome::Unchanged);
        }
        self.settings = settings;
        Ok(Outcome::Changed)
    }

    /// The newest format that every node of the cluster can read.
    pub fn lowest_format(&self) -> u32 {
        let up = self.nodes.values().filter(|node| node.is_up());
        up.map(|node| node.profile.format)
            .min()
            .unwrap_or(self.format)
    }

    pub(super) fn raise_format(&mut self, raise: &RaiseFormat) -> Result<Outcome, Refused> {
        let lowest = self.lowest_format();
        if raise.format > lowest {
            return Err(Refused::OldFormat {
                node_reads: lowest,
                cluster_writes: raise.format,
            });
        }
        if raise.format <= self.format {
            return Ok(Outcome::Unchanged);
        }
        self.format = raise.format;
        Ok(Outcome::Changed)
    }
}
