//! `make sim`: fresh seeds for a given time, or one seed again.
//!
//! ```text
//!   sim --seconds 60 [--from SEED]     new seeds until the time is over; stops at the first failure
//!       --step 3                       every third (from 0: those with a meta service)
//!   sim --seed 4711                    that one, twice, with its trace if it fails
//!       --bug 1..14                    with a planted bug (`Bug::ALL`)
//!       --tables 1                     with tables, whatever the seed
//!       --elections 1                  with elections all the time
//!       --script 1                     with the adversary of `script.rs`
//! ```

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
// A program, not the simulated world: it has to know how long it runs.
#[allow(clippy::disallowed_types)]
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use sim::{Bug, Outcome, Plan, Script, explain, explain_all, run};

#[derive(Default)]
struct Wanted {
    seconds: Option<u64>,
    seed: Option<u64>,
    from: Option<u64>,
    step: Option<u64>,
    bug: Option<u64>,
    tables: Option<u64>,
    elections: Option<u64>,
    script: Option<u64>,
}

impl Wanted {
    fn plan(&self, seed: u64) -> Plan {
        let plan = match (self.elections, self.script) {
            (Some(1), _) => Plan::of_elections(seed),
            _ if self.tables == Some(1) => Plan::of_tables(seed),
            (_, Some(1)) => Plan::of_script(seed, Script::ForgottenPromise),
            _ => Plan::of_seed(seed),
        };
        let bug = self.bug.and_then(|nth| Bug::ALL.get(nth as usize - 1));
        plan.with_bug(bug.copied().unwrap_or_default())
    }
}

fn wanted() -> Result<Wanted, String> {
    let mut wanted = Wanted::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let number = words.next().and_then(|it| it.parse().ok());
        let number = Some(number.ok_or_else(|| format!("{word} needs a number"))?);
        match word.as_str() {
            "--seconds" => wanted.seconds = number,
            "--seed" => wanted.seed = number,
            "--from" => wanted.from = number,
            "--step" => wanted.step = number,
            "--bug" => wanted.bug = number,
            "--tables" => wanted.tables = number,
            "--elections" => wanted.elections = number,
            "--script" => wanted.script = number,
            _ => return Err(format!("unknown option {word}")),
        }
    }
    Ok(wanted)
}

fn main() -> ExitCode {
    match wanted() {
        Ok(wanted) => match wanted.seed {
            Some(seed) => again(seed, &wanted.plan(seed)),
            None => fresh(&wanted),
        },
        Err(error) => {
            eprintln!("sim: {error}");
            ExitCode::from(2)
        }
    }
}

fn again(seed: u64, plan: &Plan) -> ExitCode {
    let outcome = run(plan);
    let second = run(plan);
    println!(
        "seed {seed}: {} events, {} s, {} elections, {} entries, {} installs, {} losses, {} made, {} calls done, {} unknown, {} on rows; {} loads, {} flushes, {} evicted; trace {:016x}",
        outcome.events,
        outcome.took_us / 1_000_000,
        outcome.elections,
        outcome.entries,
        outcome.installs,
        outcome.losses,
        outcome.made,
        outcome.done,
        outcome.unknown,
        outcome.row_calls,
        outcome.loads,
        outcome.flushes,
        outcome.evicted,
        outcome.trace_hash
    );
    if outcome.trace_hash != second.trace_hash {
        println!(
            "the second run has another trace: {:016x}",
            second.trace_hash
        );
        return ExitCode::FAILURE;
    }
    match outcome.broken {
        Some(_) => {
            println!("{}", explain_all(&outcome));
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

#[allow(clippy::disallowed_methods, clippy::disallowed_types)]
fn fresh(wanted: &Wanted) -> ExitCode {
    let (seconds, from) = (wanted.seconds.unwrap_or(60), wanted.from);
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let first = from.unwrap_or_else(|| {
        since_epoch.map_or(1, |it| it.as_millis() as u64) % 1_000_000_000 * 1000
    });
    let began = Instant::now();
    let step = wanted.step.unwrap_or(1).max(1);
    let next = AtomicU64::new(first);
    let sums = Mutex::new(Sums::default());
    let threads = std::thread::available_parallelism().map_or(1, |it| it.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while began.elapsed().as_secs() < seconds && !lock(&sums).is_broken {
                    let seed = next.fetch_add(step, Ordering::Relaxed);
                    let outcome = run(&wanted.plan(seed));
                    let mut sums = lock(&sums);
                    sums.add(&outcome);
                    sums.tell(began.elapsed().as_secs(), first);
                }
            });
        }
    });
    let sums = lock(&sums);
    if sums.is_broken {
        return ExitCode::FAILURE;
    }
    let Sums {
        seeds,
        simulated_us,
        calls,
        elections,
        undecided,
        ..
    } = *sums;
    let passed = began.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds from {first}: nothing broken. {:.1} seeds/s, {} simulated hours, {calls} calls, \
         {elections} elections, {undecided} keys undecided",
        seeds as f64 / passed,
        simulated_us / 3_600_000_000
    );
    ExitCode::SUCCESS
}

/// Of all seeds that were run.
#[derive(Default)]
struct Sums {
    seeds: u64,
    simulated_us: u64,
    calls: usize,
    elections: usize,
    undecided: usize,
    is_broken: bool,
    /// Second of the last line.
    told: u64,
}

impl Sums {
    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.simulated_us += outcome.took_us;
        self.calls += outcome.done;
        self.elections += outcome.elections;
        self.undecided += outcome.undecided;
        if outcome.broken.is_some() && !std::mem::replace(&mut self.is_broken, true) {
            println!("{}", explain(outcome));
        }
    }

    /// Every ten seconds.
    fn tell(&mut self, passed: u64, first: u64) {
        if passed < self.told + 10 || self.is_broken {
            return;
        }
        self.told = passed;
        let Sums {
            seeds,
            calls,
            elections,
            ..
        } = self;
        println!("{passed:5} s: {seeds} seeds from {first}, {calls} calls, {elections} elections");
    }
}

fn lock(sums: &Mutex<Sums>) -> MutexGuard<'_, Sums> {
    sums.lock().unwrap_or_else(PoisonError::into_inner)
}
