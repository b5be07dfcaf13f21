//! The cores: threads that own regions and sessions, and how they work together.
//! (Being written.)

mod lend;
mod mailbox;
mod map;

use std::cell::{Cell, Ref, RefCell};
use std::sync::Arc;

pub use lend::Held;
pub use mailbox::Mailbox;
pub use map::{CoreId, Map, REGIONS_PER_CORE, RegionId};

use crate::Shared;
use crate::settings::Settings;
use crate::stats::CoreStats;

/// What one thread owns. Lives in an `Rc`: every session of the core has it, nobody else.
pub struct Core {
    pub id: CoreId,
    pub shared: Arc<Shared>,
    settings: RefCell<Arc<Settings>>,
    settings_version: Cell<u64>,
    now_ms: Cell<u64>,
}

impl Core {
    /// The settings as of this batch.
    pub fn settings(&self) -> Ref<'_, Arc<Settings>> {
        self.settings.borrow()
    }

    /// Takes over changed settings; called once per batch and after a session command.
    #[inline]
    pub fn refresh_settings(&self) {
        let version = self.shared.settings.version();
        if version != self.settings_version.get() {
            self.settings_version.set(version);
            self.settings.replace(self.shared.settings.current());
        }
    }

    /// The moment of this batch, Unix milliseconds.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.now_ms.get()
    }

    pub fn stats(&self) -> &CoreStats {
        &self.shared.stats[self.id]
    }
}
