//! Hash commands on rows.

use super::*;

#[test]
fn a_row_is_a_hash_with_all_its_fields() {
    let mut bed = Bed::with(&["a"]);
    says!(bed,
        "HGET users:a age" => "nil",
        "HMGET users:a age name" => "[nil nil]",
        "HGETALL users:a" => "[]",
        "HLEN users:a" => "0",
        "HKEYS users:a" => "[]",
        "HVALS users:a" => "[]",
        "HEXISTS users:a age" => "0",
        "HSTRLEN users:a age" => "0",
        "HSCAN users:a 0" => "[0 []]",
        "TYPE users:a" => "none",
        "HSET users:a name Al age 30 name Bo" => "2",
        "HSET users:a name Cy coins 18446744073709551615" => "0",
        "ROW.GET users:a FIELDS 0" => "[ok 2 []]",
        "HGET users:a name" => "Cy",
        "HGET users:a coins" => "18446744073709551615",
        "HMGET users:a score age name" => "[0 30 Cy]",
        "HGETALL users:a" => "[age 30 name Cy coins 18446744073709551615 score 0 face ]",
        "HLEN users:a" => "5",
        "HKEYS users:a" => "[age name coins score face]",
        "HVALS users:a" => "[30 Cy 18446744073709551615 0 ]",
        "HEXISTS users:a face" => "1",
        "HEXISTS users:a nix" => "0",
        "HSTRLEN users:a name" => "2",
        "HSTRLEN users:a coins" => "20",
        "HSCAN users:a 0 COUNT 1 MATCH *a*e" => "[0 [age 30 name Cy face ]]",
        "HSCAN users:a 7" => "[0 []]",
        "TYPE users:a" => "hash",
        "HMSET users:a age 31" => "OK",
        "HGET users:a age" => "31",
        "DEL users:a" => "1",
        "HGETALL users:a" => "[]",
        "HSET users:a age 1" => "1",
        "ROW.GET users:a FIELDS 0" => "[ok 5 []]",
    );
}

#[test]
fn sums() {
    let mut bed = Bed::with(&["a"]);
    says!(bed,
        "HINCRBY users:a age 3" => "10",
        "HINCRBY users:a coins 9223372036854775807" => "9223372036854775807",
        "HINCRBY users:a coins 1" => "-ERR field 'coins' would be greater than HINCRBY can answer: use HINCRBYFLOAT or ROW.INCRBY",
        "HINCRBYFLOAT users:a coins 1" => "9223372036854775808",
        "HINCRBY users:a coins -9223372036854775808" => "0",
        "HINCRBY users:a coins -1" => "-ERR increment or decrement would overflow",
        "HINCRBY users:a age 9223372036854775807" => "-ERR increment or decrement would overflow",
        "HINCRBY users:a age x" => "-ERR value is not an integer or out of range",
        "HINCRBY users:a score 1" => "-ERR field 'score' is float64: use HINCRBYFLOAT",
        "HINCRBY users:a name 1" => "-ERR field 'name' is string: not a number",
        "HINCRBYFLOAT users:a score 1.5" => "1.5",
        "HINCRBYFLOAT users:a score 1e400" => "-ERR value is not a valid float",
        "HINCRBYFLOAT users:a age 2" => "12",
        "HINCRBYFLOAT users:a age 0.5" => "-ERR field 'age' is int64: takes integers only",
        "HINCRBYFLOAT users:a age x" => "-ERR value is not a valid float",
        "HINCRBYFLOAT users:a face 1.5" => "-ERR field 'face' is blob: not a number",
        "ROW.GET users:a FIELDS 0" => "[ok 6 []]",
    );
}

#[test]
fn refusals() {
    let mut bed = Bed::with(&["a"]);
    let no_field = "-ERR table 'users' has no field 'nix'; it has age, name, coins, score, face";
    says!(bed,
        "HGET users:a nix" => no_field,
        "HMGET users:a age nix" => no_field,
        "HSET users:a age 1 nix 2" => no_field,
        "HMSET users:a nix 2" => no_field,
        "HSTRLEN users:a nix" => no_field,
        "HINCRBY users:a nix 1" => no_field,
        "HINCRBYFLOAT users:a nix 1" => no_field,
        "HSET users:a age x" => "-ERR field 'age' is int64: not a 64-bit integer",
        "HSET users:a age 1 name" => "-ERR wrong number of arguments for 'hset' command",
        "HDEL users:a age" => "-WRONGTYPE users:a is a row of table 'users'; its fields cannot be removed: set them by HSET, or delete the row by DEL",
        "HSETNX users:a age 1" => "-WRONGTYPE users:a is a row of table 'users'; its fields always have values: use ROW.SETNX to make a row, ROW.CAS to compare first",
        "HSCAN users:a x" => "-ERR invalid cursor",
        "HGET users: age" => "-ERR the key of a row is empty",
        "HGET users:b age" => "-TRYAGAIN the row is not loaded yet",
        "HSET users:b age 1" => "-TRYAGAIN the row is not loaded yet",
        "TYPE users:b" => "-TRYAGAIN the row is not loaded yet",
        "ROW.GET users:a" => "[not_exist 0 []]",
    );
}

#[test]
fn other_keys_are_hashes_as_ever() {
    let mut bed = Bed::with(&["a"]);
    says!(bed,
        "HSET user:a age x" => "1",
        "HSET users age x" => "1",
        "HDEL users age" => "1",
        "HGETALL user:a" => "[age x]",
    );
    bed.db = 1;
    says!(bed,
        "HSET users:a nix x" => "1",
        "HGETALL users:a" => "[nix x]",
        "TYPE users:a" => "hash",
    );
}
