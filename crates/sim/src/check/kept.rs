//! Nothing acknowledged is lost, nothing happens twice: read off the state at the end.
//!
//! Every token appended to a log key is unique. At the end, when all is healed, each token that was
//! acknowledged must be there, each that was refused must not, and none twice. A token and the
//! increment it came with are one entry of the log, so the counter beside such a key must be equal
//! to the number of its tokens that came with one.

use std::collections::{BTreeMap, BTreeSet};

use super::Broken;
use crate::history::{Action, Call, Fate, History};

fn broken(what: String) -> Result<(), Broken> {
    Err(Broken::new("kept", what))
}

/// `last` is what the keys hold at the end; a key that is not in it is not looked at.
pub fn check(history: &History, last: &BTreeMap<String, Option<String>>) -> Result<(), Broken> {
    let mut tokens: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (key, value) in last {
        let text = value.as_deref().unwrap_or_default();
        let found = tokens.entry(key).or_default();
        for token in text.split_inclusive(',') {
            if !found.insert(token) {
                return broken(format!("{key} has {token} twice: {text}"));
            }
        }
    }
    let mut counted: BTreeMap<&str, i64> = BTreeMap::new();
    for call in &history.calls {
        let Some((key, token)) = appended(call) else {
            continue;
        };
        let Some(found) = tokens.get(key) else {
            continue;
        };
        let is_there = found.contains(token);
        if call.fate == Fate::Done && !is_there {
            return broken(format!("{key}: {token} was acknowledged and is gone"));
        }
        if call.fate == Fate::Refused && is_there {
            return broken(format!("{key}: {token} was refused and is there"));
        }
        let counters = call.parts.iter().filter(|part| part.action == Action::Incr);
        for part in counters {
            *counted.entry(&part.key).or_default() += i64::from(is_there);
        }
    }
    for (key, expected) in counted {
        let Some(value) = last.get(key) else {
            continue;
        };
        let found = value.as_deref().map_or(Ok(0), str::parse::<i64>);
        if found != Ok(expected) {
            return broken(format!(
                "{key} is {value:?}, but it was raised {expected} times"
            ));
        }
    }
    Ok(())
}

fn appended(call: &Call) -> Option<(&str, &str)> {
    call.parts.iter().find_map(|part| match &part.action {
        Action::Append(token) => Some((part.key.as_str(), token.as_str())),
        _ => None,
    })
}
