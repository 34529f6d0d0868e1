//! The exit codes of the command, and what a failed command tells its user. `docs/cli.md` has the same table.

use std::io;
use std::process::ExitCode;

use promethean_client::ClientError;
use thiserror::Error;

/// The kinds of failure that a program may want to tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The server refused, or a check found something wrong.
    Refused = 1,
    /// Flags, files or input cannot be used.
    Usage = 2,
    /// There is no server at the address.
    Unreachable = 3,
    /// The server does not accept the token, or the token does not allow this.
    Unauthorised = 4,
    /// What was named does not exist.
    NotFound = 5,
    /// The server cannot do it now.
    Later = 6,
    /// The user ended the command before its work was done.
    Interrupted = 130,
}

impl FailureKind {
    pub(crate) fn code(self) -> ExitCode {
        ExitCode::from(self as u8)
    }

    /// The kind of an error of the client, by its stable code.
    fn of_code(code: &str) -> Self {
        match code {
            "unreachable" | "disconnected" | "wrong_url" => Self::Unreachable,
            "unauthorized" | "bad_token" | "forbidden" | "forbidden_origin" => Self::Unauthorised,
            "history_gone"
            | "no_default_collection"
            | "no_history"
            | "not_found"
            | "unknown_backup"
            | "unknown_collection"
            | "unknown_event"
            | "unknown_group"
            | "unknown_id"
            | "unknown_letter"
            | "unknown_member"
            | "unknown_projector"
            | "unknown_schema"
            | "unknown_topic" => Self::NotFound,
            "auth_unavailable"
            | "busy"
            | "closed"
            | "fenced"
            | "internal"
            | "not_ready"
            | "poisoned"
            | "rate_limited"
            | "storage_failed"
            | "storage_full"
            | "timeout"
            | "too_many_connections"
            | "topic_deleted"
            | "unknown_outcome" => Self::Later,
            "bad_url" => Self::Usage,
            _ => Self::Refused,
        }
    }
}

/// A failure with its exit code.
#[derive(Debug, Error)]
#[error("{message}")]
pub(crate) struct CommandFailure {
    kind: FailureKind,
    message: String,
}

impl CommandFailure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The failure to reach the server at `url`.
    pub(crate) fn unreachable(url: &str, error: &ClientError) -> Self {
        let why = error.message().strip_prefix("cannot reach ").and_then(|text| text.split_once(": "));
        let why = why.and_then(|(_, text)| text.rsplit_once("; ")).map(|(why, _)| format!(" ({why})"));
        let why = why.unwrap_or_default();
        let message = match why.contains("certificate") {
            true => format!(
                "TLS with {url} failed{why}; if its certificate comes from an authority that this machine does not know, \
                 or from the server itself, name the file of that certificate with --ca-file"
            ),
            false => format!(
                "no server at {url}{why}; start one with `promethean serve`, or choose another with --url or \
                 `promethean context use`"
            ),
        };
        Self::new(FailureKind::Unreachable, message)
    }
}

/// Prints why a command failed, and returns its exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if is_closed_pipe(error) {
        // The reader, such as `head`, has all that it wanted.
        return ExitCode::SUCCESS;
    }
    if let Some(failure) = error.downcast_ref::<CommandFailure>() {
        eprintln!("promethean: {error:#}");
        return failure.kind.code();
    }
    if let Some(refused) = client_error(error) {
        eprintln!("promethean: {error:#} ({})", refused.code());
        let kind = FailureKind::of_code(refused.code());
        if kind == FailureKind::Unauthorised {
            eprintln!("{}", token_advice(refused.code()));
        }
        return kind.code();
    }
    eprintln!("promethean: {error:#}");
    FailureKind::Usage.code()
}

/// The error of the client that a failure comes from.
pub(crate) fn client_error(error: &anyhow::Error) -> Option<&ClientError> {
    error.chain().find_map(|cause| cause.downcast_ref::<ClientError>())
}

/// Whether standard output was closed by its reader.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kinds = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    client_error(error).is_none() && kinds.last() == Some(io::ErrorKind::BrokenPipe)
}

fn token_advice(code: &str) -> &'static str {
    match code {
        "forbidden" | "forbidden_origin" => {
            "the token is valid, but does not allow this: ask for one whose scopes do"
        }
        _ => {
            "give a token with --token-file FILE, in PROMETHEAN_TOKEN, or in a context (`promethean context add`)"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_their_kind() {
        let check = |code: &str, kind: FailureKind| assert_eq!(FailureKind::of_code(code), kind, "{code}");
        check("unreachable", FailureKind::Unreachable);
        check("bad_token", FailureKind::Unauthorised);
        check("unknown_group", FailureKind::NotFound);
        check("unknown_field", FailureKind::Refused);
        check("unknown_outcome", FailureKind::Later);
        check("schema_rejected", FailureKind::Refused);
        check("storage_full", FailureKind::Later);
    }

    /// A code that is added to the protocol has the exit code that its HTTP status asks for.
    #[test]
    fn codes_of_the_protocol_have_the_kind_of_their_status() {
        let protocol = include_str!("../../../docs/protocol.md");
        let table = protocol.split_once("## Error codes").unwrap().1;
        let rows = table.lines().filter(|line| line.starts_with("| `"));
        let mut seen = 0;
        for row in rows {
            let mut cells = row.split('|').skip(1).map(str::trim);
            let (codes, status) = (cells.next().unwrap(), cells.next().unwrap());
            let kind = match status {
                "401" | "403" => FailureKind::Unauthorised,
                "404" | "410" => FailureKind::NotFound,
                "429" | "503" | "507" => FailureKind::Later,
                "400" | "409" | "422" => FailureKind::Refused,
                // Rows of several statuses, and failures of the server of which a part passes.
                _ => continue,
            };
            for code in codes.split(',').map(|code| code.trim().trim_matches('`')) {
                // The topic can be created again at once.
                let kind = if code == "topic_deleted" { FailureKind::Later } else { kind };
                assert_eq!(FailureKind::of_code(code), kind, "{code}, {status}");
                seen += 1;
            }
        }
        assert!(seen > 50, "{seen}");
    }
}
