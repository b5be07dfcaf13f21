//! A table's calls, and what they answer.

use std::collections::BTreeMap;

use base::slot::slot_of;
use rowapi::{
    CompareAndSetRequest, DelRequest, GetRequest, IncrByRequest, KickRequest, MGetRequest,
    RowReply, SetRequest, Show, Status, Value, WaitSqlRequest, WriteOptions,
};

use crate::call::Attempts;
use crate::route::Lane;
use crate::scan::Scan;
use crate::{Client, Error};

/// Keys that are asked for at once.
const KEYS_AT_ONCE: usize = 500;

#[derive(Clone)]
pub struct Table {
    pub(crate) client: Client,
    pub(crate) name: String,
}

/// A row as it was shown.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Row {
    /// Its key, in a scan; elsewhere the caller knows.
    pub key: String,
    pub version: i64,
    pub fields: BTreeMap<String, Value>,
}

/// What a write is conditional on and what its answer shows.
#[derive(Debug, Clone, Default)]
pub struct Write {
    /// The version the row must have; 0 or less: there must be no row.
    pub expected_version: Option<i64>,
    pub must_exist: bool,
    pub show: Option<Fields>,
}

/// Fields to be shown.
#[derive(Debug, Clone)]
pub enum Fields {
    All,
    These(Vec<String>),
}

/// What became of a write. What is shown of the row: what [`Write::show`] asks for, else the fields that the call names.
#[derive(Debug, Clone, PartialEq)]
pub enum Written {
    Ok(Row),
    VersionMismatch(Row),
    Exist(Row),
    /// 0, or the negative version of a row that was deleted.
    NotExist(i64),
    CasNotEqual(Row),
}

/// A read of a row of which a version is known.
#[derive(Debug, Clone, PartialEq)]
pub enum Changed {
    No,
    Yes(Row),
    /// There is none.
    Gone,
}

impl Row {
    fn of(reply: RowReply) -> Row {
        Row {
            key: String::new(),
            version: reply.version,
            fields: reply.fields,
        }
    }

    pub fn get(&self, field: &str) -> Option<&Value> {
        self.fields.get(field)
    }

    pub fn int(&self, field: &str) -> Option<i64> {
        self.get(field)?.as_i64()
    }

    pub fn uint(&self, field: &str) -> Option<u64> {
        self.get(field)?.as_u64()
    }

    pub fn float(&self, field: &str) -> Option<f64> {
        self.get(field)?.as_f64()
    }

    pub fn text(&self, field: &str) -> Option<&str> {
        self.get(field)?.as_str()
    }

    pub fn blob(&self, field: &str) -> Option<&[u8]> {
        self.get(field)?.as_bytes()
    }
}

impl Write {
    pub fn expecting(version: i64) -> Write {
        Write {
            expected_version: Some(version),
            ..Write::default()
        }
    }

    pub fn of_existing() -> Write {
        Write {
            must_exist: true,
            ..Write::default()
        }
    }

    pub fn showing_all(mut self) -> Write {
        self.show = Some(Fields::All);
        self
    }

    fn options(self, lane: &Lane<'_>) -> Option<WriteOptions> {
        Some(WriteOptions {
            expected_version: self.expected_version,
            must_exist: self.must_exist,
            request: Some(lane.request()),
            schema_epoch: 0,
            show: self.show.map(|fields| match fields {
                Fields::All => Show {
                    all: true,
                    fields: Vec::new(),
                },
                Fields::These(fields) => Show { all: false, fields },
            }),
        })
    }
}

impl Written {
    /// The version after a write that was done.
    pub fn version(&self) -> Option<i64> {
        match self {
            Written::Ok(row) => Some(row.version),
            _ => None,
        }
    }

    fn of(reply: RowReply) -> Result<Written, Error> {
        Ok(match reply.status() {
            Status::Ok => Written::Ok(Row::of(reply)),
            Status::VersionMismatch => Written::VersionMismatch(Row::of(reply)),
            Status::Exist => Written::Exist(Row::of(reply)),
            Status::NotExist => Written::NotExist(reply.version),
            Status::CasNotEqual => Written::CasNotEqual(Row::of(reply)),
            other => return Err(unexpected(other)),
        })
    }
}

fn unexpected(status: Status) -> Error {
    Error::Refused(format!("unexpected status {}", status.as_str_name()))
}

/// Names and values.
fn values<N: Into<String>, V: Into<Value>>(
    fields: impl IntoIterator<Item = (N, V)>,
) -> BTreeMap<String, Value> {
    let pairs = fields.into_iter();
    pairs
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

/// One call: which method, with which message.
macro_rules! call {
    ($table:ident, $key:ident, $method:ident, $message:expr) => {{
        let client = &$table.client;
        let slot = Some($table.slot($key));
        let send = |mut client: rowapi::table_client::TableClient<_>, request| async move {
            client.$method(request).await
        };
        client.call(slot, $message, client.timeout, send).await?
    }};
}

impl Table {
    pub(crate) fn new(client: Client, name: &str) -> Table {
        Table {
            client,
            name: name.into(),
        }
    }

    fn slot(&self, key: &str) -> u16 {
        slot_of(format!("{}:{key}", self.name).as_bytes())
    }

    fn get_request(&self, key: &str) -> GetRequest {
        GetRequest {
            table: self.name.clone(),
            key: key.into(),
            ..GetRequest::default()
        }
    }

    /// The row with all its fields.
    pub async fn get(&self, key: &str) -> Result<Option<Row>, Error> {
        self.get_fields(key, &[]).await
    }

    /// The row with some of its fields.
    pub async fn get_fields(&self, key: &str, fields: &[&str]) -> Result<Option<Row>, Error> {
        let request = GetRequest {
            fields: fields.iter().map(|it| (*it).into()).collect(),
            ..self.get_request(key)
        };
        row_of(call!(self, key, get, request))
    }

    /// The row, unless it is still at the version `have`.
    pub async fn get_if_changed(&self, key: &str, have: i64) -> Result<Changed, Error> {
        let request = GetRequest {
            have_version: Some(have),
            ..self.get_request(key)
        };
        let reply = call!(self, key, get, request);
        match reply.status() {
            Status::Unchanged => Ok(Changed::No),
            _ => Ok(row_of(reply)?.map_or(Changed::Gone, Changed::Yes)),
        }
    }

    /// Many rows, in the order of the keys.
    pub async fn mget(&self, keys: &[&str]) -> Result<Vec<Option<Row>>, Error> {
        let mut rows = vec![None; keys.len()];
        let mut open: Vec<usize> = (0..keys.len()).collect();
        let mut attempts = Attempts::new(self.client.timeout);
        while !open.is_empty() {
            let Some(time) = attempts.time_left() else {
                return Err(attempts.time_is_up());
            };
            let mut nodes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
            for at in open.drain(..) {
                let slot = keys.get(at).map(|key| self.slot(key));
                let node = self.client.route.node_of(slot);
                nodes.entry(node).or_default().push(at);
            }
            let mut last = String::new();
            for (node, group) in nodes {
                for part in group.chunks(KEYS_AT_ONCE) {
                    let named = part.iter().filter_map(|at| keys.get(*at));
                    let request = MGetRequest {
                        table: self.name.clone(),
                        keys: named.map(|key| (*key).into()).collect(),
                        ..MGetRequest::default()
                    };
                    let send = |mut client: rowapi::table_client::TableClient<_>, request| async move {
                        client.m_get(request).await
                    };
                    match self.client.attempt(&node, request, time, send).await? {
                        Ok(reply) => {
                            for (at, row) in part.iter().zip(reply.rows) {
                                let found = self.one_of_many(&node, keys, *at, row, &mut last)?;
                                match (found, rows.get_mut(*at)) {
                                    (Some(row), Some(place)) => *place = row,
                                    _ => open.push(*at),
                                }
                            }
                        }
                        Err(broken) => {
                            last = broken;
                            for at in part {
                                let slot = keys.get(*at).map(|key| self.slot(key));
                                self.client.route.avoid(slot, &node);
                                open.push(*at);
                            }
                        }
                    }
                }
            }
            if !open.is_empty() {
                attempts.pause(&last).await;
            }
        }
        Ok(rows)
    }

    /// None: to be asked for again.
    fn one_of_many(
        &self,
        node: &str,
        keys: &[&str],
        at: usize,
        reply: RowReply,
        last: &mut String,
    ) -> Result<Option<Option<Row>>, Error> {
        let slot = keys.get(at).map(|key| self.slot(key));
        match reply.status() {
            Status::NotLeader | Status::SlotMoving => {
                self.client.route.learn(slot, node, &reply.leader);
            }
            Status::RouteStale | Status::Timeout => self.client.route.avoid(slot, node),
            Status::Retry => {}
            Status::Error | Status::Unspecified => return Err(Error::Refused(reply.error)),
            _ => return row_of(reply).map(Some),
        }
        *last = reply.error;
        Ok(None)
    }

    /// Sets fields; a row that is not there is made. The version it has then.
    pub async fn set<N: Into<String>, V: Into<Value>>(
        &self,
        key: &str,
        fields: impl IntoIterator<Item = (N, V)>,
    ) -> Result<i64, Error> {
        let written = self.set_with(key, fields, Write::default()).await?;
        written
            .version()
            .ok_or_else(|| unexpected(Status::Unspecified))
    }

    pub async fn set_with<N: Into<String>, V: Into<Value>>(
        &self,
        key: &str,
        fields: impl IntoIterator<Item = (N, V)>,
        write: Write,
    ) -> Result<Written, Error> {
        let lane = self.client.route.lane();
        let request = self.set_request(key, values(fields), write.options(&lane));
        Written::of(call!(self, key, set, request))
    }

    /// Makes a row, if there is none.
    pub async fn set_nx<N: Into<String>, V: Into<Value>>(
        &self,
        key: &str,
        fields: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Written, Error> {
        let lane = self.client.route.lane();
        let request = self.set_request(key, values(fields), Write::default().options(&lane));
        Written::of(call!(self, key, set_nx, request))
    }

    fn set_request(
        &self,
        key: &str,
        fields: BTreeMap<String, Value>,
        options: Option<WriteOptions>,
    ) -> SetRequest {
        SetRequest {
            table: self.name.clone(),
            key: key.into(),
            fields,
            options,
        }
    }

    /// Sets `fields` of a row that has the values of `when`.
    pub async fn compare_and_set<N: Into<String>, V: Into<Value>>(
        &self,
        key: &str,
        when: impl IntoIterator<Item = (N, V)>,
        fields: impl IntoIterator<Item = (N, V)>,
        write: Write,
    ) -> Result<Written, Error> {
        let lane = self.client.route.lane();
        let options = write.options(&lane);
        let request = self.cas_request(key, values(when), values(fields), options);
        Written::of(call!(self, key, compare_and_set, request))
    }

    /// As [`Table::compare_and_set`]; a row that is not there is made.
    pub async fn compare_and_set_nx<N: Into<String>, V: Into<Value>>(
        &self,
        key: &str,
        when: impl IntoIterator<Item = (N, V)>,
        fields: impl IntoIterator<Item = (N, V)>,
        write: Write,
    ) -> Result<Written, Error> {
        let lane = self.client.route.lane();
        let options = write.options(&lane);
        let request = self.cas_request(key, values(when), values(fields), options);
        Written::of(call!(self, key, compare_and_set_nx, request))
    }

    fn cas_request(
        &self,
        key: &str,
        when: BTreeMap<String, Value>,
        fields: BTreeMap<String, Value>,
        options: Option<WriteOptions>,
    ) -> CompareAndSetRequest {
        CompareAndSetRequest {
            table: self.name.clone(),
            key: key.into(),
            when,
            fields,
            options,
        }
    }

    /// Adds to a number; the row shows what it is then. A row that is not there is made.
    pub async fn incr_by(
        &self,
        key: &str,
        field: &str,
        amount: impl Into<Value>,
    ) -> Result<Row, Error> {
        let lane = self.client.route.lane();
        let request = self.incr_request(key, field, amount.into(), &lane);
        done(call!(self, key, incr_by, request))
    }

    pub async fn decr_by(
        &self,
        key: &str,
        field: &str,
        amount: impl Into<Value>,
    ) -> Result<Row, Error> {
        let lane = self.client.route.lane();
        let request = self.incr_request(key, field, amount.into(), &lane);
        done(call!(self, key, decr_by, request))
    }

    fn incr_request(
        &self,
        key: &str,
        field: &str,
        amount: Value,
        lane: &Lane<'_>,
    ) -> IncrByRequest {
        IncrByRequest {
            table: self.name.clone(),
            key: key.into(),
            field: field.into(),
            amount: Some(amount),
            options: Write::default().options(lane),
        }
    }

    /// Deletes a row.
    pub async fn del(&self, key: &str) -> Result<Written, Error> {
        self.del_with(key, Write::default()).await
    }

    pub async fn del_with(&self, key: &str, write: Write) -> Result<Written, Error> {
        let lane = self.client.route.lane();
        let request = DelRequest {
            table: self.name.clone(),
            key: key.into(),
            options: write.options(&lane),
        };
        Written::of(call!(self, key, del, request))
    }

    /// Takes a row out of the cache, once the database has it.
    pub async fn kick(&self, key: &str) -> Result<(), Error> {
        let request = KickRequest {
            table: self.name.clone(),
            key: key.into(),
        };
        done(call!(self, key, kick, request)).map(drop)
    }

    /// Waits until the database has a version of the row, or what it is at now; the version that it has.
    pub async fn wait_sql(&self, key: &str, version: Option<i64>) -> Result<i64, Error> {
        let request = WaitSqlRequest {
            table: self.name.clone(),
            key: key.into(),
            version,
        };
        done(call!(self, key, wait_sql, request)).map(|row| row.version)
    }

    /// All rows, page by page.
    pub fn scan(&self) -> Scan {
        Scan::new(self.clone())
    }
}

fn row_of(reply: RowReply) -> Result<Option<Row>, Error> {
    match reply.status() {
        Status::Ok => Ok(Some(Row::of(reply))),
        Status::NotExist => Ok(None),
        other => Err(unexpected(other)),
    }
}

fn done(reply: RowReply) -> Result<Row, Error> {
    match reply.status() {
        Status::Ok => Ok(Row::of(reply)),
        other => Err(unexpected(other)),
    }
}
