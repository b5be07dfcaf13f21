//! Regions with fewer voters than the cluster wants get more, as soon as there is a node.

use super::Scheduler;
use super::candidates::{self, Loads};
use super::operator::{Kind, Operator, Task};
use super::picture::Picture;

pub(super) fn find(scheduler: &Scheduler, picture: &Picture) -> Vec<Operator> {
    let want = picture.state.settings().replicas as usize;
    let mut found = Vec::new();
    let mut loads = None;
    for region in picture.state.data_regions() {
        let descriptor = &region.descriptor;
        let id = descriptor.region;
        let have = descriptor.voters().count();
        if have >= want
            || descriptor.is_joint()
            || !scheduler.is_free(id, picture)
            || picture.leader(id).is_none()
        {
            continue;
        }
        let loads = loads.get_or_insert_with(|| Loads::new(scheduler, picture));
        let add = candidates::choose(loads, picture, region, &[], want - have);
        if !add.is_empty() {
            let remove = Vec::new();
            let task = Task::Reshape { add, remove };
            found.push(Operator::new(id, Kind::AddReplica, task, picture));
        }
    }
    found
}
