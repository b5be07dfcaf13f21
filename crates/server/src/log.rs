//! What the server tells whoever runs it: plain lines, on standard output or, for what needs a
//! person, on standard error. Times are added by what collects the lines.

use std::io::Write;

use crate::settings::{LogLevel, Settings};

/// Something worth knowing happened.
pub fn notice(settings: &Settings, text: &str) {
    if settings.loglevel <= LogLevel::Notice {
        // A log that nobody takes is no reason to stop.
        let _ = writeln!(std::io::stdout(), "{text}");
    }
}

/// Something is wrong.
pub fn warning(settings: &Settings, text: &str) {
    if settings.loglevel <= LogLevel::Warning {
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}
