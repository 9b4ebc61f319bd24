//! From what the database or the connection says to what becomes of the records.
//!
//! | SQLSTATE | what it means | what follows |
//! | --- | --- | --- |
//! | 40001, 40P01 | serialization failure, deadlock | the statement again, at once |
//! | the rest of 22… and 23…, 44…, 54…, P0…, and whatever isn't named here | a row is to blame | it is found, and refused |
//! | 23503 | a row that it refers to isn't there (yet) | it is found, and tried later |
//! | 25…, 53…, 55…, 57…, 58…, 72…, F0…, HV…, XX001, XX002 | the server can't now: a standby, no room, locks, a shutdown, a timeout, a server behind it, damage | later |
//! | 08P01, 0A000, 22P03, 26000, 34000, 42… | the table isn't what it was | it is looked at again; where that doesn't help, the task fails |
//! | the rest of 08…, 40003, no answer | nobody knows whether it was written | again, over a new connection |
//! | 28…, 3D000, 42501 | not allowed | the task fails |

use std::fmt;

use sharegroup_sink::PutError;
use tokio_postgres::Error;

/// Why a statement wasn't carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) kind: TroubleKind,
    pub(super) reason: String,
    /// Which row of a COPY it is, from 0, where the server names it and it may be refused for that.
    pub(super) row: Option<usize>,
}

/// Who is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TroubleKind {
    /// A row of it, for good.
    Row,
    /// A row of it, for now.
    RowLater,
    /// Another transaction at the same time.
    Collision,
    /// The server's state.
    Later,
    /// The connection: the statement may have been carried out.
    Unknown,
    /// The table changed, or isn't what is needed.
    Changed,
    /// What only a person can change.
    Broken,
}

impl Trouble {
    pub(super) fn new(kind: TroubleKind, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self {
            kind,
            reason,
            row: None,
        }
    }

    /// What an error of a statement means.
    pub(super) fn of(error: &Error) -> Self {
        let Some(said) = error.as_db_error() else {
            return Self::new(TroubleKind::Unknown, with_causes(error));
        };
        let code = said.code().code();
        // Its detail would show the row.
        let mut reason = format!("{} (SQLSTATE {code})", said.message());
        if let Some(column) = said.column()
            && !reason.contains(column)
        {
            reason = format!("column {column}: {reason}");
        }
        let mut trouble = Self::new(kind_of(code), reason);
        // A row that is there already may be the same one.
        if trouble.kind == TroubleKind::Row && code != "23505" {
            trouble.row = said.where_().and_then(row_of_copy);
        }
        trouble
    }

    /// What the runtime is told where no single row is to blame.
    pub(super) fn put_error(self) -> PutError {
        match self.kind {
            TroubleKind::Broken | TroubleKind::Changed => PutError::broken(self.to_string()),
            _ => PutError::retriable(self.to_string()),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// The error and its causes.
fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// The row that the context of an error names, as `COPY orders, line 3, column id: ...` on a line of its own.
fn row_of_copy(context: &str) -> Option<usize> {
    let copy = context.lines().find(|line| line.starts_with("COPY "))?;
    let (_, line) = copy.rsplit_once(", line ")?;
    let digits = line.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse::<usize>().ok()?.checked_sub(1)
}

fn kind_of(code: &str) -> TroubleKind {
    match code {
        "40001" | "40P01" => TroubleKind::Collision,
        "40003" => TroubleKind::Unknown,
        "23503" => TroubleKind::RowLater,
        "42501" | "3D000" | "3F000" => TroubleKind::Broken,
        // Damage of a table or an index, which no row has done.
        "XX001" | "XX002" => TroubleKind::Later,
        "0A000" | "34000" | "26000" | "08P01" | "22P03" => TroubleKind::Changed,
        _ => match code.get(..2).unwrap_or_default() {
            "08" => TroubleKind::Unknown,
            "25" | "53" | "55" | "57" | "58" | "72" | "F0" | "HV" => TroubleKind::Later,
            "42" => TroubleKind::Changed,
            "28" => TroubleKind::Broken,
            _ => TroubleKind::Row,
        },
    }
}

/// Whether another connection may fare better than the one that said this.
pub(super) fn needs_new_connection(error: &Error) -> bool {
    let code = error.code().map(|code| code.code().to_owned());
    error.is_closed()
        || error.as_db_error().is_none()
        || code.is_some_and(|code| {
            ["08", "25", "57P", "26000"]
                .iter()
                .any(|start| code.starts_with(start))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_of_a_copy_is_read_from_the_context() {
        for (context, row) in [
            ("COPY orders, line 3", Some(2)),
            ("COPY orders, line 12, column name", Some(11)),
            (
                "PL/pgSQL function f() line 1 at RAISE\nCOPY orders, line 1",
                Some(0),
            ),
            ("PL/pgSQL function f() line 1 at RAISE", None),
            ("COPY orders, line 0", None),
            ("COPY orders, line x", None),
        ] {
            assert_eq!(row_of_copy(context), row, "{context}");
        }
    }

    #[test]
    fn each_state_is_what_the_table_says() {
        for (code, kind) in [
            ("22001", TroubleKind::Row),
            ("23505", TroubleKind::Row),
            ("54000", TroubleKind::Row),
            ("P0001", TroubleKind::Row),
            ("XX000", TroubleKind::Row),
            ("23503", TroubleKind::RowLater),
            ("40P01", TroubleKind::Collision),
            ("53100", TroubleKind::Later),
            ("55P03", TroubleKind::Later),
            ("57014", TroubleKind::Later),
            ("25006", TroubleKind::Later),
            ("25P04", TroubleKind::Later),
            ("72000", TroubleKind::Later),
            ("F0000", TroubleKind::Later),
            ("HV00N", TroubleKind::Later),
            ("XX001", TroubleKind::Later),
            ("08006", TroubleKind::Unknown),
            ("08P01", TroubleKind::Changed),
            ("40003", TroubleKind::Unknown),
            ("42P01", TroubleKind::Changed),
            ("42501", TroubleKind::Broken),
            ("28P01", TroubleKind::Broken),
        ] {
            assert_eq!(kind_of(code), kind, "{code}");
        }
    }
}
