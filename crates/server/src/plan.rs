//! What is known of the requests of a batch before the first of them runs.
//!
//! A batch is looked through once: for each request its command is found and its first key is hashed.
//! Prefetching needs both, and so does the execution afterwards.
//!
//! Invariants:
//! * A plan belongs to the batch it was made from. It says nothing that a request of the batch can change:
//!   the table of commands and the seed of the hash stay as they are, while databases, rights and settings
//!   are looked at when a request's turn comes.
//! * A request that is not simple (unknown, with a wrong number of arguments, or with subcommands) has no
//!   command in the plan; it is resolved when its turn comes.

use tierce_collections::same_bytes;
use tierce_keyspace::KeyHash;
use tierce_wire::resp::{Args, Batch};

use crate::command::Command;
use crate::server::Server;

/// Names of commands that are longer than this are searched for each time.
const SPELLING_LEN_MAX: usize = 16;

/// The plan of one batch; its memory is used again for the next one.
#[derive(Default)]
pub struct Plan {
    requests: Vec<Planned>,
    latest: Spelling,
}

/// What is known of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    command: Place,
    /// Of the first key.
    pub hash: Option<KeyHash>,
}

/// Index of a command in the table plus one, or zero for one that is not simple.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place(u16);

/// A command as it was spelled last. Clients repeat themselves, so the next request often needs no search.
#[derive(Default)]
struct Spelling {
    name: [u8; SPELLING_LEN_MAX],
    len: usize,
    command: Place,
}

impl Place {
    #[inline]
    fn command(self, server: &Server) -> Option<&Command> {
        server.commands.commands().get(usize::from(self.0).wrapping_sub(1))
    }
}

impl Planned {
    /// Its command, if that is known.
    #[inline]
    pub fn command(self, server: &Server) -> Option<&Command> {
        self.command.command(server)
    }
}

impl Plan {
    /// Looks through `batch`, the requests of `input`.
    pub fn make(&mut self, server: &Server, batch: &Batch, input: &[u8]) {
        self.requests.clear();
        self.requests.reserve(batch.len());
        for args in batch.iter(input) {
            let planned = self.look_at(server, args);
            self.requests.push(planned);
        }
    }

    /// What is known of the request with this index.
    #[inline]
    pub fn get(&self, index: usize) -> Planned {
        self.requests[index]
    }

    /// The hashes of all first keys.
    #[inline]
    pub fn hashes(&self) -> impl Iterator<Item = KeyHash> + Clone {
        self.requests.iter().filter_map(|request| request.hash)
    }

    /// What there is to know of a single request.
    #[inline]
    pub fn look_at(&mut self, server: &Server, args: Args<'_>) -> Planned {
        let place = self.latest.find(server, args.at(0));
        let Some(command) = place.command(server) else {
            return Planned { command: place, hash: None };
        };
        // Index 0 is the name, so it stands for no key.
        let key = args.get(command.first_key).filter(|_| command.first_key > 0);
        let is_call = command.spec.accepts(args.len());
        Planned {
            command: if is_call { place } else { Place::default() },
            hash: key.map(|key| server.keyspace.hash(key)),
        }
    }
}

/// Whether two names are the same. Most are short, or those of GET and SET.
#[inline]
fn is_same_name(a: &[u8], b: &[u8]) -> bool {
    match (a, b) {
        ([a, b, c], [x, y, z]) => (a == x) & (b == y) & (c == z),
        _ => same_bytes(a, b),
    }
}

impl Spelling {
    /// The place of the simple command called `name`.
    #[inline]
    fn find(&mut self, server: &Server, name: &[u8]) -> Place {
        if is_same_name(&self.name[..self.len], name) {
            return self.command;
        }
        self.search(server, name)
    }

    fn search(&mut self, server: &Server, name: &[u8]) -> Place {
        let command = server.commands.find(name).filter(|command| command.is_plain);
        let place = command.map_or(Place::default(), |command| Place(command.index + 1));
        if let Some(room) = self.name.get_mut(..name.len()) {
            room.copy_from_slice(name);
            (self.len, self.command) = (name.len(), place);
        }
        place
    }
}
