//! Snapshots: whole, cut in the middle, damaged, throttled, refused.

mod peers;

use std::path::Path;
use std::time::{Duration, Instant};

use peers::*;
use tempfile::TempDir;
use transport::{
    Bytes, Config, OutgoingSnapshot, SnapshotFile, Snapshots, Transfer, TransferError,
};

fn runs(transfer: Transfer) -> Result<(), TransferError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(transfer.finished())
}

/// Files of these sizes, with bytes that differ everywhere.
fn source(directory: &Path, sizes: &[usize]) -> OutgoingSnapshot {
    let files = sizes
        .iter()
        .enumerate()
        .map(|(at, size)| {
            let path = directory.join(format!("source{at}"));
            let mut seed = at as u32 + 1;
            let bytes: Vec<u8> = (0..*size)
                .map(|_| {
                    seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
                    (seed >> 24) as u8
                })
                .collect();
            std::fs::write(&path, bytes).unwrap();
            SnapshotFile {
                name: format!("{at:06}.sst"),
                path,
                crc32c: None,
            }
        })
        .collect();
    OutgoingSnapshot {
        region: 7,
        id: "snap-1".into(),
        meta: Bytes::from_static(b"meta of the region"),
        files,
    }
}

fn same(snapshot: &OutgoingSnapshot, into: &Path) {
    for file in &snapshot.files {
        let here = std::fs::read(&file.path).unwrap();
        let there = std::fs::read(into.join(&file.name)).unwrap();
        assert!(here == there, "{} differs", file.name);
    }
    let count = std::fs::read_dir(into).unwrap().count();
    assert_eq!(count, snapshot.files.len(), "nothing else is left");
}

fn quick(node: u64) -> Config {
    Config {
        snapshots: Snapshots {
            rate_bytes: 0,
            chunk_bytes: 64 << 10,
            stalled_after: Duration::from_secs(5),
            timeout: Duration::from_secs(20),
            ..Snapshots::default()
        },
        ..config(node)
    }
}

struct Scene {
    one: Node,
    two: Node,
    proxy: Proxy,
    folder: TempDir,
}

fn scene(one: Config, two: Config) -> Scene {
    let (one, two) = (node(one), node(two));
    let folder = TempDir::new().unwrap();
    *two.ears.directory.lock().unwrap() = Some(folder.path().join("in"));
    let proxy = Proxy::new(&two.address);
    one.transport.set_peer(2, &proxy.address[..]);
    until("connected", || one.transport.is_up(2));
    Scene {
        one,
        two,
        proxy,
        folder,
    }
}

#[test]
fn arrives_whole() {
    let it = scene(quick(1), quick(2));
    let snapshot = source(it.folder.path(), &[0, 1, 65536, 3_000_001]);
    let transfer = it.one.transport.send_snapshot(2, snapshot.clone());
    runs(transfer.clone()).unwrap();
    same(&snapshot, &it.folder.path().join("in/snap-1"));
    let progress = transfer.progress();
    assert_eq!(progress.sent_bytes, 3_065_538);
    assert_eq!(progress.total_bytes, 3_065_538);
    let offers = it.two.ears.offers.lock().unwrap();
    let (from, offer) = &offers[0];
    assert_eq!((*from, offer.region, offer.total_bytes), (1, 7, 3_065_538));
    assert_eq!(offer.meta, "meta of the region");
    assert_eq!(it.two.ears.complete.lock().unwrap().len(), 1);
    assert_eq!(*it.one.ears.sent.lock().unwrap(), [Ok(())]);
    // A sender that did not hear of the success asks again: nothing is sent twice.
    drop(offers);
    let before = it.proxy.passed();
    runs(it.one.transport.send_snapshot(2, snapshot)).unwrap();
    assert!(it.proxy.passed() - before < 10_000);
    assert_eq!(it.two.ears.complete.lock().unwrap().len(), 1);
}

#[test]
fn goes_on_where_it_was_cut() {
    let it = scene(quick(1), quick(2));
    let snapshot = source(it.folder.path(), &[2_000_000, 2_000_000]);
    let before = it.proxy.passed();
    it.proxy.cut_after(3_000_000);
    let transfer = it.one.transport.send_snapshot(2, snapshot.clone());
    runs(transfer.clone()).unwrap();
    assert!(!it.proxy.armed(), "it was cut");
    same(&snapshot, &it.folder.path().join("in/snap-1"));
    assert!(transfer.progress().attempts >= 2);
    // Four million and what was in flight, not seven.
    let passed = it.proxy.passed() - before;
    assert!(passed < 5_500_000, "{passed} bytes for 4,000,000");
}

#[test]
fn goes_on_after_a_restart_of_the_receiver_which_lost_a_tail() {
    let it = scene(quick(1), quick(2));
    let snapshot = source(it.folder.path(), &[4_000_000]);
    it.one.transport.set_snapshot_rate(2_000_000);
    let transfer = it.one.transport.send_snapshot(2, snapshot.clone());
    let part = it.folder.path().join("in/snap-1/000000.sst.part");
    let size = |path: &Path| path.metadata().map_or(0, |it| it.len());
    until("half is there", || size(&part) > 1_500_000);
    let port = it.two.transport.local_address().unwrap();
    it.two.transport.stop();
    // What was not synced: the length is there, the bytes are not.
    let kept = size(&part);
    let file = std::fs::OpenOptions::new().write(true).open(&part).unwrap();
    file.set_len(kept - 10_000).unwrap();
    file.set_len(kept).unwrap();
    it.one.transport.set_snapshot_rate(0);
    let two = node(Config {
        listen: Some(port),
        ..quick(2)
    });
    *two.ears.directory.lock().unwrap() = Some(it.folder.path().join("in"));
    runs(transfer).unwrap();
    same(&snapshot, &it.folder.path().join("in/snap-1"));
}

#[test]
fn a_damaged_byte_is_found_and_sent_again() {
    // Without a secret: under one it does not even reach the checksums.
    let open = |id| Config {
        secrets: None,
        ..quick(id)
    };
    let it = scene(open(1), open(2));
    let snapshot = source(it.folder.path(), &[1_000_000]);
    it.proxy.damage_after(500_000);
    runs(it.one.transport.send_snapshot(2, snapshot.clone())).unwrap();
    assert!(!it.proxy.armed());
    assert!(
        it.two.ears.noticed("damaged") || it.two.ears.noticed("pars") || it.two.ears.noticed("too"),
        "{:?}",
        it.two.ears.notices.lock().unwrap()
    );
    same(&snapshot, &it.folder.path().join("in/snap-1"));
}

#[test]
fn a_file_that_is_not_what_was_promised_is_never_complete() {
    let mut config = quick(1);
    config.snapshots.timeout = Duration::from_millis(300);
    let it = scene(config, quick(2));
    let mut snapshot = source(it.folder.path(), &[100_000]);
    snapshot.files[0].crc32c = Some(12345);
    let result = runs(it.one.transport.send_snapshot(2, snapshot));
    assert!(
        matches!(&result, Err(TransferError::GaveUp(why)) if why.contains("wrong checksum")),
        "{result:?}"
    );
    assert!(it.two.ears.complete.lock().unwrap().is_empty());
    let into = it.folder.path().join("in/snap-1");
    assert!(!into.join("000000.sst").exists());
}

#[test]
fn a_stalled_transfer_is_broken_and_resumed() {
    let mut config = quick(1);
    config.snapshots.stalled_after = Duration::from_millis(400);
    let it = scene(config, quick(2));
    let snapshot = source(it.folder.path(), &[3_000_000]);
    it.one.transport.set_snapshot_rate(1_500_000);
    let transfer = it.one.transport.send_snapshot(2, snapshot.clone());
    until("it runs", || transfer.progress().sent_bytes > 500_000);
    it.proxy.stall(true);
    until("tried again", || transfer.progress().attempts > 1);
    it.proxy.stall(false);
    it.one.transport.set_snapshot_rate(0);
    runs(transfer).unwrap();
    same(&snapshot, &it.folder.path().join("in/snap-1"));
}

#[test]
fn the_rate_holds_and_can_be_changed() {
    let it = scene(quick(1), quick(2));
    let snapshot = source(it.folder.path(), &[1_000_000, 1_000_000]);
    it.one.transport.set_snapshot_rate(1_000_000);
    let start = Instant::now();
    let transfer = it.one.transport.send_snapshot(2, snapshot.clone());
    until("half of it", || transfer.progress().sent_bytes >= 1_000_000);
    let half = start.elapsed();
    assert!(half > Duration::from_millis(800), "too fast: {half:?}");
    assert!(half < Duration::from_secs(6), "too slow: {half:?}");
    it.one.transport.set_snapshot_rate(1000);
    let before = transfer.progress().sent_bytes;
    it.one.transport.set_snapshot_rate(0);
    runs(transfer).unwrap();
    assert!(before < 2_000_000);
    same(&snapshot, &it.folder.path().join("in/snap-1"));
}

#[test]
fn the_receiver_holds_the_rate_too() {
    let mut receiver = quick(2);
    receiver.snapshots.rate_bytes = 2_000_000;
    let it = scene(quick(1), receiver);
    let snapshot = source(it.folder.path(), &[4_000_000]);
    let start = Instant::now();
    runs(it.one.transport.send_snapshot(2, snapshot)).unwrap();
    let took = start.elapsed();
    assert!(took > Duration::from_millis(1600), "too fast: {took:?}");
}

#[test]
fn refusals_and_bad_names() {
    let it = scene(quick(1), quick(2));
    *it.two.ears.directory.lock().unwrap() = None;
    let mut snapshot = source(it.folder.path(), &[1000]);
    let send =
        |snapshot: &OutgoingSnapshot| runs(it.one.transport.send_snapshot(2, snapshot.clone()));
    assert_eq!(
        send(&snapshot),
        Err(TransferError::Refused("no room".into()))
    );
    snapshot.files[0].name = "../../etc/passwd".into();
    assert!(matches!(send(&snapshot), Err(TransferError::Source(_))));
    snapshot.files[0].name = "fine".into();
    snapshot.files[0].path = it.folder.path().join("not there");
    assert!(matches!(send(&snapshot), Err(TransferError::Source(_))));
    let result = runs(
        it.one
            .transport
            .send_snapshot(9, source(it.folder.path(), &[1])),
    );
    assert_eq!(result, Err(TransferError::UnknownNode(9)));
}

#[test]
fn one_at_a_time_and_cancelled() {
    let (mut sender, mut receiver) = (quick(1), quick(2));
    sender.snapshots.outgoing_max = 2;
    receiver.snapshots.incoming_max = 1;
    let it = scene(sender, receiver);
    it.one.transport.set_snapshot_rate(100_000);
    let mut snapshot = source(it.folder.path(), &[1_000_000]);
    let first = it.one.transport.send_snapshot(2, snapshot.clone());
    until("it runs", || first.progress().sent_bytes > 0);
    snapshot.id = "snap-2".into();
    let second = it.one.transport.send_snapshot(2, snapshot.clone());
    until("told to come again", || second.progress().attempts > 2);
    assert_eq!(second.result(), None);
    first.cancel();
    assert_eq!(runs(first), Err(TransferError::Cancelled));
    it.one.transport.set_snapshot_rate(0);
    runs(second).unwrap();
    same(&snapshot, &it.folder.path().join("in/snap-2"));
    let third = it
        .one
        .transport
        .send_snapshot(2, source(it.folder.path(), &[5]));
    it.one.transport.stop();
    assert!(third.result().is_some());
}

#[test]
fn heartbeats_do_not_wait_for_snapshots() {
    let it = scene(quick(1), quick(2));
    let snapshot = source(it.folder.path(), &[20_000_000]);
    let transfer = it.one.transport.send_snapshot(2, snapshot);
    let mut calls = 0;
    while transfer.result().is_none() {
        let call = it.one.transport.call(2, ECHO, "x", Duration::from_secs(5));
        call.wait().unwrap();
        calls += 1;
    }
    runs(transfer).unwrap();
    assert!(calls > 0);
    assert_eq!(*it.one.ears.ups.lock().unwrap(), [(2, true)]);
}
