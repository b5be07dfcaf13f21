//! What a core does when a watched or waited-for key changed; on a durable node that is
//! `node::OwnedRegions::on_changes`.
//!
//! Watches get their flag set. Blocked sessions in line for the key are served in the order they
//! came, at once, before any other command of the core: the command's attempt is run again with
//! only the key that changed, and its reply sent to the session's core.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::DbIndex;
use keyspace::View;
use node::{First, Waiter, attempt_for, only_key};
use resp::Reply;

use super::lend::Held;
use super::mailbox::Message;
use super::tickets::Answer;
use super::{CommandList, Core, Place};

/// While it lives, effects are being handled.
struct Serving<'a>(&'a Rc<Core>);

impl<'a> Serving<'a> {
    fn begin(core: &'a Rc<Core>) -> Self {
        core.serving.set(true);
        core.regions.borrow_mut().hold_line();
        Serving(core)
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.serving.set(false);
        self.0
            .on_regions(|owned, cx, out| owned.release_line(cx, out));
    }
}

impl Core {
    /// Handles the effects of all regions that are here, and the effects of that. Regions that
    /// come back meanwhile are lent again only when all is done.
    pub fn serve_key_changes(self: &Rc<Self>) {
        if self.serving.get() {
            return; // the caller further up goes on until nothing is left
        }
        if self.shared.durable.is_some() {
            return self.on_regions(|owned, cx, out| owned.on_changes(cx, out));
        }
        let serving = Serving::begin(self);
        loop {
            let ready = self.regions.borrow_mut().flag_changes();
            if ready.is_empty() {
                break;
            }
            for (region, (db, key)) in ready {
                self.serve(region, db, &key);
            }
        }
        drop(serving);
    }

    /// Serves those in line for a key until there is nothing left for them.
    fn serve(self: &Rc<Self>, region: Place, db: DbIndex, key: &[u8]) {
        loop {
            let waiter = match self.claim_first(region, db, key) {
                First::Claimed(waiter) => waiter,
                First::Nobody => return,
                First::NotNow => return self.serve_soon(region, db, key),
            };
            let spec = self.shared.commands.spec(waiter.stat);
            let command = only_key(spec, &waiter.command.args(0), key);
            let regions = self.regions_of(spec, &command.args(0));
            match self.try_hold(&regions) {
                Some(held) => {
                    if !self.serve_held(held, &waiter, &command, db, key) {
                        return;
                    }
                }
                // BLMOVE to a key of another core, or to a region that is lent: wait for it
                // aside. When the element is taken, the change serves the next in line.
                None => {
                    let core = self.clone();
                    let key: Box<[u8]> = key.into();
                    tokio::task::spawn_local(async move {
                        let held = core.hold(&regions).await;
                        core.begin_batch();
                        core.serve_held(held, &waiter, &command, db, &key);
                    });
                    return;
                }
            }
        }
    }

    /// One attempt over held regions; whether there was something. If not, the waiter is back at
    /// the head of its line and free to be claimed before anybody else gets the region.
    fn serve_held(
        self: &Rc<Self>,
        mut held: Held,
        waiter: &Arc<Waiter>,
        command: &CommandList,
        db: DbIndex,
        key: &[u8],
    ) -> bool {
        let served = self.attempt(waiter, command, &mut held);
        if !served {
            if let Some(region) = held.region_of(key) {
                region.put_waiter_first(db, key, waiter.clone());
            }
            if waiter.claim.unserve() {
                self.answer_waiter(waiter, None);
            }
        }
        served
    }

    /// Comes back to a line whose first waiter another core is just trying to serve, or whose
    /// region is lent: without this, what is there would wait for the next change of the key.
    fn serve_soon(self: &Rc<Self>, region: Place, db: DbIndex, key: &[u8]) {
        let core = self.clone();
        let key: Box<[u8]> = key.into();
        tokio::task::spawn_local(async move {
            loop {
                core.await_region(region).await;
                if core.regions.borrow_mut().region_mut(region).is_some() {
                    core.begin_batch();
                    core.serve(region, db, &key);
                    core.serve_key_changes();
                    return;
                }
            }
        });
    }

    /// A line could not be served: its region is lent and comes back, or another core is just trying to
    /// serve its first waiter, which takes it a moment.
    async fn await_region(self: &Rc<Self>, region: Place) {
        let is_lent = self.regions.borrow_mut().region_mut(region).is_none();
        match is_lent {
            true => self.region_changes(region).await,
            false => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }

    /// Takes the first live waiter out of a key's line, claimed; `NotNow` also while the region is lent.
    fn claim_first(&self, region: Place, db: DbIndex, key: &[u8]) -> First {
        match self.regions.borrow_mut().region_mut(region) {
            Some(region) => region.claim_first(&(db, key.into())),
            None => First::NotNow,
        }
    }

    /// One attempt for a claimed waiter; true if its session has its reply.
    fn attempt(self: &Rc<Self>, waiter: &Waiter, command: &CommandList, held: &mut Held) -> bool {
        let reply = held.with_view(waiter.db, |view| self.attempt_on(waiter, command, view));
        let Some(reply) = reply else {
            return false;
        };
        waiter.claim.served();
        self.answer_waiter(waiter, Some(Reply::over(reply, waiter.protocol)));
        true
    }

    /// The reply for a claimed waiter, if there is something for it.
    fn attempt_on(
        &self,
        waiter: &Waiter,
        command: &CommandList,
        view: View<'_>,
    ) -> Option<Vec<u8>> {
        attempt_for(&self.shared.commands, waiter, &command.args(0), view)
    }

    pub(crate) fn answer_waiter(&self, waiter: &Waiter, reply: Option<Reply>) {
        if waiter.core == self.id {
            // A session that is gone had its element taken before, as in Redis.
            let _ = self.tickets.deliver(waiter.ticket, Answer::Served(reply));
            return;
        }
        let ticket = waiter.ticket;
        let message = match reply {
            Some(reply) => Message::Served { ticket, reply },
            None => Message::Unserved { ticket },
        };
        self.send(waiter.core, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(words: &[&str]) -> CommandList {
        let mut kept = CommandList::default();
        kept.push_all(words.iter().map(|word| word.as_bytes()));
        kept
    }

    fn words(kept: &CommandList) -> Vec<String> {
        let args = kept.args(0);
        args.iter_from(0)
            .map(|arg| String::from_utf8_lossy(arg).into_owned())
            .collect()
    }

    #[test]
    fn the_key_that_changed_replaces_all_keys() {
        let commands = node::Specs::new(command::family::ALL.iter().copied().flatten().copied());
        let spec = |name: &str| {
            let number = commands.table.find(name.as_bytes());
            number.map(|number| commands.table.specs()[number])
        };
        if let Some(spec) = spec("blpop") {
            let only = only_key(&spec, &kept(&["BLPOP", "a", "b", "c", "0"]).args(0), b"b");
            assert_eq!(words(&only), ["BLPOP", "b", "0"]);
        }
        if let Some(spec) = spec("blmpop") {
            let command = kept(&["BLMPOP", "0", "2", "a", "b", "LEFT", "COUNT", "3"]);
            let only = only_key(&spec, &command.args(0), b"b");
            assert_eq!(
                words(&only),
                ["BLMPOP", "0", "1", "b", "LEFT", "COUNT", "3"]
            );
        }
    }
}
