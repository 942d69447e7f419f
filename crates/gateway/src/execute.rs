//! Runs the commands of a request: on the runtime's thread if they cannot block, otherwise on one of the threads that
//! may wait.
//!
//! Requests are stateless. So commands that only affect a connection, or that wait for keys, are refused.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tierce_commands::Effort;
use tierce_commands::barrier::ReplyBarrier;
use tierce_commands::caller::Caller;
use tierce_commands::command::{Command, Flags};
use tierce_commands::error::CommandError;
use tierce_commands::kernel::Kernel;
use tierce_commands::pipeline;
use tierce_json::Form;
use tierce_output::Output;
use tierce_wire::resp::{Args, OwnedArgs, Value};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;
use tokio::time::timeout_at;

use crate::failure::Failure;
use crate::shared::{KernelHandle, Shared};
use crate::waiting::{AT_ONCE_BYTES, busy, ending};

/// Maximum size of all replies to a request. They are in memory twice, as RESP and as JSON.
const REPLY_BYTES_MAX: usize = 256 << 20;

/// Time that a reply waits for the bucket during shutdown, which waits for the reply.
const END_PATIENCE: Duration = Duration::from_secs(3);

/// Time after which a command that waits for a key, for memory or for the end of a pause yields its thread to other
/// requests.
const GIVES_WAY_AFTER: Duration = Duration::from_millis(100);

/// Number of commands that the runtime's thread executes for a request before it leaves the rest to another thread.
const AT_ONCE_MAX: usize = 16;

/// Commands about the connection that they come from.
const OF_CONNECTIONS: &[&str] = &[
    "asking",
    "auth",
    "discard",
    "exec",
    "exit",
    "hello",
    "monitor",
    "multi",
    "psync",
    "quit",
    "readonly",
    "readwrite",
    "replconf",
    "reset",
    "script|debug",
    "select",
    "shutdown",
    "sync",
    "unwatch",
    "watch",
];

/// Subcommands of CLIENT that concern other clients too.
const OF_CLIENTS: &[&str] = &[
    "client|help",
    "client|kill",
    "client|list",
    "client|pause",
    "client|unblock",
    "client|unpause",
];

/// Restriction of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// Everything that its user may do.
    Everything,
    /// Only reading: the request may come from an image of a web page.
    Reading,
}

/// Commands of a request.
pub(crate) struct Calls {
    pub(crate) commands: Vec<OwnedArgs>,
    /// Size of the request body.
    pub(crate) bytes: usize,
    pub(crate) allowed: Allowed,
    /// True if they are one transaction.
    pub(crate) together: bool,
    /// Form of the replies.
    pub(crate) form: Form,
    /// Time at which their deferral ends.
    pub(crate) until: Instant,
}

/// Runs the commands, and returns the body with their replies in order. For a transaction, this is the reply of EXEC
/// alone, or its error.
pub(crate) async fn run(
    shared: &Arc<Shared>,
    kernel: &KernelHandle,
    caller: Caller,
    mut calls: Calls,
) -> Result<Vec<u8>, Failure> {
    let output = Output::with_room(REPLY_BYTES_MAX);
    let mut work = Work { caller, output, through: 0 };
    let body = Body { form: calls.form, together: calls.together, count: calls.commands.len() };
    let are_few = calls.commands.len() <= AT_ONCE_MAX && calls.bytes <= AT_ONCE_BYTES;
    if !calls.together && are_few {
        work.run_at_once(kernel, &calls)?;
        if work.through == calls.commands.len() {
            return body.encode(shared, work.output, None, None).await;
        }
    }
    loop {
        let effort = work.effort(kernel, &calls);
        let permit = shared.waiting.permit(effort);
        let permit = timeout_at(calls.until.into(), permit).await.unwrap_or_else(|_| Err(busy()));
        let permit = match permit {
            Ok(permit) => permit,
            Err(failure) if work.through == 0 => return Err(failure),
            Err(failure) => return body.encode(shared, work.output, Some(&failure), None).await,
        };
        let threads = (Arc::clone(shared), Arc::clone(kernel));
        // The thread also frees the commands, which may be many.
        let ran = spawn_blocking(move || {
            let (shared, kernel) = threads;
            let ran = match calls.together {
                true => Ran::through(work.run_together(&shared, &kernel, &calls)),
                false => work.run_rest(&shared, &kernel, calls, effort),
            };
            (ran, permit)
        });
        match ran.await.map_err(|_| ending())? {
            // A disconnected client does not come here.
            (Ran::Through(output), permit) => {
                return body.encode(shared, (*output)?, None, Some(permit)).await;
            }
            (Ran::GivesWay(left), _) => (work, calls) = *left,
        }
    }
}

/// State in which a thread leaves a request.
enum Ran {
    Through(Box<Result<Output, Failure>>),
    /// A command waits for a key, and another request for the thread.
    GivesWay(Box<(Work, Calls)>),
}

impl Ran {
    fn through(result: Result<Output, Failure>) -> Self {
        Self::Through(Box::new(result))
    }
}

/// Builder of a response body from the replies to a request.
#[derive(Clone, Copy)]
struct Body {
    form: Form,
    together: bool,
    /// Number of commands of the request.
    count: usize,
}

impl Body {
    /// Returns the body with these replies; `rest` is the error of commands without one.
    async fn encode(
        self,
        shared: &Shared,
        output: Output,
        rest: Option<&Failure>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<Vec<u8>, Failure> {
        let bytes = output.written();
        let rest = rest.map(|failure| Value::Error(failure.text().as_bytes().into()));
        let encode = move || {
            let mut replies = tierce_json::decode(&output.into_bytes())?;
            if self.together {
                replies = of_transaction(replies.pop())?;
            }
            if let Some(error) = rest {
                replies.resize(self.count, error);
            }
            Ok(self.form.encode(&replies)?)
        };
        shared.waiting.convert(bytes, encode, permit).await?
    }
}

/// Returns the replies in the reply of EXEC.
fn of_transaction(exec: Option<Value>) -> Result<Vec<Value>, Failure> {
    match exec {
        Some(Value::Array(values)) => Ok(values),
        Some(Value::Error(text)) => Err(Failure::of_command(&String::from_utf8_lossy(&text))),
        _ => Err(Failure::malformed("ERR the transaction has no reply")),
    }
}

struct Work {
    caller: Caller,
    output: Output,
    /// Number of commands that have replied.
    through: usize,
}

impl Work {
    /// Returns the effort of the remaining commands, once nothing defers them.
    fn effort(&self, kernel: &Kernel, calls: &Calls) -> Effort {
        let left = &calls.commands[self.through..];
        if calls.together || left.len() > AT_ONCE_MAX {
            return Effort::Long;
        }
        let efforts = left.iter().map(|command| kernel.effort_of(command.as_args()));
        efforts.max().unwrap_or(Effort::NoData)
    }

    /// Runs commands until one has to wait.
    fn run_at_once(&mut self, kernel: &Kernel, calls: &Calls) -> Result<(), Failure> {
        for command in &calls.commands {
            let args = command.as_args();
            if !self.refuses(kernel, args, calls.allowed)
                && !kernel.execute_at_once(&mut self.caller, args, &mut self.output)
            {
                break;
            }
            self.check()?;
            self.through += 1;
        }
        Ok(())
    }

    /// Runs the remaining commands.
    fn run_rest(mut self, shared: &Shared, kernel: &Kernel, calls: Calls, effort: Effort) -> Ran {
        let mut barrier = ReplyBarrier::default();
        while let Some(command) = calls.commands.get(self.through) {
            let args = command.as_args();
            if !self.refuses(kernel, args, calls.allowed) {
                let began = Instant::now();
                let gives_up = || shared.is_ending() || Instant::now() >= calls.until;
                // A request that has executed something keeps its thread, on which its replies wait.
                let gives_way = || {
                    self.through == 0
                        && began.elapsed() >= GIVES_WAY_AFTER
                        && shared.waiting.is_thread_wanted(effort)
                };
                let (caller, output) = (&mut self.caller, &mut self.output);
                match kernel.execute_off_worker(caller, args, output, &gives_up, &gives_way) {
                    Some(also) => barrier = barrier.and(also),
                    None => return Ran::GivesWay(Box::new((self, calls))),
                }
            }
            self.through += 1;
            if let Err(failure) = self.check() {
                return Ran::through(Err(failure));
            }
        }
        Ran::through(acknowledge(shared, kernel, barrier).map(|()| self.output))
    }

    /// Runs all commands in one transaction.
    fn run_together(
        mut self,
        shared: &Shared,
        kernel: &Kernel,
        calls: &Calls,
    ) -> Result<Output, Failure> {
        let fails = |error: &CommandError| Failure::of_command(error.as_str());
        self.caller.begin_transaction().map_err(|error| fails(&error))?;
        let gives_up = || shared.is_ending() || Instant::now() >= calls.until;
        for command in &calls.commands {
            let args = command.as_args();
            if !self.refuses(kernel, args, calls.allowed) {
                // The command is queued, or refused.
                let (caller, output) = (&mut self.caller, &mut self.output);
                let _ = kernel.execute_off_worker(caller, args, output, &gives_up, &|| false);
            }
            let queued = tierce_json::decode(
                &std::mem::replace(&mut self.output, Output::new()).into_bytes(),
            )?;
            if let Some(Value::Error(cause)) = queued.first() {
                let cause = String::from_utf8_lossy(cause);
                let text = format!("EXECABORT Transaction discarded because of: {cause}");
                return Err(Failure::malformed(text));
            }
        }
        self.output = Output::with_room(REPLY_BYTES_MAX);
        let barrier = kernel.exec_off_worker(&mut self.caller, &mut self.output, &gives_up);
        self.check()?;
        acknowledge(shared, kernel, barrier)?;
        Ok(self.output)
    }

    /// Returns true if a command is not allowed over HTTP; its error reply is written then.
    fn refuses(&mut self, kernel: &Kernel, args: Args<'_>, allowed: Allowed) -> bool {
        let Ok(command) = pipeline::resolve(kernel, args) else { return false };
        let Some(error) = refusal(command, args, allowed) else { return false };
        let buffer = self.output.buffer();
        buffer.push(b'-');
        buffer.extend_from_slice(error.as_bytes());
        buffer.extend_from_slice(b"\r\n");
        true
    }

    /// Checks that the user still exists, and that there is room for replies.
    fn check(&mut self) -> Result<(), Failure> {
        if self.caller.closing {
            let text = "NOAUTH the user of this request was deleted meanwhile";
            return Err(Failure::closing(StatusCode::UNAUTHORIZED, text));
        }
        if !self.output.exceeds_limit() {
            return Ok(());
        }
        let text = format!("ERR the replies are longer than {REPLY_BYTES_MAX} bytes");
        Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text))
    }
}

/// Waits for the bucket and its lease, once for all commands of a request.
fn acknowledge(shared: &Shared, kernel: &Kernel, barrier: ReplyBarrier) -> Result<(), Failure> {
    let ends_at = Cell::new(None);
    let gives_up = || {
        shared.is_ending() && {
            let at = ends_at.get().unwrap_or_else(|| Instant::now() + END_PATIENCE);
            ends_at.set(Some(at));
            Instant::now() >= at
        }
    };
    kernel.await_replies(barrier, &gives_up).map_err(|error| Failure::of_command(error.as_str()))
}

/// Returns why a command is not allowed over HTTP.
fn refusal(command: &Command, args: Args<'_>, allowed: Allowed) -> Option<String> {
    let (flags, name) = (command.spec.flags, command.full_name.as_str());
    let is_of_connection = OF_CONNECTIONS.contains(&name)
        || flags.contains(Flags::SUBSCRIBING)
        || name.starts_with("client|") && !OF_CLIENTS.contains(&name);
    if is_of_connection {
        return Some(format!(
            "ERR {name} is about a connection, which requests over HTTP have not"
        ));
    }
    // These two wait only if asked to.
    let may_read = matches!(name, "xread" | "xreadgroup") && !is_blocking_read(args);
    let waits = flags.contains(Flags::BLOCKING) && !may_read || name == "migrate";
    if waits || flags.contains(Flags::NONBLOCKING) {
        return Some(format!("ERR {name} may wait, which requests over HTTP must not"));
    }
    if allowed == Allowed::Reading && !flags.contains(Flags::READONLY) {
        return Some(format!(
            "ERR a GET without the header Authorization may only read, and {name} may do more: use POST"
        ));
    }
    None
}

/// Returns true if XREAD or XREADGROUP has the option BLOCK.
fn is_blocking_read(args: Args<'_>) -> bool {
    let mut options = args.iter().skip(1).take_while(|arg| !arg.eq_ignore_ascii_case(b"streams"));
    options.any(|arg| arg.eq_ignore_ascii_case(b"block"))
}
