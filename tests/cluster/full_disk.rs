//! The disk of one node is full: the others go on, nothing acknowledged is lost, and with room it comes back.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::client::Fate;
use crate::nodes::{Cluster, Plan};

/// A small disk, gone when dropped.
struct Disk(PathBuf);

impl Disk {
    /// `None`: not allowed here.
    fn new(path: PathBuf, size: &str) -> Option<Disk> {
        std::fs::create_dir_all(&path).expect("a folder");
        let options = format!("size={size}");
        let words = ["-t", "tmpfs", "-o", &options, "tmpfs"];
        let mounted = Command::new("mount").args(words).arg(&path).status();
        if !mounted.is_ok_and(|status| status.success()) {
            assert!(std::env::var_os("CI").is_none(), "no small disk in CI");
            eprintln!("SKIPPED: no small disk can be mounted here");
            return None;
        }
        Some(Disk(path))
    }

    fn grow(&self, size: &str) {
        let options = format!("remount,size={size}");
        let grown = Command::new("mount")
            .args(["-o", &options])
            .arg(&self.0)
            .status();
        assert!(grown.is_ok_and(|status| status.success()));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_stops_one_node_only() {
    let mut cluster = Cluster::empty(None, Plan::default());
    cluster.add(1);
    cluster.add(2);
    cluster.add_down(3);
    let Some(disk) = Disk::new(cluster.data(3).to_path_buf(), "24m") else {
        return;
    };
    cluster.restart(3);
    cluster.until_healthy();
    let mut client = cluster.client();
    let value = "v".repeat(16 << 10);
    let mut acknowledged = Vec::new();
    let mut errors = std::collections::BTreeMap::new();
    let deadline = Instant::now() + Duration::from_secs(40);
    let mut failed_at = None;
    // Until long after it is full.
    for n in 0..4000 {
        let key = format!("key{n}");
        match client.ask(&key, &["SET", &key, &value]) {
            Fate::Done(_) => acknowledged.push(key),
            Fate::Refused(why) | Fate::Unknown(why) | Fate::Surprise(why) => {
                let why = why.split(": ").nth(1).unwrap_or_default();
                *errors.entry(why.to_string()).or_insert(0) += 1;
                failed_at.get_or_insert(n);
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        if failed_at.is_some_and(|at| n > at + 300) || Instant::now() > deadline {
            break;
        }
    }
    eprintln!(
        "{} writes acknowledged, first error at {failed_at:?}: {errors:?}",
        acknowledged.len()
    );
    eprintln!("{}", cluster.log_tail(3));
    // Everything can be written although one disk is full.
    for n in 0..50 {
        let key = format!("after{n}");
        cluster.until("it can be written", |_| {
            match client.ask(&key, &["SET", &key, "v"]) {
                Fate::Done(_) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        acknowledged.push(key);
    }
    assert!(
        cluster.log(3).contains("the disk is full"),
        "node 3 does not say why:\n{}",
        cluster.log_tail(3)
    );
    // It comes back by itself.
    disk.grow("600m");
    cluster.until_logged(3, "the disk has room again");
    cluster.until_healthy();
    for restarts in 0..2 {
        for key in acknowledged.iter().step_by(10) {
            cluster.until("it can be read", |_| {
                match client.ask(key, &["EXISTS", key]) {
                    Fate::Done(replies) => {
                        assert_eq!(replies[0], crate::wire::Value::Int(1), "{key} is lost");
                        Ok(())
                    }
                    other => Err(format!("{other:?}")),
                }
            });
        }
        if restarts == 0 {
            cluster.kill(3);
            cluster.restart(3);
            cluster.until_healthy();
        }
    }
    for key in &acknowledged {
        cluster.until("it can be read", |_| {
            match client.ask(key, &["EXISTS", key]) {
                Fate::Done(replies) => {
                    assert_eq!(replies[0], crate::wire::Value::Int(1), "{key} is lost");
                    Ok(())
                }
                other => Err(format!("{other:?}")),
            }
        });
    }
    cluster.kill(3);
    drop(disk);
}
