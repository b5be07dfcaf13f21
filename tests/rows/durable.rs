//! What was acknowledged is there after kill -9, and SQL gets it once, in order.

use crate::node::call;
use crate::sql::{Backend, Rows, text};

#[test]
fn acknowledged_changes_survive_kill_nine_and_reach_sql() {
    for backend in Backend::all() {
        let mut rows = Rows::start(backend);
        let mut total = [0i64; 10];
        for round in 0..3 {
            let client = &mut rows.client();
            for n in 0..200 {
                let at = (n * 7 + round) % 10;
                total[at] += 1;
                let age: i64 = call(client, &format!("HINCRBY users:{at} gold 1"));
                assert_eq!(age, total[at]);
            }
            rows.restart();
        }
        let client = &mut rows.client();
        for (at, total) in total.iter().enumerate() {
            assert_eq!(
                text(client, &format!("HGET users:{at} gold")),
                total.to_string()
            );
        }
        rows.drain();
        let sql = rows.sql();
        for (at, total) in total.iter().enumerate() {
            let (version, values) = sql.row(&at.to_string()).unwrap();
            assert_eq!(version, *total);
            assert_eq!(values["gold"], table::Value::Uint(*total as u64));
        }
    }
}
