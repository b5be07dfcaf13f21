//! The arguments of a command as its specification writes them, and as `COMMAND DOCS` gives them to clients.
//!
//! ```text
//!   key value [NX|XX] [EX seconds|PX milliseconds]      ZADD: key [CH] <score member>...
//!
//!   WORD            a word to be typed               word       an argument; `word:integer` gives its type
//!   WORD word       an argument behind its word      WORD <…>   several behind their word
//!   [ … ]           may be left out                  < … >      belong together
//!   a|b             one of these                     x...       once or more; `WORD x*`: each behind the word
//! ```
//!
//! The type of an argument goes by its name ([`kind_of`]): only the others are written down. The text is parsed whenever a
//! client asks; a test parses that of every specification.

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Key,
    String,
    Integer,
    Double,
    Pattern,
    UnixTime,
    PureToken,
    OneOf,
    Block,
}

impl Kind {
    /// As Redis calls it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Key => "key",
            Kind::String => "string",
            Kind::Integer => "integer",
            Kind::Double => "double",
            Kind::Pattern => "pattern",
            Kind::UnixTime => "unix-time",
            Kind::PureToken => "pure-token",
            Kind::OneOf => "oneof",
            Kind::Block => "block",
        }
    }

    fn of_name(name: &str) -> Option<Kind> {
        [Kind::Key, Kind::String, Kind::Integer, Kind::Double]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    pub name: String,
    pub kind: Kind,
    /// The word to be typed, or the word in front.
    pub token: Option<String>,
    pub optional: bool,
    pub multiple: bool,
    /// Each of several stands behind the word again.
    pub multiple_token: bool,
    /// Of `OneOf` and `Block`.
    pub arguments: Vec<Argument>,
}

/// The arguments of a specification's `syntax`; `None` if it is not in the notation.
pub fn parse(syntax: &str) -> Option<Vec<Argument>> {
    if syntax.is_empty() {
        return Some(Vec::new());
    }
    let mut parser = Parser { rest: syntax };
    let arguments = parser.sequence()?;
    parser.rest.is_empty().then_some(arguments)
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn eat(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Elements up to the end of the text, of the group or of the alternative.
    fn sequence(&mut self) -> Option<Vec<Argument>> {
        let mut all: Vec<Argument> = Vec::new();
        loop {
            all.push(self.element()?);
            if !self.eat(" ") {
                return Some(all);
            }
        }
    }

    fn element(&mut self) -> Option<Argument> {
        let is_word = !self.rest.starts_with(['[', '<']);
        let mut found = self.primary()?;
        if is_word && found.kind == Kind::PureToken && self.starts_with_argument() {
            self.eat(" ");
            let mut argument = self.primary()?;
            argument.token = found.token;
            found = argument;
        }
        let is_each = self.eat("*");
        found.multiple_token |= is_each;
        found.multiple |= is_each || self.eat("...");
        Some(found)
    }

    /// Whether what follows a word belongs to it: another word to be typed does not.
    fn starts_with_argument(&self) -> bool {
        let next = self.rest.strip_prefix(' ');
        next.is_some_and(|next| {
            let word = next.split(END).next().unwrap_or_default();
            next.starts_with('<') || !is_token(word)
        })
    }

    fn primary(&mut self) -> Option<Argument> {
        if self.eat("[") {
            let mut group = self.group()?;
            group.optional = true;
            return self.eat("]").then_some(group);
        }
        if self.eat("<") {
            let group = self.group()?;
            return self.eat(">").then_some(group);
        }
        let end = self.rest.find(END).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(end)?;
        let (word, rest) = match word.split_once("...") {
            Some((word, _)) => self.rest.split_at_checked(word.len())?,
            None => (word, rest),
        };
        self.rest = rest;
        (!word.is_empty()).then(|| leaf(word))
    }

    /// The inside of brackets.
    fn group(&mut self) -> Option<Argument> {
        let mut alternatives = vec![folded(self.sequence()?)];
        while self.eat("|") {
            alternatives.push(folded(self.sequence()?));
        }
        Some(match alternatives.len() {
            1 => alternatives.pop()?,
            _ => group(Kind::OneOf, "option".into(), alternatives),
        })
    }
}

/// Characters that end a word.
const END: [char; 7] = [' ', '[', ']', '<', '>', '|', '*'];

/// Words to be typed have no lower-case letters.
fn is_token(word: &str) -> bool {
    !word.contains(|it: char| it.is_ascii_lowercase())
}

fn leaf(word: &str) -> Argument {
    let typed = word.rsplit_once(':');
    let typed = typed.and_then(|(name, kind)| Some((name, Kind::of_name(kind)?)));
    let (name, kind, token) = match typed {
        _ if is_token(word) => (word, Kind::PureToken, Some(word.to_string())),
        Some((name, kind)) => (name, kind, None),
        None => (word, kind_of(word), None),
    };
    Argument {
        name: name.to_ascii_lowercase(),
        kind,
        token,
        optional: false,
        multiple: false,
        multiple_token: false,
        arguments: Vec::new(),
    }
}

fn group(kind: Kind, name: String, arguments: Vec<Argument>) -> Argument {
    Argument {
        kind,
        arguments,
        ..leaf(&name)
    }
}

/// Several arguments as one.
fn folded(mut sequence: Vec<Argument>) -> Argument {
    match (sequence.len(), sequence.pop()) {
        (1, Some(only)) => only,
        (_, last) => {
            sequence.extend(last);
            let names: Vec<&str> = sequence.iter().map(|it| &*it.name).collect();
            group(Kind::Block, names.join("_"), sequence)
        }
    }
}

/// The type of an argument of this name, unless it is written behind it.
fn kind_of(name: &str) -> Kind {
    match name {
        "key" | "key1" | "key2" | "newkey" | "source" | "src" | "destination" | "destkey"
        | "dst" => Kind::Key,
        "pattern" => Kind::Pattern,
        "score" | "timeout" => Kind::Double,
        "unix-time-seconds" | "unix-time-milliseconds" => Kind::UnixTime,
        "amount" | "bit" | "client-id" | "cluster_bus_port" | "config-epoch" | "count"
        | "cursor" | "db" | "decrement" | "destination-db" | "end" | "end-slot" | "epoch"
        | "have" | "increment" | "index" | "index1" | "index2" | "len" | "limit"
        | "milliseconds" | "num-matches" | "number" | "numfields" | "numkeys" | "numlocal"
        | "numreplicas" | "offset" | "port" | "protover" | "rank" | "seconds" | "slot"
        | "start" | "start-slot" | "stop" | "version" | "weight" => Kind::Integer,
        _ => Kind::String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line per argument, for comparison.
    fn shown(syntax: &str) -> Vec<String> {
        fn show(argument: &Argument, depth: usize, lines: &mut Vec<String>) {
            let flags: String = [
                (argument.optional, '?'),
                (argument.multiple, '+'),
                (argument.multiple_token, '*'),
            ]
            .iter()
            .filter_map(|(set, sign)| set.then_some(*sign))
            .collect();
            let token = argument.token.as_deref().unwrap_or("-");
            lines.push(format!(
                "{}{} {} {token} {flags}",
                " ".repeat(depth),
                argument.name,
                argument.kind.name(),
            ));
            argument
                .arguments
                .iter()
                .for_each(|it| show(it, depth + 1, lines));
        }
        let mut lines = Vec::new();
        let arguments = parse(syntax).expect("in the notation");
        arguments.iter().for_each(|it| show(it, 0, &mut lines));
        lines
    }

    #[test]
    fn words_tokens_and_types() {
        assert_eq!(
            shown("key ip:port start:string [NX|XX] [EX seconds|KEEPTTL] [COUNT count]"),
            [
                "key key - ",
                "ip:port string - ",
                "start string - ",
                "option oneof - ?",
                " nx pure-token NX ",
                " xx pure-token XX ",
                "option oneof - ?",
                " seconds integer EX ",
                " keepttl pure-token KEEPTTL ",
                "count integer COUNT ?",
            ]
        );
    }

    #[test]
    fn groups_and_repetition() {
        assert_eq!(
            shown(
                "[CH] <score member>... [LIMIT <offset count>] [GET pattern*] <host port|NO ONE> [a [b]]"
            ),
            [
                "ch pure-token CH ?",
                "score_member block - +",
                " score double - ",
                " member string - ",
                "offset_count block LIMIT ?",
                " offset integer - ",
                " count integer - ",
                "pattern pattern GET ?+*",
                "option oneof - ",
                " host_port block - ",
                "  host string - ",
                "  port integer - ",
                " no_one block - ",
                "  no pure-token NO ",
                "  one pure-token ONE ",
                "a_b block - ?",
                " a string - ",
                " b string - ?",
            ]
        );
    }

    #[test]
    fn what_is_not_in_the_notation() {
        for wrong in ["[key", "key]", "<a", "a  b", "a|b", " a", "[]", "a "] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn every_row_is_in_the_notation() {
        for row in crate::Table::pure().specs() {
            for row in std::iter::once(row).chain(row.subcommands) {
                assert!(parse(row.syntax).is_some(), "{}: {}", row.name, row.syntax);
            }
        }
    }
}
