//! Rules and what they allow, on the commands of the `command` crate.

use acl::{DEFAULT, Denied, User, Users, file};
use command::Specs;
use proptest::prelude::*;
use resp::{Args, Span};

fn specs() -> Specs {
    Specs::new(command::family::ALL.iter().copied().flatten().copied())
}

fn user(specs: &Specs, rules: &str) -> User {
    let rules: Vec<&[u8]> = rules.split(' ').map(str::as_bytes).collect();
    let users = Users::new(specs, b"").set(b"u", rules, specs, false);
    User::clone(users.unwrap().named(b"u").unwrap())
}

fn refused(specs: &Specs, rules: &str) -> String {
    let rules: Vec<&[u8]> = rules.split(' ').map(str::as_bytes).collect();
    let users = Users::new(specs, b"").set(b"u", rules, specs, false);
    users.unwrap_err()
}

/// Whether the user may run the command.
fn check(specs: &Specs, user: &User, command: &str) -> Result<(), Denied> {
    let mut buffer = Vec::new();
    let mut spans = Vec::new();
    for word in command.split(' ') {
        spans.push(Span {
            start: buffer.len() as u32,
            len: word.len() as u32,
        });
        buffer.extend_from_slice(word.as_bytes());
    }
    let args = Args::new(&buffer, &spans);
    let (number, spec) = specs.table.resolve(&args).unwrap();
    user.check(specs.stat_number(number, spec), spec, &args)
}

#[test]
fn commands_and_categories() {
    let specs = specs();
    let u = user(&specs, "~* +@read -get +object|encoding");
    assert!(check(&specs, &u, "MGET a b").is_ok());
    assert_eq!(check(&specs, &u, "GET a"), Err(Denied::Command));
    assert_eq!(check(&specs, &u, "SET a b"), Err(Denied::Command));
    let u = user(&specs, "~* +@all -@write");
    assert!(check(&specs, &u, "GET a").is_ok());
    assert_eq!(check(&specs, &u, "SET a b"), Err(Denied::Command));
    let u = user(&specs, "~* +object|encoding");
    assert!(check(&specs, &u, "OBJECT ENCODING a").is_ok());
    assert_eq!(check(&specs, &u, "OBJECT FREQ a"), Err(Denied::Command));
    let u = user(&specs, "~* +get|a");
    assert!(check(&specs, &u, "GET A").is_ok());
    assert_eq!(check(&specs, &u, "GET b"), Err(Denied::Command));
}

#[test]
fn keys_and_selectors() {
    let specs = specs();
    let u = user(&specs, "+@all %R~r:* %W~w:* ~rw:*");
    assert!(check(&specs, &u, "GET r:1").is_ok());
    assert_eq!(check(&specs, &u, "GET w:1"), Err(Denied::Key(1)));
    assert!(check(&specs, &u, "SET w:1 x").is_ok());
    assert_eq!(check(&specs, &u, "SET w:1 x GET"), Err(Denied::Key(1)));
    assert!(check(&specs, &u, "COPY r:1 w:1").is_ok());
    assert_eq!(check(&specs, &u, "COPY w:1 r:1"), Err(Denied::Key(1)));
    assert_eq!(check(&specs, &u, "MGET r:1 rw:1 x"), Err(Denied::Key(3)));
    assert!(check(&specs, &u, "TYPE w:1").is_ok());
    let u = user(&specs, "-@all +get ~a* (+set ~b*) (+mget ~c*)");
    assert!(check(&specs, &u, "SET b x").is_ok());
    assert_eq!(check(&specs, &u, "SET a x"), Err(Denied::Key(1)));
    assert_eq!(check(&specs, &u, "GET b"), Err(Denied::Key(1)));
    assert_eq!(check(&specs, &u, "STRLEN a"), Err(Denied::Command));
    assert!(!u.may_do_everything());
    assert!(user(&specs, "+@all allkeys allchannels").may_do_everything());
    assert!(user(&specs, "(+@all allkeys allchannels)").may_do_everything());
    assert!(!user(&specs, "+@all allkeys allchannels -get").may_do_everything());
}

#[test]
fn refused_rules() {
    let specs = specs();
    for (rules, why) in [
        ("+nix", "Unknown command or category name in ACL"),
        ("-@nix", "Unknown command or category name in ACL"),
        ("+object|nix", "Unknown command or category name in ACL"),
        (
            "+object|freq|a",
            "Allowing first-arg of a subcommand is not supported",
        ),
        ("+get|", "Syntax error"),
        ("%X~a", "Syntax error"),
        ("%~a", "Syntax error"),
        ("%RR~a", "Syntax error"),
        ("nix", "Syntax error"),
        ("#abc", "The password hash must be exactly 64 characters"),
        ("<abc", "The password you are trying to remove"),
        (
            "~* ~a",
            "Adding a pattern after the * pattern (or the 'allkeys' flag)",
        ),
        (
            "&* &a",
            "Adding a pattern after the * pattern (or the 'allchannels' flag)",
        ),
    ] {
        let told = refused(&specs, rules);
        assert!(told.contains(why), "{rules}: {told}");
        assert!(
            told.starts_with("Error in ACL SETUSER modifier '"),
            "{told}"
        );
    }
    assert_eq!(
        refused(&specs, "on (+get ~a"),
        "Unmatched parenthesis in acl selector starting at '(+get'."
    );
}

#[test]
fn users_are_values() {
    let specs = specs();
    let none = Users::new(&specs, b"pw");
    assert!(!none.is_open() && none.has_default_password());
    assert!(none.named(DEFAULT).unwrap().accepts(b"pw"));
    let one = none
        .set(b"a", [b"on".as_slice(), b">x"], &specs, false)
        .unwrap();
    assert!(none.named(b"a").is_none());
    let a = one.named(b"a").unwrap();
    assert!(a.accepts(b"x") && !a.accepts(b"y") && !a.accepts(b""));
    let again = Users::decode(&one.encode(&specs), &specs, b"other").unwrap();
    assert!(
        again.named(DEFAULT).unwrap().accepts(b"other"),
        "it is not kept"
    );
    assert_eq!(again.named(b"a"), one.named(b"a"));
    let own = one.set(DEFAULT, [b">z".as_slice()], &specs, false).unwrap();
    let again = Users::decode(&own.encode(&specs), &specs, b"other").unwrap();
    assert!(again.named(DEFAULT).unwrap().accepts(b"z"));
    assert!(!again.named(DEFAULT).unwrap().accepts(b"other"));
    assert_eq!(again, own);
    let (gone, count) = own.delete([b"a".as_slice(), b"b"].into_iter()).unwrap();
    assert_eq!((count, gone.named(b"a").is_none()), (1, true));
    assert!(own.delete([DEFAULT].into_iter()).is_err());
    let back = gone.set(b"a", [], &specs, false).unwrap();
    assert_ne!(back.named(b"a").unwrap().since(), a.since());
    assert!(Users::decode(b"", &specs, b"").is_err());
    assert!(Users::decode(b"\x09x", &specs, b"").is_err());
}

#[test]
fn files() {
    let specs = specs();
    let text = b"user alice on nopass ~* +@all\n\n  user bob off (+get ~a) -@all \n";
    let users = file::read(text, "f", &specs, false).unwrap();
    assert_eq!(users.all().len(), 3, "the default user is always there");
    let again = file::read(&users.lines(&specs), "f", &specs, false).unwrap();
    assert_eq!(again, users);
    let text = b"user a +nix >x\nuser b >x %~\nnix\nuser a on";
    let told = file::read(text, "f", &specs, false).unwrap_err();
    assert_eq!(
        told,
        "f:1: Error in applying operation '+nix': Unknown command or category name in ACL. f:2: Syntax error. \
         f:3 should start with user keyword followed by the username. WARNING: Duplicate user 'a' found on line 4. \
         WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
    );
    let users = file::read_configured("a on ~*\nuser default off", &specs, false).unwrap();
    assert!(users.has_own_default() && users.named(b"a").is_some());
}

fn rule() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("on".to_owned()),
        Just("nopass".to_owned()),
        Just("allkeys".to_owned()),
        Just("resetkeys".to_owned()),
        Just("resetchannels".to_owned()),
        Just("+@all".to_owned()),
        Just("-@all".to_owned()),
        Just("(+@read ~a %R~b)".to_owned()),
        Just("+object|freq".to_owned()),
        Just("+get|x".to_owned()),
        "[+-]@(read|write|string|hash|slow|fast|keyspace|dangerous|blocking)",
        "[+-](get|set|hset|object|lpush|keys|zadd|del|sort)",
        "(~|%R~|%W~)[a-c]",
        "&[a-c]",
        ">[a-c]",
    ]
}

proptest! {
    /// What is shown, given again, makes the same user.
    #[test]
    fn rules_are_shown_as_they_are(rules in prop::collection::vec(rule(), 0..12)) {
        let specs = specs();
        let mut made = User::new(b"u", &specs, false);
        for rule in &rules {
            let _ = made.apply(rule.as_bytes(), &specs, false);
        }
        let shown = made.rules(&specs);
        let again = user(&specs, std::str::from_utf8(&shown).unwrap());
        prop_assert_eq!(again.rules(&specs), shown);
        for command in ["GET a", "GET x", "SET b x", "OBJECT FREQ a", "HGET c f", "KEYS *", "LPUSH a b"] {
            prop_assert_eq!(check(&specs, &again, command), check(&specs, &made, command), "{}", command);
        }
    }
}
