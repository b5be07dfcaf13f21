//! `ROW.*`: every command, every status, every refusal.

use super::*;

#[test]
fn a_row_comes_changes_and_goes() {
    let mut bed = Bed::with(&["alice"]);
    says!(bed,
        "ROW.GET users:alice" => "[not_exist 0 []]",
        "ROW.SET users:alice FIELDS 2 name Al age 30" => "[ok 1 []]",
        "ROW.GET users:alice" => "[ok 1 [age 30 name Al coins 0 score 0 face ]]",
        "row.get users:alice fields 2 name age" => "[ok 1 [name Al age 30]]",
        "ROW.GET users:alice FIELDS 0" => "[ok 1 []]",
        "ROW.GET users:alice VERSION 1" => "[unchanged 1 []]",
        "ROW.GET users:alice FIELDS 1 age VERSION 9" => "[ok 1 [age 30]]",
        "ROW.SET users:alice RETURN ALL FIELDS 1 age 31" => "[ok 2 [age 31 name Al coins 0 score 0 face ]]",
        "ROW.DEL users:alice" => "[ok -3 []]",
        "ROW.GET users:alice" => "[not_exist -3 []]",
        "ROW.DEL users:alice" => "[not_exist -3 []]",
        "ROW.SET users:alice FIELDS 0" => "[ok 4 []]",
        "ROW.GET users:alice FIELDS 2 age name" => "[ok 4 [age 7 name ]]",
    );
}

#[test]
fn conditions() {
    let mut bed = Bed::with(&["a", "b", "c", "d", "e"]);
    says!(bed,
        // a version
        "ROW.SET users:a VERSION 0 FIELDS 1 age 1" => "[ok 1 []]",
        "ROW.SET users:a VERSION 0 RETURN 1 age FIELDS 1 age 2" => "[version_mismatch 1 [age 1]]",
        "ROW.SET users:a VERSION 1 FIELDS 1 age 2" => "[ok 2 []]",
        "ROW.DEL users:a VERSION 1 RETURN ALL" => "[version_mismatch 2 [age 2 name  coins 0 score 0 face ]]",
        "ROW.DEL users:a VERSION 2" => "[ok -3 []]",
        "ROW.SET users:a VERSION -3 FIELDS 1 age 3" => "[ok 4 []]",
        // there must be a row
        "ROW.SET users:b XX FIELDS 1 age 1" => "[not_exist 0 []]",
        "ROW.SET users:a XX RETURN 1 age FIELDS 1 age 4" => "[ok 5 [age 4]]",
        "ROW.INCRBY users:b age 1 XX" => "[not_exist 0 []]",
        // there must be none
        "ROW.SETNX users:b RETURN 1 age FIELDS 1 age 5" => "[ok 1 [age 5]]",
        "ROW.SETNX users:b RETURN 1 age FIELDS 1 age 6" => "[exist 1 [age 5]]",
        // others have values
        "ROW.CAS users:c WHEN 1 age 7 FIELDS 1 age 8" => "[not_exist 0 []]",
        "ROW.CASNX users:c WHEN 1 age 1 FIELDS 1 name C" => "[ok 1 []]",
        "ROW.CAS users:c WHEN 2 age 7 name C RETURN NONE FIELDS 1 age 8" => "[ok 2 []]",
        "ROW.CAS users:c RETURN 2 name age WHEN 2 age 7 name C FIELDS 1 age 9" => "[cas_not_equal 2 [name C age 8]]",
        "ROW.CASNX users:c WHEN 1 name X FIELDS 1 age 9" => "[cas_not_equal 2 []]",
        "ROW.CASNX users:c WHEN 1 name C FIELDS 1 age 9 RETURN 1 age" => "[ok 3 [age 9]]",
        "ROW.CAS users:c VERSION 2 WHEN 0 FIELDS 0" => "[version_mismatch 3 []]",
    );
}

#[test]
fn sums() {
    let mut bed = Bed::with(&["a", "b"]);
    says!(bed,
        "ROW.INCRBY users:a age 5" => "[ok 1 [age 12]]",
        "ROW.DECRBY users:a age -9223372036854775795 RETURN ALL" => "[ok 2 [age 9223372036854775807 name  coins 0 score 0 face ]]",
        "ROW.INCRBY users:a age 1" => "-ERR increment or decrement would overflow",
        "ROW.DECRBY users:a coins 1" => "-ERR increment or decrement would overflow",
        "ROW.INCRBY users:a coins 18446744073709551615 RETURN NONE" => "[ok 3 []]",
        "ROW.INCRBY users:a coins 1" => "-ERR increment or decrement would overflow",
        "ROW.DECRBY users:a coins 18446744073709551614" => "[ok 4 [coins 1]]",
        "ROW.INCRBY users:a score 0.5" => "[ok 5 [score 0.5]]",
        "ROW.DECRBY users:a score 2" => "[ok 6 [score -1.5]]",
        "ROW.INCRBY users:a score inf" => "-ERR value is not a valid float",
        "ROW.INCRBY users:a age 0.5" => "-ERR field 'age' is int64: takes integers only",
        "ROW.INCRBY users:a age x" => "-ERR value is not an integer or out of range",
        "ROW.INCRBY users:a name 1" => "-ERR field 'name' is string: not a number",
        "ROW.INCRBY users:a nix 1" => "-ERR table 'users' has no field 'nix'; it has age, name, coins, score, face",
        "ROW.INCRBY users:a age 1 VERSION 5" => "[version_mismatch 6 [age 9223372036854775807]]",
        "ROW.GET users:a FIELDS 0" => "[ok 6 []]",
        "ROW.INCRBY users:b name 1" => "-ERR field 'name' is string: not a number",
        "ROW.GET users:b" => "[not_exist 0 []]",
    );
}

#[test]
fn the_same_request_is_done_once() {
    let mut bed = Bed::with(&["a"]);
    let client = "00000000000000000000000000abcdef";
    let incr = format!("ROW.INCRBY users:a coins 5 REQUEST {client} 1");
    assert_eq!(bed.say(&incr), "[ok 1 [coins 5]]");
    assert_eq!(bed.say(&incr), "[ok 1 [coins 5]]");
    let set = format!("ROW.SETNX users:a REQUEST {client} 2 RETURN 1 coins FIELDS 1 coins 1");
    assert_eq!(bed.say(&set), "[exist 1 [coins 5]]");
    bed.say("ROW.DEL users:a");
    assert_eq!(bed.say(&set), "[exist 1 [coins 5]]");
    assert_eq!(bed.say("ROW.GET users:a"), "[not_exist -2 []]");
    for bad in [
        "ROW.DEL users:a REQUEST abc 1",
        "ROW.DEL users:a REQUEST +0000000000000000000000000abcdef 1",
        "ROW.DEL users:a REQUEST 0000000000000000000000000000000000 1",
    ] {
        let reply = bed.say(bad);
        assert!(reply.starts_with("-ERR REQUEST takes"), "{reply}");
    }
    says!(bed,
        &format!("ROW.DEL users:a REQUEST {client} x") => "-ERR value is not an integer or out of range",
        &format!("ROW.DEL users:a REQUEST {client}") => "-ERR syntax error",
    );
}

#[test]
fn a_newer_schema_than_the_region_has_is_waited_for() {
    let mut bed = Bed::with(&["a"]);
    let behind = "-TRYAGAIN the schema of the request is not known here yet";
    says!(bed,
        "ROW.SET users:a EPOCH 4 FIELDS 1 new 1" => behind,
        "ROW.GET users:a EPOCH 4 FIELDS 1 new" => behind,
        "ROW.MGET 1 users:a EPOCH 4" => "-TRYAGAIN the schema of the request is not known here yet",
        "ROW.DEL users:a EPOCH 4" => behind,
        "ROW.SET users:a EPOCH 3 FIELDS 1 age 1" => "[ok 1 []]",
        "ROW.SET users:a EPOCH 1 FIELDS 1 age 1" => "[ok 2 []]",
        "ROW.SET users:a EPOCH 0 FIELDS 1 age 1" => "[ok 3 []]",
    );
}

#[test]
fn several_rows() {
    let mut bed = Bed::with(&["a", "b"]);
    let id = RowId::new(2, "n:1");
    bed.apply(Entry::Loaded {
        term: 1,
        rows: vec![(id, Found::Missing)],
    });
    bed.say("ROW.SET users:b FIELDS 1 age 9");
    bed.say("ROW.SET notes:n:1 FIELDS 1 text hi");
    says!(bed,
        "ROW.MGET 2 users:a users:b FIELDS 1 age" => "[[not_exist 0 []] [ok 1 [age 9]]]",
        "ROW.MGET 2 notes:n:1 users:a" => "[[ok 1 [text hi]] [not_exist 0 []]]",
        "ROW.MGET 2 notes:n:1 users:b FIELDS 1 age" => "-ERR table 'notes' has no field 'age'; it has text",
        "ROW.MGET 3 users:a users:b" => "-ERR ROW.MGET takes the number of keys, then the keys",
        "ROW.MGET 0 users:a" => "-ERR ROW.MGET takes the number of keys, then the keys",
        "ROW.MGET -1 users:a" => "-ERR ROW.MGET takes the number of keys, then the keys",
        "ROW.MGET x users:a" => "-ERR value is not an integer or out of range",
        "ROW.MGET 1 users:a VERSION 1" => "-ERR syntax error: 'VERSION' is not expected here by ROW.MGET",
        "ROW.MGET 2 users:x users:y" => "-TRYAGAIN the row is not loaded yet",
    );
    let ids = ["x", "y"].map(|key| RowId::new(USERS, key));
    assert_eq!(bed.space.take_missing_rows(), ids, "loaded together");
}

#[test]
fn rows_leave_when_sql_has_them() {
    let mut bed = Bed::new();
    bed.load("a", 4, 40);
    says!(bed,
        "ROW.GET users:a FIELDS 1 age" => "[ok 4 [age 40]]",
        "ROW.SET users:a FIELDS 1 age 41" => "[ok 5 []]",
        "ROW.KICK users:a" => "-ERR the row is not in SQL yet, so it stays; ROW.WAITSQL waits until it is",
    );
    bed.flush("a", 5);
    says!(bed,
        "ROW.KICK users:a" => "OK",
        "ROW.GET users:a" => "-TRYAGAIN the row is not loaded yet",
        "ROW.SET users:a FIELDS 1 age 1" => "-TRYAGAIN the row is not loaded yet",
        "ROW.KICK users:a" => "OK",
        "ROW.KICK nix:a" => "-ERR no such table 'nix'; declare it with ROW.TABLE CREATE or neokv table create",
    );
}

#[test]
fn keys_that_name_no_row() {
    let mut bed = Bed::new();
    let no_table = "declare it with ROW.TABLE CREATE or neokv table create";
    for (key, refusal) in [
        ("nix:a", format!("-ERR no such table 'nix'; {no_table}")),
        (":a", format!("-ERR no such table ''; {no_table}")),
        ("Users:a", format!("-ERR no such table 'Users'; {no_table}")),
        (
            "users",
            "-ERR 'users' names no row: the key of a row is table:key".into(),
        ),
        ("users:", "-ERR the key of a row is empty".into()),
        (
            "users:a\0b",
            "-ERR the key of a row contains a NUL byte".into(),
        ),
    ] {
        for line in ["GET k", "SET k FIELDS 0", "DEL k", "KICK k", "MGET 1 k"] {
            let line = format!("ROW.{}", line.replace('k', key));
            assert_eq!(bed.say(&line), refusal, "{line:?}");
        }
    }
    let long = format!("users:{}", "k".repeat(256));
    says!(bed, &format!("ROW.GET {long}") => "-ERR the key of a row has 256 bytes; at most 255");
    assert_eq!(
        bed.say_bytes(&[b"ROW.GET", b"users:\xff"]),
        "-ERR the key of a row is not valid utf-8"
    );
    let reply = bed.say_bytes(&[b"ROW.GET", b"a\r\n-ERR b:c"]);
    assert!(
        reply.starts_with("-ERR no such table 'a\\r\\n-ERR b'"),
        "{reply}"
    );
    bed.db = 3;
    says!(bed, "ROW.GET users:a" => "-ERR rows are in database 0; this connection uses database 3 (SELECT 0)");
    let mut bed = Bed::bare();
    says!(bed, "ROW.GET users:a" => format!("-ERR no such table 'users'; {no_table}"));
}

#[test]
fn strange_keys_are_keys() {
    let longest = "k".repeat(255);
    let keys = ["' OR 1=1 --", "😀", "a:b", "\"; DROP TABLE users", &longest];
    let mut bed = Bed::with(&keys);
    for key in keys {
        let named = format!("users:{key}");
        let set = [
            b"ROW.SET",
            named.as_bytes(),
            b"FIELDS",
            b"1",
            b"name",
            key.as_bytes(),
        ];
        assert_eq!(bed.say_bytes(&set), "[ok 1 []]");
        let get = [b"HGET", named.as_bytes(), b"name"];
        assert_eq!(bed.say_bytes(&get), key);
    }
}

#[test]
fn values_that_do_not_fit() {
    let mut bed = Bed::with(&["a"]);
    let fields = "it has age, name, coins, score, face";
    says!(bed,
        "ROW.SET users:a FIELDS 2 age 1 nix 2" => format!("-ERR table 'users' has no field 'nix'; {fields}"),
        "ROW.GET users:a FIELDS 1 AGE" => format!("-ERR table 'users' has no field 'AGE'; {fields}"),
        "ROW.SET users:a RETURN 1 nix FIELDS 1 age 1" => format!("-ERR table 'users' has no field 'nix'; {fields}"),
        "ROW.CAS users:a WHEN 1 nix 1 FIELDS 1 age 1" => format!("-ERR table 'users' has no field 'nix'; {fields}"),
        "ROW.SET users:a FIELDS 2 name x age 1.5" => "-ERR field 'age' is int64: not a 64-bit integer",
        "ROW.SET users:a FIELDS 1 age 9223372036854775808" => "-ERR field 'age' is int64: not a 64-bit integer",
        "ROW.SET users:a FIELDS 1 coins -1" => "-ERR field 'coins' is uint64: not an unsigned 64-bit integer",
        "ROW.SET users:a FIELDS 1 score nan" => "-ERR field 'score' is float64: not a valid float",
        "ROW.SET users:a FIELDS 1 score inf" => "-ERR field 'score' is float64: must be finite",
        "ROW.SET users:a FIELDS 1 name a\0b" => "-ERR field 'name' is string: contains a NUL byte",
        "ROW.CAS users:a WHEN 1 age x FIELDS 0" => "-ERR field 'age' is int64: not a 64-bit integer",
    );
    let set = |field: &'static str, value| {
        [
            &b"ROW.SET"[..],
            b"users:a",
            b"FIELDS",
            b"1",
            field.as_bytes(),
            value,
        ]
    };
    assert_eq!(
        bed.say_bytes(&set("name", b"\xff")),
        "-ERR field 'name' is string: not valid utf-8"
    );
    let huge = vec![b'x'; 1024 * 1024];
    let reply = bed.say_bytes(&set("face", &huge));
    assert!(reply.starts_with("-ERR the row would have"), "{reply}");
    says!(bed, "ROW.GET users:a" => "[not_exist 0 []]");
    assert_eq!(bed.say_bytes(&set("face", b"\0\xff")), "[ok 1 []]");
    says!(bed, "HSTRLEN users:a face" => "2");
}

#[test]
fn words_that_do_not_fit() {
    let mut bed = Bed::with(&["a"]);
    says!(bed,
        "ROW.SET users:a age 1" => "-ERR syntax error: 'age' is not expected here by ROW.SET",
        "ROW.SET users:a VERSION 1" => "-ERR syntax error: ROW.SET needs FIELDS n field value ...",
        "ROW.SET users:a FIELDS 2 age 1" => "-ERR FIELDS 2: so many pairs do not follow",
        "ROW.SET users:a FIELDS 1 age" => "-ERR FIELDS 1: so many pairs do not follow",
        "ROW.SET users:a FIELDS -1 age 1" => "-ERR FIELDS -1: so many pairs do not follow",
        "ROW.SET users:a FIELDS 9223372036854775807 age 1" => "-ERR FIELDS 9223372036854775807: so many pairs do not follow",
        "ROW.SET users:a FIELDS 1 age 1 1" => "-ERR syntax error: '1' is not expected here by ROW.SET",
        "ROW.SET users:a FIELDS 1 age 1 FIELDS 0" => "-ERR syntax error: 'FIELDS' is not expected here by ROW.SET",
        "ROW.SET users:a WHEN 0 FIELDS 0" => "-ERR syntax error: 'WHEN' is not expected here by ROW.SET",
        "ROW.SET users:a XX VERSION 1 FIELDS 0" => "-ERR XX and VERSION exclude each other: a version says whether there is a row",
        "ROW.SET users:a RETURN 9 age FIELDS 0" => "-ERR RETURN 9: so many fields do not follow",
        "ROW.SET users:a RETURN 1 age" => "-ERR syntax error: ROW.SET needs FIELDS n field value ...",
        "ROW.SET users:a FIELDS 0 VERSION x" => "-ERR value is not an integer or out of range",
        "ROW.CAS users:a FIELDS 1 age 1" => "-ERR syntax error: ROW.CAS needs WHEN n field value ...",
        "ROW.GET users:a XX" => "-ERR syntax error: 'XX' is not expected here by ROW.GET",
        "ROW.GET users:a FIELDS" => "-ERR syntax error",
        "ROW.GET users:a FIELDS 2 age" => "-ERR FIELDS 2: so many fields do not follow",
        "ROW.GET users:a VERSION" => "-ERR syntax error",
        "ROW.DEL users:a FIELDS 0" => "-ERR syntax error: 'FIELDS' is not expected here by ROW.DEL",
        "ROW.INCRBY users:a age" => "-ERR wrong number of arguments for 'row.incrby' command",
        "ROW.KICK users:a now" => "-ERR wrong number of arguments for 'row.kick' command",
        "ROW.GET users:a" => "[not_exist 0 []]",
    );
}

#[test]
fn a_dry_run_changes_nothing() {
    let mut bed = Bed::with(&["a", "b"]);
    bed.say("HSET users:a age 1");
    bed.flush("a", 1);
    for line in [
        "ROW.SET users:a FIELDS 1 age 2",
        "ROW.DEL users:a",
        "ROW.KICK users:a",
        "HSET users:b age 2",
        "HINCRBY users:a age 2",
        "DEL users:a",
    ] {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        bed.run(&words, true);
        says!(bed,
            "ROW.GET users:a FIELDS 1 age" => "[ok 1 [age 1]]",
            "ROW.GET users:b" => "[not_exist 0 []]",
        );
    }
}

#[test]
fn clients_do_not_know_what_the_log_says() {
    let commands = Commands::pure();
    let buffer = b"ROW.APPLYx";
    let spans = [Span { start: 0, len: 9 }, Span { start: 9, len: 1 }];
    let args = Args::new(buffer, &spans);
    assert!(commands.resolve_logged(&args).is_ok());
    let refusal = commands.resolve(&args).err().unwrap();
    assert!(
        refusal
            .text()
            .starts_with("ERR unknown command 'ROW.APPLY'")
    );
    assert!(commands.listed().all(|row| row.name != "row.apply"));
    let mut bed = Bed::new();
    let reply = bed.say("ROW.APPLY x");
    let words = "-ERR an entry of the log about rows cannot be read";
    assert!(reply.starts_with(words), "{reply}");
    // Nobody knows what the rows are from here on; plain keys go on.
    let reply = bed.say("HGET users:alice age");
    assert!(reply.starts_with("-QUARANTINED"), "{reply}");
    assert_eq!(bed.say("SET plain 1"), "OK");
}
