//! The stages of a request, from its words to its reply. Each stage is written once for all callers.
//!
//! The stages in the order in which a request passes them:
//!
//! | stage | file | |
//! |---|---|---|
//! | plan | [`plan`] | finds the command, and hashes the key, of each request of a batch |
//! | admission | [`admission`] | checks if it may run now: pause, memory, the log, the role; `redirect` names the primary |
//! | admit | `admit` | checks if this client may make the call, unless all may |
//! | fetch | [`fetch`] | reads the values that it needs from disk, while nothing is locked |
//! | account | [`meter`] | times it: commandstats, the slow log, latency |
//! | account | [`sizes`] | notes it if it is large, or its reply |
//! | context | `context`, `request` | combines a turn of a thread and a request into all that a command may touch |
//! | lock | `locking` | finds the function of the command, and locks the declared keys; `guard` gives access to them |
//! | weigh | `weigh` | keeps long work from workers; `copies` computes from copies on another thread |
//! | run | `body`, `defined` | calls the function of the command with its arguments |
//! | within | `within`, `transaction`, `program` | runs the calls of EXEC and of scripts under one guard |
//! | wait | [`blocking`], `mode` | blocks clients until keys change or replicas confirm |
//! | serve | `serve` | serves the clients that wait for the changed keys |
//! | acknowledge | `acknowledge` | decides which confirmations a reply needs before it is sent |
//! | quiet | `quiet` | waits until no request admitted earlier is in progress |
//!
//! Workers pass batches through these stages (`server/src/batch`). On all other threads, `executor` passes one
//! request through them. `run` does the whole way for callers that have no worker.

mod acknowledge;
pub mod admission;
mod admit;
pub mod blocking;
mod body;
mod context;
mod copies;
#[cfg(debug_assertions)]
mod declared;
mod defined;
mod executor;
pub mod fetch;
mod guard;
pub mod handoff;
mod locking;
pub mod meter;
mod mode;
pub mod plan;
pub(crate) mod program;
pub(crate) mod quiet;
mod redirect;
mod request;
mod run;
mod serve;
pub mod sizes;
#[cfg(test)]
mod tests;
mod transaction;
mod weigh;
mod within;

pub use self::admit::{Refused, admit, named_user, refuse, resolve, time_of_effect};
use self::admit::{refuse_counting, reply_error};
pub use self::body::{Body, Done, Handler};
pub(crate) use self::body::{at_least, exactly, many, no_arguments, shape, shaped};
pub use self::context::{Call, Context};
pub use self::copies::Then;
pub use self::defined::Defined;
pub use self::executor::{Executed, Execution, Executor, Stopped};
pub use self::guard::Guard;
pub use self::locking::Bodies;
pub use self::mode::{Mode, Served};
pub use self::request::{Request, Turn, renewed};
pub use self::run::Effort;
pub use self::serve::{serve, serve_at_once};
pub use self::transaction::{add_pending_reads, refused_in_transaction};
pub use self::weigh::{Scale, WEIGHT_MAX};
