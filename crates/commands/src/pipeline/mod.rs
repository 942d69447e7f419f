//! The stages that a request passes, from its words to its reply, each written once for all callers.
//!
//! In the order in which a request meets them:
//!
//! | stage | file | |
//! |---|---|---|
//! | plan | [`plan`] | finds the command, and hashes the key, of each request of a batch |
//! | gates | [`gates`] | may it run now: pause, memory, the log, the role; `redirect` says where else |
//! | admit | `admit` | asked by gates that are not open to all: may this client say it |
//! | fetch | [`fetch`] | reads values from disk that it needs, while nothing is locked |
//! | account | [`meter`] | times it: commandstats, the slow log, latency |
//! | context | `context`, `request` | all that the command may touch, made of a turn of a thread and a request |
//! | lock | `locking` | finds what runs the command, and locks the keys that it declares; `guard` gives access to them |
//! | weigh | `weigh` | keeps from a worker what takes long there; `copies` computes from copies elsewhere |
//! | run | `body`, `defined` | calls the function of the command with its arguments |
//! | within | `within`, `transaction`, `program` | EXEC and scripts run others within one guard |
//! | wait | [`blocking`], `mode` | a command that waits for keys or replicas, and clients that get their reply later |
//! | serve | `serve` | serves those that wait for what it has changed |
//! | acknowledge | `acknowledge` | what has to be confirmed before the reply leaves |
//! | quiet | `quiet` | what waits until nothing is under way that passed the gates before it |
//!
//! Workers go through them in batches (`server/src/batch`). On all other threads, `executor` takes one request through
//! them; `run` is the whole way for callers that have no worker.

mod acknowledge;
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
pub mod gates;
mod guard;
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
