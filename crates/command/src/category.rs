//! The ACL categories of commands: Redis' own, and ours for rows and tables of SQL.
//!
//! Most follow from a specification's flags and group; what does not is in its field `categories`. `ACL CAT`, `COMMAND INFO`
//! and the rules of users (`+@read`) all ask here.

use crate::{CommandSpec, Flags, Group, Run};

bitflags::bitflags! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Categories: u32 {
        const KEYSPACE = 1;
        const READ = 1 << 1;
        const WRITE = 1 << 2;
        const SET = 1 << 3;
        const SORTED_SET = 1 << 4;
        const LIST = 1 << 5;
        const HASH = 1 << 6;
        const STRING = 1 << 7;
        const BITMAP = 1 << 8;
        const HYPERLOGLOG = 1 << 9;
        const GEO = 1 << 10;
        const STREAM = 1 << 11;
        const PUBSUB = 1 << 12;
        const ADMIN = 1 << 13;
        const FAST = 1 << 14;
        const SLOW = 1 << 15;
        const BLOCKING = 1 << 16;
        const DANGEROUS = 1 << 17;
        const CONNECTION = 1 << 18;
        const TRANSACTION = 1 << 19;
        const SCRIPTING = 1 << 20;
        /// Rows of SQL tables.
        const ROW = 1 << 21;
        /// Which tables there are, and how they stand.
        const TABLE = 1 << 22;
    }
}

impl Categories {
    /// All of them with their names, in the order in which `ACL CAT` lists them.
    pub const ALL: &[(&str, Categories)] = &[
        ("keyspace", Categories::KEYSPACE),
        ("read", Categories::READ),
        ("write", Categories::WRITE),
        ("set", Categories::SET),
        ("sortedset", Categories::SORTED_SET),
        ("list", Categories::LIST),
        ("hash", Categories::HASH),
        ("string", Categories::STRING),
        ("bitmap", Categories::BITMAP),
        ("hyperloglog", Categories::HYPERLOGLOG),
        ("geo", Categories::GEO),
        ("stream", Categories::STREAM),
        ("pubsub", Categories::PUBSUB),
        ("admin", Categories::ADMIN),
        ("fast", Categories::FAST),
        ("slow", Categories::SLOW),
        ("blocking", Categories::BLOCKING),
        ("dangerous", Categories::DANGEROUS),
        ("connection", Categories::CONNECTION),
        ("transaction", Categories::TRANSACTION),
        ("scripting", Categories::SCRIPTING),
        ("row", Categories::ROW),
        ("table", Categories::TABLE),
    ];

    /// The category of this name, in any case.
    pub fn named(name: &[u8]) -> Option<Categories> {
        let is_it = |(known, _): &&(&str, Categories)| known.as_bytes().eq_ignore_ascii_case(name);
        let found = Categories::ALL.iter().find(is_it);
        found.map(|(_, category)| *category)
    }

    /// The names of those in this set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let all = Categories::ALL.iter();
        all.filter(move |(_, category)| self.contains(*category))
            .map(|(name, _)| *name)
    }
}

impl CommandSpec {
    /// Whether `COMMAND` calls it a write.
    pub fn is_listed_as_write(&self) -> bool {
        self.is_write() || self.flags.contains(Flags::LISTED_AS_WRITE)
    }

    /// The ACL categories it belongs to.
    pub fn acl_categories(&self) -> Categories {
        let has = |flag: Flags| self.flags.contains(flag);
        let is_admin = has(Flags::ADMIN) || has(Flags::ADMIN_CATEGORY);
        let mut all = self.categories.unwrap_or_else(|| self.group_category());
        for (category, is_in) in [
            (Categories::WRITE, self.is_listed_as_write()),
            (Categories::READ, has(Flags::READONLY)),
            (Categories::PUBSUB, has(Flags::PUBSUB)),
            (Categories::ADMIN, is_admin),
            (Categories::FAST, has(Flags::FAST)),
            (Categories::SLOW, !has(Flags::FAST)),
            (Categories::BLOCKING, has(Flags::BLOCKING)),
            (Categories::DANGEROUS, is_admin || has(Flags::DANGEROUS)),
        ] {
            all.set(category, all.contains(category) || is_in);
        }
        all
    }

    /// The category that says what it is about: mostly that of its group.
    fn group_category(&self) -> Categories {
        if matches!(self.run, Run::Container) {
            return Categories::empty();
        }
        match self.group {
            Group::Generic => Categories::KEYSPACE,
            Group::String => Categories::STRING,
            Group::Bitmap => Categories::BITMAP,
            Group::Hash => Categories::HASH,
            Group::List => Categories::LIST,
            Group::Set => Categories::SET,
            Group::SortedSet => Categories::SORTED_SET,
            Group::Row => Categories::ROW,
            Group::Transactions => Categories::TRANSACTION,
            Group::Connection => Categories::CONNECTION,
            Group::Scripting => Categories::SCRIPTING,
            Group::Cluster | Group::Server => Categories::empty(),
        }
    }
}
