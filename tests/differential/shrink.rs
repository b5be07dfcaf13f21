//! Makes a failing script shorter: steps are left out, by halves and then one by one, as long as it still fails on new
//! servers.

use std::time::{Duration, Instant};

use crate::field::Field;
use crate::race::run;
use crate::script::Step;

/// What to print about a failure.
pub fn shrink(mut steps: Vec<Step>, mut wrong: String) -> String {
    let deadline = Instant::now() + Duration::from_secs(crate::setting("NEOKV_SHRINK_S", 90));
    match fails(&steps) {
        Some(again) => wrong = again,
        None => return report(&steps, &wrong, "on new servers it does not fail"),
    }
    let mut chunk = steps.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        while at < steps.len() && Instant::now() < deadline {
            let end = (at + chunk).min(steps.len());
            let fewer = [&steps[..at], &steps[end..]].concat();
            match fails(&fewer) {
                Some(still) => (steps, wrong) = (fewer, still),
                None => at = end,
            }
        }
        chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2) };
    }
    while shorten(&mut steps, &mut wrong, deadline) {}
    report(&steps, &wrong, "made shorter")
}

/// Leaves one command out of a pipeline; false if none can be.
fn shorten(steps: &mut Vec<Step>, wrong: &mut String, deadline: Instant) -> bool {
    for at in 0..steps.len() {
        let Step::Send { client, commands } = &steps[at] else {
            continue;
        };
        for out in 0..commands.len() {
            if commands.len() < 2 || Instant::now() > deadline {
                break;
            }
            let (client, mut commands) = (*client, commands.clone());
            commands.remove(out);
            let mut fewer = steps.clone();
            fewer[at] = Step::Send { client, commands };
            if let Some(still) = fails(&fewer) {
                (*steps, *wrong) = (fewer, still);
                return true;
            }
        }
    }
    false
}

/// What goes wrong on new servers. The moment at which something leaves memory or is read from disk differs from run to
/// run: not every failure comes at once.
fn fails(steps: &[Step]) -> Option<String> {
    (0..3).find_map(|_| run(&mut Field::start()?, steps).err())
}

fn report(steps: &[Step], wrong: &str, how: &str) -> String {
    let lines: Vec<String> = steps.iter().map(|step| format!("  {step}")).collect();
    format!("{how}:\n{}\n{wrong}", lines.join("\n"))
}
