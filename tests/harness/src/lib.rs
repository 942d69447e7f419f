//! Starts a server and talks to it like a foreign client: over sockets, in bytes.
//!
//! The black-box tests and the differential run share this crate. It uses no code of the server, not even its codec:
//! a fault in shared code would look right from both sides.
//!
//! - [`Launch`] starts a program on a free port of the loopback interface; [`Server`] is the running program, and
//!   ends with its owner;
//! - [`Both`] is a server with a second protocol;
//! - [`Connection`] sends bytes or requests and reads replies one at a time;
//! - [`Reply`] is a decoded reply, with a notation of its own for comparisons;
//! - [`Random`] makes random input from a seed, and [`effort`] determines the number of seeds of a test;
//! - [`abuse`] abuses all protocols at random, while well-behaved clients verify their data;
//! - [`fuzz_smoke`] runs a fuzz target on random bytes;
//! - [`freeze`] and [`thaw`] keep data directories as fixtures;
//! - [`wait_until`] waits for a condition without a fixed sleep;
//! - [`takes_up_to_seconds`] gives a test more time than its [`LIMIT`].
//!
//! Every failure is a panic, because the callers are tests.

pub mod abuse;
mod both;
mod connection;
mod effort;
mod frozen;
mod launch;
mod patience;
mod port;
mod random;
mod reply;
mod request;
mod server;
mod smoke;
mod temp_dir;
mod tls;

pub use self::both::Both;
pub use self::connection::Connection;
pub use self::effort::effort;
pub use self::frozen::{freeze, thaw};
pub use self::launch::{Launch, Outcome};
pub use self::patience::{LIMIT, PATIENCE, takes_up_to_seconds, wait_until};
pub use self::port::free_port;
pub use self::random::Random;
pub use self::reply::Reply;
pub use self::request::{encode, words};
pub use self::server::{Server, allow_many_files};
pub use self::smoke::fuzz_smoke;
pub use self::temp_dir::TempDir;
pub use self::tls::{TlsStream, certificate_file, tls_config, tls_stream};
