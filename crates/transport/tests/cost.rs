//! What a message costs on one connection: printed, not judged.
//! `cargo test --release -p transport --test cost -- --ignored --nocapture`

mod peers;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use peers::*;
use transport::Bytes;

/// Nanoseconds of CPU of the threads with this name.
fn cpu_ns(name: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .flatten()
        .filter(|task| {
            let comm = std::fs::read_to_string(task.path().join("comm"));
            comm.is_ok_and(|comm| comm.trim() == name)
        })
        .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|stat| stat.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

#[test]
#[ignore = "a measurement"]
fn messages_per_second() {
    println!(
        "secret   body   batch   messages/s   messages/frame   ns CPU/message: sender  both peer threads"
    );
    let sizes = [(100, 1), (100, 16), (100, 128), (4096, 16), (65_536, 4)];
    let runs = sizes
        .into_iter()
        .flat_map(|size| [(false, size), (true, size)]);
    for (sealed, (bytes, batch)) in runs {
        let with = |id| if sealed { config(id) } else { open_config(id) };
        let (one, two) = (node(with(1)), node(with(2)));
        one.transport.set_peer(2, &two.address[..]);
        until("1 hears 2", || one.transport.is_up(2));
        two.ears.quiet.store(true, Ordering::Relaxed);
        let body = Bytes::from(vec![7; bytes]);
        let transport = one.transport.clone();
        let (start, peers) = (Instant::now(), cpu_ns("peer"));
        let sender = std::thread::Builder::new()
            .name("sender".into())
            .spawn(move || {
                let (mut taken, mut dropped) = (0_u64, 0_u64);
                while start.elapsed() < Duration::from_secs(2) {
                    let messages = (0..batch).map(|at| message(at, body.clone())).collect();
                    if transport.send_batch(2, messages) {
                        taken += batch;
                    } else {
                        // A core would go on with other work.
                        dropped += batch;
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                (taken, dropped, cpu_ns("sender"))
            })
            .unwrap();
        let (taken, _dropped, sender_ns) = sender.join().unwrap();
        until("all arrive", || two.ears.heard() == taken);
        let seconds = start.elapsed().as_secs_f64();
        let frames = two.ears.frames.load(Ordering::Relaxed);
        println!(
            "{sealed:6} {bytes:6} {batch:7} {:12.0} {:16.1} {:23} {:18}",
            taken as f64 / seconds,
            taken as f64 / frames as f64,
            sender_ns / taken,
            (cpu_ns("peer") - peers) / taken,
        );
    }
    // Idle: what a connection costs that says nothing.
    let (one, two) = pair();
    let (start, peers) = (Instant::now(), cpu_ns("peer"));
    let before = counters(&one, 2).received_frames;
    until("a hundred heartbeats", || {
        counters(&one, 2).received_frames > before + 100
    });
    let share = (cpu_ns("peer") - peers) as f64 / start.elapsed().as_nanos() as f64;
    println!(
        "idle, heartbeat 50 ms: {:.3} % of a CPU for both",
        100.0 * share
    );
    drop(two);
}
