//! The effects of signals.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT};
use signal_hook::iterator::Signals;

use crate::config::DirectiveId;
use crate::log::Log;
use crate::server::Server;
use crate::shutdown::Shutdown;

use super::refusal::LogWithoutServer;

/// Handles signals. SIGHUP reopens the log file. The first SIGTERM or SIGINT ends the server gracefully. A later SIGINT
/// ends it at once, as in Redis. Later SIGTERMs are ignored: supervisors, and `timeout`, send several, and the last
/// snapshot would be lost. Until the server has `started` there is nothing to save or reply, and loading may take long:
/// it exits at once.
pub(super) fn watch_signals(
    mut signals: Signals,
    started: &Arc<OnceLock<Arc<Server>>>,
    log: LogWithoutServer,
) {
    let started = Arc::clone(started);
    let watch = move || {
        const SIGINT_MEANS: DirectiveId = DirectiveId::of("shutdown-on-sigint");
        const SIGTERM_MEANS: DirectiveId = DirectiveId::of("shutdown-on-sigterm");
        let mut ends = false;
        for signal in signals.forever() {
            if signal == SIGHUP {
                started.get().inspect(|server| reopen_log(&server.log));
                continue;
            }
            let Some(server) = started.get() else {
                let text = "A signal ends the start";
                log.write(&[text]);
                // A progress bar may be shown.
                let clear = if io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
                let _ = writeln!(io::stderr(), "{clear}tierce: {text}");
                std::process::exit(0);
            };
            // A shutdown that was aborted, or could not save, does not count.
            if std::mem::replace(&mut ends, true) && server.shutdown().is_asked() {
                if signal != SIGINT {
                    continue;
                }
                server.log.warning("SIGINT: ending at once, without what was left to do");
                std::process::exit(1);
            }
            let directive = if signal == SIGINT { SIGINT_MEANS } else { SIGTERM_MEANS };
            let reason = Shutdown::on_signal(&server.config.settings(), directive);
            server.request_shutdown(reason);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).expect("a thread at start-up");
}

fn reopen_log(log: &Log) {
    match log.reopen() {
        Ok(()) if log.is_file() => log.notice("SIGHUP: the log was opened again"),
        Ok(()) => {}
        Err(error) => log.warning(format_args!("SIGHUP: {error}; the log stays where it was")),
    }
}
