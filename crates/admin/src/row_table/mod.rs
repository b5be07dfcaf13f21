//! ROW.TABLE: which tables there are, changing that, and how their rows fare. ROW.INFO.
//!
//! About tables any node may be asked. About rows (STATUS, DRAIN, DEAD) each node knows the regions it leads: `neokv table` asks all.
//!
//! ```text
//!   CREATE, ADDFIELD      SQL first, then the catalogue: a column is there before anybody writes it
//!   DROPFIELD             the catalogue first, then SQL: nobody writes a column that is gone
//!   DROP                  closed, then SQL, then the catalogue: nobody has its name before it is gone
//!   … KEEPSQL             closed, drained, then the catalogue: SQL has all that was acknowledged
//! ```
//!
//! Every step may be done twice, so who was told of a failure in the middle simply asks again.

mod all_nodes;
mod change;
mod dead;
mod show;
mod status;

pub use status::section;

use command::{Arity, Categories, CommandSpec, Flags, Group};
use resp::{Args, Reply};

use base::Refusal;
use runtime::Shared;
use runtime::tables::catalogue::Catalogue;
use runtime::tables::catalogue_change::MEMORY_ENGINE;
use session::Session;
use session::SessionCommand;
use session::SessionRun;
use table::RowId;

use super::specs::{self, ANYTIME, SERVER, sub};

const CHANGES: Flags = Flags::ADMIN
    .union(Flags::NOSCRIPT)
    .union(Flags::NO_MULTI)
    .union(Flags::STALE);
const SHOWS: Flags = ANYTIME.union(Flags::NO_MULTI);
const SINCE: &str = "1.0.0";

/// A session command about tables.
const TABLES: CommandSpec = CommandSpec {
    group: Group::Row,
    categories: Some(Categories::TABLE),
    ..SERVER
};

const fn spec(
    name: &'static str,
    syntax: &'static str,
    arity: Arity,
    flags: Flags,
    summary: &'static str,
) -> CommandSpec {
    sub(TABLES, name, syntax, arity, flags, SINCE, summary)
}

const SUBCOMMANDS: &[CommandSpec] = &[
    spec(
        "row.table|create",
        "table FIELDS fields [BACKEND backend] [SQLNAME sqlname] [ADOPT]",
        Arity::AtLeast(5),
        CHANGES,
        "Declares a table over an SQL table, which is made unless one that fits is there.",
    ),
    spec(
        "row.table|list",
        "",
        Arity::Exactly(2),
        SHOWS,
        "Lists the tables.",
    ),
    spec(
        "row.table|show",
        "table",
        Arity::Exactly(3),
        SHOWS,
        "Describes a table.",
    ),
    spec(
        "row.table|addfield",
        "table field",
        Arity::Exactly(4),
        CHANGES,
        "Adds a field to a table, and its column in SQL.",
    ),
    spec(
        "row.table|dropfield",
        "table field [KEEPSQL]",
        Arity::AtLeast(4),
        CHANGES,
        "Drops a field of a table, and its column in SQL unless KEEPSQL is given.",
    ),
    spec(
        "row.table|drop",
        "table [KEEPSQL]",
        Arity::AtLeast(3),
        CHANGES,
        "Drops a table with its rows, in SQL too unless KEEPSQL is given.",
    ),
    spec(
        "row.table|open",
        "table",
        Arity::Exactly(3),
        CHANGES,
        "Lets a table take changes again, after a DROP or DROPFIELD with KEEPSQL that was cut off.",
    ),
    spec(
        "row.table|backends",
        "",
        Arity::Exactly(2),
        SHOWS,
        "Lists the SQL databases of this node, whether they answer, and what was asked of them.",
    ),
    spec(
        "row.table|status",
        "",
        Arity::Exactly(2),
        SHOWS,
        "Tells about the rows of the regions led here: cached, to be written back, since when.",
    ),
    spec(
        "row.table|drain",
        "[TABLE table] [TIMEOUT milliseconds]",
        Arity::AtLeast(2),
        SHOWS.union(Flags::BLOCKING),
        "Waits until SQL has everything that was written until now, of the regions led here.",
    ),
    spec(
        "row.table|dead",
        "<LIST [COUNT count]|RETRY key:string [OVER version]|DROP key:string>",
        Arity::AtLeast(3),
        CHANGES,
        "Lists the rows that SQL did not take, writes them again, or gives them up.",
    ),
    spec(
        "row.table|help",
        "",
        Arity::Exactly(2),
        ANYTIME,
        "Tells about the subcommands.",
    ),
];

pub const SPECS: &[SessionCommand] = &[
    SessionCommand {
        spec: specs::container(
            TABLES,
            "row.table",
            SINCE,
            "Tables over SQL: declares, changes and shows them.",
            SUBCOMMANDS,
        ),
        run: SessionRun::Subcommands(&[
            ("row.table|create", SessionRun::Later(change::create)),
            ("row.table|list", SessionRun::Later(show::list)),
            ("row.table|show", SessionRun::Later(show::show)),
            ("row.table|addfield", SessionRun::Later(change::add_field)),
            ("row.table|dropfield", SessionRun::Later(change::drop_field)),
            ("row.table|drop", SessionRun::Later(change::drop_table)),
            ("row.table|open", SessionRun::Later(change::open)),
            ("row.table|backends", SessionRun::Later(show::backends)),
            ("row.table|status", SessionRun::Later(status::status)),
            ("row.table|drain", SessionRun::Later(status::drain)),
            ("row.table|dead", SessionRun::Later(dead::dead)),
            ("row.table|help", SessionRun::Now(help)),
        ]),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "row.info",
            syntax: "[table]",
            arity: Arity::AtLeast(1),
            flags: SHOWS,
            since: SINCE,
            summary: "Tells about tables, as INFO tables, or about one of them.",
            ..TABLES
        },
        run: SessionRun::Later(status::info),
    },
];

/// Tables are for nodes whose log is on disk.
fn only_durable(shared: &Shared) -> Result<(), Refusal> {
    match shared.durable {
        Some(_) => Ok(()),
        None => Err(MEMORY_ENGINE),
    }
}

/// A row as clients name it.
fn key_of(catalogue: &Catalogue, id: &RowId) -> String {
    let table = catalogue.tables.get(&id.table);
    let name = table.map_or("(dropped)", |table| &table.name);
    format!("{name}:{}", id.key)
}

/// An argument that is to be text.
fn text<'a>(args: &Args<'a>, at: usize) -> Result<&'a str, Refusal> {
    let bytes = args.get(at).ok_or(Refusal::Syntax)?;
    std::str::from_utf8(bytes).map_err(|_| Refusal::new("ERR an argument is not valid utf-8"))
}

fn help(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    specs::help(
        reply,
        "ROW.TABLE",
        &[
            "CREATE <name> FIELDS <field:kind[=default],...> [BACKEND <name>] [SQLNAME <name>] [ADOPT]",
            "    Declares a table. Kinds: int64, uint64, float64, string, blob. Its rows are the keys",
            "    <name>:<key>. ADOPT: only over an SQL table that is there.",
            "LIST",
            "    Lists the tables.",
            "SHOW <name>",
            "    Describes a table.",
            "ADDFIELD <name> <field:kind[=default]>",
            "    Adds a field.",
            "DROPFIELD <name> <field> [KEEPSQL]",
            "    Drops a field and its column. KEEPSQL: as of DROP.",
            "DROP <name> [KEEPSQL]",
            "    Drops a table and its SQL table, with all rows. KEEPSQL: not in SQL, which has every",
            "    change before; the table takes no changes meanwhile.",
            "OPEN <name>",
            "    Lets a table take changes again, after a DROP KEEPSQL that was cut off.",
            "BACKENDS",
            "    Lists the SQL databases of this node.",
            "STATUS",
            "    Tells about the rows of the regions led here.",
            "DRAIN [TABLE <name>] [TIMEOUT <milliseconds>]",
            "    Waits until SQL has everything (of a table), of the regions led here.",
            "DEAD LIST [COUNT <n>]",
            "    Lists the rows that SQL did not take.",
            "DEAD RETRY <table:key> [OVER <version>]",
            "    Writes one again; after a conflict, over that version in SQL.",
            "DEAD DROP <table:key>",
            "    Gives up what SQL did not take: the row is what SQL has.",
        ],
    )
}
