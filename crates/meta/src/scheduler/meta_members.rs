//! Region 0 itself: grows to as many members as wanted while nodes join, replaces dead ones.
//!
//! Always an odd number, and from one to three in one step: two members stand worse than one.

use base::cluster::META_REGION;

use super::candidates::{self, Loads};
use super::operator::{Kind, Operator, Task};
use super::picture::Picture;
use super::{Scheduler, remove_extra, repair};

pub(super) fn find(scheduler: &Scheduler, picture: &Picture) -> Vec<Operator> {
    let mut loads = Loads::new(scheduler, picture);
    let task = picture
        .state
        .region(META_REGION)
        .filter(|region| {
            scheduler.is_free(META_REGION, picture)
                && picture.leader(META_REGION).is_some()
                && !region.descriptor.is_joint()
        })
        .and_then(|region| {
            let want = picture.state.settings().meta_replicas as usize;
            let have = region.descriptor.voters().count();
            repair::replace_dead(&mut loads, picture, region).or_else(|| {
                if have > want {
                    let victim = remove_extra::extra(&loads, picture, region, want)?;
                    return Some(Task::Reshape {
                        add: Vec::new(),
                        remove: vec![victim],
                    });
                }
                let mut add = candidates::choose(&mut loads, picture, region, &[], want - have);
                if (have + add.len()).is_multiple_of(2) {
                    add.pop();
                }
                (!add.is_empty()).then_some(Task::Reshape {
                    add,
                    remove: Vec::new(),
                })
            })
        });
    task.map(|task| Operator::new(META_REGION, Kind::MetaMembers, task, picture))
        .into_iter()
        .collect()
}
