//! What the checkers are told, as it happens. The first that is not content ends the run.

use base::cluster::META_REGION;

use super::World;
use crate::check::serving;
use crate::effects::Fact;
use crate::machine::Status;

impl World {
    /// A replica has done something that a checker wants to know.
    pub(super) fn on_fact(&mut self, node: u64, fact: Fact) {
        let checked = match fact {
            Fact::Started {
                region,
                replica,
                applied,
            } => {
                self.agree.on_started(region, replica, applied);
                if region == META_REGION {
                    self.descriptors.on_started(replica);
                }
                self.say(&[2, region, replica, applied], || {
                    format!("node {node} replica {replica} begins behind {applied}")
                });
                Ok(())
            }
            Fact::Leads {
                region,
                replica,
                term,
            } => {
                self.say(&[3, region, replica, term], || {
                    format!("node {node} replica {replica} leads region {region} in term {term}")
                });
                self.terms.on_leads(region, term, replica)
            }
            Fact::Applied(applied) => {
                let digest = applied.digest.unwrap_or(0);
                let words = [4, applied.replica, applied.index, applied.term, digest];
                self.say(&words, || {
                    format!(
                        "node {node} replica {} applied {} of term {}: state {digest:016x}",
                        applied.replica, applied.index, applied.term
                    )
                });
                self.agree.on_applied(applied)
            }
            Fact::Digest {
                region,
                replica,
                index,
                digest,
            } => {
                self.say(&[17, replica, index, digest], || {
                    format!("node {node} replica {replica} has at {index} the state {digest:016x}")
                });
                self.agree.on_digest(region, replica, index, digest)
            }
            Fact::Installed {
                region,
                replica,
                index,
                digest,
            } => {
                self.say(&[9, replica, index, digest], || {
                    format!("node {node} replica {replica} installed {index}: state {digest:016x}")
                });
                self.installs += 1;
                self.agree.on_installed(region, replica, index, digest)
            }
            Fact::Members {
                replica,
                index,
                descriptor,
            } => {
                self.say(&[13, replica, descriptor.epoch.members], || {
                    format!("node {node} replica {replica} counts with {descriptor:?}")
                });
                self.descriptors.on_members(replica, index, &descriptor)
            }
            Fact::Row {
                region,
                replica,
                id,
                cached,
            } => {
                let version = cached.as_ref().map_or(0, |it| it.version);
                self.say(&[16, region, replica, version as u64], || match &cached {
                    Some(it) => format!(
                        "node {node} replica {replica} caches {} at {version}, SQL has {}",
                        id.key, it.sql
                    ),
                    None => format!("node {node} replica {replica} caches no {}", id.key),
                });
                self.written.on_cached(replica, &id, cached, &self.database)
            }
            Fact::Rows { replica, rows } => {
                self.written.on_begun(replica);
                let mut rows = rows.into_iter();
                rows.try_for_each(|(id, cached)| {
                    let cached = Some(cached);
                    self.written.on_cached(replica, &id, cached, &self.database)
                })
            }
            Fact::Meta {
                replica,
                descriptors,
            } => self.descriptors.on_meta(replica, &descriptors),
            Fact::Made { region, replica } => {
                self.say(&[14, node, region, replica], || {
                    format!("node {node} makes replica {replica} of region {region}")
                });
                self.directory.insert(replica, node);
                self.made += 1;
                let is_new = node > self.plan.nodes && region != META_REGION;
                self.made_on_new += usize::from(is_new);
                self.descriptors.on_made(replica)
            }
            Fact::Destroyed { region, replica } => {
                self.say(&[15, node, region, replica], || {
                    format!("node {node} destroys replica {replica} of region {region}")
                });
                self.descriptors.on_destroyed(region, replica)
            }
        };
        if let Err(broken) = checked {
            self.fail(broken);
        }
    }

    /// At most one replica of a region may serve reads, at any moment.
    pub(super) fn check_leases(&mut self) {
        for region in META_REGION..=self.plan.regions {
            let up = self.nodes.iter().filter(|node| node.status == Status::Up);
            let holders = up.filter_map(|node| {
                let now_ms = node.now_ms(self.now_us);
                let replica = match region {
                    META_REGION => node.meta.as_ref()?.replica(),
                    _ => node.replica(region)?,
                };
                let may_serve = replica.may_serve(now_ms);
                may_serve.then(|| (replica.id(), replica.term()))
            });
            let holders: Vec<_> = holders.collect();
            if let Err(broken) = serving::check(region, &holders) {
                self.fail(broken);
            }
        }
    }
}
