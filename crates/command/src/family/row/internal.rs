//! `ROW.APPLY`: what the leader of a region has found out or decided about rows, for all replicas. It comes through the
//! log only.

use base::Refusal;
use keyspace::Txn;
use resp::{Args, Reply};
use table::Entry;

use crate::{Arity, CommandSpec, Group, OnRow, Run, Traits};

pub const SPECS: &[CommandSpec] = &[CommandSpec {
    name: "row.apply",
    arity: Arity::Exactly(2),
    run: Run::Write(apply),
    on_row: OnRow::Knows,
    traits: Traits::INTERNAL,
    group: Group::Row,
    since: "neokv",
    summary: "Applies an entry about rows.",
    ..CommandSpec::BASE
}];

fn apply(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    match Entry::decode(args.at(1)) {
        Ok(entry) => {
            txn.apply_table_entry(entry);
            reply.ok();
            Ok(())
        }
        Err(corrupt) => {
            let why = format!("an entry of the log about rows cannot be read: {corrupt}");
            txn.quarantine_tables(&why);
            Err(Refusal::text_of(format!("ERR {why}")))
        }
    }
}
