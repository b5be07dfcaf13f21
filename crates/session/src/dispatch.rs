//! One command: which it is, whether it may run, where it runs. Everything that needs no waiting
//! is done here; the rest is handed back as [`Slow`].

use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use base::{Refusal, Slot};
use command::{CommandSpec, Flags, Keys, Run, Traits};
use resp::{Args, Reply};

use super::pending::{Lane, Pending};
use super::rights::Verdict;
use super::{ReplyMode, Session};
use crate::commands::{LaterFn, SessionRun, wrong_arity};
use node::is_logged_as_given;
use runtime::cluster::{Cluster, Leads};
use runtime::cores::{Absent, Again, Call, Cold, NOWHERE, Place, Route, route};
use runtime::now_ms;

/// A session with its replies, and what it waits for from other cores.
pub(super) struct Work {
    pub session: Session,
    pub pending: Pending,
    pub out: Reply,
    /// Room for the regions of one command.
    pub regions: Vec<Place>,
    /// What is to be fetched.
    pub cold: Option<Box<Cold>>,
    /// What the command learned before it had to pass the read barrier again.
    pub carried: (Option<Box<Refusal>>, Again),
    /// CLIENT REPLY is not on: the mode, and where in `out` the command's reply begins.
    pub suppressed: Option<(ReplyMode, usize)>,
    /// Bytes of replies that have been written so far.
    pub written: usize,
}

pub(super) enum Step {
    Done,
    Slow(Slow),
}

/// Why a command has to wait. All that is pending is settled before it goes on.
#[derive(Clone, Copy)]
pub(super) enum Slow {
    /// Only for what is pending.
    Again,
    /// For the regions in `Work::regions`.
    Hold {
        stat: usize,
    },
    /// For all regions.
    HoldAll {
        stat: usize,
    },
    /// SCAN, for the region in its cursor.
    Scan {
        stat: usize,
    },
    Block {
        stat: usize,
    },
    Later {
        stat: usize,
        run: LaterFn,
    },
    /// For keys that are not in memory, in `Work::cold`; then once more.
    Cold,
    /// For proof that a region may be read here; then once more (cluster).
    Unconfirmed {
        region: Place,
    },
    /// For a leader that is elsewhere, or not known yet (cluster).
    Elsewhere {
        slot: Slot,
    },
    /// For all nodes (cluster).
    AllNodes {
        stat: usize,
    },
    /// CLIENT PAUSE.
    Pause {
        writes: bool,
    },
}

impl Work {
    /// Runs one command, or says what it waits for.
    #[inline]
    pub fn dispatch(&mut self, args: &Args<'_>) -> Step {
        let shared = &self.session.core.shared;
        let (number, spec) = match shared.commands.table.resolve(args) {
            Ok(found) => found,
            Err(refusal) => {
                let spec = shared.commands.table.named(args);
                return match spec.is_some_and(|spec| spec.is(Traits::RUNS_QUEUE)) {
                    true => self.reject_exec(&refusal),
                    false => self.reject(None, &refusal),
                };
            }
        };
        let stat = shared.commands.stat_number(number, spec);
        // CLIENT LIST shows it, wherever it runs and however long it waits.
        let last = &self.session.client.last_command;
        last.store(stat as u32, Ordering::Relaxed);
        if self.pending.comes_first(spec) {
            return Step::Slow(Slow::Again);
        }
        if self.session.rights != shared.users.version() {
            match self.session.check_rights(stat, spec, args) {
                Verdict::Fine => {}
                Verdict::Stale => return self.dispatch_anew(args),
                Verdict::Denied(refusal) => return self.reject(Some(stat), &refusal),
            }
        }
        if let Some(cluster) = &shared.cluster
            && self.session.authenticated
        {
            match destination(cluster, &self.session, &self.pending, spec, args) {
                Ok(Destination::Here) => {}
                Ok(Destination::Elsewhere(slot)) => {
                    return self.dispatch_elsewhere(slot, stat, args);
                }
                Ok(Destination::AllNodes) if !self.pending.is_empty() => {
                    return Step::Slow(Slow::Again);
                }
                Ok(Destination::AllNodes) => {
                    self.suppress_from_here();
                    return Step::Slow(Slow::AllNodes { stat });
                }
                Err(refusal) => return self.reject(Some(stat), &refusal),
            }
        }
        if is_special(&self.session) {
            return self.dispatch_special(number, stat, args);
        }
        match spec.run {
            Run::Read(_) | Run::Write(_) => {
                let rest = (&mut self.pending, &mut self.out);
                let found = (&mut self.regions, &mut self.cold);
                run_data(&self.session, rest, found, spec, stat, args)
            }
            Run::Block(_) => Step::Slow(Slow::Block { stat }),
            Run::Session | Run::Container => self.run_session(number, stat, args),
        }
    }

    /// The users have changed since this session looked its user up.
    #[cold]
    #[inline(never)]
    fn dispatch_anew(&mut self, args: &Args<'_>) -> Step {
        self.session.look_again();
        self.dispatch(args)
    }

    /// A command whose slot is led by another node, or by nobody that is known (cluster).
    #[cold]
    fn dispatch_elsewhere(&mut self, slot: Slot, stat: usize, args: &Args<'_>) -> Step {
        let core = self.session.core.clone();
        let Some(cluster) = &core.shared.cluster else {
            return Step::Done;
        };
        let spec = core.shared.commands.spec(stat);
        if !self.session.forwards() {
            let leads = cluster.leads(slot);
            if matches!(leads, Leads::There(_) | Leads::Unassigned) {
                return self.reject(Some(stat), &cluster.moved(slot));
            }
        } else if matches!(spec.run, Run::Read(_) | Run::Write(_))
            && is_logged_as_given(spec)
            && !is_special(&self.session)
        {
            self.pending
                .push_forward(&self.session, slot, stat, args, &self.out);
            return Step::Done;
        }
        if !self.pending.is_empty() {
            return Step::Slow(Slow::Again);
        }
        self.suppress_from_here();
        Step::Slow(Slow::Elsewhere { slot })
    }

    /// The reply of the command that runs now is not to be sent, if CLIENT REPLY says so.
    fn suppress_from_here(&mut self) {
        let mode = self.session.reply_mode;
        if mode != ReplyMode::On {
            self.suppressed = Some((mode, self.out.len()));
        }
    }

    /// A command of a session that has to authenticate, is in MULTI, wants no replies, is paused
    /// or monitored.
    #[cold]
    fn dispatch_special(&mut self, number: usize, stat: usize, args: &Args<'_>) -> Step {
        let core = self.session.core.clone();
        let shared = &core.shared;
        let spec = shared.commands.spec(stat);
        if !self.session.authenticated && !spec.flags.contains(Flags::NO_AUTH) {
            let refusal = Refusal::new("NOAUTH Authentication required.");
            return self.reject(Some(stat), &refusal);
        }
        let writes = spec.is_write()
            || (spec.is(Traits::RUNS_QUEUE)
                && self.session.multi.as_ref().is_some_and(|m| m.writes));
        let until_ms = shared.paused_until_ms(writes);
        if until_ms != 0 && until_ms > now_ms() {
            return Step::Slow(Slow::Pause { writes });
        }
        if self.session.multi.is_some() && !spec.is(Traits::NOT_QUEUED) {
            return self.queue(number, stat, args);
        }
        let quiet = self.session.reply_mode;
        let monitored = shared.clients.has_monitors();
        if (quiet != ReplyMode::On || monitored) && !self.pending.is_empty() {
            return Step::Slow(Slow::Again);
        }
        // What EXEC runs is shown before EXEC itself, as in Redis.
        if monitored && !spec.is(Traits::RUNS_QUEUE) {
            feed_monitors(&self.session, spec, args);
        }
        if quiet != ReplyMode::On {
            self.suppressed = Some((quiet, self.out.len()));
        }
        let step = match spec.run {
            Run::Read(_) | Run::Write(_) if quiet != ReplyMode::On => {
                self.regions = core.regions_of(spec, args);
                match route(&shared.map, spec, args, &mut Vec::new()) {
                    Route::Cursor => Step::Slow(Slow::Scan { stat }),
                    Route::All => Step::Slow(Slow::HoldAll { stat }),
                    _ => Step::Slow(Slow::Hold { stat }),
                }
            }
            Run::Read(_) | Run::Write(_) => {
                let rest = (&mut self.pending, &mut self.out);
                let found = (&mut self.regions, &mut self.cold);
                run_data(&self.session, rest, found, spec, stat, args)
            }
            Run::Block(_) => Step::Slow(Slow::Block { stat }),
            Run::Session | Run::Container => self.run_session(number, stat, args),
        };
        if matches!(step, Step::Done) {
            self.suppress_reply();
        }
        step
    }

    /// Drops the reply of a command that ran while CLIENT REPLY was not on.
    pub fn suppress_reply(&mut self) {
        let Some((mode, start)) = self.suppressed.take() else {
            return;
        };
        match (mode, self.session.reply_mode) {
            // CLIENT REPLY ON: its own reply is the first to be sent.
            (_, ReplyMode::On) => {}
            (ReplyMode::SkipNext, ReplyMode::SkipNext) => {
                self.out.truncate(start);
                self.session.reply_mode = ReplyMode::On;
            }
            _ => self.out.truncate(start),
        }
    }

    /// A command about the session or the server.
    fn run_session(&mut self, number: usize, stat: usize, args: &Args<'_>) -> Step {
        let core = self.session.core.clone();
        let spec = core.shared.commands.spec(stat);
        match self.session.runs.find(number, spec) {
            Some(SessionRun::Now(run)) => {
                if !spec.is(Traits::RUNS_BESIDE_PENDING) && !self.pending.is_empty() {
                    return Step::Slow(Slow::Again);
                }
                self.session.run_now(stat, run, args, &mut self.out);
                Step::Done
            }
            Some(SessionRun::Later(run)) => Step::Slow(Slow::Later { stat, run }),
            Some(SessionRun::Subcommands(_) | SessionRun::Spec) | None => {
                self.reject(Some(stat), &wrong_arity(spec))
            }
        }
    }

    /// Turns a command away before it runs. Inside MULTI that makes EXEC fail.
    #[cold]
    pub fn reject(&mut self, stat: Option<usize>, refusal: &Refusal) -> Step {
        if let Some(multi) = &mut self.session.multi {
            multi.aborted = true;
        }
        let core = &self.session.core;
        core.stats().on_rejected(stat);
        core.refuse(refusal, &mut self.out);
        if self.session.reply_mode != ReplyMode::On {
            // Nothing is pending then.
            let start = self.out.len() - refusal.text().len() - 3;
            self.suppressed = Some((self.session.reply_mode, start));
            self.suppress_reply();
        }
        Step::Done
    }

    /// EXEC with arguments ends the transaction, as any EXEC does.
    #[cold]
    fn reject_exec(&mut self, refusal: &Refusal) -> Step {
        self.session.discard();
        let why = refusal.text();
        let why = why.strip_prefix("ERR ").unwrap_or(why);
        let text = format!("EXECABORT Transaction discarded because of: {why}");
        self.reject(None, &Refusal::text_of(text))
    }

    /// The last thing a client that breaks the protocol reads.
    pub fn protocol_error(&mut self, text: &str) {
        let refusal = Refusal::text_of(format!("ERR Protocol error: {text}"));
        self.session.core.refuse(&refusal, &mut self.out);
    }
}

impl Session {
    /// Runs a session command that need not wait.
    pub(super) fn run_now(
        &mut self,
        stat: usize,
        run: crate::commands::NowFn,
        args: &Args<'_>,
        out: &mut Reply,
    ) {
        let core = self.core.clone();
        self.client
            .last_command
            .store(stat as u32, Ordering::Relaxed);
        let before = out.len();
        let mode = self.reply_mode;
        let result = run(self, args, out);
        if let Err(refusal) = &result {
            out.truncate(before);
            core.refuse(refusal, out);
        }
        if mode == ReplyMode::On && self.reply_mode != ReplyMode::On {
            out.truncate(before); // CLIENT REPLY OFF and SKIP answer nothing
        }
        self.account(stat, result.is_err(), args);
        core.refresh_settings();
    }

    /// Counts a session command that ran.
    pub(super) fn account(&self, stat: usize, failed: bool, args: &Args<'_>) {
        let call = Call {
            spec: self.core.shared.commands.spec(stat),
            stat,
            db: self.db,
            client: &self.client.requester,
            is_held: false,
        };
        self.core.account(stat, failed, args, &call);
    }

    /// As [`Session::account`] for a command that waited: other commands ran meanwhile, so its
    /// time is counted from its own start.
    pub(super) fn account_since(&self, started: u64, stat: usize, failed: bool, args: &Args<'_>) {
        self.core.set_tick(started);
        self.account(stat, failed, args);
    }
}

/// Where a command of a cluster node's client runs.
enum Destination {
    Here,
    /// By the leader of this slot, whoever that is.
    Elsewhere(Slot),
    /// By all leaders.
    AllNodes,
}

/// Looks at a command's keys.
#[inline]
fn destination(
    cluster: &Cluster,
    session: &Session,
    pending: &Pending,
    spec: &CommandSpec,
    args: &Args<'_>,
) -> Result<Destination, Refusal> {
    let Some(slot) = Cluster::slot_of(spec, args)? else {
        if let Some(refusal) = Cluster::refuses(spec, args) {
            return Err(refusal);
        }
        let is_for_all_nodes = session.forwards()
            && session.multi.is_none()
            && matches!(spec.keys, Keys::Everything | Keys::Cursor);
        return Ok(match is_for_all_nodes {
            true => Destination::AllNodes,
            false => Destination::Here,
        });
    };
    if spec.is_write() {
        session.wrote.note(slot);
    }
    let has_replica = cluster.places.of_slot(slot) != NOWHERE;
    let is_elsewhere = if session.forwards() {
        // WATCH sees to it by itself, what is queued is sent with EXEC.
        let is_later = session.multi.is_some() || matches!(spec.run, Run::Session | Run::Container);
        let is_read_here = has_replica && session.readonly && !spec.is_write();
        let is_led_there = || pending.has_forward(slot) || cluster.is_led_there(slot);
        !is_later && !is_read_here && (!has_replica || is_led_there())
    } else {
        // As Redis: a command is not even queued where it could not run.
        !has_replica || session.multi.is_some() && cluster.is_led_there(slot)
    };
    match (is_elsewhere, Cluster::refuses(spec, args)) {
        (true, _) => Ok(Destination::Elsewhere(slot)),
        (false, None) => Ok(Destination::Here),
        (false, Some(refusal)) => Err(refusal),
    }
}

/// Whether anything but running the command is to be thought of.
#[inline]
fn is_special(session: &Session) -> bool {
    let shared = &session.core.shared;
    !session.authenticated
        || session.multi.is_some()
        || session.reply_mode != ReplyMode::On
        || shared.clients.has_monitors()
        || shared.paused_until_ms(true) != 0
}

/// A command on keys: here, on another core, or on several.
#[inline(always)]
fn run_data(
    session: &Session,
    (pending, out): (&mut Pending, &mut Reply),
    (regions, cold): (&mut Vec<Place>, &mut Option<Box<Cold>>),
    spec: &CommandSpec,
    stat: usize,
    args: &Args<'_>,
) -> Step {
    let core = &session.core;
    let map = &core.shared.map;
    let route = route(map, spec, args, regions);
    if core.shared.durable.is_some() && (spec.is_write() || !pending.is_empty()) {
        let call = Call {
            spec,
            stat,
            db: session.db,
            client: &session.client.requester,
            is_held: false,
        };
        if let Err(refusal) = core.admit(&call) {
            core.stats().on_rejected(Some(stat));
            core.refuse(&refusal, out);
            return Step::Done;
        }
        // Writes go through the log of their region, and reads behind them follow in line.
        match route {
            Route::One(region) if !is_logged_as_given(spec) => {
                *regions = vec![region];
                return Step::Slow(Slow::Hold { stat });
            }
            Route::One(region) if spec.is_write() && pending.is_behind_reads(region) => {
                return Step::Slow(Slow::Again);
            }
            Route::One(region) if spec.is_write() || pending.has_writes(region) => {
                let target = map.core_of(region);
                let lane = Lane { target, at: region };
                pending.push(session, lane, spec, stat, args, out);
                return Step::Done;
            }
            Route::Several => return Step::Slow(Slow::Hold { stat }),
            _ => {}
        }
    }
    let owner = match route {
        Route::One(region) => map.core_of(region),
        Route::Anywhere => core.id,
        Route::Several => {
            let owner = regions
                .first()
                .map_or(core.id, |&region| map.core_of(region));
            if regions.last().map(|&region| map.core_of(region)) != Some(owner) {
                return Step::Slow(Slow::Hold { stat });
            }
            owner
        }
        Route::All => return Step::Slow(Slow::HoldAll { stat }),
        Route::Cursor => return Step::Slow(Slow::Scan { stat }),
    };
    if owner != core.id {
        let at = match route {
            Route::One(region) if core.shared.durable.is_some() => region,
            _ if core.shared.durable.is_some() => return Step::Slow(Slow::Hold { stat }),
            _ => owner,
        };
        let lane = Lane { target: owner, at };
        pending.push(session, lane, spec, stat, args, out);
        return Step::Done;
    }
    let call = Call {
        spec,
        stat,
        db: session.db,
        client: &session.client.requester,
        is_held: false,
    };
    if let Err(refusal) = core.admit(&call) {
        core.stats().on_rejected(Some(stat));
        core.refuse(&refusal, out);
        return Step::Done;
    }
    match core.run_here(route, regions, &call, args, out) {
        Ok(_) => Step::Done,
        Err(Absent::Lent) => {
            if let Route::One(region) = route {
                *regions = vec![region];
            } else if route == Route::Anywhere {
                *regions = vec![map.any_of(core.id)];
            }
            Step::Slow(Slow::Hold { stat })
        }
        Err(Absent::Unconfirmed(region)) => Step::Slow(Slow::Unconfirmed { region }),
        Err(Absent::Cold(what)) => {
            *cold = Some(what);
            Step::Slow(Slow::Cold)
        }
    }
}

/// Shows a command to sessions in MONITOR.
pub(super) fn feed_monitors(session: &Session, spec: &CommandSpec, args: &Args<'_>) {
    if spec.flags.intersects(Flags::SKIP_MONITOR | Flags::ADMIN) {
        return;
    }
    let now_us = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_micros() as u64);
    let core = &session.core;
    let limit_bytes = core.settings().output_limit_normal.hard_bytes;
    let (clients, addr) = (&core.shared.clients, &session.client.addr);
    clients.feed_monitors(args, spec.secrets, session.db, addr, now_us, limit_bytes);
}
