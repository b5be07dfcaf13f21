//! Rights as rules: parsing them gives the same rights.
//!
//! Commands are described as Redis does it: `+@all` or `-@all` first, then the categories that fit best, then single commands, each
//! applied to a second selector on the way, until both allow the same.

use command::{Categories, Specs};

use crate::{Selector, User};

impl User {
    /// The line of `ACL LIST` behind the user's name.
    pub fn rules(&self, specs: &Specs) -> Vec<u8> {
        let mut out = Vec::new();
        for flag in self.flags() {
            out.extend_from_slice(flag.as_bytes());
            out.push(b' ');
        }
        for hash in &self.passwords {
            out.push(b'#');
            out.extend_from_slice(hash.as_text().as_bytes());
            out.push(b' ');
        }
        self.root.write_rules(specs, &mut out);
        for selector in &self.selectors {
            out.extend_from_slice(b" (");
            selector.write_rules(specs, &mut out);
            out.push(b')');
        }
        out
    }

    /// `user <name> <rules>`
    pub fn line(&self, specs: &Specs) -> Vec<u8> {
        let mut line = b"user ".to_vec();
        line.extend_from_slice(&self.name);
        line.push(b' ');
        line.extend_from_slice(&self.rules(specs));
        line
    }
}

impl Selector {
    fn write_rules(&self, specs: &Specs, out: &mut Vec<u8>) {
        let keys = self.key_rules();
        if !keys.is_empty() {
            out.extend_from_slice(&keys);
            out.push(b' ');
        }
        if !self.has_all_channels {
            out.extend_from_slice(b"resetchannels ");
        }
        let channels = self.channel_rules();
        if !channels.is_empty() {
            out.extend_from_slice(&channels);
            out.push(b' ');
        }
        out.extend_from_slice(self.command_rules(specs).as_slice());
    }

    pub fn key_rules(&self) -> Vec<u8> {
        if self.has_all_keys {
            return b"~*".to_vec();
        }
        let mut out = Vec::new();
        for (nth, pattern) in self.keys.iter().enumerate() {
            if nth > 0 {
                out.push(b' ');
            }
            pattern.write(&mut out);
        }
        out
    }

    pub fn channel_rules(&self) -> Vec<u8> {
        if self.has_all_channels {
            return b"&*".to_vec();
        }
        let rules: Vec<Vec<u8>> = self
            .channels
            .iter()
            .map(|channel| [b"&".as_slice(), channel].concat())
            .collect();
        rules.join(&b' ')
    }

    pub fn command_rules(&self, specs: &Specs) -> Vec<u8> {
        let adds = !self.has_future_commands;
        let mut made = Selector::new(specs, false);
        let mut rules: Vec<Vec<u8>> = Vec::new();
        let first = if adds { b"-@all" } else { b"+@all" };
        rules.push(first.to_vec());
        let _ = made.apply(first, specs);
        // What no category has described yet.
        let mut left = self.clone();
        let mut applied = Categories::empty();
        while let Some((name, category)) = left.best_category(specs, applied, adds) {
            let sign = |adds: bool| if adds { "+@" } else { "-@" };
            let rule = format!("{}{name}", sign(adds)).into_bytes();
            let _ = made.apply(&rule, specs);
            let _ = left.apply(format!("{}{name}", sign(!adds)).as_bytes(), specs);
            rules.push(rule);
            applied |= category;
        }
        for (stat, spec) in specs.each_row().filter(|(_, spec)| !spec.is_internal()) {
            let is_allowed = self.commands.has(stat);
            if is_allowed != made.commands.has(stat) {
                let sign = if is_allowed { "+" } else { "-" };
                rules.push(format!("{sign}{}", spec.name).into_bytes());
                made.set_command(stat, is_allowed, specs);
            }
            if !is_allowed && let Some(words) = self.first_args.get(&stat) {
                for word in words {
                    let mut rule = format!("+{}|", spec.name).into_bytes();
                    rule.extend_from_slice(word);
                    rules.push(rule);
                }
            }
        }
        rules.join(&b' ')
    }

    /// The category with the fewest commands that would have to be put right, if it fits more than it does not.
    fn best_category(
        &self,
        specs: &Specs,
        applied: Categories,
        adds: bool,
    ) -> Option<(&'static str, Categories)> {
        let mut best = None;
        let (mut least, mut most) = (usize::MAX, 0);
        let left = Categories::ALL
            .iter()
            .filter(|(_, category)| !applied.contains(*category));
        for &(name, category) in left {
            let (mut on, mut off) = (0, 0);
            for (stat, spec) in specs.each_row().filter(|(_, spec)| !spec.is_internal()) {
                if spec.acl_categories().intersects(category) {
                    match self.commands.has(stat) {
                        true => on += 1,
                        false => off += 1,
                    }
                }
            }
            let (same, other) = if adds { (on, off) } else { (off, on) };
            if same > other && (other < least || other == least && same > most) {
                (best, least, most) = (Some((name, category)), other, same);
            }
        }
        best
    }
}
