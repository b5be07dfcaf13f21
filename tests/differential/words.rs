//! Commands out of patterns: the words are drawn here, and now and then one is spoiled.

use crate::grammar::{FAMILIES, SESSIONS, WAITING};

pub type Argv = Vec<String>;

/// Numbers that look random, the same for the same seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        dice.below(2);
        dice
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn of<'a, T: ?Sized>(&mut self, list: &[&'a T]) -> &'a T {
        list[self.below(list.len())]
    }
}

/// Draws commands. `many` bounds how many elements a command may add at once: beyond 4096 the durable engine does not
/// load collections.
pub struct Words {
    pub dice: Dice,
    pub many: usize,
    /// Whether commands are spoiled now and then.
    pub spoils: bool,
}

const JUNK: &[&str] = &[
    "x",
    "-1",
    "nan",
    "",
    "1.5",
    "COUNT",
    "LIMIT",
    "WITHSCORES",
    "99999999999999999999",
    "1e400",
    "-9223372036854775808",
];

/// Kinds of keys that may be confused; X stays among itself.
const KINDS: &[&str] = &["S", "H", "L", "T", "Z"];
pub const DATABASES: &[&str] = &["0", "1", "2"];

/// Whether a word of a command is one of the keys: a kind and a digit.
pub fn is_key(word: &str) -> bool {
    matches!(
        word.as_bytes(),
        [b's' | b'h' | b'l' | b't' | b'z' | b'x', b'0'..=b'9']
    )
}

impl Words {
    /// A command of the pure table.
    pub fn command(&mut self) -> Argv {
        let family = self.dice.of(FAMILIES);
        let pattern = self.dice.of(family);
        self.fill(pattern)
    }

    /// A command of a server.
    pub fn any_command(&mut self) -> Argv {
        match self.dice.below(100) {
            0 => self.waiting(),
            1..12 => {
                let pattern = self.dice.of(SESSIONS);
                self.fill(pattern)
            }
            _ => self.command(),
        }
    }

    pub fn waiting(&mut self) -> Argv {
        let pattern = self.dice.of(WAITING);
        self.fill(pattern)
    }

    pub fn fill(&mut self, pattern: &str) -> Argv {
        let (pattern, spoil) = match pattern.strip_prefix('!') {
            Some(pattern) => (pattern, false),
            None => (pattern, self.spoils && self.dice.one_in(12)),
        };
        let mut argv = Argv::new();
        let (mut skipping, mut group) = (false, String::new());
        for part in pattern.split(' ') {
            if part.starts_with('[') {
                skipping = self.dice.one_in(2);
            }
            let ends = part.ends_with(']');
            if !skipping {
                // `{a b|c}`: blanks are allowed inside.
                group.push_str(part.trim_start_matches('[').trim_end_matches(']'));
                if group.matches('{').count() > group.matches('}').count() {
                    group.push(' ');
                    continue;
                }
                let words = std::mem::take(&mut group);
                self.push(&words, &mut argv);
            }
            if ends {
                skipping = false;
            }
        }
        if spoil {
            self.spoil(&mut argv);
        }
        argv
    }

    fn push(&mut self, word: &str, argv: &mut Argv) {
        if let Some(words) = word.strip_prefix('{').and_then(|w| w.strip_suffix('}')) {
            let words: Vec<&str> = words.split('|').collect();
            for word in self.dice.of(&words).split(' ') {
                self.push(word, argv);
            }
            return;
        }
        let count = 1 + self.dice.below(self.many);
        let from = self.dice.below(self.many);
        let numbered = (from..from + count).map(|n| format!("m{n}"));
        match word {
            "MANY" => argv.extend(numbered),
            "PAIRS" => argv.extend(numbered.flat_map(|name| [name.clone(), format!("v{name}")])),
            "SCORED" => argv.extend(numbered.flat_map(|name| {
                let score = (name.len() * 7919 + from) % 1000;
                [score.to_string(), name]
            })),
            "ALIKE" => argv.extend(numbered.flat_map(|name| ["0".to_owned(), name])),
            _ => argv.push(self.word(word)),
        }
    }

    fn word(&mut self, word: &str) -> String {
        let dice = &mut self.dice;
        let of = match word {
            "K" => return self.key(),
            // Mostly of the right type.
            "S" | "H" | "L" | "T" | "Z" if dice.one_in(12) => return self.key(),
            // X: sorted sets whose scores are equal; ranges by member mean nothing in others.
            "S" | "H" | "L" | "T" | "Z" | "X" => {
                return format!("{}{}", word.to_lowercase(), dice.below(3));
            }
            "E" | "F" if dice.one_in(3) => return format!("m{}", dice.below(2 * self.many)),
            "E" | "F" => &["a", "b", "c", "d", "ab", "abc", "1", "17", "-3", "", "zz"][..],
            "V" if dice.one_in(30) => return "long ".repeat(dice.below(60)),
            "V" => &[
                "a",
                "1",
                "-7",
                "3.25",
                "",
                "value",
                "\u{fffd}\n",
                "9223372036854775807",
            ][..],
            "I" if dice.one_in(4) => {
                return (dice.below(2 * self.many) as i64 - self.many as i64).to_string();
            }
            "I" => &["0", "1", "2", "3", "-1", "-2", "-3", "5", "-100", "100"][..],
            "N" if dice.one_in(8) => return dice.below(self.many).to_string(),
            "N" => &["0", "1", "2", "3", "10"][..],
            "OFFSET" => return dice.below(200).to_string(),
            "#OFFSET" => return format!("#{}", dice.below(12)),
            "WIDTH" => &["u1", "u8", "i8", "u16", "i5", "u63", "i64", "i32", "u64"][..],
            "NUMBER" => &["0", "1", "-1", "17", "255", "-300", "9223372036854775807"][..],
            "FLOAT" => &["0.1", "-1.5", "3", "1e3", "2.5e-2", "1000000"][..],
            "SCORE" => &[
                "0", "1", "2", "3", "-1", "1.5", "-0", "0.1", "3.3", "inf", "-inf", "1e17", "0x10",
            ][..],
            "BOUND" if dice.one_in(4) => return dice.below(1000).to_string(),
            "BOUND" => &[
                "-inf", "+inf", "0", "1", "(1", "2", "(2", "3", "(-inf", "1.5", "(",
            ][..],
            "BYTES" if dice.one_in(4) => return format!("[m{}", dice.below(2 * self.many)),
            "BYTES" => &["-", "+", "[a", "(a", "[b", "(c", "[zz", "[", "("][..],
            "DATABASE" => DATABASES,
            "LONG" => &["10000000", "20000000", "30000000"][..],
            "FAR" => &["2000000000000", "2100000000000", "2200000000000"][..],
            "PAST" => &["1", "1000000000000"][..],
            _ => return word.to_owned(),
        };
        dice.of(of).to_owned()
    }

    pub fn key(&mut self) -> String {
        let kind = self.dice.of(KINDS).to_lowercase();
        format!("{kind}{}", self.dice.below(3))
    }

    fn spoil(&mut self, argv: &mut Argv) {
        match self.dice.below(3) {
            0 if argv.len() > 1 => {
                argv.pop();
            }
            1 => argv.push(self.dice.of(JUNK).to_owned()),
            2 if argv.len() > 1 => {
                let at = 1 + self.dice.below(argv.len() - 1);
                argv[at] = self.dice.of(JUNK).to_owned();
            }
            _ => {}
        }
    }
}
