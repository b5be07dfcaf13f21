//! What a key may be: its state, what a command does to it, and which states are possible when some commands have
//! no reply.
//!
//! Every value is a number that is used once, and collections hold numbers in the order they were added. So a state
//! tells which commands made it: a write that is missing, there twice, out of order or back from the dead is seen.

use std::ops::Range;

/// What is stored under a key, all values being numbers.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum State {
    #[default]
    Missing,
    Number(i64),
    /// The members of a list, hash, set or sorted set in order, neighbours joined.
    Members(Vec<Range<u64>>),
}

/// What a command does to one key.
#[derive(Clone, Debug)]
pub enum Effect {
    Increment(i64),
    Write(i64),
    Add { from: u64, count: u64 },
    TakeFirst,
    Remove,
}

impl State {
    pub fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Increment(by) => {
                *self = State::Number(match self {
                    State::Number(n) => *n + by,
                    _ => *by,
                })
            }
            Effect::Write(n) => *self = State::Number(*n),
            Effect::Add { from, count } => {
                if !matches!(self, State::Members(_)) {
                    *self = State::Members(Vec::new());
                }
                if let State::Members(runs) = self {
                    add(runs, *from..*from + count);
                }
            }
            Effect::TakeFirst => {
                if let State::Members(runs) = self {
                    if let Some(first) = runs.first_mut() {
                        first.start += 1;
                    }
                    runs.retain(|run| !run.is_empty());
                    if runs.is_empty() {
                        *self = State::Missing;
                    }
                }
            }
            Effect::Remove => *self = State::Missing,
        }
    }

    /// From members as the server lists them.
    pub fn of_members(members: impl IntoIterator<Item = u64>) -> State {
        let mut runs = Vec::new();
        for n in members {
            add(&mut runs, n..n + 1);
        }
        match runs.is_empty() {
            true => State::Missing,
            false => State::Members(runs),
        }
    }

    /// How many members, or 1 for a number.
    pub fn len(&self) -> u64 {
        match self {
            State::Missing => 0,
            State::Number(_) => 1,
            State::Members(runs) => runs.iter().map(|run| run.end - run.start).sum(),
        }
    }

    pub fn first(&self) -> Option<u64> {
        match self {
            State::Members(runs) => runs.first().map(|run| run.start),
            _ => None,
        }
    }

    pub fn number(&self) -> i64 {
        match self {
            State::Number(n) => *n,
            _ => 0,
        }
    }
}

fn add(runs: &mut Vec<Range<u64>>, new: Range<u64>) {
    match runs.last_mut() {
        Some(last) if last.end == new.start => last.end = new.end,
        _ => runs.push(new),
    }
}

/// What a client knows about a command that it sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Acknowledged,
    /// An error came back, or nothing: it may have happened or not.
    Unknown,
}

/// A state that a key may have, and which commands without acknowledgement made it (bit n: the n-th of them that
/// touches this key).
pub struct Candidate {
    pub state: State,
    pub included: u64,
}

/// All states a key may have. `ordered`: commands without acknowledgement happened up to some point and not behind it,
/// as when the connection broke; otherwise each may have happened or not, as when errors came back. `commands`: what
/// each does to this key, all of it or nothing.
pub fn candidates<'a>(
    settled: &State,
    commands: impl Iterator<Item = (Vec<&'a Effect>, Outcome)>,
    ordered: bool,
) -> Vec<Candidate> {
    let first = Candidate {
        state: settled.clone(),
        included: 0,
    };
    let mut found = vec![first];
    let mut unknown = 0;
    for (effects, outcome) in commands {
        if outcome == Outcome::Acknowledged {
            for candidate in &mut found {
                effects
                    .iter()
                    .for_each(|effect| candidate.state.apply(effect));
            }
            continue;
        }
        let from = if ordered { found.len() - 1 } else { 0 };
        let more: Vec<Candidate> = found[from..]
            .iter()
            .map(|before| {
                let mut state = before.state.clone();
                effects.iter().for_each(|effect| state.apply(effect));
                let included = before.included | 1 << unknown;
                Candidate { state, included }
            })
            .collect();
        found.extend(more);
        unknown += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(ordered: bool) -> Vec<State> {
        let settled = State::of_members([0, 1]);
        let add = |from| Effect::Add { from, count: 1 };
        let effects = [add(2), add(3)];
        let commands = effects
            .iter()
            .map(|effect| (vec![effect], Outcome::Unknown));
        let all = candidates(&settled, commands, ordered);
        all.into_iter().map(|candidate| candidate.state).collect()
    }

    #[test]
    fn a_broken_connection_leaves_a_prefix() {
        let wanted = [vec![0, 1], vec![0, 1, 2], vec![0, 1, 2, 3]];
        assert_eq!(states(true), wanted.map(State::of_members));
    }

    #[test]
    fn errors_leave_any_of_them() {
        assert_eq!(states(false).len(), 4);
        assert!(states(false).contains(&State::of_members([0, 1, 3])));
    }

    #[test]
    fn order_and_repetition_count() {
        assert_ne!(State::of_members([0, 1, 2]), State::of_members([0, 2, 1]));
        assert_ne!(
            State::of_members([0, 1, 2]),
            State::of_members([0, 1, 2, 2])
        );
    }
}
