//! Calls: answers, deadlines, who may call, and what happens when the other side goes away.

mod peers;

use std::sync::Arc;
use std::time::Duration;

use peers::*;
use transport::{CallError, Config, Transport};

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_node_an_address_and_itself() {
    let (one, two) = pair();
    let transport = &one.transport;
    assert_eq!(transport.call_blocking(2, ECHO, "a", LONG).unwrap(), "a");
    let address = two.address.clone();
    assert_eq!(
        transport
            .call_blocking(&address[..], ECHO, "b", LONG)
            .unwrap(),
        "b"
    );
    assert_eq!(transport.call_blocking(1, ECHO, "c", LONG).unwrap(), "c");
    assert_eq!(
        transport.call_blocking(2, REJECT, "", LONG),
        Err(CallError::Rejected("not like this".into()))
    );
    assert_eq!(
        transport.call_blocking(2, FORGET, "", LONG),
        Err(CallError::Unanswered)
    );
    assert_eq!(
        transport.call_blocking(9, ECHO, "", LONG),
        Err(CallError::UnknownNode(9))
    );
    let huge = vec![0; 16 << 20];
    assert_eq!(
        transport.call_blocking(2, ECHO, huge, LONG),
        Err(CallError::TooLarge)
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let answer = runtime.block_on(transport.call(2, ECHO, "from a runtime without a clock", LONG));
    assert_eq!(answer.unwrap(), "from a runtime without a clock");
}

#[test]
fn many_at_once_and_large_ones() {
    let (one, _two) = pair();
    let calls: Vec<_> = (0..2000_u32)
        .map(|at| {
            let bytes = if at % 500 == 0 { 5 << 20 } else { 100 };
            let mut body = vec![0; bytes];
            body[..4].copy_from_slice(&at.to_be_bytes());
            one.transport.call(2, ECHO, body, LONG)
        })
        .collect();
    for (at, call) in calls.into_iter().enumerate() {
        let answer = call.wait().unwrap();
        assert_eq!(answer[..4], (at as u32).to_be_bytes());
    }
}

#[test]
fn a_deadline_holds_and_a_late_answer_is_nobodys() {
    let (one, two) = pair();
    let slow = one.transport.call(2, KEEP, "", LONG);
    let quick = one
        .transport
        .call(2, KEEP, "", Duration::from_millis(30))
        .wait();
    assert_eq!(quick, Err(CallError::Timeout));
    until("both arrived", || two.ears.kept.lock().unwrap().len() == 2);
    let mut kept = std::mem::take(&mut *two.ears.kept.lock().unwrap());
    kept.pop().unwrap().done("too late");
    until("counted", || counters(&one, 2).late_answers == 1);
    let first = kept.pop().unwrap();
    std::thread::spawn(move || first.done("from another thread"));
    assert_eq!(slow.wait().unwrap(), "from another thread");
    assert_eq!(
        one.transport.call_blocking(2, ECHO, "x", LONG).unwrap(),
        "x"
    );
}

#[test]
fn calls_under_way_are_bounded_on_both_sides() {
    let one = node(Config {
        calls_max: 10,
        ..config(1)
    });
    let two = node(Config {
        calls_max: 5,
        ..config(2)
    });
    one.transport.set_peer(2, &two.address[..]);
    let mut calls: Vec<_> = (0..10)
        .map(|_| one.transport.call(2, KEEP, "", LONG))
        .collect();
    assert_eq!(
        one.transport.call_blocking(2, ECHO, "", LONG),
        Err(CallError::Busy),
        "too many here"
    );
    for refused in calls.drain(5..) {
        assert_eq!(refused.wait(), Err(CallError::Busy), "too many there");
    }
    // Forgetting a call makes room here; answering it makes room there.
    drop(calls);
    until("2 has them", || two.ears.kept.lock().unwrap().len() == 5);
    two.ears.kept.lock().unwrap().clear();
    assert_eq!(
        one.transport.call_blocking(2, ECHO, "y", LONG).unwrap(),
        "y"
    );
}

#[test]
fn a_broken_connection_ends_its_calls() {
    let (one, two) = (node(config(1)), node(config(2)));
    let proxy = Proxy::new(&two.address);
    one.transport.set_peer(2, &proxy.address[..]);
    let call = one.transport.call(2, KEEP, "", LONG);
    until("it arrived", || two.ears.kept.lock().unwrap().len() == 1);
    proxy.cut();
    assert_eq!(call.wait(), Err(CallError::Disconnected));
    // The answer finds nobody, and hurts nobody.
    two.ears.kept.lock().unwrap().pop().unwrap().done("late");
    until("works again", || {
        one.transport.call_blocking(2, ECHO, "", LONG).is_ok()
    });
}

#[test]
fn an_address_where_nobody_is_fails_at_once() {
    let one = node(config(1));
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let result = one.transport.call_blocking(&address[..], ECHO, "", LONG);
    assert!(
        matches!(&result, Err(CallError::Unreachable(why)) if why.contains("refused")),
        "{result:?}"
    );
    one.transport.set_peer(2, address);
    until("a node likewise", || {
        matches!(
            one.transport.call_blocking(2, ECHO, "", LONG),
            Err(CallError::Unreachable(_))
        )
    });
}

#[test]
fn a_joiner_without_ids_may_call_and_then_be_a_node() {
    let member = node(config(1));
    let joiner = node(Config {
        cluster_id: 0,
        node_id: 0,
        ..config(0)
    });
    let call = |transport: &Transport, address: &str| {
        transport.call_blocking(address, ECHO, "let me in", LONG)
    };
    assert_eq!(
        call(&joiner.transport, &member.address).unwrap(),
        "let me in"
    );
    let early = call(&member.transport, &joiner.address);
    assert!(
        matches!(&early, Err(CallError::Unreachable(why)) if why.contains("joined no cluster")),
        "{early:?}"
    );
    joiner.transport.set_peer(1, &member.address[..]);
    until("refused as a peer", || joiner.ears.refused("only calls"));
    joiner.transport.set_identity(CLUSTER, 2);
    until("a peer now", || joiner.transport.is_up(1));
    joiner.transport.send(1, 7, "hello");
    until("heard", || member.ears.heard() == 1);
}

#[test]
fn a_client_without_a_port_and_a_node_that_calls_itself_by_address() {
    let member = node(config(1));
    let config = Config {
        secrets: secrets(&[1]),
        ..Config::default()
    };
    let client = Transport::start(config, Arc::new(Ears::default())).unwrap();
    assert_eq!(client.local_address(), None);
    assert_eq!(
        client
            .call_blocking(&member.address[..], ECHO, "ctl", LONG)
            .unwrap(),
        "ctl"
    );
    let own = member
        .transport
        .call_blocking(&member.address[..], ECHO, "", LONG);
    assert!(
        matches!(&own, Err(CallError::Unreachable(why)) if why.contains("this very node")),
        "{own:?}"
    );
}

#[test]
fn stopping_ends_all_calls() {
    let (one, two) = pair();
    let call = one.transport.call(2, KEEP, "", LONG);
    until("it arrived", || two.ears.kept.lock().unwrap().len() == 1);
    one.transport.stop();
    assert_eq!(call.wait(), Err(CallError::Stopped));
    assert_eq!(
        one.transport.call_blocking(2, ECHO, "", LONG),
        Err(CallError::Stopped)
    );
}
