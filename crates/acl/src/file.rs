//! A file of users (`aclfile`, `ACL LOAD`): one line each, `user <name> <rules>`, as [`Users::lines`] writes it.

use std::sync::Arc;

use command::Specs;

use crate::rule::has_blanks;
use crate::user::merged;
use crate::{DEFAULT, RuleError, User, Users};

/// The users in a file's text; `name` is what errors call the file. All errors are told at once, in Redis' words.
pub fn read(text: &[u8], name: &str, specs: &Specs, all_channels: bool) -> Result<Users, String> {
    let mut users = Users::new(specs, b"");
    users.by_name.clear();
    let mut errors = String::new();
    for (nth, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        if let Err(error) = read_line(line, &mut users, specs, all_channels) {
            errors.push_str(&error.in_words(name, nth + 1));
        }
    }
    if !errors.is_empty() {
        errors.push_str(
            "WARNING: ACL errors detected, no change to the previously active ACL rules was performed",
        );
        return Err(errors);
    }
    users.has_own_default = true;
    let default = || Arc::new(User::default_user(specs));
    users
        .by_name
        .entry(DEFAULT.to_vec())
        .or_insert_with(default);
    Ok(users)
}

/// The users of a configuration: lines as in a file, the word `user` may be left out. One error is enough.
pub fn read_configured(text: &str, specs: &Specs, all_channels: bool) -> Result<Users, String> {
    let mut users = Users::new(specs, b"");
    users.by_name.clear();
    for line in text.lines().map(str::trim).filter(|it| !it.is_empty()) {
        let line = match line.split_once(' ') {
            Some(("user", _)) => line.to_owned(),
            _ => format!("user {line}"),
        };
        read_line(line.as_bytes(), &mut users, specs, all_channels)
            .map_err(|error| error.short())?;
    }
    users.has_own_default = users.by_name.contains_key(DEFAULT);
    Ok(users)
}

enum LineError {
    NoUser,
    BadName(String),
    Twice(String),
    Unmatched,
    /// Rule by rule.
    Rules(Vec<(String, RuleError)>),
}

impl LineError {
    fn in_words(&self, file: &str, line: usize) -> String {
        match self {
            LineError::NoUser => {
                format!("{file}:{line} should start with user keyword followed by the username. ")
            }
            LineError::BadName(name) => {
                format!("'{file}:{line}: username '{name}' contains invalid characters. ")
            }
            LineError::Twice(name) => {
                format!("WARNING: Duplicate user '{name}' found on line {line}. ")
            }
            LineError::Unmatched => {
                format!("{file}:{line}: Unmatched parenthesis in selector definition.")
            }
            LineError::Rules(wrong) => {
                let mut words = String::new();
                let mut is_told = false;
                for (rule, error) in wrong {
                    let text = error.text();
                    // Only names of commands hold no secrets.
                    if *error == RuleError::UnknownCommand {
                        words.push_str(&format!(
                            "{file}:{line}: Error in applying operation '{rule}': {text}. "
                        ));
                    } else if !std::mem::replace(&mut is_told, true) {
                        words.push_str(&format!("{file}:{line}: {text}. "));
                    }
                }
                words
            }
        }
    }

    fn short(&self) -> String {
        match self {
            LineError::NoUser => "a user needs a name, then rules".into(),
            LineError::BadName(name) => format!("the user name '{name}' has blanks"),
            LineError::Twice(name) => format!("the user '{name}' is there twice"),
            LineError::Unmatched => "a parenthesis is not closed".into(),
            LineError::Rules(wrong) => match wrong.first() {
                Some((rule, error @ RuleError::UnknownCommand)) => {
                    format!("rule '{rule}': {}", error.text())
                }
                Some((_, error)) => error.text().into(),
                None => String::new(),
            },
        }
    }
}

fn read_line(
    line: &[u8],
    users: &mut Users,
    specs: &Specs,
    all_channels: bool,
) -> Result<(), LineError> {
    let mut words = line.split(|&byte| byte == b' ');
    let keyword = words.next();
    let name = match (keyword, words.next()) {
        (Some(b"user"), Some(name)) => name,
        _ => return Err(LineError::NoUser),
    };
    let shown = || String::from_utf8_lossy(name).into_owned();
    if has_blanks(name) {
        return Err(LineError::BadName(shown()));
    }
    if users.by_name.contains_key(name) {
        return Err(LineError::Twice(shown()));
    }
    let rules = merged(words).map_err(|_| LineError::Unmatched)?;
    let mut user = User::new(name, specs, all_channels);
    let mut wrong = Vec::new();
    for rule in &rules {
        let rule = rule.trim_ascii();
        if let Err(error) = user.apply(rule, specs, all_channels) {
            wrong.push((String::from_utf8_lossy(rule).into_owned(), error));
        }
    }
    // A line with errors is one of its user all the same: a second one would be one too many.
    users.by_name.insert(name.to_vec(), Arc::new(user));
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(LineError::Rules(wrong)),
    }
}
