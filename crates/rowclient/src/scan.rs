//! All rows of a table, page by page.

use rowapi::ScanRequest;

use crate::Error;
use crate::table::{Row, Table};

/// Where a scan is.
pub struct Scan {
    table: Table,
    request: ScanRequest,
    is_over: bool,
}

impl Scan {
    pub(crate) fn new(table: Table) -> Scan {
        let request = ScanRequest {
            table: table.name.clone(),
            ..ScanRequest::default()
        };
        Scan {
            table,
            request,
            is_over: false,
        }
    }

    /// About so many rows per page.
    pub fn pages_of(mut self, rows: u32) -> Scan {
        self.request.count = rows;
        self
    }

    /// Only these fields.
    pub fn fields(mut self, fields: &[&str]) -> Scan {
        self.request.fields = fields.iter().map(|it| (*it).into()).collect();
        self
    }

    /// The next rows; none when that was all. A page may be empty, and be followed by others.
    pub async fn next_page(&mut self) -> Result<Option<Vec<Row>>, Error> {
        if self.is_over {
            return Ok(None);
        }
        let client = &self.table.client;
        // Walks go in the order of slots. A cursor is the server's affair; if it begins with a slot, that says whom to ask.
        let first = self.request.cursor.split(':').next();
        let slot = first.and_then(|it| it.parse().ok()).unwrap_or(0);
        let send = |mut client: rowapi::table_client::TableClient<_>, request| async move {
            client.scan(request).await
        };
        let page = client
            .call(Some(slot), self.request.clone(), client.timeout, send)
            .await?;
        self.is_over = page.cursor.is_empty();
        self.request.cursor = page.cursor;
        let rows = page.rows.into_iter().map(|row| Row {
            key: row.key,
            version: row.version,
            fields: row.fields,
        });
        Ok(Some(rows.collect()))
    }

    /// The rest at once: for small tables.
    pub async fn all(mut self) -> Result<Vec<Row>, Error> {
        let mut rows = Vec::new();
        while let Some(page) = self.next_page().await? {
            rows.extend(page);
        }
        Ok(rows)
    }
}
