//! Rows among other keys, and commands that are not for rows.

use super::*;
use crate::{Arity, CommandSpec, Keys, OnRow, Run};

#[test]
fn rows_and_other_keys_in_one_command() {
    let mut bed = Bed::with(&["a", "b"]);
    bed.say("HSET users:a age 1");
    says!(bed,
        "SET plain 1" => "OK",
        "EXISTS users:a users:b plain nix users:a" => "3",
        "TOUCH users:a users:b plain" => "2",
        "DEL users:b plain users:a nix users:a" => "2",
        "EXISTS users:a plain" => "0",
        "HSET users:a age 1" => "1",
        "UNLINK users:a" => "1",
        "UNLINK users:a" => "0",
        "EXISTS users:" => "-ERR the key of a row is empty",
    );
}

#[test]
fn a_row_that_is_not_loaded_keeps_all() {
    let mut bed = Bed::with(&["a"]);
    bed.say("SET plain 1");
    bed.say("HSET users:a age 1");
    says!(bed,
        "DEL plain users:a users:x users:y" => "-TRYAGAIN the row is not loaded yet",
        "DEL plain users:a users:" => "-ERR the key of a row is empty",
        "EXISTS plain users:a" => "2",
    );
    let ids = ["x", "y"].map(|key| RowId::new(USERS, key));
    assert_eq!(bed.space.take_missing_rows(), ids, "loaded together");
}

#[test]
fn not_for_rows() {
    let mut bed = Bed::with(&["a"]);
    bed.say("HSET users:a age 1");
    bed.say("SADD plain 1");
    let rule = "rows take hash commands, DEL, EXISTS, TYPE and ROW.*, and do not expire";
    let refusal = format!("-WRONGTYPE users:a is a row of table 'users'; {rule}");
    for line in [
        "SET users:a 1",
        "GET users:a",
        "MSET plain 1 users:a 1",
        "EXPIRE users:a 10",
        "TTL users:a",
        "PERSIST users:a",
        "LPUSH users:a 1",
        "BLPOP plain users:a 1",
        "RENAME users:a plain",
        "RENAME plain users:a",
        "COPY plain users:a REPLACE",
        "COPY users:a plain",
        "MOVE users:a 1",
        "SORT plain STORE users:a",
        "SINTERSTORE users:a plain",
        "SUNIONSTORE plain plain users:a",
        "ZUNIONSTORE plain 1 users:a",
        "OBJECT ENCODING users:a",
        "HRANDFIELD users:a",
        "SSCAN users:a 0",
        "INCR users:a",
        "PFADD users:a 1",
    ] {
        let reply = bed.say(line);
        if !reply.starts_with("-ERR unknown command") {
            assert_eq!(reply, refusal, "{line}");
        }
    }
    says!(bed,
        "GET users:" => "-ERR the key of a row is empty",
        "SMEMBERS plain" => "[1]",
        "HGET users:a age" => "1",
        "ZUNIONSTORE plain x users:a" => "-ERR value is not an integer or out of range",
    );
    let shown = bed.say_bytes(&[b"SET", b"users:' OR 1=1 --\n", b"1"]);
    assert_eq!(
        shown,
        format!("-WRONGTYPE users:' OR 1=1 --\\n is a row of table 'users'; {rule}")
    );
}

#[test]
fn nothing_comes_to_a_rows_place_from_another_database() {
    let mut bed = Bed::with(&["a"]);
    bed.db = 1;
    bed.say("SET users:a 1");
    bed.say("SET plain 1");
    let rule = "rows take hash commands, DEL, EXISTS, TYPE and ROW.*, and do not expire";
    let refusal = format!("-WRONGTYPE users:a is a row of table 'users'; {rule}");
    says!(bed,
        "MOVE users:a 0" => refusal,
        "COPY plain users:a DB 0" => refusal,
        "MOVE plain 0" => "1",
        "GET users:a" => "1",
    );
}

/// A row whose function is given another argument as its key would not be met.
#[test]
fn what_runs_instead_looks_at_argument_one() {
    let each = |row: &CommandSpec| {
        let rows = std::iter::once(*row).chain(row.subcommands.iter().copied());
        rows.collect::<Vec<CommandSpec>>()
    };
    for command in Commands::pure().specs().iter().flat_map(each) {
        let is_first = command.keys == Keys::one(1);
        match (command.on_row, command.run) {
            (OnRow::Read(_), Run::Read(_)) | (OnRow::Write(_), Run::Write(_)) => {
                assert!(is_first, "{}", command.name)
            }
            (OnRow::Read(_) | OnRow::Write(_), _) => panic!("{}", command.name),
            (OnRow::Mixed(Run::Read(_)), run) => {
                assert!(matches!(run, Run::Read(_)), "{}", command.name)
            }
            (OnRow::Mixed(Run::Write(_)), run) => {
                assert!(matches!(run, Run::Write(_)), "{}", command.name)
            }
            (OnRow::Mixed(_), _) => panic!("{}", command.name),
            (OnRow::Refused | OnRow::Knows, _) => {}
        }
        if command.group == crate::Group::Row {
            assert!(matches!(command.on_row, OnRow::Knows), "{}", command.name);
        }
    }
}

/// Every command that knows nothing of rows refuses one as any of its keys, and does nothing.
#[test]
fn all_other_commands_refuse() {
    let mut refused = 0;
    let table = Commands::pure();
    for command in table.specs() {
        if !command.subcommands.is_empty() || !matches!(command.on_row, OnRow::Refused) {
            continue;
        }
        let len = match command.arity {
            Arity::Exactly(len) | Arity::AtLeast(len) => len.max(3),
        };
        let mut words = vec![command.name];
        words.resize(len, "1");
        match command.keys {
            Keys::Range { first, .. } => words[first] = "users:a",
            Keys::Counted { count_at } => words[count_at + 1] = "users:a",
            Keys::DestinationAndCounted { .. } | Keys::Sort { .. } => words[1] = "users:a",
            Keys::None | Keys::Everything | Keys::Cursor => continue,
        }
        if !command.arity.allows(words.len()) {
            words.truncate(2);
        }
        let mut bed = Bed::with(&["a"]);
        let reply = bed.say(&words.join(" "));
        assert!(
            reply.starts_with("-WRONGTYPE users:a is"),
            "{words:?}: {reply}"
        );
        assert_eq!(bed.say("DBSIZE"), "0");
        refused += 1;
    }
    assert!(refused > 100, "{refused}");
}
