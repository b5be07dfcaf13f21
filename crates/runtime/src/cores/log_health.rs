//! Whether the disk of the log is well: looked at by one core, acted upon by all.

use std::rc::Rc;

use super::Core;
use crate::clock::clock_ms;
use crate::durable::Turn;

impl Core {
    /// Judges the disk of the log; called by core 0, a few times a second.
    pub(crate) fn look_at_log_disk(&self) {
        let Some(durable) = &self.shared.durable else {
            return;
        };
        let limit_ms = self.settings().log_stall_ms;
        let turn = durable.writer.disk().look(limit_ms, clock_ms());
        let Some(turn) = turn else {
            return;
        };
        let cluster = self.shared.cluster.as_ref();
        match (turn, cluster) {
            (Turn::Stalled, Some(_)) => tracing::warn!(
                "the disk of the log does not answer, or slowly, for {limit_ms} ms (log-stall-timeout): other \
                 nodes lead the regions of this one until it does"
            ),
            (Turn::Stalled, None) => tracing::warn!(
                "the disk of the log does not answer, or slowly, for {limit_ms} ms (log-stall-timeout): writes \
                 wait for it, and are refused if it lasts"
            ),
            (Turn::Well, _) => tracing::info!("the disk of the log is well again"),
        }
        if let Some(cluster) = cluster {
            cluster.trigger_heartbeat();
        }
    }

    /// Those who wait for a log that takes nothing are told in the end. On a node alone, core 0 looks at its disk, too.
    pub(super) fn give_up_stalled(self: &Rc<Self>) {
        let Some(durable) = &self.shared.durable else {
            return;
        };
        if self.id == 0 && self.shared.cluster.is_none() {
            self.look_at_log_disk();
        }
        if durable.writer.disk().stalled_ms().is_some() {
            self.on_regions(|regions, cx, out| regions.give_up_stalled(cx, out));
        }
    }
}
