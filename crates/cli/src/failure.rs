//! How failures are told, and the exit codes.

use std::error::Error as StdError;
use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use tidegate_change::{Code, Error, Kind};

use crate::arguments::Role;

/// The command failed, a refused batch included.
const FAILED: u8 = 1;
/// The command line or a spec cannot be used.
const USAGE: u8 = 2;
/// A wait ran out of time.
const STILL_RUNNING: u8 = 3;
/// What the command needs is held by another, or does not answer.
const UNAVAILABLE: u8 = 4;
/// The log of a node failed: its supervisor starts it again.
const LOG_FAILED: u8 = 70;
/// The reader of the output went away: what a shell reports of a process that SIGPIPE ended.
const BROKEN_PIPE: u8 = 141;

/// Prints a failure and returns its exit code.
pub(crate) fn report(error: &Error, role: Role) -> ExitCode {
    if is_broken_pipe(error) {
        return ExitCode::from(BROKEN_PIPE);
    }
    write_stderr(&text_of(error));
    ExitCode::from(exit_code(error, role))
}

/// Prints why a node cannot go on and returns its exit code.
pub(crate) fn report_failed_node(error: &Error) -> ExitCode {
    write_stderr(&text_of(error));
    ExitCode::from(LOG_FAILED)
}

/// Prints what is wrong with the command line, or the help that was asked for.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let text = error.render().to_string();
            let printed = std::io::stdout().lock().write_all(text.as_bytes());
            ExitCode::from(if printed.is_ok() { 0 } else { BROKEN_PIPE })
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            write_stderr(&error.render().to_string());
            ExitCode::from(USAGE)
        }
        _ => {
            let text = error.render().to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            write_stderr(&format!("error[{}]: {text}", Code::InvalidArgument));
            ExitCode::from(USAGE)
        }
    }
}

/// A panic is a fault of Tidegate; its message may quote a row, so only its place is told.
pub(crate) fn tame_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic
            .location()
            .map_or_else(String::new, |l| format!(" at {l}"));
        write_stderr(&format!(
            "error[{}]: a fault of Tidegate{place}\nhint: please report it; what was acknowledged is safe\n",
            Code::Internal
        ));
    }));
}

fn text_of(error: &Error) -> String {
    let mut text = format!("error[{}]: {error}\n", error.code());
    if let Some(hint) = error.hint() {
        text.push_str(&format!("hint: {hint}\n"));
    }
    let mut cause = error.source();
    while let Some(source) = cause {
        text.push_str(&format!("caused by: {source}\n"));
        cause = source.source();
    }
    text
}

fn exit_code(error: &Error, role: Role) -> u8 {
    match error.code() {
        Code::DirectoryHeld | Code::Unavailable | Code::NotLeader => UNAVAILABLE,
        Code::TimedOut => STILL_RUNNING,
        Code::InvalidArgument
        | Code::InvalidSpec
        | Code::InvalidAlter
        | Code::NoStart
        | Code::InvalidVersion
        | Code::InvalidRange => USAGE,
        _ if role == Role::Definition
            && matches!(error.kind(), Kind::Invalid | Kind::Unsupported)
            && !is_about_existing(error.code()) =>
        {
            USAGE
        }
        _ => FAILED,
    }
}

/// Whether the refusal is about what is there, not about what the spec says.
fn is_about_existing(code: Code) -> bool {
    matches!(
        code,
        Code::TableNotFound | Code::TableExists | Code::PermissionDenied | Code::Quarantined
    )
}

fn is_broken_pipe(error: &Error) -> bool {
    let mut cause = error.source();
    while let Some(source) = cause {
        let io = source.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe) {
            return true;
        }
        cause = source.source();
    }
    false
}

/// Nobody is left to tell when standard error fails.
fn write_stderr(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_spec_is_usage_and_a_refused_batch_is_a_failure() {
        let error = Error::new(Code::UnknownColumn, "column x is not in the source schema");
        assert_eq!(exit_code(&error, Role::Definition), USAGE);
        assert_eq!(exit_code(&error, Role::Data), FAILED);
        let held = Error::new(Code::DirectoryHeld, "directory d is held by process 7");
        assert_eq!(exit_code(&held, Role::Data), UNAVAILABLE);
        assert_eq!(
            exit_code(&Error::new(Code::NullKey, "…"), Role::Data),
            FAILED
        );
        assert_eq!(
            exit_code(&Error::new(Code::TableExists, "…"), Role::Definition),
            FAILED
        );
    }

    #[test]
    fn a_failure_is_told_with_code_hint_and_causes() {
        let cause = std::io::Error::other("the disk");
        let error = Error::new(Code::Io, "file a: cannot be read or written")
            .with_hint("try again")
            .with_source(cause);
        assert_eq!(
            text_of(&error),
            "error[IO]: file a: cannot be read or written\nhint: try again\ncaused by: the disk\n"
        );
    }

    #[test]
    fn a_broken_pipe_is_no_failure_to_tell() {
        let error = Error::io("output", std::io::ErrorKind::BrokenPipe.into());
        assert!(is_broken_pipe(&error));
    }
}
