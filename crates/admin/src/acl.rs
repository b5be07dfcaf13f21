//! ACL: users and what they may do. The rules are in the crate `acl`, where they are kept is `runtime::users`.

use std::io::Read as _;

use acl::{Denied, Selector, User};
use base::Refusal;
use command::{Arity, Categories, CommandSpec, Flags, Secrets};
use resp::{Args, Reply};
use runtime::now_ms;
use runtime::users::{change_users, load_file, save_file};
use session::Later;
use session::Session;
use session::SessionCommand;
use session::SessionRun;

use super::specs::{self, ADMIN, ANYTIME, QUIET, SERVER, sub};

const SINCE: &str = "6.0.0";
/// Longest password of ACL GENPASS.
const BITS_MAX: i64 = 4096;

const fn spec(
    name: &'static str,
    syntax: &'static str,
    arity: Arity,
    flags: Flags,
    summary: &'static str,
) -> CommandSpec {
    sub(SERVER, name, syntax, arity, flags, SINCE, summary)
}

const SUBCOMMANDS: &[CommandSpec] = &[
    spec(
        "acl|cat",
        "[categoryname]",
        Arity::AtLeast(2),
        QUIET,
        "Lists the categories, or the commands of one.",
    ),
    spec(
        "acl|deluser",
        "username...",
        Arity::AtLeast(3),
        ADMIN,
        "Deletes users and ends their sessions.",
    ),
    CommandSpec {
        since: "7.0.0",
        ..spec(
            "acl|dryrun",
            "username command [arg...]",
            Arity::AtLeast(4),
            ADMIN,
            "Tells whether a user may run a command, without running it.",
        )
    },
    spec(
        "acl|genpass",
        "[bits:integer]",
        Arity::AtLeast(2),
        QUIET,
        "Makes a password that nobody can guess.",
    ),
    spec(
        "acl|getuser",
        "username",
        Arity::Exactly(3),
        ADMIN,
        "Shows the rules of a user.",
    ),
    spec(
        "acl|help",
        "",
        Arity::Exactly(2),
        ANYTIME,
        "Tells about the subcommands.",
    ),
    spec(
        "acl|list",
        "",
        Arity::Exactly(2),
        ADMIN,
        "Lists all users with their rules.",
    ),
    spec(
        "acl|load",
        "",
        Arity::Exactly(2),
        ADMIN,
        "Reads the users of the file that aclfile names.",
    ),
    spec(
        "acl|log",
        "[count|RESET]",
        Arity::AtLeast(2),
        ADMIN,
        "Lists what was denied to whom.",
    ),
    spec(
        "acl|save",
        "",
        Arity::Exactly(2),
        ADMIN,
        "Writes the users into the file that aclfile names.",
    ),
    CommandSpec {
        secrets: Secrets::BehindSubcommand,
        ..spec(
            "acl|setuser",
            "username [rule...]",
            Arity::AtLeast(3),
            ADMIN,
            "Makes a user, or changes one.",
        )
    },
    spec(
        "acl|users",
        "",
        Arity::Exactly(2),
        ADMIN,
        "Lists the names of all users.",
    ),
    spec(
        "acl|whoami",
        "",
        Arity::Exactly(2),
        QUIET,
        "Names the user of this session.",
    ),
];

pub const SPECS: &[SessionCommand] = &[SessionCommand {
    spec: specs::container(
        SERVER,
        "acl",
        SINCE,
        "Users and what they may do.",
        SUBCOMMANDS,
    ),
    run: SessionRun::Subcommands(&[
        ("acl|cat", SessionRun::Now(cat)),
        ("acl|deluser", SessionRun::Later(deluser)),
        ("acl|dryrun", SessionRun::Now(dryrun)),
        ("acl|genpass", SessionRun::Now(genpass)),
        ("acl|getuser", SessionRun::Now(getuser)),
        ("acl|help", SessionRun::Now(help)),
        ("acl|list", SessionRun::Now(list)),
        ("acl|load", SessionRun::Later(load)),
        ("acl|log", SessionRun::Now(log)),
        ("acl|save", SessionRun::Later(save)),
        ("acl|setuser", SessionRun::Later(setuser)),
        ("acl|users", SessionRun::Now(users)),
        ("acl|whoami", SessionRun::Now(whoami)),
    ]),
}];

/// An error in Redis' words.
fn error(text: impl std::fmt::Display) -> Refusal {
    Refusal::text_of(format!("ERR {text}"))
}

fn setuser<'a>(session: &'a mut Session, args: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let shared = session.shared().clone();
        let all_channels = shared.settings.current().acl_all_channels;
        change_users(&shared, |known| {
            let set = known.set(
                args.at(2),
                args.iter_from(3),
                &shared.commands,
                all_channels,
            );
            set.map_err(error)
        })
        .await?;
        reply.ok();
        Ok(())
    })
}

fn deluser<'a>(session: &'a mut Session, args: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let shared = session.shared().clone();
        let deleted = std::cell::Cell::new(0);
        let changed = change_users(&shared, |known| {
            let (next, count) = known.delete(args.iter_from(2)).map_err(error)?;
            deleted.set(count);
            match count {
                // Nothing is to be kept or told.
                0 => Err(Refusal::Syntax),
                _ => Ok(next),
            }
        });
        match changed.await {
            Err(Refusal::Syntax) => {}
            changed => changed?,
        }
        close_if_gone(session);
        reply.int(deleted.get() as i64);
        Ok(())
    })
}

/// A session that has deleted its own user hears so, and ends.
fn close_if_gone(session: &mut Session) {
    let user = session.user();
    let users = session.shared().users.load();
    let known = users.named(user.name());
    if known.is_none_or(|known| known.since() != user.since()) {
        session.close_after_reply = true;
    }
}

fn load<'a>(session: &'a mut Session, _: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let shared = session.shared().clone();
        load_file(&shared).await?;
        close_if_gone(session);
        reply.ok();
        Ok(())
    })
}

fn save<'a>(session: &'a mut Session, _: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let shared = session.shared().clone();
        save_file(&shared).await?;
        reply.ok();
        Ok(())
    })
}

fn getuser(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let shared = session.shared();
    let users = shared.users.load();
    let Some(user) = users.named(args.at(2)) else {
        reply.null();
        return Ok(());
    };
    reply.map(6);
    reply.bulk(b"flags");
    let flags: Vec<&str> = user.flags().collect();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(user.passwords().len());
    for hash in user.passwords() {
        reply.bulk(hash.as_text().as_bytes());
    }
    let describe = |selector: &Selector, reply: &mut Reply| {
        reply.bulk(b"commands");
        reply.bulk(&selector.command_rules(&shared.commands));
        reply.bulk(b"keys");
        reply.bulk(&selector.key_rules());
        reply.bulk(b"channels");
        reply.bulk(&selector.channel_rules());
    };
    describe(user.root(), reply);
    reply.bulk(b"selectors");
    reply.array(user.selectors().len());
    for selector in user.selectors() {
        reply.map(3);
        describe(selector, reply);
    }
    Ok(())
}

fn list(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let shared = session.shared();
    let users = shared.users.load();
    reply.array(users.all().len());
    for user in users.all() {
        reply.bulk(&user.line(&shared.commands));
    }
    Ok(())
}

fn users(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let users = session.shared().users.load();
    reply.array(users.all().len());
    users.all().for_each(|user| reply.bulk(user.name()));
    Ok(())
}

fn whoami(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.bulk(session.user().name());
    Ok(())
}

fn cat(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    match args.len() {
        2 => {
            reply.array(Categories::ALL.len());
            for (name, _) in Categories::ALL {
                reply.bulk(name.as_bytes());
            }
        }
        3 => {
            let category = Categories::named(args.at(2)).ok_or_else(|| {
                let name = args.at(2);
                let name = name.get(..128).unwrap_or(name);
                error(format!(
                    "Unknown category '{}'",
                    String::from_utf8_lossy(name)
                ))
            })?;
            let rows = session.shared().commands.each_row();
            let found: Vec<&str> = rows
                .filter(|(_, spec)| !spec.is_internal())
                .filter(|(_, spec)| spec.acl_categories().intersects(category))
                .map(|(_, spec)| spec.name)
                .collect();
            reply.array(found.len());
            found.iter().for_each(|name| reply.bulk(name.as_bytes()));
        }
        _ => return Err(unknown(args)),
    }
    Ok(())
}

/// As for a subcommand that does not exist.
fn unknown(args: &Args<'_>) -> Refusal {
    let word = String::from_utf8_lossy(args.at(1)).into_owned();
    error(format!(
        "unknown subcommand or wrong number of arguments for '{word}'. Try ACL HELP."
    ))
}

fn genpass(_: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let bits = match args.len() {
        2 => 256,
        3 => args.int(2)?,
        _ => return Err(unknown(args)),
    };
    if !(1..=BITS_MAX).contains(&bits) {
        return Err(error(format!(
            "ACL GENPASS argument must be the number of bits for the output password, a positive number up to {BITS_MAX}"
        )));
    }
    let digits = (bits as usize).div_ceil(4);
    let mut random = vec![0; digits];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut random))
        .map_err(|why| error(format!("the system gives no random numbers: {why}")))?;
    let password: String = random
        .iter()
        .filter_map(|byte| char::from_digit(u32::from(byte & 15), 16))
        .collect();
    reply.bulk(password.as_bytes());
    Ok(())
}

fn log(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let count = match args.len() {
        2 => 10,
        3 if args.is(2, "RESET") => {
            session.shared().acl_log.lock().clear();
            reply.ok();
            return Ok(());
        }
        3 => args.int(2)?.max(0) as usize,
        _ => return Err(unknown(args)),
    };
    let entries = session.shared().acl_log.lock();
    let now_ms = now_ms();
    reply.array(entries.len().min(count));
    for entry in entries.iter().take(count) {
        let context = if entry.in_multi { "multi" } else { "toplevel" };
        reply.map(7);
        reply.bulk(b"count");
        reply.int(entry.count as i64);
        for (name, value) in [
            ("reason", entry.reason.as_bytes()),
            ("context", context.as_bytes()),
            ("object", &entry.object),
            ("username", &entry.user),
        ] {
            reply.bulk(name.as_bytes());
            reply.bulk(value);
        }
        reply.bulk(b"age-seconds");
        reply.double(now_ms.saturating_sub(entry.at_ms) as f64 / 1000.0);
        reply.bulk(b"client-info");
        reply.bulk(entry.client.as_bytes());
    }
    Ok(())
}

fn dryrun(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let shared = session.shared();
    let users = shared.users.load();
    let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    let user: &User = users
        .named(args.at(2))
        .ok_or_else(|| error(format!("User '{}' not found", shown(args.at(2)))))?;
    let inner = args.skip(3);
    let table = &shared.commands.table;
    let (number, spec) = table.resolve(&inner).map_err(|refusal| {
        match refusal.text().starts_with("ERR wrong number") {
            true => refusal,
            false => error(format!("Command '{}' not found", shown(inner.at(0)))),
        }
    })?;
    let stat = shared.commands.stat_number(number, spec);
    let denied: Result<(), Denied> = user.check(stat, spec, &inner);
    match denied {
        Ok(()) => reply.ok(),
        Err(denied) => reply.bulk(&denied.in_words(spec, &inner)),
    }
    Ok(())
}

fn help(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    specs::help(
        reply,
        "ACL",
        &[
            "CAT [<category>]",
            "    List all commands that belong to <category>, or all command categories",
            "    when no category is specified.",
            "DELUSER <username> [<username> ...]",
            "    Delete a list of users.",
            "DRYRUN <username> <command> [<arg> ...]",
            "    Returns whether the user can execute the given command without executing the command.",
            "GETUSER <username>",
            "    Get the user's details.",
            "GENPASS [<bits>]",
            "    Generate a secure 256-bit user password. The optional `bits` argument can",
            "    be used to specify a different size.",
            "LIST",
            "    Show users details in config file format.",
            "LOAD",
            "    Reload users from the ACL file.",
            "LOG [<count> | RESET]",
            "    Show the ACL log entries.",
            "SAVE",
            "    Save the current config to the ACL file.",
            "SETUSER <username> <attribute> [<attribute> ...]",
            "    Create or modify a user with the specified attributes.",
            "USERS",
            "    List all the registered usernames.",
            "WHOAMI",
            "    Return the current connection username.",
        ],
    )
}
