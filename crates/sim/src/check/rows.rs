//! Linearizability of each row, its versions included.
//!
//! A call whose fate is unknown may have happened at any time since, or never; both are the same as happening after all
//! others, so it is left open to the end. Versions say so much that the search is short all the same.

use std::collections::BTreeMap;
use std::time::Duration;

use porcupine_rs::{CheckResult, Model, Operation};

use super::Broken;
use crate::history::{Fate, History};
use crate::row_calls::{RowAct, RowCall, RowSeen, RowState, judge};

const LONGEST: Duration = Duration::from_secs(10);
const NEVER: i64 = i64::MAX;

#[derive(Debug, Clone)]
struct Row;

#[derive(Debug, Clone)]
struct Step {
    act: RowAct,
    seen: Option<RowSeen>,
}

impl Model for Row {
    type State = RowState;
    type Op = Step;
    type Metadata = ();

    fn init() -> RowState {
        RowState::default()
    }

    fn step(state: &RowState, step: &Step) -> (bool, RowState) {
        let (should, next) = judge(state, &step.act);
        let fits = step.seen.as_ref().is_none_or(|seen| *seen == should);
        (fits, next)
    }
}

/// How many rows could not be decided in time; or the first that is wrong, and when it became so.
pub fn check(history: &History, begin: &BTreeMap<String, RowState>) -> Result<usize, Broken> {
    let mut rows: BTreeMap<&str, Vec<&RowCall>> = BTreeMap::new();
    for call in &history.rows {
        let is_void = call.fate == Fate::Refused || call.fate != Fate::Done && call.act.is_read();
        if !is_void {
            rows.entry(&call.key).or_default().push(call);
        }
    }
    let mut undecided = 0;
    for (key, calls) in rows {
        let begin = begin.get(key).cloned().unwrap_or_default();
        match decide(&begin, &calls, NEVER) {
            CheckResult::Ok => {}
            CheckResult::Unknown => undecided += 1,
            CheckResult::Illegal => return Err(explain(key, &begin, &calls)),
        }
    }
    Ok(undecided)
}

/// Of what was known at this moment.
fn decide(begin: &RowState, calls: &[&RowCall], moment: i64) -> CheckResult {
    let first: Operation<Row> = Operation {
        client_id: Some(u32::MAX),
        call_time: -2,
        return_time: -1,
        op: Step {
            act: RowAct::Begin(begin.clone()),
            seen: None,
        },
        metadata: None,
    };
    let so_far = calls.iter().filter(|call| call.called as i64 <= moment);
    let one = |call: &&RowCall| {
        let ended = call.ended.map_or(NEVER, |ended| ended as i64);
        let is_known = call.fate == Fate::Done && ended <= moment;
        Operation {
            client_id: Some(call.session),
            call_time: call.called as i64,
            return_time: if is_known { ended } else { NEVER },
            op: Step {
                act: call.act.clone(),
                seen: call.seen.clone().filter(|_| is_known),
            },
            metadata: None,
        }
    };
    let all: Vec<_> = std::iter::once(first).chain(so_far.map(one)).collect();
    porcupine_rs::check_operations_timeout(&all, LONGEST)
}

/// The shortest beginning that is already wrong.
fn explain(key: &str, begin: &RowState, calls: &[&RowCall]) -> Broken {
    let done = calls.iter().filter(|call| call.fate == Fate::Done);
    let mut moments: Vec<u64> = done.filter_map(|call| call.ended).collect();
    moments.sort_unstable();
    let is_wrong = |moment: u64| decide(begin, calls, moment as i64) == CheckResult::Illegal;
    let at = moments.partition_point(|&moment| !is_wrong(moment));
    let moment = moments.get(at).copied();
    let until = moment.unwrap_or(u64::MAX);
    let mut what = format!("{key}: no order of these calls explains the answers; the last ones:");
    let shown: Vec<_> = calls.iter().filter(|call| call.called <= until).collect();
    for call in &shown[shown.len().saturating_sub(16)..] {
        what.push_str(&format!(
            "\n    {:5}..{:5} {:?} session {} {:?} = {:?}",
            call.called,
            call.ended.unwrap_or(0),
            call.fate,
            call.session,
            call.act,
            call.seen
        ));
    }
    Broken {
        checker: "rows",
        what,
        moment,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(history: &mut History, act: RowAct, seen: RowSeen) {
        let call = history.call_row(1, "t:k", act);
        history.row_done(call, seen);
    }

    fn ok(version: i64, state: &RowState) -> RowSeen {
        RowSeen::Row {
            status: "ok",
            version,
            shown: state.row.clone(),
        }
    }

    /// A retry that was done twice shows in the version.
    #[test]
    fn one_change_too_many_is_found() {
        let incr = RowAct::Incr {
            column: crate::row_calls::Column::N,
            by: 1,
            expect: None,
        };
        let mut history = History::new();
        let (_, one) = judge(&RowState::default(), &incr);
        let (_, two) = judge(&one, &incr);
        done(&mut history, incr.clone(), ok(1, &one));
        let lost = history.call_row(2, "t:k", incr.clone());
        history.row_unknown(lost);
        done(&mut history, RowAct::Get, ok(2, &two));
        assert_eq!(check(&history, &BTreeMap::new()), Ok(0));
        let (_, three) = judge(&two, &incr);
        done(&mut history, RowAct::Get, ok(3, &three));
        let moment = history.rows[3].ended;
        let broken = check(&history, &BTreeMap::new()).unwrap_err();
        assert_eq!(broken.moment, moment, "{}", broken.what);
    }
}
