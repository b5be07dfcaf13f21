//! One seed from its beginning to its end: what came out, and how to tell somebody.

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::check::{Broken, kept, linear, pools, rows};
use crate::history::Fate;
use crate::plan::Plan;
use crate::world::World;

/// Lines of the trace shown on failure.
const SHOWN: usize = 80;

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    pub plan: Plan,
    pub trace_hash: u64,
    pub events: u64,
    /// Simulated.
    pub took_us: u64,
    pub elections: usize,
    pub entries: usize,
    /// Snapshots installed.
    pub installs: usize,
    /// Machines that lost their disks, and replicas that meta had made.
    pub losses: usize,
    pub made: usize,
    /// Of those, of data regions on machines that joined later.
    pub made_on_new: usize,
    pub done: usize,
    pub unknown: usize,
    /// Keys whose history was too hard to decide.
    pub undecided: usize,
    /// Calls on rows of tables; statements of both kinds; rows that left a cache.
    pub row_calls: usize,
    pub loads: u64,
    pub flushes: u64,
    pub evicted: u64,
    pub broken: Option<Broken>,
    /// The event at which it is broken.
    pub at_event: u64,
}

pub fn run(plan: &Plan) -> Outcome {
    let mut world = World::new(plan.clone(), false);
    let panicked = run_world(&mut world, u64::MAX);
    let mut undecided = 0;
    let mut broken = world.broken.take().or(panicked);
    if broken.is_none() {
        match linear::check(&world.history) {
            Ok(count) => undecided = count,
            Err(found) => broken = Some(found),
        }
    }
    if broken.is_none() {
        match rows::check(&world.history, &world.row_begin) {
            Ok(count) => undecided += count,
            Err(found) => broken = Some(found),
        }
    }
    if broken.is_none() {
        broken = kept::check(&world.history, &world.last).err();
    }
    if broken.is_none() {
        broken = pools::check(&world.history).err();
    }
    let moment = broken.as_ref().and_then(|broken| broken.moment);
    Outcome {
        plan: plan.clone(),
        trace_hash: world.trace.hash(),
        events: world.trace.events(),
        took_us: world.now_us(),
        elections: world.elections(),
        entries: world.entries(),
        installs: world.installs,
        losses: world.losses,
        made: world.made,
        made_on_new: world.made_on_new,
        done: world.history.count(Fate::Done),
        unknown: world.history.count(Fate::Unknown),
        undecided,
        row_calls: world.history.count_rows(Fate::Done),
        loads: world.database.loads,
        flushes: world.database.flushes,
        evicted: world.written.evicted,
        at_event: moment.map_or(world.trace.events(), |moment| world.event_at(moment)),
        broken,
    }
}

/// A panic of the code under test is a finding like any other: it has a seed.
fn run_world(world: &mut World, most_events: u64) -> Option<Broken> {
    let run = AssertUnwindSafe(|| world.run(most_events));
    let panic = catch_unwind(run).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    Some(Broken::new("panic", text.unwrap_or_default()))
}

/// Runs it once more, only as far as it has to, and tells the last of what happened.
pub fn explain(outcome: &Outcome) -> String {
    tell(outcome, false)
}

/// As [`explain`], from the beginning.
pub fn explain_all(outcome: &Outcome) -> String {
    tell(outcome, true)
}

fn tell(outcome: &Outcome, all: bool) -> String {
    let mut text = String::new();
    let Some(broken) = &outcome.broken else {
        return text;
    };
    let seed = outcome.plan.seed;
    let mut world = World::new(outcome.plan.clone(), true);
    // It may be over earlier than that, or panic again.
    let _ = run_world(&mut world, outcome.at_event);
    let lines = world.trace.into_texts();
    let until = lines
        .len()
        .min(usize::try_from(outcome.at_event).unwrap_or(usize::MAX));
    let _ = writeln!(
        text,
        "seed {seed}: {} is broken: {}",
        broken.checker, broken.what
    );
    let _ = writeln!(text, "plan: {:?}", outcome.plan);
    let _ = writeln!(text, "the last of {until} events that lead to it:");
    let from = match all {
        true => 0,
        false => until.saturating_sub(SHOWN),
    };
    for line in &lines[from..until] {
        let _ = writeln!(text, "  {line}");
    }
    let _ = writeln!(text, "again: make sim SEED={seed}");
    text
}
