//! Sets: distinct members under one key.
//!
//! `members.rs` one set and its members; `random.rs` SPOP and SRANDMEMBER; `algebra.rs` union,
//! intersection and difference.

mod algebra;
mod members;
mod random;

use crate::{Arity, CommandSpec, Flags, Group, KeyUse, KeyUses, Keys, Run, Traits};

const SET: CommandSpec = CommandSpec {
    group: Group::Set,
    keys: Keys::one(1),
    ..CommandSpec::BASE
};
const GROW: Flags = Flags::DENYOOM;
const READ: Flags = Flags::READONLY;
const READ_FAST: Flags = READ.union(Flags::FAST);
const INTERSECTION: &str =
    "O(N*M) where N is the size of the smallest set and M the number of sets.";
const ALL_ELEMENTS: &str = "O(N) where N is the number of members in all sets.";

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "sadd",
        syntax: "key member...",
        arity: Arity::AtLeast(3),
        run: Run::Write(members::sadd),
        flags: GROW.union(Flags::FAST),
        complexity: "O(N) where N is the number of members named.",
        summary: "Adds members to a set; returns how many are new.",
        key_uses: KeyUses::All(KeyUse::Inserts),
        ..SET
    },
    CommandSpec {
        name: "srem",
        syntax: "key member...",
        arity: Arity::AtLeast(3),
        run: Run::Write(members::srem),
        flags: Flags::FAST,
        complexity: "O(N) where N is the number of members named.",
        summary: "Removes members of a set; the last one takes the key with it.",
        key_uses: KeyUses::All(KeyUse::Deletes),
        ..SET
    },
    CommandSpec {
        name: "sismember",
        syntax: "key member",
        arity: Arity::Exactly(3),
        run: Run::Read(members::sismember),
        flags: READ_FAST,
        summary: "Tells whether a set has a member.",
        key_uses: KeyUses::All(KeyUse::Looks),
        ..SET
    },
    CommandSpec {
        name: "smismember",
        syntax: "key member...",
        arity: Arity::AtLeast(3),
        run: Run::Read(members::smismember),
        flags: READ_FAST,
        since: "6.2.0",
        complexity: "O(N) where N is the number of members named.",
        summary: "Tells of several members whether a set has them.",
        ..SET
    },
    CommandSpec {
        name: "smembers",
        syntax: "key",
        arity: Arity::Exactly(2),
        run: Run::Read(members::smembers),
        flags: READ,
        complexity: "O(N) where N is the size of the set.",
        summary: "Returns all members of a set.",
        tips: &["nondeterministic_output_order"],
        ..SET
    },
    CommandSpec {
        name: "scard",
        syntax: "key",
        arity: Arity::Exactly(2),
        run: Run::Read(members::scard),
        flags: READ_FAST,
        summary: "Returns the number of members of a set.",
        key_uses: KeyUses::All(KeyUse::Looks),
        ..SET
    },
    CommandSpec {
        name: "smove",
        syntax: "source destination member",
        arity: Arity::Exactly(4),
        keys: Keys::Range {
            first: 1,
            last: 2,
            step: 1,
        },
        run: Run::Write(members::smove),
        flags: Flags::FAST,
        summary: "Moves a member from one set to another.",
        key_uses: KeyUses::FirstAndRest(KeyUse::Takes, KeyUse::Inserts),
        ..SET
    },
    CommandSpec {
        name: "spop",
        syntax: "key [count]",
        arity: Arity::AtLeast(2),
        run: Run::Write(random::spop),
        traits: Traits::BY_EFFECT,
        flags: Flags::FAST,
        complexity: "O(N) where N is the number of members taken.",
        summary: "Removes and returns members of a set at random.",
        key_uses: KeyUses::All(KeyUse::Takes),
        tips: &["nondeterministic_output"],
        ..SET
    },
    CommandSpec {
        name: "srandmember",
        syntax: "key [count]",
        arity: Arity::AtLeast(2),
        run: Run::Read(random::srandmember),
        flags: READ,
        complexity: "O(N) where N is the number of members returned.",
        summary: "Returns members of a set at random.",
        tips: &["nondeterministic_output"],
        ..SET
    },
    CommandSpec {
        name: "sinter",
        syntax: "key...",
        arity: Arity::AtLeast(2),
        keys: Keys::from(1),
        run: Run::Read(algebra::sinter),
        flags: READ,
        complexity: INTERSECTION,
        summary: "Returns the members that all sets have.",
        tips: &["nondeterministic_output_order"],
        ..SET
    },
    CommandSpec {
        name: "sinterstore",
        syntax: "destination key...",
        arity: Arity::AtLeast(3),
        keys: Keys::from(1),
        run: Run::Write(algebra::sinterstore),
        flags: GROW,
        complexity: INTERSECTION,
        summary: "Stores the members that all sets have.",
        key_uses: KeyUses::FirstAndRest(KeyUse::Updates, KeyUse::Reads),
        ..SET
    },
    CommandSpec {
        name: "sintercard",
        syntax: "numkeys key... [LIMIT limit]",
        arity: Arity::AtLeast(3),
        keys: Keys::Counted { count_at: 1 },
        run: Run::Read(algebra::sintercard),
        flags: READ.union(Flags::MOVABLEKEYS),
        since: "7.0.0",
        complexity: INTERSECTION,
        summary: "Returns how many members all sets have.",
        ..SET
    },
    CommandSpec {
        name: "sunion",
        syntax: "key...",
        arity: Arity::AtLeast(2),
        keys: Keys::from(1),
        run: Run::Read(algebra::sunion),
        flags: READ,
        complexity: ALL_ELEMENTS,
        summary: "Returns the members that any of the sets has.",
        tips: &["nondeterministic_output_order"],
        ..SET
    },
    CommandSpec {
        name: "sunionstore",
        syntax: "destination key...",
        arity: Arity::AtLeast(3),
        keys: Keys::from(1),
        run: Run::Write(algebra::sunionstore),
        flags: GROW,
        complexity: ALL_ELEMENTS,
        summary: "Stores the members that any of the sets has.",
        key_uses: KeyUses::FirstAndRest(KeyUse::Overwrites, KeyUse::Reads),
        ..SET
    },
    CommandSpec {
        name: "sdiff",
        syntax: "key...",
        arity: Arity::AtLeast(2),
        keys: Keys::from(1),
        run: Run::Read(algebra::sdiff),
        flags: READ,
        complexity: ALL_ELEMENTS,
        summary: "Returns the members of the first set that no other set has.",
        tips: &["nondeterministic_output_order"],
        ..SET
    },
    CommandSpec {
        name: "sdiffstore",
        syntax: "destination key...",
        arity: Arity::AtLeast(3),
        keys: Keys::from(1),
        run: Run::Write(algebra::sdiffstore),
        flags: GROW,
        complexity: ALL_ELEMENTS,
        summary: "Stores the members of the first set that no other set has.",
        key_uses: KeyUses::FirstAndRest(KeyUse::Overwrites, KeyUse::Reads),
        ..SET
    },
];
