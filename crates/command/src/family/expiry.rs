//! Deadlines: set, read, cleared. Whatever the unit a client speaks, a deadline is kept as a Unix
//! time in milliseconds.

use base::Refusal;
use keyspace::{Txn, View};
use resp::{Args, Reply};

use super::string::invalid_expire_time;
use crate::{Arity, CommandSpec, Flags, Group, KeyUse, KeyUses, Keys, Run};

const BASE: CommandSpec = CommandSpec {
    keys: Keys::one(1),
    group: Group::Generic,
    ..CommandSpec::BASE
};
const SET: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(3),
    flags: Flags::FAST,
    ..BASE
};
const READ: CommandSpec = CommandSpec {
    arity: Arity::Exactly(2),
    flags: Flags::READONLY.union(Flags::FAST),
    ..BASE
};

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "expire",
        syntax: "key seconds [NX|XX|GT|LT]",
        run: Run::Write(expire),
        summary: "Lets a key disappear after a number of seconds.",
        key_uses: KeyUses::All(KeyUse::Updates),
        ..SET
    },
    CommandSpec {
        name: "pexpire",
        syntax: "key milliseconds [NX|XX|GT|LT]",
        run: Run::Write(pexpire),
        since: "2.6.0",
        summary: "Lets a key disappear after a number of milliseconds.",
        key_uses: KeyUses::All(KeyUse::Updates),
        ..SET
    },
    CommandSpec {
        name: "expireat",
        syntax: "key unix-time-seconds [NX|XX|GT|LT]",
        run: Run::Write(expireat),
        since: "1.2.0",
        summary: "Lets a key disappear at a Unix time in seconds.",
        key_uses: KeyUses::All(KeyUse::Updates),
        ..SET
    },
    CommandSpec {
        name: "pexpireat",
        syntax: "key unix-time-milliseconds [NX|XX|GT|LT]",
        run: Run::Write(pexpireat),
        since: "2.6.0",
        summary: "Lets a key disappear at a Unix time in milliseconds.",
        key_uses: KeyUses::All(KeyUse::Updates),
        ..SET
    },
    CommandSpec {
        name: "persist",
        syntax: "key",
        arity: Arity::Exactly(2),
        run: Run::Write(persist),
        since: "2.2.0",
        summary: "Clears the deadline of a key.",
        key_uses: KeyUses::All(KeyUse::Updates),
        ..SET
    },
    CommandSpec {
        name: "ttl",
        syntax: "key",
        run: Run::Read(ttl),
        summary: "Returns the seconds a key has left.",
        tips: &["nondeterministic_output"],
        ..READ
    },
    CommandSpec {
        name: "pttl",
        syntax: "key",
        run: Run::Read(pttl),
        since: "2.6.0",
        summary: "Returns the milliseconds a key has left.",
        tips: &["nondeterministic_output"],
        ..READ
    },
    CommandSpec {
        name: "expiretime",
        syntax: "key",
        run: Run::Read(expiretime),
        since: "7.0.0",
        summary: "Returns the deadline of a key as a Unix time in seconds.",
        ..READ
    },
    CommandSpec {
        name: "pexpiretime",
        syntax: "key",
        run: Run::Read(pexpiretime),
        since: "7.0.0",
        summary: "Returns the deadline of a key as a Unix time in milliseconds.",
        ..READ
    },
];

fn expire(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let now = txn.now_ms() as i64;
    set_deadline(txn, args, reply, 1000, now, "expire")
}

fn pexpire(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let now = txn.now_ms() as i64;
    set_deadline(txn, args, reply, 1, now, "pexpire")
}

fn expireat(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    set_deadline(txn, args, reply, 1000, 0, "expireat")
}

fn pexpireat(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    set_deadline(txn, args, reply, 1, 0, "pexpireat")
}

/// On which condition a deadline is set.
#[derive(Default)]
struct Condition {
    only_without: bool,
    only_with: bool,
    only_later: bool,
    only_sooner: bool,
}

impl Condition {
    fn parse(args: &Args<'_>) -> Result<Condition, Refusal> {
        let mut condition = Condition::default();
        for word in args.iter_from(3) {
            let option = match word.to_ascii_uppercase().as_slice() {
                b"NX" => &mut condition.only_without,
                b"XX" => &mut condition.only_with,
                b"GT" => &mut condition.only_later,
                b"LT" => &mut condition.only_sooner,
                _ => {
                    return Err(Refusal::text_of(format!(
                        "ERR Unsupported option {}",
                        String::from_utf8_lossy(word)
                    )));
                }
            };
            *option = true;
        }
        let Condition {
            only_without,
            only_with,
            only_later,
            only_sooner,
        } = condition;
        if only_without && (only_with || only_later || only_sooner) {
            return Err(Refusal::new(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if only_later && only_sooner {
            return Err(Refusal::new(
                "ERR GT and LT options at the same time are not compatible",
            ));
        }
        Ok(condition)
    }

    /// No deadline counts as one infinitely far away.
    fn allows(&self, current: Option<u64>, wanted: i64) -> bool {
        let current = current.map(|at_ms| at_ms as i64);
        !(self.only_without && current.is_some()
            || self.only_with && current.is_none()
            || self.only_later && current.is_none_or(|current| wanted <= current)
            || self.only_sooner && current.is_some_and(|current| wanted >= current))
    }
}

fn set_deadline(
    txn: &mut Txn<'_>,
    args: &Args<'_>,
    reply: &mut Reply,
    unit_ms: i64,
    from_ms: i64,
    command: &str,
) -> Result<(), Refusal> {
    let condition = Condition::parse(args)?;
    let wanted = args
        .int(2)?
        .checked_mul(unit_ms)
        .and_then(|ms| ms.checked_add(from_ms))
        .ok_or_else(|| invalid_expire_time(command))?;
    let key = args.at(1);
    let set = match txn.expire_at(key) {
        Some(current) if condition.allows(current, wanted) => {
            // A deadline that has passed removes the key.
            txn.set_expire(key, Some(wanted.max(0) as u64))
        }
        _ => false,
    };
    reply.int_bool(set);
    Ok(())
}

fn persist(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let had_deadline = txn.expire_at(args.at(1)).flatten().is_some();
    if had_deadline {
        txn.set_expire(args.at(1), None);
    }
    reply.int_bool(had_deadline);
    Ok(())
}

/// −2 without the key, −1 without a deadline, else what `show` makes of the deadline.
fn show_deadline(
    view: &View<'_>,
    args: &Args<'_>,
    reply: &mut Reply,
    show: impl Fn(u64) -> u64,
) -> Result<(), Refusal> {
    let deadline = view.expire_at(args.at(1));
    view.count_read(args.at(1), deadline.is_some());
    reply.int(match deadline {
        None => -2,
        Some(None) => -1,
        Some(Some(at_ms)) => show(at_ms) as i64,
    });
    Ok(())
}

fn rounded_seconds(ms: u64) -> u64 {
    ms.saturating_add(500) / 1000
}

fn ttl(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let now_ms = view.now_ms();
    show_deadline(view, args, reply, |at_ms| {
        rounded_seconds(at_ms.saturating_sub(now_ms))
    })
}

fn pttl(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let now_ms = view.now_ms();
    show_deadline(view, args, reply, |at_ms| at_ms.saturating_sub(now_ms))
}

fn expiretime(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    show_deadline(view, args, reply, rounded_seconds)
}

fn pexpiretime(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    show_deadline(view, args, reply, |at_ms| at_ms)
}
