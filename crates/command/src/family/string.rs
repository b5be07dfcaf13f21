//! Strings.

use base::Refusal;
use keyspace::View;
use resp::{Args, Reply};

use crate::{Arity, Command, Flags, Group, Keys, Run};

pub const ROWS: &[Command] = &[Command {
    name: "get",
    arity: Arity::Exactly(2),
    keys: Keys::one(1),
    run: Run::Read(get),
    flags: Flags::READONLY.union(Flags::FAST),
    group: Group::String,
    summary: "Returns the string at a key.",
    ..Command::BASE
}];

fn get(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.atom_or_null(view.string(args.at(1))?);
    Ok(())
}
