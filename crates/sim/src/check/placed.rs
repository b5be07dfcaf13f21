//! When all is mended: every region has as many voters as wanted, on machines that live; every replica
//! agrees with meta's descriptor of it; and there are no others.

use meta::state::State;

use crate::machine::{Node, Status};

/// What is not as it should be yet, as meta's leader has it.
pub fn check(state: &State, nodes: &[Node], regions: u64) -> Result<(), String> {
    let settings = state.settings();
    if state.data_regions().count() as u64 != regions {
        return Err("the regions have not been made".into());
    }
    for region in state.regions() {
        let descriptor = &region.descriptor;
        let id = descriptor.region;
        let wanted = if id == 0 {
            settings.meta_replicas
        } else {
            settings.replicas
        };
        if descriptor.voters().count() != wanted as usize
            || descriptor.members.len() != wanted as usize
        {
            return Err(format!(
                "region {id} has the members {:?}",
                descriptor.members
            ));
        }
        if !region.plans.is_empty() {
            return Err(format!("region {id} has plans: {:?}", region.plans));
        }
        for node in nodes.iter().filter(|node| node.status == Status::Up) {
            let record = match id {
                0 => node.meta.as_ref().map(|member| member.record()),
                _ => node.record(id),
            };
            let ours = node
                .heartbeats
                .as_ref()
                .and_then(|driver| descriptor.member_on(driver.node_id()));
            match (record, ours) {
                (None, None) => {}
                (Some(record), Some(ours)) if record.replica == ours.replica => {
                    if record.descriptor != *descriptor {
                        return Err(format!(
                            "region {id}: meta has {descriptor:?}, replica {} has {:?}",
                            record.replica, record.descriptor
                        ));
                    }
                }
                (Some(record), _) => {
                    return Err(format!(
                        "region {id}: replica {} is left over",
                        record.replica
                    ));
                }
                (None, Some(ours)) => {
                    return Err(format!(
                        "region {id}: replica {} is not there",
                        ours.replica
                    ));
                }
            }
        }
        let lives = |node: u64| {
            let mut up = nodes.iter().filter(|it| it.status == Status::Up);
            up.any(|it| {
                it.heartbeats
                    .as_ref()
                    .is_some_and(|driver| driver.node_id() == node)
            })
        };
        if let Some(dead) = descriptor.members.iter().find(|member| !lives(member.node)) {
            return Err(format!(
                "region {id}: node {} of replica {} is dead",
                dead.node, dead.replica
            ));
        }
    }
    Ok(())
}
