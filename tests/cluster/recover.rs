//! A majority of the nodes is lost for good, the meta service with it: what one node has goes on.

use std::process::{Command, Output};

use crate::nodes::{Cluster, Plan};
use crate::replace::{mount, read, unmount, write};

fn neokv(words: &[&str]) -> Output {
    let neokv = Command::new(env!("CARGO_BIN_EXE_neokv"))
        .args(words)
        .output();
    neokv.expect("neokv")
}

fn ctl(cluster: &Cluster, words: &[&str]) -> (bool, String) {
    let settings = cluster.ctl_settings();
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let peer = cluster.peer_address(1);
    let output = neokv(&[&["ctl", "--peer", &peer], &settings[..], words].concat());
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.success(), said)
}

fn recover(cluster: &Cluster, more: &[&str]) -> (bool, String) {
    let data = cluster.data(1);
    let data = data.to_string_lossy();
    let words = ["unsafe-recover", "--data-dir", &data, "--lost", "2,3"];
    ctl(cluster, &[&words[..], more].concat())
}

#[test]
fn one_of_three_nodes_goes_on_when_somebody_insists() {
    let mut cluster = Cluster::start(Plan::default());
    write(&cluster, 100);
    cluster.until("all replicas have everything", |cluster| {
        match ctl(cluster, &["digest"]) {
            (true, _) => Ok(()),
            (_, said) => Err(said),
        }
    });
    let (done, said) = recover(&cluster, &[]);
    assert!(!done, "it runs: {said}");
    for number in 1..=3 {
        cluster.kill(number);
    }
    let aside = [2, 3].map(|number| unmount(&mut cluster, number));
    // Without the two nothing goes on.
    cluster.spawn(1);
    cluster.until_logged(1, "the meta service does not answer");
    cluster.kill(1);
    // What would be done, and nothing is.
    let (done, dry) = recover(&cluster, &[]);
    assert!(done, "{dry}");
    assert!(
        dry.contains("dry run") && dry.contains("becomes the only one"),
        "{dry}"
    );
    assert_eq!(recover(&cluster, &[]), (true, dry));
    let journal = cluster.data(1).join("unsafe-recovery.log");
    assert!(!journal.exists());
    let (done, said) = recover(&cluster, &["--execute"]);
    assert!(done, "{said}");
    assert!(
        std::fs::read_to_string(journal)
            .unwrap()
            .contains("region 0 has one member now")
    );
    let (done, said) = recover(&cluster, &["--execute"]);
    assert!(
        done && said.contains("Nothing is to be recovered"),
        "{said}"
    );
    cluster.restart(1);
    read(&cluster, 100);
    write(&cluster, 120);
    for node in ["2", "3"] {
        cluster.until("the lost node is removed", |cluster| {
            match ctl(cluster, &["remove-node", node]) {
                (true, _) => Ok(()),
                (_, said) => Err(said),
            }
        });
    }
    // A lost node that comes back after all is not let in.
    let [second, _] = aside;
    mount(&mut cluster, 2, second);
    cluster.spawn(2);
    cluster.until_logged(2, "was removed");
    cluster.until("it stops", |cluster| match cluster.session(2) {
        Ok(_) => Err("it answers".into()),
        Err(_) => Ok(()),
    });
    cluster.kill(2);
    cluster.wipe(2);
    for number in [2, 3] {
        cluster.restart(number);
    }
    cluster.until_healthy();
    read(&cluster, 120);
}
