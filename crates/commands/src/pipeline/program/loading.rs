//! Running the code of libraries, so that they register their functions.

use std::time::Duration;

use tierce_keyspace::CodeStore;
use tierce_lua::{Failure, Function, Host, Library, LogLevel, NoSuchCommand, Replication, Stop};
use tierce_wire::resp::Proto;

use super::{Workspace, outbox};
use crate::kernel::Kernel;
use crate::scripting::{Code, LibraryHost};

/// Time limit for a library to register its functions.
const LOAD_TIME_MAX: Duration = Duration::from_millis(500);

/// Time limit for a library that was once loaded within [`LOAD_TIME_MAX`], so that it still loads on a busier
/// machine.
const ACCEPTED_TIME_MAX: Duration = Duration::from_secs(10);

impl LibraryHost for Kernel {
    fn code(&self) -> &CodeStore {
        self.keyspace.code()
    }

    fn run(&self, library: &Library, code: Code) -> Result<Vec<Function>, Failure> {
        let mut host = LoadingHost { kernel: self };
        let time_max = match code {
            Code::New => LOAD_TIME_MAX,
            Code::Accepted => ACCEPTED_TIME_MAX,
        };
        Workspace::with(self, |workspace| workspace.machine().load(library, &mut host, time_max))
    }

    fn can_run(&self) -> bool {
        !Workspace::is_in_use()
    }

    fn tell_unusable(&self, name: &[u8], reason: &str) {
        self.log.warning(format_args!(
            "The functions of the library {} cannot be called: {reason}. FUNCTION LOAD REPLACE replaces it, and \
             FUNCTION DELETE removes it",
            name.escape_ascii()
        ));
    }
}

/// Interface for the code of a library while it registers its functions: the server's log.
struct LoadingHost<'k> {
    kernel: &'k Kernel,
}

impl Host for LoadingHost<'_> {
    fn call(&mut self, _: &[&[u8]], _: Proto, reply: &mut Vec<u8>) -> Result<(), Stop> {
        // The machine offers no commands to this code.
        reply.extend_from_slice(b"-ERR commands can be called by functions only\r\n");
        Ok(())
    }

    /// The machine checks the time limit.
    fn look(&mut self) -> Result<(), Stop> {
        Ok(())
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        outbox::log(self.kernel, level, message);
    }

    fn acl_check(&mut self, _: &[&[u8]]) -> Result<bool, NoSuchCommand> {
        Err(NoSuchCommand)
    }

    fn set_repl(&mut self, _: Replication) {}
}
