//! The machine: a Lua state with everything that scripts may use, and nothing else.

mod chunks;
mod entry;
mod failure;
mod libraries;
mod loading;

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use mlua_sys::{
    LUA_GCCOLLECT, LUA_GLOBALSINDEX, LUA_REGISTRYINDEX, lua_State, lua_close, lua_cpcall, lua_gc,
    lua_newstate, lua_pcall, lua_pushstring_, lua_pushvalue, lua_rawgeti_, lua_replace, lua_settop,
    lua_touserdata, luaL_ref,
};
use tierce_wire::resp::Proto;

use self::chunks::Chunks;
use self::entry::{ON_ERROR, RUN_FUNCTION, RUN_SCRIPT};
use self::libraries::Libraries;
use self::loading::Unloaded;
use crate::host::{Host, Server, Stop};
use crate::program::{Call, Function, Library, LibraryId, Script};
use crate::sandbox::{self, Globals};
use crate::shared::{Loading, Shared, allocate, enter, leave, runs};

pub use failure::Failure;

/// Bytes that a machine may use between executions before it collects garbage. After a collection the limit is twice
/// the bytes that remained.
const COLLECT_BYTES_MIN: usize = 4 * 1024 * 1024;

/// Outcome of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It returned, and its reply was appended.
    Reply {
        /// True if the script returned an error reply.
        is_error: bool,
    },
    /// It failed; nothing was appended.
    Failed(Failure),
    /// It was stopped; nothing was appended.
    Stopped(Stop),
}

/// A Lua state with everything that scripts may use. It belongs to one thread, and keeps compiled code.
pub struct Machine {
    state: NonNull<lua_State>,
    /// State shared with the functions; the allocator of the state has its address as well.
    shared: NonNull<Shared>,
    globals: Globals,
    /// True if new functions see the globals of functions, not those of scripts.
    sees_functions: bool,
    chunks: Chunks,
    libraries: Libraries,
    collect_above: usize,
    memory_limit: usize,
    server: Server,
    /// A state must not move to another thread while references to it exist; this type forbids it.
    of_thread: PhantomData<*mut ()>,
}

impl Machine {
    /// Creates a machine without scripts: some 60 KiB.
    ///
    /// # Panics
    ///
    /// If the system has no memory for it.
    pub fn new(server: &Server) -> Machine {
        let (state, shared, globals) = open(server);
        Machine {
            state,
            shared,
            globals,
            sees_functions: false,
            chunks: Chunks::default(),
            libraries: Libraries::default(),
            collect_above: COLLECT_BYTES_MIN,
            memory_limit: 0,
            server: server.clone(),
            of_thread: PhantomData,
        }
    }

    /// Limits the memory of the machine, from the next execution on: that of scripts, its own tables and compiled
    /// code. 0 is no limit.
    pub fn set_memory_limit(&mut self, bytes: usize) {
        self.memory_limit = bytes;
    }

    /// Compiles a script, and keeps the result.
    ///
    /// # Errors
    ///
    /// The text for the client, if it does not compile.
    pub fn check(&mut self, script: &Script) -> Result<(), Failure> {
        self.chunk(script).map(|_| ())
    }

    /// Runs a script, and appends its reply to `out`. Compiles it first if necessary.
    pub fn run(
        &mut self,
        script: &Script,
        call: &Call<'_>,
        host: &mut dyn Host,
        out: &mut Vec<u8>,
    ) -> Outcome {
        match self.chunk(script) {
            Ok(chunk) => {
                self.see_functions(false);
                self.execute(RUN_SCRIPT, chunk, call, host, out, &|| script.sha().to_hex().to_vec())
            }
            Err(failure) => Outcome::Failed(failure),
        }
    }

    /// Runs the code of a library, and returns the functions that it registered. The machine keeps them until it
    /// has loaded many others.
    ///
    /// # Errors
    ///
    /// The text for the client, if the code fails, registers nothing, or takes longer than `time_max`.
    pub fn load(
        &mut self,
        library: &Library,
        host: &mut dyn Host,
        time_max: Duration,
    ) -> Result<Vec<Function>, Failure> {
        self.load_within(library, host, Some(time_max)).map_err(Unloaded::into_failure)
    }

    fn load_within(
        &mut self,
        library: &Library,
        host: &mut dyn Host,
        time_max: Option<Duration>,
    ) -> Result<Vec<Function>, Unloaded> {
        self.forget(library.id);
        self.see_functions(true);
        let functions = load(self, library, host, time_max)?;
        let described = functions.iter().map(|(function, _)| function.clone()).collect();
        for callback in self.libraries.insert(library, functions) {
            self.unref(callback);
        }
        Ok(described)
    }

    /// Runs a function of a library, and appends its reply to `out`. Loads the library first if necessary.
    pub fn run_function(
        &mut self,
        library: &Library,
        function: &[u8],
        call: &Call<'_>,
        host: &mut dyn Host,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let callback = match self.callback(library, function, host) {
            Ok(callback) => callback,
            Err(Unloaded::Failed(failure)) => return Outcome::Failed(failure),
            Err(Unloaded::Stopped(stop)) => return Outcome::Stopped(stop),
        };
        self.see_functions(true);
        self.execute(RUN_FUNCTION, callback, call, host, out, &|| function.to_vec())
    }

    /// Drops a library.
    pub fn forget(&mut self, library: LibraryId) {
        for callback in self.libraries.remove(library) {
            self.unref(callback);
        }
    }

    /// Returns the bytes that the machine has allocated.
    pub fn used_bytes(&self) -> usize {
        // SAFETY: nothing else refers to it between executions.
        unsafe { self.shared.as_ref().memory.used }
    }

    fn shared(&mut self) -> &mut Shared {
        // SAFETY: alive as long as the machine; references end before Lua is called.
        unsafe { self.shared.as_mut() }
    }

    /// Returns the reference of a script's compiled form.
    fn chunk(&mut self, script: &Script) -> Result<c_int, Failure> {
        if let Some(chunk) = self.chunks.get(script.sha()) {
            return Ok(chunk);
        }
        self.see_functions(false);
        let chunk = loading::compile(self.state.as_ptr(), script.code(), c"@user_script").map_err(
            |text| Failure::new([b"ERR Error compiling script (new function): ", &*text].concat()),
        )?;
        for evicted in self.chunks.insert(*script.sha(), script.source().len(), chunk) {
            self.unref(evicted);
        }
        Ok(chunk)
    }

    /// Returns the function of a library, which is loaded if necessary. Loading is part of the execution: its host can
    /// stop it.
    fn callback(
        &mut self,
        library: &Library,
        function: &[u8],
        host: &mut dyn Host,
    ) -> Result<c_int, Unloaded> {
        if let Some(callback) = self.libraries.callback(library.id, function) {
            return Ok(callback);
        }
        if !self.libraries.contains(library.id) {
            self.load_within(library, host, None)?;
        }
        let callback = self.libraries.callback(library.id, function);
        callback.ok_or_else(|| Unloaded::Failed(Failure::new("ERR Function not found")))
    }

    /// Makes new functions see the globals of functions, or those of scripts.
    #[inline]
    fn see_functions(&mut self, yes: bool) {
        if self.sees_functions == yes {
            return;
        }
        self.sees_functions = yes;
        let globals = if yes { self.globals.of_functions } else { self.globals.of_scripts };
        let state = self.state.as_ptr();
        // SAFETY: the reference is that of a table; the stack has room.
        unsafe {
            lua_rawgeti_(state, LUA_REGISTRYINDEX, globals);
            lua_replace(state, LUA_GLOBALSINDEX);
        }
    }

    /// Calls `program`, a reference, by one of the functions that begin executions.
    fn execute(
        &mut self,
        begin: c_int,
        program: c_int,
        call: &Call<'_>,
        host: &mut dyn Host,
        out: &mut Vec<u8>,
        name: &dyn Fn() -> Vec<u8>,
    ) -> Outcome {
        let out_len = out.len();
        let state = self.state.as_ptr();
        self.begin(host);
        let shared = self.shared();
        shared.call = ptr::from_ref(call).cast();
        shared.out = out;
        // SAFETY: the stack has room for both. The data that `shared` points to is alive until `end`.
        let status = unsafe {
            lua_pushvalue(state, begin);
            lua_rawgeti_(state, LUA_REGISTRYINDEX, program);
            lua_pcall(state, 1, 0, ON_ERROR)
        };
        runs(state);
        let outcome = match (status, self.shared().stop) {
            (0, None) => Outcome::Reply { is_error: self.shared().is_error },
            (_, Some(stop)) => Outcome::Stopped(stop),
            (_, None) => Outcome::Failed(Failure {
                is_too_deep: self.shared().is_too_deep,
                ..failure::of_execution(state, &name())
            }),
        };
        if !matches!(outcome, Outcome::Reply { .. }) {
            out.truncate(out_len);
            // SAFETY: the error was on top of the machine's own stack values.
            unsafe { lua_settop(state, RUN_FUNCTION) };
        }
        self.end(outcome == Outcome::Stopped(Stop::MemoryLimit));
        outcome
    }

    /// Prepares for any execution.
    #[inline]
    fn begin(&mut self, host: &mut dyn Host) {
        let limit = if self.memory_limit == 0 { usize::MAX } else { self.memory_limit };
        let shared = self.shared();
        shared.memory.limit = limit;
        shared.memory.exceeded = false;
        shared.collect_above = limit - limit / 4;
        shared.stop = None;
        shared.proto = Proto::Resp2;
        (shared.is_error, shared.is_too_deep) = (false, false);
        // SAFETY: `end` removes it before the reference ends.
        shared.host = Some(NonNull::from(unsafe {
            std::mem::transmute::<&mut (dyn Host + '_), &mut (dyn Host + 'static)>(host)
        }));
    }

    /// Cleans up after any execution. If memory was exhausted, the machine restarts with a new state.
    #[inline]
    fn end(&mut self, is_exhausted: bool) {
        // SAFETY: the state is open, nothing runs, and scripts cannot change the library.
        unsafe { self.globals.json.restore() };
        let shared = self.shared();
        shared.host = None;
        shared.call = ptr::null();
        shared.out = ptr::null_mut();
        shared.stop = None;
        shared.memory.limit = usize::MAX;
        shared.drop_large_reply();
        let (used, changed) = (shared.memory.used, shared.collector_changed);
        if changed || is_exhausted || used > self.collect_above {
            self.clean(is_exhausted);
        }
    }

    #[cold]
    fn clean(&mut self, is_exhausted: bool) {
        if is_exhausted {
            let server = self.server.clone();
            let limit = self.memory_limit;
            *self = Machine::new(&server);
            self.memory_limit = limit;
            return;
        }
        self.shared().collector_changed = false;
        let state = self.state.as_ptr();
        // SAFETY: finalizers do not exist in the sandbox, so no code of a script runs.
        unsafe {
            sandbox::restore_collector(state);
            if self.shared.as_ref().memory.used > self.collect_above {
                entry::clear_arguments(state, self.globals.behind_scripts);
                lua_gc(state, LUA_GCCOLLECT, 0);
            }
        }
        self.collect_above = (self.used_bytes() * 2).max(COLLECT_BYTES_MIN);
    }

    fn unref(&mut self, reference: c_int) {
        // SAFETY: this machine created the reference, and drops it.
        unsafe { mlua_sys::luaL_unref(self.state.as_ptr(), LUA_REGISTRYINDEX, reference) };
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: both were made together and are dropped once; closing the state runs no code of scripts.
        unsafe {
            lua_close(self.state.as_ptr());
            drop(Box::from_raw(self.shared.as_ptr()));
        }
    }
}

/// Runs the code of a library, for at most `time_max`, and returns its registered functions.
fn load(
    machine: &mut Machine,
    library: &Library,
    host: &mut dyn Host,
    time_max: Option<Duration>,
) -> Result<Vec<(Function, c_int)>, Unloaded> {
    let state = machine.state.as_ptr();
    let chunk = loading::compile(state, library.body(), c"@user_function").map_err(|text| {
        Unloaded::Failed(Failure::new([b"ERR Error compiling function: ", &*text].concat()))
    })?;
    machine.begin(host);
    let shared = machine.shared();
    shared.loading = Some(Loading::default());
    shared.load_end = time_max.map(|time_max| Instant::now() + time_max);
    // SAFETY: references are those of the tables and of the chunk.
    let status = unsafe {
        loading::choose_globals(
            state,
            machine.globals.functions_metatable,
            machine.globals.behind_loading,
        );
        lua_rawgeti_(state, LUA_REGISTRYINDEX, chunk);
        let status = lua_pcall(state, 0, 0, 0);
        runs(state);
        loading::choose_globals(
            state,
            machine.globals.functions_metatable,
            machine.globals.behind_functions,
        );
        status
    };
    let shared = machine.shared();
    shared.load_end = None;
    let stop = shared.stop;
    let functions = shared.loading.take().map(|loading| loading.functions).unwrap_or_default();
    let result = loading::result_of(state, status, stop, &functions);
    machine.unref(chunk);
    if result.is_err() {
        functions.iter().for_each(|(_, callback)| machine.unref(*callback));
    }
    machine.end(stop == Some(Stop::MemoryLimit));
    result.map(|()| functions)
}

/// Error messages that Lua creates outside of protected calls, where exhausted memory would end the process. Existing
/// strings need no memory.
const ERRORS_OF_LUA: [&CStr; 2] = [c"C stack overflow", c"error in error handling"];

/// Parameters and result of [`fill`].
struct Filling<'a> {
    server: &'a Server,
    globals: Option<Globals>,
}

fn open(server: &Server) -> (NonNull<lua_State>, NonNull<Shared>, Globals) {
    let shared = NonNull::from(Box::leak(Box::new(Shared::new())));
    let mut filling = Filling { server, globals: None };
    // SAFETY: the allocator gets its data, which lives as long as the state.
    let state = unsafe {
        let state = lua_newstate(allocate, shared.as_ptr().cast());
        let state = NonNull::new(state).expect("memory for a machine");
        enter(state.as_ptr());
        lua_cpcall(state.as_ptr(), fill, ptr::from_mut(&mut filling).cast());
        entry::push_functions(state.as_ptr(), filling.globals);
        let _ = leave(state.as_ptr());
        runs(state.as_ptr());
        state
    };
    (state, shared, filling.globals.expect("memory for a machine"))
}

unsafe extern "C-unwind" fn fill(state: *mut lua_State) -> c_int {
    // SAFETY: `open` passes its parameters.
    unsafe {
        let filling = lua_touserdata(state, 1).cast::<Filling<'_>>();
        (*filling).globals = Some(sandbox::open(state, (*filling).server));
        for text in ERRORS_OF_LUA {
            lua_pushstring_(state, text.as_ptr());
            luaL_ref(state, LUA_REGISTRYINDEX);
        }
    }
    0
}
