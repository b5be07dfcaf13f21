//! Is what the clients saw, and what was seen in SQL, what one row without copies would have shown?
//!
//! Three looks at the same history, from the cheap to the thorough: versions (each is made once, shows the same to
//! everybody and in SQL, and never goes back in time), sums (nothing acknowledged is missing, nothing happened twice), and
//! the search for one order of all calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use porcupine_rs::{CheckResult, Model, Operation};

use super::model::{Act, Call, Row, Told};

/// A search that takes longer is given up, and counted.
const LONGEST: Duration = Duration::from_secs(5);

/// What each version of a row holds.
pub type Images = BTreeMap<i64, (i64, Arc<str>)>;

/// How many keys could not be decided by the search in time. `last`: the rows in the end.
pub fn judge(keys: &[String], calls: &[Call], last: &[Row], seen: &[Images]) -> usize {
    let mut undecided = 0;
    for (number, key) in keys.iter().enumerate() {
        let mut of_key: Vec<&Call> = calls.iter().filter(|it| it.key == number).collect();
        of_key.sort_by_key(|it| it.called);
        let found = versions(&of_key, &seen[number])
            .and_then(|()| sums(key, &of_key, &last[number]))
            .and_then(|()| order(&of_key));
        match found {
            Ok(is_decided) => undecided += usize::from(!is_decided),
            Err(why) => panic!("{key}: {why}\n{}", shown(&of_key)),
        }
    }
    undecided
}

fn shown(calls: &[&Call]) -> String {
    let line = |call: &&Call| {
        let (ended, told) = match &call.ended {
            Some((ended, told)) => (ended.to_string(), format!("{told:?}")),
            None => ("?".into(), "unknown".into()),
        };
        format!(
            "  {:6}..{ended:6} session {} {:?} = {told}",
            call.called, call.session, call.act
        )
    };
    let lines: Vec<String> = calls.iter().map(line).collect();
    lines.join("\n")
}

/// Every version is made by one change and shows the same wherever it is seen; who asks later sees no older one.
fn versions(calls: &[&Call], in_sql: &Images) -> Result<(), String> {
    let mut images = in_sql.clone();
    let mut made: BTreeMap<i64, &Call> = BTreeMap::new();
    let mut ends: Vec<(u64, i64)> = Vec::new();
    for call in calls {
        let Some((ended, Told::Row(status, row))) = &call.ended else {
            continue;
        };
        ends.push((*ended, row.version.abs()));
        if row.version > 0 {
            let image = (row.n, row.v.clone());
            let known = images.entry(row.version).or_insert_with(|| image.clone());
            if *known != image {
                return Err(format!(
                    "version {} is {image:?} and {known:?}",
                    row.version
                ));
            }
        }
        if status == "ok"
            && call.act.writes()
            && let Some(other) = made.insert(row.version.abs(), call)
        {
            return Err(format!("a version was made twice: {call:?} and {other:?}"));
        }
    }
    ends.sort_unstable();
    let (mut at, mut newest) = (0, 0);
    for call in calls {
        while at < ends.len() && ends[at].0 < call.called {
            newest = newest.max(ends[at].1);
            at += 1;
        }
        if let Some(Told::Row(_, row)) = call.told()
            && row.version.abs() < newest
        {
            return Err(format!("{call:?} saw less than version {newest}"));
        }
    }
    Ok(())
}

/// Between all that was acknowledged and all that may have happened.
fn sums(key: &str, calls: &[&Call], last: &Row) -> Result<(), String> {
    let (mut least, mut most) = (Row::missing(), Row::missing());
    for call in calls {
        let did = match call.told() {
            Some(Told::Row(status, _)) => status == "ok",
            Some(Told::Number(0)) if call.act == Act::Remove => false,
            Some(_) => true,
            None => false,
        };
        let may = did || call.ended.is_none();
        for (sum, counts) in [(&mut least, did), (&mut most, may)] {
            if counts {
                sum.version += call.act.changes();
                sum.n += call.act.adds();
            }
        }
    }
    let version = last.version.abs();
    if version < least.version || version > most.version {
        let (least, most) = (least.version, most.version);
        return Err(format!(
            "version {version} after {least} changes acknowledged, at most {most}"
        ));
    }
    if is_counter(key) && (last.n < least.n || last.n > most.n) {
        let (least, most) = (least.n, most.n);
        return Err(format!(
            "{} after increments by {least} acknowledged, at most {most}",
            last.n
        ));
    }
    Ok(())
}

/// Counters are never deleted, so they can be summed up.
pub fn is_counter(key: &str) -> bool {
    key.contains(":c")
}

#[derive(Debug, Clone)]
struct OneRow;

impl Model for OneRow {
    type State = Row;
    type Op = (Act, Option<Told>);
    type Metadata = ();

    fn init() -> Row {
        Row::missing()
    }

    fn step(row: &Row, (act, told): &(Act, Option<Told>)) -> (bool, Row) {
        let (right, next) = act.on(row);
        (told.as_ref().is_none_or(|told| *told == right), next)
    }
}

/// Whether it could be decided.
fn order(calls: &[&Call]) -> Result<bool, String> {
    let operation = |call: &&Call| Operation {
        client_id: Some(call.session as u32),
        call_time: call.called as i64,
        return_time: call
            .ended
            .as_ref()
            .map_or(i64::MAX, |(ended, _)| *ended as i64),
        op: (call.act.clone(), call.told().cloned()),
        metadata: None,
    };
    let all: Vec<Operation<OneRow>> = calls.iter().map(operation).collect();
    match porcupine_rs::check_operations_timeout(&all, LONGEST) {
        CheckResult::Ok => Ok(true),
        CheckResult::Unknown => Ok(false),
        CheckResult::Illegal => {
            // The shortest beginning that is already wrong.
            let mut moments: Vec<i64> = all.iter().map(|it| it.return_time).collect();
            moments.sort_unstable();
            let at = moments.partition_point(|&moment| {
                let so_far = all.iter().filter(|it| it.call_time <= moment);
                let so_far = so_far.map(|it| {
                    let mut it = it.clone();
                    if it.return_time > moment {
                        it.return_time = i64::MAX;
                        it.op.1 = None;
                    }
                    it
                });
                let so_far: Vec<_> = so_far.collect();
                porcupine_rs::check_operations_timeout(&so_far, LONGEST) != CheckResult::Illegal
            });
            Err(format!(
                "no order of its calls explains the answers, from {:?} on",
                moments.get(at)
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A history one after the other, `told` as given.
    fn history(acts: &[(Act, Option<Told>)]) -> Vec<Call> {
        let call = |(at, (act, told)): (usize, &(Act, Option<Told>))| Call {
            session: 0,
            key: 0,
            act: act.clone(),
            called: at as u64 * 2,
            ended: told.clone().map(|told| (at as u64 * 2 + 1, told)),
        };
        acts.iter().enumerate().map(call).collect()
    }

    fn is_right(acts: &[(Act, Option<Told>)], last: &Row) -> bool {
        let calls = history(acts);
        let calls: Vec<&Call> = calls.iter().collect();
        versions(&calls, &Images::new()).is_ok()
            && sums("t:c", &calls, last).is_ok()
            && order(&calls) == Ok(true)
    }

    #[test]
    fn lost_doubled_and_stale_are_seen() {
        let row = |version, n| Row {
            version,
            n,
            v: "".into(),
        };
        let ok = |version, n| Some(Told::Row("ok".into(), row(version, n)));
        let (incr, read) = (Act::Incr(1), Act::Read);
        let right = [(incr.clone(), ok(1, 1)), (incr.clone(), ok(2, 2))];
        assert!(is_right(&right, &row(2, 2)));
        assert!(!is_right(&right, &row(1, 1)), "lost");
        assert!(!is_right(&right, &row(3, 3)), "doubled");
        let stale = [right[0].clone(), right[1].clone(), (read.clone(), ok(1, 1))];
        assert!(!is_right(&stale, &row(2, 2)));
        let unknown = [right[0].clone(), (incr, None), (read, ok(2, 2))];
        assert!(is_right(&unknown, &row(2, 2)));
    }
}
