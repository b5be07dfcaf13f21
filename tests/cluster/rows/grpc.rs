//! A session that speaks gRPC (`rowclient`), on the same rows, part of the same history.

use std::time::Duration;

use rowclient::{Client, Error, Table, Write, Written};

use super::TABLE;
use super::model::{Act, Row, Told};
use crate::nodes::Cluster;

const HTTP_PORT: u16 = 8379;

pub struct Grpc {
    runtime: tokio::runtime::Runtime,
    table: Table,
}

/// How a call ended that has no answer.
pub struct NoAnswer(pub String);

impl Grpc {
    pub fn new(cluster: &Cluster) -> Grpc {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        let nodes = (1..=3).map(|number| format!("{}:{HTTP_PORT}", cluster.host(number)));
        let client = Client::new(nodes).expect("addresses");
        let client = client.with_timeout(Duration::from_secs(3));
        Grpc {
            runtime,
            table: client.table(TABLE),
        }
    }

    /// What it did and what it was told: an act of the model that says the same.
    pub fn call(&self, key: &str, act: &Act) -> Result<(Act, Told), NoAnswer> {
        let key = key.split_once(':').map_or(key, |(_, key)| key);
        let told = self.runtime.block_on(async {
            Ok(match act {
                Act::Add(by) => {
                    let row = self.table.incr_by(key, "n", *by).await?;
                    (act.clone(), Told::Number(row.int("n").expect("n")))
                }
                Act::Set(version, v) => {
                    let write = version.map_or_else(Write::default, Write::expecting);
                    let set = [("v", v.to_string())];
                    let written = self.table.set_with(key, set, write.showing_all()).await?;
                    let told = match written {
                        Written::Ok(row) => Told::Row("ok".into(), shown(&row)),
                        Written::VersionMismatch(row) => {
                            Told::Row("version_mismatch".into(), shown(&row))
                        }
                        other => panic!("a set was answered {other:?}"),
                    };
                    (act.clone(), told)
                }
                _ => match self.table.get(key).await? {
                    Some(row) => (Act::Read, Told::Row("ok".into(), shown(&row))),
                    None => (Act::Fields, Told::Fields(None)),
                },
            })
        });
        told.map_err(|error: Error| NoAnswer(format!("gRPC: {error}")))
    }
}

fn shown(row: &rowclient::Row) -> Row {
    match row.version > 0 {
        true => Row {
            version: row.version,
            n: row.int("n").expect("n"),
            v: row.text("v").expect("v").into(),
        },
        false => Row::deleted(row.version),
    }
}
