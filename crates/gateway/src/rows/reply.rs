//! What a session answered, as the status of the protobuf interface.

use rowapi::{Row, RowReply, ScanReply, Status};
use table::Table;

use super::answer::Answer;
use super::values::{fields_of, text_in};

/// How another node's HTTP address is known, given its Redis address.
pub type HttpOf<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A status with its reason and, perhaps, whom to ask instead.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    pub status: Status,
    pub error: String,
    pub leader: String,
}

impl Verdict {
    pub fn new(status: Status, error: impl Into<String>) -> Verdict {
        Verdict {
            status,
            error: error.into(),
            leader: String::new(),
        }
    }

    /// Of an error line of a session.
    pub fn of_error(line: &str, http_of: HttpOf<'_>) -> Verdict {
        let code = line.split(' ').next().unwrap_or_default();
        let status = match code {
            "MOVED" => Status::NotLeader,
            "ASK" => Status::SlotMoving,
            "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "BUSY" | "MASTERDOWN" | "UNBLOCKED" => {
                Status::Retry
            }
            // It may have happened or happen yet. With its request id it can be sent again.
            "INDOUBT" => Status::Timeout,
            "TIMEOUT" => Status::Timeout,
            _ => Status::Error,
        };
        let mut verdict = Verdict::new(status, line);
        if matches!(status, Status::NotLeader | Status::SlotMoving) {
            let address = line.split(' ').nth(2).unwrap_or_default();
            verdict.leader = http_of(address).unwrap_or_default();
        }
        verdict
    }

    /// The session ended before it answered.
    pub fn lost(is_write: bool) -> Verdict {
        match is_write {
            true => Verdict::new(
                Status::Timeout,
                "TIMEOUT the node stopped before this was answered; it may have been done",
            ),
            false => Verdict::new(Status::Retry, "TRYAGAIN the node is stopping"),
        }
    }

    pub fn late() -> Verdict {
        Verdict::new(
            Status::Timeout,
            "TIMEOUT not known before the deadline; a write may have been done",
        )
    }

    /// The table's own code has said what this layer cannot read.
    fn strange(answer: &Answer) -> Verdict {
        let shown: String = format!("{answer:?}").chars().take(200).collect();
        Verdict::new(Status::Error, format!("ERR unexpected reply: {shown}"))
    }

    pub fn row(self, epoch: u64) -> RowReply {
        RowReply {
            status: self.status.into(),
            error: self.error,
            leader: self.leader,
            schema_epoch: epoch,
            ..RowReply::default()
        }
    }

    pub fn scan(self) -> ScanReply {
        ScanReply {
            status: self.status.into(),
            error: self.error,
            leader: self.leader,
            ..ScanReply::default()
        }
    }
}

fn named(word: &str) -> Option<Status> {
    Some(match word {
        "ok" => Status::Ok,
        "version_mismatch" => Status::VersionMismatch,
        "exist" => Status::Exist,
        "not_exist" => Status::NotExist,
        "unchanged" => Status::Unchanged,
        "cas_not_equal" => Status::CasNotEqual,
        _ => return None,
    })
}

/// `[status, version, [field, value …]]`, or an error.
pub fn row_of(table: &Table, answer: &Answer, http_of: HttpOf<'_>) -> RowReply {
    let epoch = table.epoch;
    let parts = match answer {
        Answer::Error(line) => return Verdict::of_error(line, http_of).row(epoch),
        Answer::List(parts) => parts.as_slice(),
        other => return Verdict::strange(other).row(epoch),
    };
    let read = match parts {
        [status, Answer::Int(version), Answer::List(fields)] => {
            let status = text_in(status).and_then(|word| named(&word));
            status.map(|status| (status, *version, fields_of(table, fields)))
        }
        _ => None,
    };
    match read {
        Some((status, version, fields)) => RowReply {
            status: status.into(),
            version,
            fields,
            schema_epoch: epoch,
            ..RowReply::default()
        },
        None => Verdict::strange(answer).row(epoch),
    }
}

/// One reply for each of `count` rows.
pub fn rows_of(table: &Table, answer: &Answer, count: usize, http_of: HttpOf<'_>) -> Vec<RowReply> {
    match answer {
        Answer::List(rows) if rows.len() == count => rows
            .iter()
            .map(|answer| row_of(table, answer, http_of))
            .collect(),
        other => vec![row_of(table, other, http_of); count],
    }
}

/// `+OK`, or why not.
pub fn kicked(table: &Table, answer: &Answer, http_of: HttpOf<'_>) -> RowReply {
    let verdict = match answer {
        Answer::Text(_) => Verdict::new(Status::Ok, ""),
        // It will go when the database has it.
        Answer::Error(line) if line.contains("is not in SQL yet") => {
            Verdict::new(Status::Retry, line)
        }
        Answer::Error(line) => Verdict::of_error(line, http_of),
        other => Verdict::strange(other),
    };
    verdict.row(table.epoch)
}

/// The version that SQL has; nothing if it did not get that far in time.
pub fn waited(table: &Table, answer: &Answer, http_of: HttpOf<'_>) -> RowReply {
    let verdict = match answer {
        Answer::Int(version) => {
            return RowReply {
                version: *version,
                ..Verdict::new(Status::Ok, "").row(table.epoch)
            };
        }
        Answer::Nil => Verdict::late(),
        Answer::Error(line) => Verdict::of_error(line, http_of),
        other => Verdict::strange(other),
    };
    verdict.row(table.epoch)
}

/// `[cursor, [[key, version, [field, value …]] …]]`.
pub fn page_of(table: &Table, answer: &Answer, http_of: HttpOf<'_>) -> ScanReply {
    if let Answer::Error(line) = answer {
        return Verdict::of_error(line, http_of).scan();
    }
    match read_page(table, answer) {
        Some((cursor, rows)) => ScanReply {
            cursor,
            rows,
            schema_epoch: table.epoch,
            ..Verdict::new(Status::Ok, "").scan()
        },
        None => Verdict::strange(answer).scan(),
    }
}

fn read_page(table: &Table, answer: &Answer) -> Option<(String, Vec<Row>)> {
    let Answer::List(parts) = answer else {
        return None;
    };
    let [cursor, Answer::List(rows)] = parts.as_slice() else {
        return None;
    };
    let cursor = match cursor {
        Answer::Int(cursor) => cursor.to_string(),
        other => text_in(other)?,
    };
    let cursor = match cursor.as_str() {
        "0" => String::new(),
        _ => cursor,
    };
    let row = |answer: &Answer| {
        let Answer::List(parts) = answer else {
            return None;
        };
        match parts.as_slice() {
            [key, Answer::Int(version), Answer::List(fields)] => Some(Row {
                key: text_in(key)?,
                version: *version,
                fields: fields_of(table, fields),
            }),
            _ => None,
        }
    };
    let rows: Option<Vec<Row>> = rows.iter().map(row).collect();
    Some((cursor, rows?))
}

#[cfg(test)]
mod tests {
    use super::super::values::tests::table;
    use super::*;

    fn bulk(text: &'static str) -> Answer {
        Answer::Bulk(bytes::Bytes::from_static(text.as_bytes()))
    }

    const NOWHERE: HttpOf<'static> = &|_| None;

    #[test]
    fn every_error_has_a_status() {
        let http: HttpOf<'_> = &|redis| (redis == "10.0.0.1:6379").then(|| "10.0.0.1:8379".into());
        for (line, status, leader) in [
            ("MOVED 3 10.0.0.1:6379", Status::NotLeader, "10.0.0.1:8379"),
            ("MOVED 3 10.0.0.2:6379", Status::NotLeader, ""),
            ("ASK 3 10.0.0.1:6379", Status::SlotMoving, "10.0.0.1:8379"),
            ("TRYAGAIN a leader is being chosen", Status::Retry, ""),
            ("CLUSTERDOWN Hash slot not served", Status::Retry, ""),
            ("INDOUBT the leader changed", Status::Timeout, ""),
            ("WRONGTYPE no", Status::Error, ""),
            ("ERR table 'users' has no field 'x'", Status::Error, ""),
            ("", Status::Error, ""),
        ] {
            let verdict = Verdict::of_error(line, http);
            assert_eq!(
                (verdict.status, verdict.leader.as_str()),
                (status, leader),
                "{line}"
            );
            assert_eq!(verdict.error, line);
        }
    }

    #[test]
    fn three_parts_are_a_row() {
        let table = table();
        let answer = Answer::List(vec![
            Answer::Text("cas_not_equal".into()),
            Answer::Int(4),
            Answer::List(vec![bulk("age"), bulk("17")]),
        ]);
        let row = row_of(&table, &answer, NOWHERE);
        assert_eq!(row.status(), Status::CasNotEqual);
        assert_eq!((row.version, row.schema_epoch), (4, 3));
        assert_eq!(row.fields["age"], 17i64.into());
        for strange in [
            Answer::Nil,
            Answer::Int(1),
            Answer::List(vec![]),
            Answer::List(vec![bulk("fine"), Answer::Int(1), Answer::List(vec![])]),
        ] {
            let row = row_of(&table, &strange, NOWHERE);
            assert_eq!(row.status(), Status::Error, "{strange:?}");
        }
    }

    #[test]
    fn many_rows_or_one_reason_for_all() {
        let table = table();
        let one = Answer::List(vec![
            bulk("not_exist"),
            Answer::Int(-2),
            Answer::List(vec![]),
        ]);
        let two = Answer::List(vec![one.clone(), one]);
        let rows = rows_of(&table, &two, 2, NOWHERE);
        assert!(
            rows.iter()
                .all(|row| row.status() == Status::NotExist && row.version == -2)
        );
        let rows = rows_of(&table, &Answer::Error("TRYAGAIN".into()), 3, NOWHERE);
        assert_eq!(rows.len(), 3);
        assert!(rows.iter().all(|row| row.status() == Status::Retry));
    }

    #[test]
    fn pages() {
        let table = table();
        let row = Answer::List(vec![
            bulk("alice"),
            Answer::Int(2),
            Answer::List(vec![bulk("raw"), bulk("z")]),
        ]);
        let page = |cursor| Answer::List(vec![bulk(cursor), Answer::List(vec![row.clone()])]);
        let read = page_of(&table, &page("alice"), NOWHERE);
        assert_eq!((read.status(), read.cursor.as_str()), (Status::Ok, "alice"));
        assert_eq!(read.rows[0].fields["raw"], vec![b'z'].into());
        assert_eq!(page_of(&table, &page("0"), NOWHERE).cursor, "");
        let wrong = Answer::List(vec![bulk("0"), Answer::List(vec![Answer::Nil])]);
        assert_eq!(page_of(&table, &wrong, NOWHERE).status(), Status::Error);
    }
}
