//! `ROW.GET`, `ROW.MGET`, and the changes of one row.

use base::Refusal;
use keyspace::{Kicked, Txn, View};
use resp::{Args, Reply};
use table::entry::{Ask, Op};
use table::{Amount, Field, Kind, Outcome};

use super::options::{Options, Takes, Words};
use super::{answer, named};
use crate::{Arity, CommandSpec, Flags, Group, Keys, OnRow, RowGrowth, Run, Traits};

const ROW: CommandSpec = CommandSpec {
    group: Group::Row,
    keys: Keys::one(1),
    on_row: OnRow::Knows,
    since: "neokv",
    complexity: "O(N) for N fields",
    ..CommandSpec::BASE
};
const READ: Flags = Flags::READONLY.union(Flags::FAST);
const GROW: Flags = Flags::FAST.union(Flags::DENYOOM);

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "row.get",
        syntax: "key [VERSION have] [FIELDS <numfields field...>]",
        arity: Arity::AtLeast(2),
        run: Run::Read(get),
        flags: READ,
        summary: "Returns fields of a row and its version, or that it is unchanged.",
        ..ROW
    },
    CommandSpec {
        name: "row.mget",
        syntax: "numkeys key... [FIELDS <numfields field...>]",
        arity: Arity::AtLeast(3),
        keys: Keys::Counted { count_at: 1 },
        run: Run::Read(mget),
        flags: READ,
        complexity: "O(N) for N rows and their fields",
        summary: "Returns fields of several rows and their versions.",
        ..ROW
    },
    CommandSpec {
        name: "row.set",
        syntax: "key [VERSION version] [XX] [RETURN <ALL|NONE|numfields field...>] [REQUEST <client number>] [EPOCH epoch] FIELDS <numfields <field value>...>",
        arity: Arity::AtLeast(4),
        run: Run::Write(set),
        flags: GROW,
        summary: "Sets fields of a row; makes it if there is none.",
        row_growth: RowGrowth::By(super::sets::set),
        ..ROW
    },
    CommandSpec {
        name: "row.setnx",
        syntax: "key [VERSION version] [XX] [RETURN <ALL|NONE|numfields field...>] [REQUEST <client number>] [EPOCH epoch] FIELDS <numfields <field value>...>",
        arity: Arity::AtLeast(4),
        run: Run::Write(setnx),
        flags: GROW,
        summary: "Makes a row, unless there is one.",
        row_growth: RowGrowth::By(super::sets::set),
        ..ROW
    },
    CommandSpec {
        name: "row.cas",
        syntax: "key [VERSION version] [XX] [RETURN <ALL|NONE|numfields field...>] [REQUEST <client number>] [EPOCH epoch] WHEN <numfields <field value>...> FIELDS <numfields <field value>...>",
        arity: Arity::AtLeast(6),
        run: Run::Write(cas),
        flags: GROW,
        summary: "Sets fields of a row if others have the values given.",
        row_growth: RowGrowth::By(super::sets::cas),
        ..ROW
    },
    CommandSpec {
        name: "row.casnx",
        syntax: "key [VERSION version] [XX] [RETURN <ALL|NONE|numfields field...>] [REQUEST <client number>] [EPOCH epoch] WHEN <numfields <field value>...> FIELDS <numfields <field value>...>",
        arity: Arity::AtLeast(6),
        run: Run::Write(casnx),
        flags: GROW,
        summary: "As ROW.CAS; makes the row if there is none.",
        row_growth: RowGrowth::By(super::sets::cas),
        ..ROW
    },
    CommandSpec {
        name: "row.incrby",
        syntax: "key field amount [VERSION version] [XX] [RETURN <ALL|NONE|numfields field...>] [REQUEST <client number>] [EPOCH epoch]",
        arity: Arity::AtLeast(4),
        run: Run::Write(incrby),
        flags: GROW,
        complexity: "O(1)",
        summary: "Adds to a field of a row; makes the row if there is none.",
        row_growth: RowGrowth::By(super::sets::number),
        ..ROW
    },
    CommandSpec {
        name: "row.decrby",
        syntax: "key field amount [VERSION version] [XX] [RETURN <ALL|NONE|numfields field...>] [REQUEST <client number>] [EPOCH epoch]",
        arity: Arity::AtLeast(4),
        run: Run::Write(decrby),
        flags: GROW,
        complexity: "O(1)",
        summary: "Takes away from a field of a row; makes the row if there is none.",
        row_growth: RowGrowth::By(super::sets::number),
        ..ROW
    },
    CommandSpec {
        name: "row.del",
        syntax: "key [VERSION version] [XX] [RETURN <ALL|NONE|numfields field...>] [REQUEST <client number>] [EPOCH epoch]",
        arity: Arity::AtLeast(2),
        run: Run::Write(del),
        flags: Flags::FAST,
        complexity: "O(1)",
        summary: "Deletes a row; its version goes on if it is made again.",
        row_growth: RowGrowth::Never,
        ..ROW
    },
    CommandSpec {
        name: "row.kick",
        syntax: "key",
        arity: Arity::Exactly(2),
        run: Run::Write(kick),
        flags: Flags::FAST.union(Flags::NO_MULTI),
        complexity: "O(1)",
        summary: "Lets a row go from the cache if SQL has it.",
        traits: Traits::RELEASES_ROW,
        ..ROW
    },
];

const GET: Takes = Takes {
    fields: Words::Names,
    when: false,
    change: false,
    version: true,
};
const MGET: Takes = Takes {
    version: false,
    ..GET
};
pub(super) const SET: Takes = Takes {
    fields: Words::Pairs,
    when: false,
    change: true,
    version: true,
};
pub(super) const CAS: Takes = Takes { when: true, ..SET };
const PLAIN: Takes = Takes {
    fields: Words::None,
    ..SET
};

fn get(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let key = args.at(1);
    let row = named(view, key)?;
    let options = Options::parse(args, 2, GET)?;
    options.check_epoch(&row.table)?;
    let ask = options.asked(&row.table)?;
    let outcome = view.read_row(key, &row, &ask, options.have());
    answer(&row.table, outcome, reply)
}

fn mget(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let count = args.int(1)?;
    let behind = usize::try_from(count)
        .ok()
        .filter(|count| (1..=args.len() - 2).contains(count))
        .map(|count| count + 2)
        .ok_or(Refusal::new(
            "ERR ROW.MGET takes the number of keys, then the keys",
        ))?;
    let options = Options::parse(args, behind, MGET)?;
    reply.array(behind - 2);
    let mut result = Ok(());
    for key in args.iter_from(2).take(behind - 2) {
        let row = named(view, key)?;
        options.check_epoch(&row.table)?;
        let ask = options.asked(&row.table)?;
        let outcome = view.read_row(key, &row, &ask, None);
        // All are looked at, so that those that are not loaded yet are loaded together.
        result = result.and(answer(&row.table, outcome, reply));
    }
    result
}

fn set(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    merge(txn, args, reply, SET, |_, set| Op::Set(set))
}

fn setnx(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    merge(txn, args, reply, SET, |_, set| Op::SetNx(set))
}

fn cas(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    merge(txn, args, reply, CAS, |when, set| Op::Cas { when, set })
}

fn casnx(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    merge(txn, args, reply, CAS, |when, set| Op::CasNx { when, set })
}

type Fields = table::entry::Fields;

fn merge(
    txn: &mut Txn<'_>,
    args: &Args<'_>,
    reply: &mut Reply,
    takes: Takes,
    op: fn(Fields, Fields) -> Op,
) -> Result<(), Refusal> {
    let key = args.at(1);
    let row = named(txn, key)?;
    let options = Options::parse(args, 2, takes)?;
    options.check_epoch(&row.table)?;
    let op = op(options.when(&row.table)?, options.set(&row.table)?);
    let write = options.change(&row, op, Ask::Nothing)?;
    let outcome = txn.write_row(key, write);
    answer(&row.table, outcome, reply)
}

fn incrby(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    add(txn, args, reply, |amount| amount)
}

fn decrby(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    add(txn, args, reply, Amount::negated)
}

fn add(
    txn: &mut Txn<'_>,
    args: &Args<'_>,
    reply: &mut Reply,
    sign: fn(Amount) -> Amount,
) -> Result<(), Refusal> {
    let key = args.at(1);
    let row = named(txn, key)?;
    let options = Options::parse(args, 4, PLAIN)?;
    options.check_epoch(&row.table)?;
    let field = row.table.field_or_refuse(args.at(2))?;
    let op = Op::Incr {
        field: field.id,
        by: sign(amount(field, args.at(3))?),
    };
    let write = options.change(&row, op, Ask::Fields(vec![field.id]))?;
    let outcome = txn.write_row(key, write);
    answer(&row.table, outcome, reply)
}

/// What is added to a field, by the field's kind.
pub(super) fn amount(field: &Field, text: &[u8]) -> Result<Amount, Refusal> {
    match (Amount::parse_integer(text), field.kind) {
        (Ok(amount), _) => Ok(amount),
        (Err(_), Kind::Float64) => Amount::parse_float(text),
        (Err(refusal), _) => match Amount::parse_float(text) {
            // The value says what it takes.
            Ok(amount) => field.default.incr(&field.name, amount).and(Ok(amount)),
            Err(_) => Err(refusal),
        },
    }
}

fn del(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let key = args.at(1);
    let row = named(txn, key)?;
    let options = Options::parse(args, 2, PLAIN)?;
    options.check_epoch(&row.table)?;
    let write = options.change(&row, Op::Del, Ask::Nothing)?;
    let outcome = txn.write_row(key, write);
    answer(&row.table, outcome, reply)
}

fn kick(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let key = args.at(1);
    let row = named(txn, key)?;
    match txn.kick_row(key, &row) {
        Kicked::Gone | Kicked::NotCached => {
            reply.ok();
            Ok(())
        }
        Kicked::Dirty => Err(Refusal::new(
            "ERR the row is not in SQL yet, so it stays; ROW.WAITSQL waits until it is",
        )),
    }
}

/// Whether the row is there.
pub(super) fn is_present(outcome: Outcome) -> Result<bool, Refusal> {
    match outcome {
        Outcome::NotExist { .. } => Ok(false),
        Outcome::Retry(cause) => Err(super::unanswered(cause)),
        Outcome::Error(text) => Err(Refusal::text_of(text.into())),
        _ => Ok(true),
    }
}
