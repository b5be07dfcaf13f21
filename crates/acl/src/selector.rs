//! A set of rights: commands, keys, channels. A user has one, and more in parentheses.

use std::collections::BTreeMap;

use base::glob;
use command::{Categories, Specs};

use crate::RuleError;
use crate::bits::Bits;
use crate::rule::has_blanks;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// By number in [`Specs`].
    pub(crate) commands: Bits,
    /// Commands that are not known yet are allowed too: it began with `+@all`.
    pub(crate) has_future_commands: bool,
    /// Nothing was taken away since `+@all`.
    pub(crate) has_all_commands: bool,
    /// First arguments with which a command is allowed that is not allowed else: `+select|0`.
    pub(crate) first_args: BTreeMap<usize, Vec<Vec<u8>>>,
    pub(crate) has_all_keys: bool,
    pub(crate) keys: Vec<KeyPattern>,
    pub(crate) has_all_channels: bool,
    pub(crate) channels: Vec<Vec<u8>>,
}

/// `%R~app:*`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPattern {
    pub pattern: Vec<u8>,
    pub reads: bool,
    pub writes: bool,
}

impl KeyPattern {
    /// As a rule.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(match (self.reads, self.writes) {
            (true, true) => b"~",
            (true, false) => b"%R~",
            (false, _) => b"%W~",
        });
        out.extend_from_slice(&self.pattern);
    }

    /// Whether it grants at least these rights.
    #[inline]
    pub(crate) fn grants(&self, reads: bool, writes: bool) -> bool {
        (self.reads || !reads) && (self.writes || !writes)
    }

    /// Whether it matches every key that begins with `prefix`. Only patterns of letters with one `*` at the end are
    /// looked at: for others the answer is no.
    pub(crate) fn covers(&self, prefix: &[u8]) -> bool {
        let Some((b'*', head)) = self.pattern.split_last() else {
            return false;
        };
        let is_plain = !head
            .iter()
            .any(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'));
        is_plain && prefix.starts_with(head)
    }
}

impl Selector {
    /// Without any right; `all_channels` is the setting `acl-pubsub-default`.
    pub fn new(specs: &Specs, all_channels: bool) -> Selector {
        Selector {
            commands: Bits::none(specs.stat_count()),
            has_future_commands: false,
            has_all_commands: false,
            first_args: BTreeMap::new(),
            has_all_keys: false,
            keys: Vec::new(),
            has_all_channels: all_channels,
            channels: Vec::new(),
        }
    }

    /// Whether it allows everything.
    pub fn allows_everything(&self) -> bool {
        self.has_all_commands && self.has_all_keys && self.has_all_channels
    }

    pub fn key_patterns(&self) -> &[KeyPattern] {
        &self.keys
    }

    pub fn channels(&self) -> &[Vec<u8>] {
        &self.channels
    }

    /// Applies one rule.
    pub fn apply(&mut self, rule: &[u8], specs: &Specs) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        if is("allkeys") || is("~*") {
            self.has_all_keys = true;
            self.keys.clear();
        } else if is("resetkeys") {
            self.has_all_keys = false;
            self.keys.clear();
        } else if is("allchannels") || is("&*") {
            self.has_all_channels = true;
            self.channels.clear();
        } else if is("resetchannels") {
            self.has_all_channels = false;
            self.channels.clear();
        } else if is("allcommands") || is("+@all") {
            self.set_all_commands(specs, true);
        } else if is("nocommands") || is("-@all") {
            self.set_all_commands(specs, false);
        } else {
            match rule {
                [b'~', pattern @ ..] => self.add_keys(pattern, true, true)?,
                [b'%', rest @ ..] => self.add_keys_of(rest)?,
                [b'&', pattern @ ..] => self.add_channels(pattern)?,
                [b'+', b'@', name @ ..] => self.set_category(name, true, specs)?,
                [b'-', b'@', name @ ..] => self.set_category(name, false, specs)?,
                [b'+', name @ ..] => self.allow(name, specs)?,
                [b'-', name @ ..] => {
                    let stat = specs.named(name).ok_or(RuleError::UnknownCommand)?;
                    self.set_command(stat, false, specs);
                }
                _ => return Err(RuleError::Syntax),
            }
        }
        Ok(())
    }

    fn set_all_commands(&mut self, specs: &Specs, is_allowed: bool) {
        (0..specs.stat_count()).for_each(|stat| self.commands.set(stat, is_allowed));
        self.has_future_commands = is_allowed;
        self.has_all_commands = is_allowed;
        self.first_args.clear();
    }

    /// A command, with its subcommands.
    pub(crate) fn set_command(&mut self, stat: usize, is_allowed: bool, specs: &Specs) {
        for stat in std::iter::once(stat).chain(specs.subcommands_of(stat)) {
            self.commands.set(stat, is_allowed);
            self.first_args.remove(&stat);
        }
        self.has_all_commands &= is_allowed;
    }

    pub(crate) fn set_category(
        &mut self,
        name: &[u8],
        is_allowed: bool,
        specs: &Specs,
    ) -> Result<(), RuleError> {
        let category = Categories::named(name).ok_or(RuleError::UnknownCommand)?;
        for (stat, spec) in specs.each_row() {
            if !spec.is_internal() && spec.acl_categories().intersects(category) {
                self.set_command(stat, is_allowed, specs);
            }
        }
        Ok(())
    }

    /// `+get`, `+config|get`, `+select|0`
    fn allow(&mut self, name: &[u8], specs: &Specs) -> Result<(), RuleError> {
        let Some(bar) = name.iter().rposition(|&byte| byte == b'|') else {
            let stat = specs.named(name).ok_or(RuleError::UnknownCommand)?;
            self.set_command(stat, true, specs);
            return Ok(());
        };
        let (command, word) = name.split_at(bar);
        let word = word.get(1..).unwrap_or_default();
        let stat = specs.named(command).ok_or(RuleError::UnknownCommand)?;
        if command.contains(&b'|') {
            return Err(RuleError::FirstArgOfSubcommand);
        }
        if word.is_empty() || has_blanks(word) {
            return Err(RuleError::Syntax);
        }
        if !specs.subcommands_of(stat).is_empty() {
            let stat = specs.named(name).ok_or(RuleError::UnknownCommand)?;
            self.set_command(stat, true, specs);
            return Ok(());
        }
        let known = self.first_args.entry(stat).or_default();
        if !known.iter().any(|it| it.eq_ignore_ascii_case(word)) {
            known.push(word.to_vec());
        }
        Ok(())
    }

    /// Behind `%`: `R~pattern`, `W~pattern`, `RW~pattern`.
    fn add_keys_of(&mut self, rest: &[u8]) -> Result<(), RuleError> {
        if self.has_all_keys {
            return Err(RuleError::PatternAfterAllKeys);
        }
        let end = rest.iter().position(|&byte| byte == b'~');
        // Without a `~` Redis takes letters only: what follows them is the empty pattern.
        let (letters, pattern) = match end {
            Some(end) => (&rest[..end], &rest[end + 1..]),
            None => (rest, &[][..]),
        };
        let (reads, writes) = match letters.to_ascii_uppercase().as_slice() {
            b"R" => (true, false),
            b"W" => (false, true),
            b"RW" | b"WR" => (true, true),
            _ => return Err(RuleError::Syntax),
        };
        self.add_keys(pattern, reads, writes)
    }

    fn add_keys(&mut self, pattern: &[u8], reads: bool, writes: bool) -> Result<(), RuleError> {
        if self.has_all_keys {
            return Err(RuleError::PatternAfterAllKeys);
        }
        if has_blanks(pattern) {
            return Err(RuleError::Syntax);
        }
        match self.keys.iter_mut().find(|it| it.pattern == pattern) {
            Some(known) => {
                known.reads |= reads;
                known.writes |= writes;
            }
            None => self.keys.push(KeyPattern {
                pattern: pattern.to_vec(),
                reads,
                writes,
            }),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.has_all_channels {
            return Err(RuleError::PatternAfterAllChannels);
        }
        if has_blanks(pattern) {
            return Err(RuleError::Syntax);
        }
        if !self.channels.iter().any(|known| known == pattern) {
            self.channels.push(pattern.to_vec());
        }
        Ok(())
    }

    /// Whether a key may be used so.
    pub(crate) fn may_use_key(&self, key: &[u8], reads: bool, writes: bool) -> bool {
        let grants = |it: &KeyPattern| it.grants(reads, writes) && glob::matches(&it.pattern, key);
        self.has_all_keys || self.keys.iter().any(grants)
    }

    /// Whether every key may be read.
    pub(crate) fn may_read_all(&self) -> bool {
        self.has_all_keys || self.keys.iter().any(|it| it.reads && it.pattern == b"*")
    }

    /// Whether every key that begins with `prefix` may be read.
    pub(crate) fn may_read_prefix(&self, prefix: &[u8]) -> bool {
        self.has_all_keys || self.keys.iter().any(|it| it.reads && it.covers(prefix))
    }
}
