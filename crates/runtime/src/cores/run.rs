//! Running one data command on regions that are at hand. Nothing here waits.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use base::{DbIndex, Refusal};
use command::{Attempt, CommandSpec, Flags, Traits};
use keyspace::{DueKey, Keyspace, View};
use node::{Absent, Access, Ran, Requester, Route};
use resp::{Args, Reply};

use super::{Core, Place};

/// A resolved command and whose it is.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub spec: &'a CommandSpec,
    /// Statistics number of the row.
    pub stat: usize,
    pub db: DbIndex,
    pub client: &'a Requester,
    /// The regions are held: nothing comes in between.
    pub is_held: bool,
}

impl Core {
    /// Runs on one region of this core.
    #[inline]
    pub fn run_on(
        self: &Rc<Self>,
        region: Place,
        call: &Call<'_>,
        args: &Args<'_>,
        reply: &mut Reply,
    ) -> Result<Ran, Absent> {
        let (ran, effects, met) = {
            let mut owned = self.regions.borrow_mut();
            let Some(region) = owned.region_mut(region) else {
                return Err(Absent::Lent);
            };
            let row_failure = self.row_failure.take();
            let settings = self.settings();
            let is_cluster = self.shared.cluster.is_some();
            let access = Access {
                spec: call.spec,
                db: call.db,
                args,
                now_ms: self.now_ms(),
                tuning: &settings.tuning,
                again: self.again.take(),
                clock_ms: is_cluster.then(|| self.boot_ms()),
                is_confirmed: is_cluster && self.is_confirmed.take(),
                catalogue_version: self.shared.catalogue_version(),
            };
            let invoke = |view: View<'_>, reply: &mut Reply| self.invoke(call, view, args, reply);
            let ran = match region.run(&access, &self.seeds, reply, invoke) {
                Ok(ran) => ran,
                Err(Absent::Cold(cold)) if cold.is_about_tables() && row_failure.is_some() => {
                    if let Some(refusal) = row_failure {
                        self.refuse(&refusal, reply);
                    }
                    return Ok(Ran::Refused);
                }
                Err(absent) => {
                    if let Absent::Unconfirmed(_) = absent {
                        // For when the barrier is passed.
                        self.row_failure.set(row_failure);
                        self.again.set(access.again);
                    }
                    return Err(absent);
                }
            };
            let mut met = Vec::new();
            if region.space.has_met_due() {
                met = self.expire_met(&mut region.space);
            }
            (ran, region.space.has_key_changes(), met)
        };
        if !met.is_empty() {
            let at = self.shared.map.region_of(&met[0].1);
            self.propose_due(at, &met);
        }
        if effects {
            self.serve_key_changes();
        }
        Ok(ran)
    }

    /// Runs on regions of this core by `route`; `regions` is what [`route`] filled.
    #[inline]
    pub fn run_here(
        self: &Rc<Self>,
        route: Route,
        regions: &[Place],
        call: &Call<'_>,
        args: &Args<'_>,
        reply: &mut Reply,
    ) -> Result<Ran, Absent> {
        match route {
            Route::One(region) => self.run_on(region, call, args, reply),
            Route::Anywhere if self.shared.cluster.is_some() => {
                // No key, no region: there may be none that this node leads.
                let mut nothing = Keyspace::new(self.next_seed());
                let (now_ms, seed) = (self.now_ms(), self.next_seed());
                let settings = self.settings();
                let view = View::one(&mut nothing, call.db, now_ms, seed, &settings.tuning);
                Ok(self.invoke(call, view, args, reply))
            }
            Route::Anywhere => {
                let any = self.regions.borrow().any().ok_or(Absent::Lent)?;
                self.run_on(any, call, args, reply)
            }
            Route::Several => {
                if self.shared.durable.is_some() {
                    return Err(Absent::Lent);
                }
                let mut held = self.try_hold(regions).ok_or(Absent::Lent)?;
                Ok(held.run(call, args, reply))
            }
            Route::All | Route::Cursor => Err(Absent::Lent),
        }
    }

    /// Calls the command's function, writes its refusal if it has one, counts it.
    #[inline]
    pub fn invoke(
        &self,
        call: &Call<'_>,
        view: View<'_>,
        args: &Args<'_>,
        reply: &mut Reply,
    ) -> Ran {
        let before = reply.len();
        let view = match call.client.no_touch.load(Ordering::Relaxed)
            && !call.spec.is(Traits::ALWAYS_TOUCHES)
        {
            true => view.without_touching(),
            false => view,
        };
        // A read that panics ends its connection, at most.
        let contained = (!call.spec.is_write()).then(base::Contained::begin);
        let result = call_function(call.spec, view, args, reply);
        drop(contained);
        let ran = match result {
            Ok(Attempt::Served) => Ran::Done,
            Ok(Attempt::Empty) => Ran::Empty,
            Err(refusal) => {
                reply.truncate(before);
                self.refuse(&refusal, reply);
                Ran::Refused
            }
        };
        // A blocking command that found nothing on its way through the log is tried again under hold,
        // and counted then.
        if ran != Ran::Empty || self.shared.durable.is_none() || call.is_held {
            self.account(call.stat, ran == Ran::Refused, args, call);
        }
        ran
    }

    /// A command met keys whose time has come: they go now, unless clients are paused. On a durable
    /// node only an entry of the log removes them: those to be proposed are returned.
    #[cold]
    pub(crate) fn expire_met(&self, space: &mut Keyspace) -> Vec<DueKey> {
        if self.shared.is_expiry_paused(self.now_ms()) {
            space.forget_met();
        } else if self.shared.durable.is_some() {
            return space.take_met();
        } else {
            space.expire_met(self.now_ms());
        }
        Vec::new()
    }

    /// Writes a refusal and counts it.
    pub fn refuse(&self, refusal: &Refusal, reply: &mut Reply) {
        self.stats().on_error(refusal);
        reply.refusal(refusal);
    }

    /// Counts a command that ran, and notes it if it was slow.
    #[inline(always)]
    pub fn account(&self, stat: usize, failed: bool, args: &Args<'_>, call: &Call<'_>) {
        let now = self.clock.raw();
        let ticks = now.wrapping_sub(self.tick.replace(now));
        self.stats().on_command(stat, ticks, failed);
        if ticks >= self.slow_ticks.get() {
            self.on_slow(ticks, args, call);
        }
    }

    /// The next command's time is counted from this reading of the clock.
    #[inline]
    pub fn set_tick(&self, tick: u64) {
        self.tick.set(tick);
    }

    #[cold]
    fn on_slow(&self, ticks: u64, args: &Args<'_>, call: &Call<'_>) {
        let us = self.clock.delta_as_nanos(0, ticks) / 1000;
        let settings = self.settings();
        let threshold_ms = settings.latency_monitor_threshold_ms;
        if threshold_ms > 0 && us / 1000 >= threshold_ms {
            let fast = call.spec.flags.contains(Flags::FAST);
            let event = if fast { "fast-command" } else { "command" };
            self.shared.latency.add(event, us / 1000, self.now_ms());
        }
        let slower_than = settings.slowlog_slower_than_us;
        let logged = slower_than >= 0 && us >= slower_than as u64;
        if logged && !call.spec.flags.contains(Flags::SKIP_SLOWLOG) {
            let max_len = settings.slowlog_max_len;
            let client = self.shared.clients.all().get(&call.client.id).cloned();
            self.shared.slowlog.add(
                args,
                call.spec.secrets,
                us,
                self.now_ms(),
                client.as_deref(),
                max_len,
            );
        }
    }
}

/// The function of a row on a view, or the one for keys that name rows of tables.
#[inline]
pub fn call_function(
    spec: &CommandSpec,
    view: View<'_>,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<Attempt, Refusal> {
    command::call(spec, view, args, reply)
}
