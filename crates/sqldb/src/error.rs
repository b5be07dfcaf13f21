//! What can go wrong, sorted by what is to be done about it.

/// What a caller hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The database is away, busy, locked or full: the same call may succeed later.
    /// Of a batch, some rows may have been written; a second try answers `Already` for them.
    Transient(String),
    /// The database will not do this for any row until an operator acts: no such table, a column that does
    /// not fit, no permission, a URL that is none.
    Unfit(String),
}

/// What a statement heard: as [`Error`], only finer, and one that is about the rows it carried.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Busy, locked, full; the connection may be as good as ever.
    Transient(String),
    /// Somebody else has locked what was to be locked, for longer than a statement may take.
    Locked(String),
    /// The connection broke.
    Lost(String),
    /// Nobody answered in time.
    Silent(String),
    Unfit(String),
    /// A constraint, a type, a length. `taken`: a unique value that is there already, perhaps only since a moment ago.
    Row {
        why: String,
        taken: bool,
    },
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Transient(why) => write!(f, "database not available: {why}"),
            Error::Unfit(why) => write!(f, "database does not fit: {why}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        match fault {
            Fault::Transient(why) | Fault::Locked(why) | Fault::Lost(why) | Fault::Silent(why) => {
                Error::Transient(why)
            }
            // Outside a flush there are no rows to blame.
            Fault::Unfit(why) | Fault::Row { why, .. } => Error::Unfit(why),
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        match error {
            Error::Transient(why) => Fault::Transient(why),
            Error::Unfit(why) => Fault::Unfit(why),
        }
    }
}

/// Sorts what sqlx reports; `sort` knows the codes of its database.
pub(crate) fn fault(
    error: sqlx::Error,
    sort: fn(&dyn sqlx::error::DatabaseError) -> Sort,
) -> Fault {
    let sqlx::Error::Database(told) = &error else {
        let why = error.to_string();
        return match error {
            sqlx::Error::Encode(_) => Fault::Row { why, taken: false },
            sqlx::Error::Configuration(_)
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::Decode(_)
            | sqlx::Error::TypeNotFound { .. } => Fault::Unfit(why),
            _ => Fault::Lost(why), // sockets, TLS, a reply that is none
        };
    };
    let why = match told.code() {
        Some(code) => format!("{} ({code})", told.message()),
        None => told.message().to_owned(),
    };
    match sort(told.as_ref()) {
        Sort::Transient => Fault::Transient(why),
        Sort::Locked => Fault::Locked(why),
        Sort::Lost => Fault::Lost(why),
        Sort::Unfit => Fault::Unfit(why),
        Sort::Row => Fault::Row { why, taken: false },
        Sort::Taken => Fault::Row { why, taken: true },
    }
}

/// What an error code of a database means to us. Codes nobody thought of are transient: rows wait, none is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    Transient,
    Locked,
    Lost,
    Unfit,
    Row,
    Taken,
}
