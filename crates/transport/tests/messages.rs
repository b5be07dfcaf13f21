//! Raft messages: batches, order, drops, reconnects, silence.

mod peers;

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use peers::*;
use transport::Config;

/// Two nodes that stay connected while one of them stands still for as long as the test likes.
fn patient_pair(mut config_one: Config) -> (Node, Node) {
    config_one.down_after = Duration::from_secs(60);
    let two = node(Config {
        down_after: Duration::from_secs(60),
        ..config(2)
    });
    let one = node(config_one);
    one.transport.set_peer(2, &two.address[..]);
    until("1 hears 2", || one.transport.is_up(2));
    (one, two)
}

#[test]
fn all_arrive_in_order_and_share_frames() {
    let (one, two) = pair();
    const EACH: u64 = 2000;
    let senders: Vec<_> = (0..4_u64)
        .map(|region| {
            let transport = one.transport.clone();
            std::thread::spawn(move || {
                for first in (0..EACH).step_by(20) {
                    let batch = (first..first + 20)
                        .map(|at| message(region, at.to_be_bytes().to_vec()))
                        .collect();
                    assert!(transport.send_batch(2, batch));
                }
            })
        })
        .collect();
    for sender in senders {
        sender.join().unwrap();
    }
    until("all arrive", || two.ears.heard() == 4 * EACH);
    let mut next: HashMap<u64, u64> = HashMap::new();
    for (from, region, body) in two.ears.raft.lock().unwrap().iter() {
        let at = u64::from_be_bytes(body[..].try_into().unwrap());
        let next = next.entry(*region).or_default();
        assert_eq!((*from, at), (1, *next));
        *next += 1;
    }
    let frames = two.ears.frames.load(Ordering::Relaxed);
    assert!(frames <= 4 * EACH / 20, "{frames} frames");
    let (sent, received) = (counters(&one, 2), counters(&two, 1));
    assert_eq!(sent.sent_messages, 4 * EACH);
    assert_eq!(received.received_messages, 4 * EACH);
    assert_eq!((sent.dropped_messages, sent.connects), (0, 1));
    assert!(sent.connected && sent.up);
}

#[test]
fn what_waits_goes_as_one_frame() {
    let (one, two) = patient_pair(config(1));
    // The receiver stands still, so the sender's socket fills; then everything that gathered goes.
    two.ears.hold.store(true, Ordering::Relaxed);
    for at in 0..1000_u64 {
        assert!(one.transport.send(2, at, vec![7; 20_000]));
    }
    two.ears.hold.store(false, Ordering::Relaxed);
    until("all arrive", || two.ears.heard() == 1000);
    let frames = two.ears.frames.load(Ordering::Relaxed);
    assert!(frames < 500, "{frames} frames for 1000 messages");
}

#[test]
fn comes_back_after_a_restart_of_the_other_side() {
    let (one, two) = pair();
    let port = two.transport.local_address().unwrap();
    two.transport.stop();
    drop(two);
    until("down", || one.ears.last_up(2) == Some(false));
    assert_eq!(one.ears.broken.load(Ordering::Relaxed), 1);
    until("drops", || !one.transport.send(2, 1, "lost"));
    let two = node(Config {
        listen: Some(port),
        ..config(2)
    });
    until("up again", || one.ears.last_up(2) == Some(true));
    until("messages pass", || {
        one.transport.send(2, 1, "back");
        two.ears.heard() > 0
    });
    assert_eq!(counters(&one, 2).connects, 2);
    assert!(counters(&one, 2).dropped_messages > 0);
}

#[test]
fn a_full_queue_drops_and_recovers() {
    let (one, two) = patient_pair(Config {
        queue_bytes: 1 << 20,
        ..config(1)
    });
    two.ears.hold.store(true, Ordering::Relaxed);
    let mut taken = 0;
    until("full", || {
        let sent = one.transport.send(2, 1, vec![1; 100_000]);
        taken += u64::from(sent);
        !sent
    });
    assert!(counters(&one, 2).waiting_bytes <= 1 << 20);
    assert_eq!(counters(&one, 2).dropped_messages, 1);
    two.ears.hold.store(false, Ordering::Relaxed);
    until("what was taken arrives", || two.ears.heard() == taken);
    assert!(one.transport.send(2, 1, vec![1; 100_000]));
    until("and the next", || two.ears.heard() == taken + 1);
}

#[test]
fn messages_sent_before_the_first_connection_wait_for_it() {
    let (one, two) = (node(config(1)), node(config(2)));
    one.transport.set_peer(2, &two.address[..]);
    assert!(one.transport.send(2, 5, "early"));
    until("arrives", || two.ears.heard() == 1);
    assert!(!one.transport.send(3, 5, "to nobody"));
}

#[test]
fn a_message_that_fits_no_frame_is_dropped() {
    let (one, two) = pair();
    let batch = vec![message(1, vec![0; 17 << 20]), message(1, "small")];
    assert!(one.transport.send_batch(2, batch));
    until("the small one arrives", || two.ears.heard() == 1);
    assert_eq!(counters(&one, 2).dropped_messages, 1);
    assert!(one.ears.noticed("longer than"));
    let big = 16 * 1024 * 1024 - 40;
    assert!(one.transport.send(2, u64::MAX, vec![0; big]));
    until("the largest possible one arrives", || two.ears.heard() == 2);
}

#[test]
fn a_peer_that_moves_is_followed_and_a_removed_one_is_left() {
    let (one, two) = pair();
    let port = Proxy::new(&two.address);
    one.transport.set_peer(2, &port.address[..]);
    until("through the proxy", || {
        one.transport.send(2, 1, "x");
        port.passed() > 0 && two.ears.heard() > 0
    });
    one.transport.remove_peer(2);
    assert!(!one.transport.send(2, 1, "x"));
    assert!(!one.transport.is_up(2));
    until("2 notices", || two.ears.last_up(1) == Some(false));
    one.transport.set_peer(2, &two.address[..]);
    until("again", || one.transport.is_up(2));
}

#[test]
fn a_stalled_line_is_noticed_on_both_sides() {
    let (one, two) = (node(config(1)), node(config(2)));
    let proxy = Proxy::new(&two.address);
    one.transport.set_peer(2, &proxy.address[..]);
    until("up", || one.transport.is_up(2) && two.transport.is_up(1));
    proxy.stall(true);
    until("1 misses 2", || one.ears.last_up(2) == Some(false));
    until("2 misses 1", || two.ears.last_up(1) == Some(false));
    proxy.stall(false);
    until("both are back", || {
        one.transport.is_up(2) && two.transport.is_up(1)
    });
}

#[test]
fn a_listener_that_says_nothing_is_no_node() {
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = node(Config {
        connect_timeout: Duration::from_millis(200),
        ..config(1)
    });
    one.transport
        .set_peer(2, mute.local_addr().unwrap().to_string());
    until("given up", || counters(&one, 2).connect_failures > 1);
    assert!(one.ears.noticed("no answer in time"));
    assert_eq!(one.ears.last_up(2), None);
}

#[test]
fn heartbeats_keep_an_idle_pair_up() {
    let (one, two) = pair();
    let before = counters(&one, 2).received_frames;
    until("many heartbeats", || {
        counters(&one, 2).received_frames > before + 20
    });
    assert_eq!(*one.ears.ups.lock().unwrap(), [(2, true)]);
    assert_eq!(*two.ears.ups.lock().unwrap(), [(1, true)]);
    assert_eq!(counters(&one, 2).connects, 1);
}

#[test]
fn handles_are_shared_between_threads() {
    fn check<T: Send + Sync + Clone + 'static>(_: &T) {}
    let one = node(config(1));
    check(&one.transport);
    let ears: Arc<Ears> = one.ears.clone();
    drop(one);
    assert_eq!(Arc::strong_count(&ears), 1, "everything was let go");
}

/// A large message on a slow line takes seconds; what may overtake it and what is of other regions does not wait for
/// it, and what follows it in its region comes behind it.
#[test]
fn a_large_message_holds_up_nobody_else() {
    const LARGE: usize = 24 << 20;
    let large = Config {
        frame_bytes_max: 64 << 20,
        ..config(1)
    };
    let two = node(Config {
        node_id: 2,
        ..large.clone()
    });
    let one = node(large);
    let proxy = Proxy::new(&two.address);
    one.transport.set_peer(2, &proxy.address[..]);
    until("1 hears 2", || one.transport.is_up(2));
    proxy.set_rate(8 << 20);

    let begin = Instant::now();
    let body: Vec<u8> = (0..LARGE).map(|at| (at / 1000) as u8).collect();
    assert!(one.transport.send(2, 1, body.clone()));
    assert!(one.transport.send(2, 1, "behind"));
    assert!(!one.transport.has_room(2, 60 << 20), "one at a time");
    assert!(one.transport.has_room(2, 1000));
    let arrived = |part: &[u8]| {
        let raft = two.ears.raft.lock().unwrap();
        raft.iter().any(|(_, _, body)| body[..] == *part)
    };
    let is_through = || {
        let raft = two.ears.raft.lock().unwrap();
        raft.iter().any(|(_, _, body)| body.len() == LARGE)
    };
    let (mut longest, mut beats) = (Duration::ZERO, 0_u32);
    while !is_through() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        // A heartbeat of its region, and something of another one.
        let sent = Instant::now();
        beats += 1;
        let (beat, other) = (format!("beat {beats}"), format!("other {beats}"));
        let beat_message = transport::RaftMessage {
            overtakes: true,
            ..message(1, beat.clone())
        };
        let batch = vec![beat_message, message(2, other.clone())];
        assert!(one.transport.send_batch(2, batch));
        until("both arrive", || {
            arrived(beat.as_bytes()) && arrived(other.as_bytes())
        });
        longest = longest.max(sent.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    let took = begin.elapsed();
    println!("{LARGE} bytes in {took:?}, {beats} beats meanwhile, the slowest in {longest:?}");
    assert!(took > Duration::from_secs(2), "the line is slow: {took:?}");
    assert!(longest < took / 4, "{longest:?} of {took:?}");
    assert!(beats > 10, "{beats}");
    until("what was behind it", || arrived(b"behind"));
    let raft = two.ears.raft.lock().unwrap();
    let of_region: Vec<&[u8]> = raft
        .iter()
        .filter(|(_, region, body)| *region == 1 && !body.starts_with(b"beat"))
        .map(|(_, _, body)| &body[..])
        .collect();
    assert!(of_region == [&body[..], b"behind"], "whole, and in order");
    drop(raft);
    assert_eq!(counters(&one, 2).waiting_bytes, 0);
    assert_eq!(counters(&one, 2).dropped_messages, 0);
    assert!(one.transport.has_room(2, 60 << 20));
}
