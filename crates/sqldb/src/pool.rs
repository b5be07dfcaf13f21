//! A few connections, shared.
//!
//! sqlx has a pool, but it keeps trying to connect until its time-out when the database refuses, and takes connections back
//! whose statement was given up half way. Here a refused connection is told at once (a miss must fail fast while the database is down),
//! and a connection comes back only from a caller who says that all went well; any other is closed, which
//! also ends its transaction.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::conn::{Conn, Target};
use crate::database::Limits;
use crate::error::Fault;

/// Unused for longer, a connection may have been cut by something between: it is not tried again.
const IDLE_MAX: Duration = Duration::from_secs(30);

pub(crate) struct Pool {
    pub(crate) target: Target,
    permits: Semaphore,
    /// Statements of all connections, counted when a use ends.
    pub(crate) sent: AtomicU64,
    /// The one used last is used next.
    idle: Mutex<Vec<(Conn, Instant)>>,
}

/// A connection in use. Dropped, it is closed.
pub(crate) struct Lease<'a> {
    pub(crate) conn: Conn,
    /// It had waited here: its database may have gone since.
    pub(crate) reused: bool,
    pool: &'a Pool,
    _permit: SemaphorePermit<'a>,
}

impl Pool {
    pub(crate) fn new(target: Target, limits: &Limits) -> Pool {
        Pool {
            target,
            permits: Semaphore::new(limits.connections.max(1)),
            sent: AtomicU64::new(0),
            idle: Mutex::new(Vec::new()),
        }
    }

    /// A connection, one that waits here if there is one.
    pub(crate) async fn take(&self, limits: &Limits) -> Result<Lease<'_>, Fault> {
        let permit = self.permit(limits).await?;
        let (conn, reused) = match self.take_idle() {
            Some(conn) => (conn, true),
            None => (self.target.connect(limits).await?, false),
        };
        Ok(Lease {
            conn,
            reused,
            pool: self,
            _permit: permit,
        })
    }

    /// A connection nobody has used.
    pub(crate) async fn make(&self, limits: &Limits) -> Result<Lease<'_>, Fault> {
        let permit = self.permit(limits).await?;
        Ok(Lease {
            conn: self.target.connect(limits).await?,
            reused: false,
            pool: self,
            _permit: permit,
        })
    }

    async fn permit(&self, limits: &Limits) -> Result<SemaphorePermit<'_>, Fault> {
        let permit = tokio::time::timeout(limits.connect, self.permits.acquire());
        match permit.await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Fault::Transient(format!(
                "all {} connections are busy",
                limits.connections
            ))),
        }
    }

    fn take_idle(&self) -> Option<Conn> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let (conn, since) = idle.pop()?;
        if since.elapsed() < IDLE_MAX {
            return Some(conn);
        }
        idle.clear(); // the others are older still
        None
    }

    /// Closes what is unused: after a connection broke, the others are probably broken too.
    fn forget_idle(&self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.clear();
    }
}

impl Lease<'_> {
    /// The end of a use: the connection goes back if it is fit for the next.
    pub(crate) fn settle<T, E: Into<Fault>>(mut self, result: Result<T, E>) -> Result<T, Fault> {
        let sent = std::mem::take(&mut self.conn.sent);
        self.pool.sent.fetch_add(sent, Ordering::Relaxed);
        match result.map_err(Into::into) {
            Ok(value) => {
                let mut idle = self
                    .pool
                    .idle
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                idle.push((self.conn, Instant::now()));
                Ok(value)
            }
            Err(fault) => {
                if matches!(fault, Fault::Lost(_) | Fault::Silent(_)) {
                    self.pool.forget_idle();
                }
                Err(fault)
            }
        }
    }
}
