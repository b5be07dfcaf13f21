//! The calls: look up the table, write the command, wait for its answer until the deadline, read it.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Refusal;
use rowapi::{
    CompareAndSetRequest, DelRequest, GetRequest, IncrByRequest, KickRequest, MGetReply,
    MGetRequest, RowReply, ScanReply, ScanRequest, SetRequest, Status, WaitSqlRequest,
};
use runtime::Shared;
use session::SessionRuns;
use table::Table;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tonic::{Request, Response};

use super::answer::Answer;
use super::commands;
use super::deadline::deadline_of;
use super::pool::{Pool, Unsent};
use super::reply::{self, HttpOf, Verdict};
use super::words::Words;

/// Keys of one MGet.
const KEYS_MAX: usize = 1000;

type Called<T> = Result<Response<T>, tonic::Status>;
type Read<T> = fn(&Table, &Answer, HttpOf<'_>) -> T;

pub struct Service {
    shared: Arc<Shared>,
    pool: Pool,
}

impl Service {
    pub fn new(shared: &Arc<Shared>, runs: Arc<SessionRuns>) -> Service {
        Service {
            pool: Pool::new(shared, runs),
            shared: shared.clone(),
        }
    }

    /// The table as this node knows it, at least as new as the call's schema.
    fn table(&self, name: &str, epoch: u64) -> Result<Arc<Table>, Verdict> {
        let catalogue = self.shared.catalogue.load();
        let table = catalogue.named_or_refuse(name.as_bytes());
        let table = table.map_err(|refusal| refused(self.shared.unheard_or(refusal)))?;
        match epoch > table.epoch {
            true => Err(Verdict::new(
                Status::Retry,
                format!(
                    "TRYAGAIN this node knows epoch {} of the schema, the call {epoch}",
                    table.epoch
                ),
            )),
            false => Ok(table.clone()),
        }
    }

    /// A command about one row, on a link that others use too.
    async fn row(
        &self,
        row_call: RowCall<'_>,
        make: impl FnOnce(&Table) -> Result<Words, Refusal>,
        read: Read<RowReply>,
    ) -> Called<RowReply> {
        let table = match self.table(row_call.table, row_call.epoch) {
            Ok(table) => table,
            Err(verdict) => return Ok(Response::new(verdict.row(0))),
        };
        let words = match make(&table) {
            Ok(words) => words,
            Err(refusal) => return Ok(Response::new(refused(refusal).row(table.epoch))),
        };
        let place = format!("{}:{}", row_call.table, row_call.key);
        let answered = match self.pool.send(&place, &words) {
            Ok(told) => wait(told, row_call.deadline, row_call.writes).await,
            Err(unsent) => Err(not_sent(unsent)),
        };
        Ok(Response::new(match answered {
            Ok(answer) => read(&table, &answer, &self.http_of()),
            Err(verdict) => verdict.row(table.epoch),
        }))
    }

    /// The HTTP address of a node, given the Redis address that a redirect names.
    fn http_of(&self) -> impl Fn(&str) -> Option<String> {
        let cluster = self.shared.cluster.clone();
        move |redis| cluster.as_ref()?.http_of_redis(redis)
    }

    /// The keys that one command may name: all, or in a cluster those of a slot. Their places in `keys`.
    fn groups(&self, table: &str, keys: &[String]) -> Vec<Vec<usize>> {
        if self.shared.cluster.is_none() {
            return vec![(0..keys.len()).collect()];
        }
        let mut groups: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (at, key) in keys.iter().enumerate() {
            let slot = base::slot::slot_of(format!("{table}:{key}").as_bytes());
            groups.entry(slot).or_default().push(at);
        }
        groups.into_values().collect()
    }

    async fn rows(&self, request: &MGetRequest, deadline: Instant) -> Vec<RowReply> {
        let count = request.keys.len();
        let table = match self.table(&request.table, request.schema_epoch) {
            Ok(table) => table,
            Err(verdict) => return vec![verdict.row(0); count],
        };
        let mut asked = Vec::new();
        for group in self.groups(&request.table, &request.keys) {
            let keys = group.iter().filter_map(|at| request.keys.get(*at));
            let keys: Vec<&str> = keys.map(String::as_str).collect();
            let Some(first) = keys.first() else { continue };
            let words = commands::mget(&request.table, &keys, &request.fields);
            let sent = self
                .pool
                .send(&format!("{}:{first}", request.table), &words);
            asked.push((group, sent));
        }
        let mut rows = vec![RowReply::default(); count];
        for (group, sent) in asked {
            let answered = match sent {
                Ok(told) => wait(told, deadline, false).await,
                Err(unsent) => Err(not_sent(unsent)),
            };
            let found = match answered {
                Ok(answer) => reply::rows_of(&table, &answer, group.len(), &self.http_of()),
                Err(verdict) => vec![verdict.row(table.epoch); group.len()],
            };
            for (at, row) in group.into_iter().zip(found) {
                if let Some(place) = rows.get_mut(at) {
                    *place = row;
                }
            }
        }
        rows
    }

    /// A command that may take long, on a link of its own.
    async fn alone<T>(
        &self,
        name: &str,
        place: &str,
        deadline: Instant,
        words: Result<Words, Refusal>,
        read: Read<T>,
    ) -> Result<T, Verdict> {
        let table = self.table(name, 0)?;
        let words = words.map_err(refused)?;
        let mut own = self.pool.send_alone(place, &words).map_err(not_sent)?;
        let answer = match timeout_at(deadline, &mut own.answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => return Err(Verdict::lost(false)),
            Err(_) => return Err(Verdict::late()),
        };
        Ok(read(&table, &answer, &self.http_of()))
    }
}

/// What calls about one row have in common.
struct RowCall<'a> {
    table: &'a str,
    key: &'a str,
    epoch: u64,
    deadline: Instant,
    writes: bool,
}

async fn wait(
    told: oneshot::Receiver<Answer>,
    deadline: Instant,
    writes: bool,
) -> Result<Answer, Verdict> {
    match timeout_at(deadline, told).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(Verdict::lost(writes)),
        Err(_) => Err(Verdict::late()),
    }
}

fn refused(refusal: Refusal) -> Verdict {
    Verdict::new(Status::Error, refusal.text())
}

fn not_sent(unsent: Unsent) -> Verdict {
    let why = match unsent {
        Unsent::Denied(text) => return Verdict::new(Status::Error, text),
        Unsent::Busy => "TRYAGAIN too many calls are on their way",
        Unsent::Closed => "TRYAGAIN the node is stopping",
    };
    Verdict::new(Status::Retry, why)
}

macro_rules! row_call {
    ($request:ident, $deadline:ident, $epoch:expr, $writes:expr) => {
        RowCall {
            table: &$request.table,
            key: &$request.key,
            epoch: $epoch,
            deadline: $deadline,
            writes: $writes,
        }
    };
}

macro_rules! write {
    ($self:ident, $request:ident, $make:expr) => {{
        let deadline = deadline_of($request.metadata());
        let request = $request.into_inner();
        let epoch = request.options.as_ref().map_or(0, |it| it.schema_epoch);
        let row_call = row_call!(request, deadline, epoch, true);
        $self
            .row(row_call, |table| $make(table, &request), reply::row_of)
            .await
    }};
}

#[tonic::async_trait]
impl rowapi::table_server::Table for Service {
    async fn get(&self, request: Request<GetRequest>) -> Called<RowReply> {
        let deadline = deadline_of(request.metadata());
        let request = request.into_inner();
        let row_call = row_call!(request, deadline, request.schema_epoch, false);
        self.row(
            row_call,
            |table| commands::get(table, &request),
            reply::row_of,
        )
        .await
    }

    async fn set(&self, request: Request<SetRequest>) -> Called<RowReply> {
        write!(self, request, |table, it| commands::set(
            "ROW.SET", table, it
        ))
    }

    async fn set_nx(&self, request: Request<SetRequest>) -> Called<RowReply> {
        write!(self, request, |table, it| commands::set(
            "ROW.SETNX",
            table,
            it
        ))
    }

    async fn compare_and_set(&self, request: Request<CompareAndSetRequest>) -> Called<RowReply> {
        write!(self, request, |table, it| commands::compare_and_set(
            "ROW.CAS", table, it
        ))
    }

    async fn compare_and_set_nx(&self, request: Request<CompareAndSetRequest>) -> Called<RowReply> {
        write!(self, request, |table, it| commands::compare_and_set(
            "ROW.CASNX",
            table,
            it
        ))
    }

    async fn incr_by(&self, request: Request<IncrByRequest>) -> Called<RowReply> {
        write!(self, request, |table, it| commands::incr(
            "ROW.INCRBY",
            table,
            it
        ))
    }

    async fn decr_by(&self, request: Request<IncrByRequest>) -> Called<RowReply> {
        write!(self, request, |table, it| commands::incr(
            "ROW.DECRBY",
            table,
            it
        ))
    }

    async fn del(&self, request: Request<DelRequest>) -> Called<RowReply> {
        write!(self, request, commands::del)
    }

    async fn kick(&self, request: Request<KickRequest>) -> Called<RowReply> {
        let deadline = deadline_of(request.metadata());
        let request = request.into_inner();
        // A kick that may have been done can be done again.
        let row_call = row_call!(request, deadline, 0, false);
        self.row(
            row_call,
            |table| commands::kick(table, &request),
            reply::kicked,
        )
        .await
    }

    async fn m_get(&self, request: Request<MGetRequest>) -> Called<MGetReply> {
        let deadline = deadline_of(request.metadata());
        let request = request.into_inner();
        if request.keys.len() > KEYS_MAX {
            let text = format!("at most {KEYS_MAX} keys; these are {}", request.keys.len());
            return Err(tonic::Status::invalid_argument(text));
        }
        let rows = self.rows(&request, deadline).await;
        Ok(Response::new(MGetReply { rows }))
    }

    async fn scan(&self, request: Request<ScanRequest>) -> Called<ScanReply> {
        let deadline = deadline_of(request.metadata());
        let request = request.into_inner();
        let words = commands::scan(&request);
        let name = &request.table;
        let page = self
            .alone(name, name, deadline, words, reply::page_of)
            .await;
        Ok(Response::new(page.unwrap_or_else(Verdict::scan)))
    }

    async fn wait_sql(&self, request: Request<WaitSqlRequest>) -> Called<RowReply> {
        let deadline = deadline_of(request.metadata());
        let request = request.into_inner();
        let left = deadline.saturating_duration_since(Instant::now());
        let words = commands::wait_sql(&request, left.as_millis());
        let place = format!("{}:{}", request.table, request.key);
        let row = self
            .alone(&request.table, &place, deadline, words, reply::waited)
            .await;
        Ok(Response::new(row.unwrap_or_else(|verdict| verdict.row(0))))
    }
}
