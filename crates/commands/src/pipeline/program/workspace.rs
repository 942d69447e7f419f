//! Workspace of a thread for programs: a Lua machine, and memory for the calls of programs.
//!
//! It is created with the first program of the thread, so a server without programs has none. Then it is kept, since
//! a machine caches compiled code. With one for each thread, programs run in parallel.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tierce_lua::{Machine, Server};
use tierce_output::Output;
use tierce_wire::resp::OwnedArgs;

use super::account::Aside;
use crate::kernel::Kernel;

/// Upper bound of the memory for the words of a call that is kept for the next one.
pub(super) const WORDS_KEPT_BYTES: usize = 1024 * 1024;

/// See the module.
pub(crate) struct Workspace {
    machine: Machine,
    buffers: Buffers,
    aside: Aside,
    /// Bytes of machine and buffers that are included in `all_bytes`.
    told_bytes: usize,
    all_bytes: Arc<AtomicUsize>,
}

/// Memory for the calls of one program at a time.
pub(super) struct Buffers {
    /// Reply to the current call.
    pub(super) reply: Output,
    /// Words of the current call.
    pub(super) words: OwnedArgs,
    /// Words of the call before, for the slow log.
    pub(super) last_words: OwnedArgs,
}

impl Buffers {
    /// Keeps the words of a finished call until the next one ends. The next call reuses the older memory, unless that
    /// is unusually large.
    pub(super) fn keep(&mut self, words: OwnedArgs) {
        self.words = std::mem::replace(&mut self.last_words, words);
        shrink(&mut self.words);
    }

    /// Frees unusually large memory, at the end of a program.
    pub(super) fn shrink(&mut self) {
        shrink(&mut self.last_words);
        self.reply.reset();
    }

    /// Bytes of the words of calls.
    pub(super) fn words_bytes(&self) -> usize {
        self.words.memory_bytes() + self.last_words.memory_bytes()
    }
}

fn shrink(words: &mut OwnedArgs) {
    if words.memory_bytes() > WORDS_KEPT_BYTES {
        *words = OwnedArgs::new();
    }
}

thread_local! {
    static WORKSPACE: RefCell<Option<Workspace>> = const { RefCell::new(None) };
}

impl Workspace {
    /// Calls `body` with the workspace of this thread. Must not be called by a program.
    pub(crate) fn with<R>(kernel: &Kernel, body: impl FnOnce(&mut Self) -> R) -> R {
        WORKSPACE.with_borrow_mut(|workspace| {
            let commands = kernel.commands.id_count();
            let workspace = workspace.get_or_insert_with(|| Self::new(kernel));
            if !workspace.aside.counters.has_room_for(commands) {
                workspace.aside = Aside::new(commands);
            }
            let done = body(workspace);
            workspace.tell_bytes();
            done
        })
    }

    /// Returns true if this thread runs a program.
    pub(crate) fn is_in_use() -> bool {
        WORKSPACE.with(|workspace| workspace.try_borrow().is_err())
    }

    fn new(kernel: &Kernel) -> Self {
        Self {
            machine: Machine::new(&Server { version: version() }),
            buffers: Buffers {
                reply: Output::new(),
                words: OwnedArgs::new(),
                last_words: OwnedArgs::new(),
            },
            aside: Aside::new(kernel.commands.id_count()),
            told_bytes: 0,
            all_bytes: Arc::clone(&kernel.scripts.machine_bytes),
        }
    }

    /// Returns the machine alone.
    pub(crate) fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    pub(super) fn parts(&mut self) -> (&mut Machine, &mut Buffers, &Aside) {
        (&mut self.machine, &mut self.buffers, &self.aside)
    }

    /// Publishes the size of machine and buffers for INFO.
    fn tell_bytes(&mut self) {
        let bytes = self.machine.used_bytes() + self.buffers.words_bytes();
        if bytes != self.told_bytes {
            // The difference may be negative.
            self.all_bytes.fetch_add(bytes.wrapping_sub(self.told_bytes), Relaxed);
            self.told_bytes = bytes;
        }
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        self.all_bytes.fetch_sub(self.told_bytes, Relaxed);
    }
}

/// Version that programs read as `redis.REDIS_VERSION`.
fn version() -> [u8; 3] {
    let mut numbers = crate::REDIS_VERSION.split('.').map(|number| number.parse().unwrap_or(0));
    [(); 3].map(|()| numbers.next().unwrap_or(0))
}
