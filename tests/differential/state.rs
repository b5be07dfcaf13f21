//! All data of a server, in one form for all engines.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::alike::{self, near, same, sorted};
use crate::field::{Field, Player};
use crate::transcript::wire::Value;
use crate::words::{Argv, DATABASES};

struct Entry {
    kind: Value,
    deadline_ms: i64,
    value: Value,
}

type State = BTreeMap<(String, Vec<u8>), Entry>;

/// Every player has what the first has.
pub fn compare(field: &mut Field) -> Result<(), String> {
    let (first, others) = field.0.split_first_mut().ok_or("nobody plays")?;
    let expected = read(first)?;
    for player in others {
        let got = read(player)?;
        for place in expected.keys().chain(got.keys()) {
            let same = match (expected.get(place), got.get(place)) {
                (Some(a), Some(b)) => {
                    near(a.deadline_ms, b.deadline_ms, 20_000)
                        && a.kind == b.kind
                        && same(&a.value, &b.value)
                }
                _ => false,
            };
            if !same {
                return Err(format!(
                    "state: db {} key {}\n{:8} {}\n{:8} {}",
                    place.0,
                    place.1.escape_ascii(),
                    first.name,
                    show(expected.get(place)),
                    player.name,
                    show(got.get(place)),
                ));
            }
        }
        sizes(player, &expected)?;
    }
    Ok(())
}

/// DBSIZE counts due keys until they are removed.
fn sizes(player: &mut Player, expected: &State) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(5);
    for db in DATABASES {
        let keys = expected.keys().filter(|place| place.0 == **db).count();
        loop {
            let got = player.ask(db, &[vec!["DBSIZE".to_owned()]])?;
            if got == [Value::Int(keys as i64)] {
                break;
            }
            if Instant::now() > deadline {
                let name = player.name;
                return Err(format!("{name}: DBSIZE of db {db}: {got:?}, not {keys}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

fn read(player: &mut Player) -> Result<State, String> {
    let mut state = State::new();
    for db in DATABASES {
        let replies = player.ask(db, &[argv(&["KEYS", "*"])])?;
        let Some(Value::Array(keys)) = replies.first() else {
            return Err(format!("{}: KEYS *: {replies:?}", player.name));
        };
        for key in keys {
            let Value::Bulk(key) = key else {
                return Err(format!("{}: KEYS *: {key:?}", player.name));
            };
            let name = String::from_utf8_lossy(key);
            let facts = [argv(&["TYPE", &name]), argv(&["PEXPIRETIME", &name])];
            let facts = player.ask(db, &facts)?;
            let [Value::Simple(kind), Value::Int(deadline_ms)] = &facts[..] else {
                return Err(format!("{}: TYPE {name}: {facts:?}", player.name));
            };
            let (get, together) = match kind.as_slice() {
                b"list" => (argv(&["LRANGE", &name, "0", "-1"]), None),
                b"set" => (argv(&["SMEMBERS", &name]), Some(1)),
                b"hash" => (argv(&["HGETALL", &name]), Some(2)),
                b"zset" => (argv(&["ZRANGE", &name, "0", "-1", "WITHSCORES"]), None),
                _ => (argv(&["GET", &name]), None),
            };
            let value = player.ask(db, &[get])?.remove(0);
            let entry = Entry {
                kind: Value::Simple(kind.clone()),
                deadline_ms: *deadline_ms,
                value: together.map_or_else(|| value.clone(), |n| sorted(&value, n)),
            };
            state.insert(((*db).to_owned(), key.clone()), entry);
        }
    }
    Ok(state)
}

fn show(entry: Option<&Entry>) -> String {
    let Some(entry) = entry else {
        return "nothing".to_owned();
    };
    let (kind, value) = (alike::show(&entry.kind), alike::show(&entry.value));
    format!("{kind} until {}: {value}", entry.deadline_ms)
}

pub fn argv(words: &[&str]) -> Argv {
    words.iter().map(|&word| word.to_owned()).collect()
}
