//! Sets and lists of tokens: each token is used once, so nothing may be taken twice, nothing may vanish, and
//! nobody may find nothing where something is.

use std::collections::{BTreeMap, BTreeSet};

use super::Broken;
use crate::history::{Action, Call, Fate, History, Seen, describe};

/// What was done to one set or list.
#[derive(Default)]
struct Pool<'a> {
    /// By token.
    puts: BTreeMap<&'a str, &'a Call>,
    pulled: BTreeMap<&'a str, &'a Call>,
    /// Found nothing.
    empty: Vec<&'a Call>,
    /// May have taken something that nobody saw.
    unknown: usize,
    /// What is there at the end, if somebody looked.
    last: Option<BTreeSet<&'a str>>,
}

fn broken(what: String, call: &Call) -> Broken {
    let what = format!("{what}: {}", describe(call));
    Broken::new("pools", what)
}

pub fn check(history: &History) -> Result<(), Broken> {
    for (key, pool) in gather(history)? {
        pool.check(key)?;
    }
    Ok(())
}

fn gather(history: &History) -> Result<BTreeMap<&str, Pool<'_>>, Broken> {
    let mut pools: BTreeMap<&str, Pool<'_>> = BTreeMap::new();
    for call in &history.calls {
        for part in &call.parts {
            if !part.action.is_of_pool() {
                continue;
            }
            let pool = pools.entry(&part.key).or_default();
            match (&part.action, call.fate, &part.seen) {
                (Action::Put(token), ..) => drop(pool.puts.insert(token, call)),
                (Action::Pull, Fate::Open | Fate::Unknown, _) => pool.unknown += 1,
                (Action::Pull, Fate::Done, Seen::Text(Some(token))) => {
                    let before = pool.pulled.insert(token, call);
                    if before.is_some() {
                        return Err(broken(format!("{token} was taken twice"), call));
                    }
                }
                (Action::Pull, Fate::Done, _) => pool.empty.push(call),
                (Action::All, Fate::Done, Seen::Many(all)) => {
                    pool.last = Some(all.iter().map(String::as_str).collect());
                }
                _ => {}
            }
        }
    }
    Ok(pools)
}

impl Pool<'_> {
    fn check(&self, key: &str) -> Result<(), Broken> {
        for (token, call) in &self.pulled {
            let put = self.puts.get(token);
            if put.is_none_or(|put| put.fate == Fate::Refused || Some(put.called) > call.ended) {
                let what = format!("{token} was taken, and never was in {key}");
                return Err(broken(what, call));
            }
        }
        let Some(last) = &self.last else {
            return Ok(());
        };
        let mut missing = Vec::new();
        for (token, put) in &self.puts {
            let is_there = last.contains(token);
            match (self.pulled.get(token), put.fate) {
                (Some(call), _) if is_there => {
                    let what = format!("{token} was taken, and is still in {key}");
                    return Err(broken(what, call));
                }
                (_, Fate::Refused) if is_there => {
                    let what = format!("{token} was refused, and is in {key}");
                    return Err(broken(what, put));
                }
                (None, Fate::Done) if !is_there => missing.push((token, put)),
                _ => {}
            }
        }
        if let Some((token, put)) = missing.get(self.unknown) {
            let what = format!(
                "{} tokens are gone from {key}, {token} among them, and {} calls may have taken one",
                missing.len(),
                self.unknown
            );
            return Err(broken(what, put));
        }
        self.empty
            .iter()
            .try_for_each(|call| self.check_empty(key, call, last))
    }

    /// Nobody finds nothing while a token is there all the time.
    fn check_empty(&self, key: &str, call: &Call, last: &BTreeSet<&str>) -> Result<(), Broken> {
        for (token, put) in &self.puts {
            let was_there = put.fate == Fate::Done && put.ended < Some(call.called);
            let stays = match self.pulled.get(token) {
                Some(taken) => Some(taken.called) > call.ended,
                None => last.contains(token),
            };
            if was_there && stays {
                let what = format!("{key} had {token} all the time, and nothing was found");
                return Err(broken(what, call));
            }
        }
        Ok(())
    }
}
