//! What the system knows of this process.

/// Resident memory of the process.
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm
        .split_ascii_whitespace()
        .nth(1)
        .and_then(|word| word.parse().ok())
        .unwrap_or(0);
    pages * 4096
}

/// User and system seconds of the process, from the clock ticks in `/proc/self/stat`.
pub fn cpu_seconds() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may hold blanks; fields are counted behind its closing bracket.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut ticks = rest
        .split_ascii_whitespace()
        .skip(11)
        .map(|word| word.parse::<f64>().unwrap_or(0.0) / 100.0);
    (ticks.next().unwrap_or(0.0), ticks.next().unwrap_or(0.0))
}
