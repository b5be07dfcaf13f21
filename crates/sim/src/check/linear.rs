//! Linearizability of each key: is there one order of all calls, true to their times, in which every
//! answer is right? The search is `porcupine-rs`; here is what a key is, and how calls without an
//! answer are taken.
//!
//! A call whose outcome is unknown may have happened. Values are unique, so most of the time
//! somebody has seen it, or its own company in the same call: then it happened before that reader
//! got its answer. If nobody ever saw it, an order without it is as good as one with it, and it is
//! left out. What remains open (a GETDEL) may happen at any time until the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use porcupine_rs::{CheckResult, Model, Operation};

use super::Broken;
use crate::history::{Action, Call, Fate, History, Seen, describe};

/// A search that takes longer than this is given up, and counted.
const LONGEST: Duration = Duration::from_secs(10);
const NEVER: u64 = i64::MAX as u64;

/// What a key may hold. A text is its length and a hash: states are compared and copied a lot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Value {
    Absent,
    Number(i64),
    Text { len: usize, hash: u64 },
}

impl Value {
    fn text(text: &str) -> Value {
        extend(0, 0xcbf2_9ce4_8422_2325, text)
    }
}

/// FNV-1a, which can be continued.
fn extend(len: usize, hash: u64, text: &str) -> Value {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    Value::Text {
        len: len + text.len(),
        hash: text.bytes().fold(hash, step),
    }
}

/// An operation on one key, prepared: what it does, what was seen.
#[derive(Debug, Clone)]
pub struct Step {
    kind: Kind,
    seen: Option<Value>,
}

#[derive(Debug, Clone)]
enum Kind {
    Get,
    Set(Value),
    Swap(Value),
    SetNew(Value),
    Append(Arc<str>),
    Incr,
    Take,
}

#[derive(Debug, Clone)]
struct Key;

impl Model for Key {
    type State = Value;
    type Op = Step;
    type Metadata = ();

    fn init() -> Value {
        Value::Absent
    }

    fn step(state: &Value, step: &Step) -> (bool, Value) {
        let fits = |value: &Value| step.seen.as_ref().is_none_or(|seen| seen == value);
        match &step.kind {
            Kind::Get => (fits(state), state.clone()),
            Kind::Set(value) => (true, value.clone()),
            Kind::Swap(value) => (fits(state), value.clone()),
            Kind::SetNew(value) => {
                let is_new = *state == Value::Absent;
                let next = if is_new { value } else { state };
                (fits(state), next.clone())
            }
            Kind::Append(token) => {
                let next = match state {
                    Value::Text { len, hash } => extend(*len, *hash, token),
                    _ => Value::text(token),
                };
                let len = match next {
                    Value::Text { len, .. } => len,
                    _ => 0,
                };
                (fits(&Value::Number(len as i64)), next)
            }
            Kind::Incr => {
                let next = match state {
                    Value::Number(number) => Value::Number(number + 1),
                    _ => Value::Number(1),
                };
                (fits(&next), next)
            }
            Kind::Take => (fits(state), Value::Absent),
        }
    }
}

fn prepare(action: &Action, seen: &Seen) -> Step {
    let kind = match action {
        Action::Get => Kind::Get,
        Action::Set(value) => Kind::Set(Value::text(value)),
        Action::Swap(value) => Kind::Swap(Value::text(value)),
        Action::SetNew(value) => Kind::SetNew(Value::text(value)),
        Action::Append(token) => Kind::Append(token.as_str().into()),
        Action::Incr => Kind::Incr,
        Action::Take => Kind::Take,
        // Sets and lists have a checker of their own.
        Action::Put(_) | Action::Pull | Action::All => Kind::Get,
    };
    let seen = match seen {
        Seen::Nothing => None,
        Seen::Text(None) => Some(Value::Absent),
        Seen::Text(Some(text)) => Some(Value::text(text)),
        Seen::Number(number) => Some(Value::Number(*number)),
        Seen::Many(_) => None,
    };
    Step { kind, seen }
}

/// By key: its operations with the numbers of their calls.
type Keys = BTreeMap<String, Vec<(usize, Operation<Key>)>>;

/// How many keys could not be decided in time; or the first that is wrong, and when it became so.
pub fn check(history: &History) -> Result<usize, Broken> {
    let mut undecided = 0;
    for (key, operations) in gather(history) {
        let all: Vec<_> = operations.iter().map(|(_, it)| it.clone()).collect();
        match porcupine_rs::check_operations_timeout(&all, LONGEST) {
            CheckResult::Ok => {}
            CheckResult::Unknown => undecided += 1,
            CheckResult::Illegal => return Err(explain(history, &key, &operations)),
        }
    }
    Ok(undecided)
}

fn gather(history: &History) -> Keys {
    let observed = observe(history);
    let mut keys = Keys::new();
    for (number, call) in history.calls.iter().enumerate() {
        let Some(ended) = end_of(call, &observed) else {
            continue;
        };
        let of_keys = call.parts.iter().filter(|part| !part.action.is_of_pool());
        for part in of_keys {
            let operation = Operation {
                client_id: Some(call.session),
                call_time: call.called as i64,
                return_time: ended as i64,
                op: prepare(&part.action, &part.seen),
                metadata: None,
            };
            let of_key = keys.entry(part.key.clone()).or_default();
            of_key.push((number, operation));
        }
    }
    keys
}

/// Key and value (or token): the earliest end of a call that saw it.
type Observed<'a> = BTreeMap<(&'a str, &'a str), u64>;

fn observe(history: &History) -> Observed<'_> {
    let mut observed = Observed::new();
    for call in &history.calls {
        let (Fate::Done, Some(ended)) = (call.fate, call.ended) else {
            continue;
        };
        for part in &call.parts {
            let Seen::Text(Some(text)) = &part.seen else {
                continue;
            };
            for token in text.split_inclusive(',') {
                let first = observed.entry((&part.key, token)).or_insert(ended);
                *first = ended.min(*first);
            }
        }
    }
    observed
}

/// By when a call has happened; `None` if it is to be left out.
fn end_of(call: &Call, observed: &Observed<'_>) -> Option<u64> {
    match call.fate {
        Fate::Done => return call.ended,
        Fate::Refused => return None,
        Fate::Open | Fate::Unknown => {}
    }
    let mut seen = None;
    let mut must_stay = false;
    for part in &call.parts {
        match &part.action {
            Action::Set(value)
            | Action::Swap(value)
            | Action::SetNew(value)
            | Action::Append(value) => {
                let first = observed.get(&(part.key.as_str(), value.as_str()));
                seen = seen.into_iter().chain(first.copied()).min();
            }
            Action::Take => must_stay = true,
            Action::Incr => must_stay |= call.parts.len() == 1,
            Action::Get | Action::Put(_) | Action::Pull | Action::All => {}
        }
    }
    seen.or(must_stay.then_some(NEVER))
}

/// The shortest beginning of the history that is already wrong: monotone, so by bisection.
fn explain(history: &History, key: &str, operations: &[(usize, Operation<Key>)]) -> Broken {
    let is_wrong_by = |moment: u64| {
        let so_far = operations.iter().filter_map(|(_, operation)| {
            if operation.call_time as u64 > moment {
                return None;
            }
            let mut operation = operation.clone();
            if operation.return_time as u64 > moment {
                operation.return_time = NEVER as i64;
                operation.op.seen = None;
            }
            Some(operation)
        });
        let so_far: Vec<_> = so_far.collect();
        porcupine_rs::check_operations_timeout(&so_far, LONGEST) == CheckResult::Illegal
    };
    let returns = operations.iter().map(|(_, it)| it.return_time as u64);
    let mut moments: Vec<u64> = returns.filter(|&it| it != NEVER).collect();
    moments.sort_unstable();
    let at = moments.partition_point(|&moment| !is_wrong_by(moment));
    let moment = moments.get(at).copied();
    let until = moment.unwrap_or(NEVER);
    let mut what = format!("{key}: no order of these calls explains the answers; the last ones:");
    let shown: Vec<_> = operations
        .iter()
        .filter_map(|(number, _)| history.calls.get(*number))
        .filter(|call| call.called <= until)
        .collect();
    for call in &shown[shown.len().saturating_sub(16)..] {
        what.push_str("\n    ");
        what.push_str(&describe(call));
    }
    Broken {
        checker: "linear",
        what,
        moment,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, action: Action) -> Vec<(String, Action)> {
        vec![(name.into(), action)]
    }

    fn read(text: &str) -> Vec<Seen> {
        vec![Seen::Text(Some(text.into()))]
    }

    #[test]
    fn a_stale_read_is_found_and_the_moment_named() {
        let mut history = History::new();
        for value in ["a", "b"] {
            let set = history.call(1, key("k", Action::Set(value.into())));
            history.done(set, vec![Seen::Nothing]);
        }
        let get = history.call(2, key("k", Action::Get));
        history.done(get, read("b"));
        assert_eq!(check(&history), Ok(0));
        let get = history.call(3, key("k", Action::Get));
        history.done(get, read("a"));
        let moment = history.calls[get].ended;
        let get = history.call(3, key("k", Action::Get));
        history.done(get, read("b"));
        let broken = check(&history).unwrap_err();
        assert_eq!(broken.moment, moment, "{}", broken.what);
    }

    #[test]
    fn what_nobody_answered_may_have_happened_or_not() {
        let mut history = History::new();
        let lost = history.call(1, key("k", Action::Append("a,".into())));
        let other = history.call(1, key("k", Action::Append("b,".into())));
        history.unknown(lost);
        history.unknown(other);
        let get = history.call(2, key("k", Action::Get));
        history.done(get, read("b,"));
        assert_eq!(check(&history), Ok(0));
        let get = history.call(2, key("k", Action::Get));
        history.done(get, read("b,a,"));
        assert_eq!(check(&history), Ok(0));
        let get = history.call(2, key("k", Action::Get));
        history.done(get, read("b,"));
        assert!(check(&history).is_err());
    }

    #[test]
    fn counters_conditions_and_lengths_are_checked() {
        let wrong = [
            (Action::Incr, Seen::Number(2)),
            (Action::Append("a,".into()), Seen::Number(3)),
            (Action::Take, Seen::Text(Some("w".into()))),
            (Action::SetNew("v".into()), Seen::Text(Some("w".into()))),
            (Action::Swap("v".into()), Seen::Text(Some("w".into()))),
        ];
        for (action, seen) in wrong {
            let mut history = History::new();
            let call = history.call(1, key("k", action));
            history.done(call, vec![seen]);
            assert!(check(&history).is_err());
        }
    }
}
