//! What a setting's text may be: parsing with Redis' complaints, and the text `CONFIG GET` shows.

use base::number;

/// A parsed setting.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Bool(bool),
    Int(i64),
    Bytes(u64),
    Text(String),
    /// `save`: snapshot when so many seconds have passed and so many changes were made.
    Save(Vec<SavePoint>),
    OutputLimits(OutputLimits),
    Percentiles(Vec<f64>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavePoint {
    pub seconds: u64,
    pub changes: u64,
}

/// How much may wait to be sent to a client before it is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimit {
    /// At once; 0 is no limit.
    pub hard_bytes: usize,
    /// When exceeded for `soft_seconds` without a break; 0 is no limit.
    pub soft_bytes: usize,
    pub soft_seconds: u64,
}

/// One limit per class of client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimits {
    pub normal: OutputLimit,
    pub replica: OutputLimit,
    pub pubsub: OutputLimit,
}

/// The grammar of a setting.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Bool,
    /// A switch for something that is not here: only "no" is accepted, "yes" gets the reason.
    Off(&'static str),
    Int {
        min: i64,
        max: i64,
    },
    /// Bytes, with `kb`, `mb`, `gb` (1024) or `k`, `m`, `g` (1000) behind the number.
    Bytes {
        min: u64,
        max: u64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    Text,
    /// Only the empty text is accepted; anything else gets the reason.
    Empty(&'static str),
    /// A file name without a folder.
    FileName,
    /// A file with its folder; nobody looks whether it is there.
    Path,
    /// An existing folder; kept as an absolute path.
    Folder,
    /// Addresses to listen on, separated by blanks.
    Addresses,
    /// SQL databases, `name=url`, separated by blanks.
    Backends,
    Save,
    OutputLimits,
    Percentiles,
    /// A level of the log, and others for single modules.
    LogLevels,
}

impl Kind {
    /// Parses `text`; `current` is the value it would replace (some texts change only a part).
    pub fn parse(self, text: &str, current: Option<&Value>) -> Result<Value, String> {
        match self {
            Kind::Bool => parse_bool(text).map(Value::Bool),
            Kind::Off(reason) => match parse_bool(text)? {
                false => Ok(Value::Bool(false)),
                true => Err(reason.into()),
            },
            Kind::Int { min, max } => {
                let value = number::parse_i64(text.as_bytes())
                    .ok_or("argument couldn't be parsed into an integer")?;
                if value < min || value > max {
                    return Err(out_of_range(min, max));
                }
                Ok(Value::Int(value))
            }
            Kind::Bytes { min, max } => {
                let value = parse_bytes(text).ok_or("argument must be a memory value")?;
                if value < min || value > max {
                    return Err(out_of_range(min, max));
                }
                Ok(Value::Bytes(value))
            }
            Kind::Choice(words) => words
                .iter()
                .find(|word| word.eq_ignore_ascii_case(text))
                .map(|word| Value::Text((*word).into()))
                .ok_or_else(|| {
                    format!(
                        "argument(s) must be one of the following: {}",
                        words.join(", ")
                    )
                }),
            Kind::Text | Kind::Path => Ok(Value::Text(text.into())),
            Kind::Empty(_) if text.is_empty() => Ok(Value::Text(String::new())),
            Kind::Empty(reason) => Err(reason.into()),
            Kind::FileName => {
                if text.is_empty() || text.contains('/') {
                    return Err("dbfilename can't be a path, just a filename".into());
                }
                Ok(Value::Text(text.into()))
            }
            Kind::Folder => parse_folder(text),
            Kind::Addresses => {
                let list: Vec<&str> = text.split_ascii_whitespace().collect();
                Ok(Value::Text(list.join(" ")))
            }
            Kind::Backends => {
                super::tables::parse_backends(text)?;
                let list: Vec<&str> = text.split_ascii_whitespace().collect();
                Ok(Value::Text(list.join(" ")))
            }
            Kind::Save => parse_save(text).map(Value::Save),
            Kind::OutputLimits => {
                let start = match current {
                    Some(Value::OutputLimits(limits)) => *limits,
                    _ => OutputLimits::default(),
                };
                parse_limits(text, start).map(Value::OutputLimits)
            }
            Kind::Percentiles => parse_percentiles(text).map(Value::Percentiles),
            Kind::LogLevels => {
                crate::log::Levels::parse(text).map(|levels| Value::Text(levels.to_string()))
            }
        }
    }

    /// For the reference page: what may be written.
    pub fn describe(self) -> String {
        match self {
            Kind::Bool => "yes, no".into(),
            Kind::Off(_) => "no".into(),
            Kind::Int { min, max } => match (min, max) {
                (i64::MIN, i64::MAX) => "integer".into(),
                (_, i64::MAX) => format!("integer ≥ {min}"),
                _ => format!("integer {min} … {max}"),
            },
            Kind::Bytes { min: 0, .. } => "bytes (100mb, 1gb, …)".into(),
            Kind::Bytes { min, max } if max < i64::MAX as u64 => format!("bytes {min} … {max}"),
            Kind::Bytes { min, .. } => format!("bytes ≥ {min}"),
            Kind::Choice(words) => words.join(", "),
            Kind::Text => "text".into(),
            Kind::Empty(_) => "empty".into(),
            Kind::FileName => "file name".into(),
            Kind::Path => "file".into(),
            Kind::Folder => "folder".into(),
            Kind::Addresses => "addresses, separated by blanks".into(),
            Kind::Backends => "name=url, repeated; a URL alone is `main`".into(),
            Kind::Save => "pairs of seconds and changes; empty for never".into(),
            Kind::OutputLimits => "class hard-bytes soft-bytes soft-seconds, repeated".into(),
            Kind::Percentiles => "numbers 0 … 100".into(),
            Kind::LogLevels => {
                "debug, verbose, notice, warning, nothing; then module=level, separated by commas"
                    .into()
            }
        }
    }
}

impl std::fmt::Display for Value {
    /// As `CONFIG GET` shows it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Bool(value) => f.write_str(if *value { "yes" } else { "no" }),
            Value::Int(value) => write!(f, "{value}"),
            Value::Bytes(value) => write!(f, "{value}"),
            Value::Text(text) => f.write_str(text),
            Value::Save(points) => joined(
                f,
                points
                    .iter()
                    .map(|p| format!("{} {}", p.seconds, p.changes)),
            ),
            Value::OutputLimits(limits) => joined(
                f,
                [
                    ("normal", limits.normal),
                    ("slave", limits.replica),
                    ("pubsub", limits.pubsub),
                ]
                .into_iter()
                .map(|(class, l)| {
                    format!(
                        "{class} {} {} {}",
                        l.hard_bytes, l.soft_bytes, l.soft_seconds
                    )
                }),
            ),
            Value::Percentiles(list) => joined(f, list.iter().map(f64::to_string)),
        }
    }
}

fn joined(
    f: &mut std::fmt::Formatter<'_>,
    parts: impl Iterator<Item = String>,
) -> std::fmt::Result {
    f.write_str(&parts.collect::<Vec<_>>().join(" "))
}

fn out_of_range(min: impl std::fmt::Display, max: impl std::fmt::Display) -> String {
    format!("argument must be between {min} and {max} inclusive")
}

fn parse_bool(text: &str) -> Result<bool, String> {
    if text.eq_ignore_ascii_case("yes") {
        Ok(true)
    } else if text.eq_ignore_ascii_case("no") {
        Ok(false)
    } else {
        Err("argument must be 'yes' or 'no'".into())
    }
}

/// `100`, `1k` (1000), `1kb` (1024), … in any case.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn parse_folder(text: &str) -> Result<Value, String> {
    let path = std::fs::canonicalize(text).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "No such file or directory".to_string(),
        std::io::ErrorKind::PermissionDenied => "Permission denied".to_string(),
        _ => error.to_string(),
    })?;
    if !path.is_dir() {
        return Err("Not a directory".into());
    }
    Ok(Value::Text(path.to_string_lossy().into_owned()))
}

fn parse_save(text: &str) -> Result<Vec<SavePoint>, String> {
    let bad = || "Invalid save parameters".to_string();
    let mut words = text.split_ascii_whitespace();
    let mut points = Vec::new();
    while let Some(seconds) = words.next() {
        let seconds: u64 = seconds.parse().map_err(|_| bad())?;
        let changes: u64 = words.next().and_then(|w| w.parse().ok()).ok_or_else(bad)?;
        if seconds < 1 {
            return Err(bad());
        }
        points.push(SavePoint { seconds, changes });
    }
    Ok(points)
}

fn parse_limits(text: &str, mut limits: OutputLimits) -> Result<OutputLimits, String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    }
    for group in words.chunks_exact(4) {
        let [class, hard, soft, seconds] = group else {
            continue;
        };
        let place = match class.to_ascii_lowercase().as_str() {
            "normal" => &mut limits.normal,
            "slave" | "replica" => &mut limits.replica,
            "pubsub" => &mut limits.pubsub,
            _ => {
                return Err("Invalid client class specified in buffer limit configuration.".into());
            }
        };
        let parsed = (|| {
            Some(OutputLimit {
                hard_bytes: parse_bytes(hard)? as usize,
                soft_bytes: parse_bytes(soft)? as usize,
                soft_seconds: seconds.parse().ok()?,
            })
        })();
        *place = parsed
            .ok_or("Error in hard, soft or soft_seconds setting in buffer limit configuration.")?;
    }
    Ok(limits)
}

fn parse_percentiles(text: &str) -> Result<Vec<f64>, String> {
    text.split_ascii_whitespace()
        .map(|word| {
            let value = number::parse_f64(word.as_bytes())
                .ok_or("Invalid latency-tracking-info-percentiles parameters")?;
            if !(0.0..=100.0).contains(&value) {
                return Err(
                    "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"
                        .to_string(),
                );
            }
            Ok(value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes() {
        for (text, expected) in [
            ("0", Some(0)),
            ("100", Some(100)),
            ("1k", Some(1000)),
            ("1KB", Some(1024)),
            ("2gb", Some(2 << 30)),
            ("", None),
            ("-1", None),
            ("1tb", None),
            ("mb", None),
            ("99999999999gb", None),
        ] {
            assert_eq!(parse_bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn save_points_show_as_they_were_set() {
        let value = Kind::Save.parse(" 900 1  300 10 ", None).unwrap();
        assert_eq!(value.to_string(), "900 1 300 10");
        assert_eq!(Kind::Save.parse("", None).unwrap().to_string(), "");
        for bad in ["900", "a b", "0 1", "900 -1"] {
            assert!(Kind::Save.parse(bad, None).is_err(), "{bad}");
        }
    }

    #[test]
    fn output_limits_change_only_the_classes_named() {
        let first = Kind::OutputLimits
            .parse("normal 0 0 0 slave 256mb 64mb 60 pubsub 32mb 8mb 60", None)
            .unwrap();
        let second = Kind::OutputLimits
            .parse("normal 1mb 2kb 60 replica 3 4 5", Some(&first))
            .unwrap();
        assert_eq!(
            second.to_string(),
            "normal 1048576 2048 60 slave 3 4 5 pubsub 33554432 8388608 60"
        );
    }

    #[test]
    fn percentiles() {
        let value = Kind::Percentiles.parse("50 99 99.9", None).unwrap();
        assert_eq!(value.to_string(), "50 99 99.9");
        assert!(Kind::Percentiles.parse("101", None).is_err());
    }
}
