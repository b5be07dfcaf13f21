//! LATENCY: spikes by event, and how long each command takes.

use std::collections::BTreeMap;

use base::Refusal;
use command::{Arity, CommandSpec};
use resp::{Args, Reply};
use runtime::now_ms;
use session::Session;
use session::SessionCommand;
use session::SessionRun;
use stats::latency::Series;

use super::specs::{self, ADMIN, ANYTIME, SERVER, sub};

const SUBCOMMANDS: &[CommandSpec] = &[
    sub(
        SERVER,
        "latency|history",
        "event",
        Arity::Exactly(3),
        ADMIN,
        "2.8.13",
        "Returns the spikes of an event.",
    )
    .with_tips(&[
        "nondeterministic_output",
        "request_policy:all_nodes",
        "response_policy:special",
    ]),
    sub(
        SERVER,
        "latency|latest",
        "",
        Arity::Exactly(2),
        ADMIN,
        "2.8.13",
        "Returns the last spike of every event.",
    )
    .with_tips(&[
        "nondeterministic_output",
        "request_policy:all_nodes",
        "response_policy:special",
    ]),
    sub(
        SERVER,
        "latency|reset",
        "[event...]",
        Arity::AtLeast(2),
        ADMIN,
        "2.8.13",
        "Forgets the spikes of some events, or all.",
    )
    .with_tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    sub(
        SERVER,
        "latency|doctor",
        "",
        Arity::Exactly(2),
        ADMIN,
        "2.8.13",
        "Returns a report on the spikes.",
    )
    .with_tips(&[
        "nondeterministic_output",
        "request_policy:all_nodes",
        "response_policy:special",
    ]),
    sub(
        SERVER,
        "latency|graph",
        "event",
        Arity::Exactly(3),
        ADMIN,
        "2.8.13",
        "Draws the spikes of an event.",
    )
    .with_tips(&[
        "nondeterministic_output",
        "request_policy:all_nodes",
        "response_policy:special",
    ]),
    sub(
        SERVER,
        "latency|histogram",
        "[command...]",
        Arity::AtLeast(2),
        ADMIN,
        "7.0.0",
        "Returns how long commands took.",
    )
    .with_tips(&[
        "nondeterministic_output",
        "request_policy:all_nodes",
        "response_policy:special",
    ]),
    sub(
        SERVER,
        "latency|help",
        "",
        Arity::Exactly(2),
        ANYTIME,
        "2.8.13",
        "Tells about the subcommands.",
    ),
];

pub const SPECS: &[SessionCommand] = &[SessionCommand {
    spec: specs::container(
        SERVER,
        "latency",
        "2.8.13",
        "Latency of the server.",
        SUBCOMMANDS,
    ),
    run: SessionRun::Subcommands(&[
        ("latency|history", SessionRun::Now(history)),
        ("latency|latest", SessionRun::Now(latest)),
        ("latency|reset", SessionRun::Now(reset)),
        ("latency|doctor", SessionRun::Now(doctor)),
        ("latency|graph", SessionRun::Now(graph)),
        ("latency|histogram", SessionRun::Now(histogram)),
        ("latency|help", SessionRun::Now(help)),
    ]),
}];

fn word(args: &Args<'_>, i: usize) -> String {
    String::from_utf8_lossy(args.at(i)).into_owned()
}

fn history(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let series = session.shared().latency.series(&word(args, 2));
    let samples = series.unwrap_or_default().samples;
    reply.array(samples.len());
    for (at, took_ms) in samples {
        reply.array(2);
        reply.int(at as i64);
        reply.int(took_ms as i64);
    }
    Ok(())
}

fn latest(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let all = session.shared().latency.all();
    reply.array(all.len());
    for (event, series) in all {
        let (at, took_ms) = series.samples.back().copied().unwrap_or_default();
        reply.array(4);
        reply.bulk(event.as_bytes());
        reply.int(at as i64);
        reply.int(took_ms as i64);
        reply.int(series.max_ms as i64);
    }
    Ok(())
}

fn reset(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let latency = &session.shared().latency;
    let forgotten = match args.len() {
        2 => latency.forget_all(),
        n => (2..n).filter(|&i| latency.forget(&word(args, i))).count(),
    };
    reply.int(forgotten as i64);
    Ok(())
}

fn doctor(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let shared = session.shared();
    let threshold = shared.settings.current().latency_monitor_threshold_ms;
    if threshold == 0 {
        reply.verbatim(
            "I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this server. You \
             may use \"CONFIG SET latency-monitor-threshold <milliseconds>.\" in order to enable it.\n",
        );
        return Ok(());
    }
    let all = shared.latency.all();
    if all.is_empty() {
        reply.verbatim(
            "Dave, no latency spike was observed during the lifetime of this server, not in the \
             slightest bit. I honestly think you ought to sit down calmly, take a stress pill, and \
             think things over.\n",
        );
        return Ok(());
    }
    let mut text = format!("Spikes of {threshold} milliseconds and more:\n\n");
    for (number, (event, series)) in all.iter().enumerate() {
        let count = series.samples.len() as u64;
        let sum: u64 = series.samples.iter().map(|(_, took_ms)| took_ms).sum();
        text.push_str(&format!(
            "{}. {event}: {count} latency spikes (average {}ms, worst {}ms).\n",
            number + 1,
            sum / count.max(1),
            series.max_ms
        ));
    }
    reply.verbatim(&text);
    Ok(())
}

fn graph(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let event = word(args, 2);
    let Some(series) = session.shared().latency.series(&event) else {
        return Err(Refusal::text_of(format!(
            "ERR No samples available for event '{event}'"
        )));
    };
    reply.verbatim(&drawn(&event, &series, now_ms() / 1000));
    Ok(())
}

/// Rows of a graph.
const HEIGHT: u64 = 4;

/// One column per sample, four rows high, how long ago written downwards below.
fn drawn(event: &str, series: &Series, now_seconds: u64) -> String {
    let low = series.samples.iter().map(|(_, ms)| *ms).min().unwrap_or(0);
    let high = series.samples.iter().map(|(_, ms)| *ms).max().unwrap_or(0);
    let mut text = format!(
        "{event} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
        series.max_ms,
        "-".repeat(80)
    );
    let levels: Vec<u64> = series
        .samples
        .iter()
        .map(|(_, ms)| (ms - low) * (HEIGHT * 2 - 1) / (high - low).max(1))
        .collect();
    for row in (0..HEIGHT).rev() {
        for level in &levels {
            text.push(match level {
                level if level / 2 > row => '|',
                level if level / 2 == row => {
                    if level % 2 == 1 {
                        '#'
                    } else {
                        '_'
                    }
                }
                _ => ' ',
            });
        }
        text.push('\n');
    }
    let ages: Vec<Vec<char>> = series
        .samples
        .iter()
        .map(|(at, _)| age(now_seconds.saturating_sub(*at)).chars().collect())
        .collect();
    text.push('\n');
    for line in 0..ages.iter().map(Vec::len).max().unwrap_or(0) {
        text.extend(ages.iter().map(|age| age.get(line).copied().unwrap_or(' ')));
        text.push('\n');
    }
    text
}

fn age(seconds: u64) -> String {
    match seconds {
        s if s < 60 => format!("{s}s"),
        s if s < 3600 => format!("{}m", s / 60),
        s if s < 86400 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86400),
    }
}

fn histogram(session: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let shared = session.shared();
    let mut found: Vec<(&str, Vec<(u64, u64)>)> = Vec::new();
    for (number, row) in shared.commands.each_row() {
        let parent = row.name.split_once('|').map_or(row.name, |(name, _)| name);
        let wanted =
            args.len() == 2 || (2..args.len()).any(|i| args.is(i, row.name) || args.is(i, parent));
        if !wanted || found.iter().any(|(name, _)| *name == row.name) {
            continue;
        }
        let buckets = shared.histogram_of(number);
        if !buckets.is_empty() {
            found.push((row.name, buckets));
        }
    }
    reply.map(found.len());
    for (name, buckets) in found {
        let calls: u64 = buckets.iter().map(|(_, count)| count).sum();
        let steps = cumulative(&buckets);
        reply.bulk(name.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.int(calls as i64);
        reply.bulk(b"histogram_usec");
        reply.map(steps.len());
        for (usec, count) in steps {
            reply.int(usec as i64);
            reply.int(count as i64);
        }
    }
    Ok(())
}

/// Counts up to each power of two of microseconds, steps that add nothing left out.
fn cumulative(buckets: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut steps: BTreeMap<u64, u64> = BTreeMap::new();
    for (nanos, count) in buckets {
        let usec = nanos.div_ceil(1024).max(1).next_power_of_two();
        *steps.entry(usec).or_default() += count;
    }
    let mut sum = 0;
    steps
        .into_iter()
        .map(|(usec, count)| {
            sum += count;
            (usec, sum)
        })
        .collect()
}

fn help(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    specs::help(
        reply,
        "LATENCY",
        &[
            "DOCTOR",
            "    Return a human readable latency analysis report.",
            "GRAPH <event>",
            "    Return an ASCII latency graph for the <event> class.",
            "HISTORY <event>",
            "    Return time-latency samples for the <event> class.",
            "LATEST",
            "    Return the latest latency samples for all events.",
            "RESET [<event> ...]",
            "    Reset latency data of one or more <event> classes.",
            "    (default: reset all data for all event classes)",
            "HISTOGRAM [COMMAND ...]",
            "    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.",
            "    If no commands are specified then all histograms are replied.",
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_add_up() {
        assert_eq!(
            cumulative(&[(500, 2), (900, 1), (1500, 4), (9000, 1)]),
            [(1, 3), (2, 7), (16, 8)]
        );
    }

    #[test]
    fn a_graph_has_a_column_per_sample() {
        let series = Series {
            samples: [(100, 10), (101, 30), (102, 50)].into(),
            max_ms: 50,
        };
        let text = drawn("command", &series, 170);
        assert!(text.starts_with("command - high 50 ms, low 10 ms (all time high 50 ms)\n"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2], "  #");
        assert_eq!(lines[5], "_||");
        assert_eq!(lines[7], "111");
    }
}
