//! Libraries of functions, with the functions that their code registers.
//!
//! The code of libraries is part of the keyspace ([`tierce_keyspace::CodeStore`]), and this is its index. The server
//! runs the code on a machine to learn the functions: once when a command loads the library, or at the first access
//! after other changes, such as a start, a rollback or DEBUG RELOAD.
//!
//! **Invariant:** a reader sees the index of the code at some time during its access. So all threads find a function
//! once FUNCTION LOAD has replied.
//!
//! A stored library may fail to run, or its functions may have names of other functions. Such a library stays in the
//! data directory and is listed without functions, and the operator is told.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};
use tierce_keyspace::{CodeEditor, CodeKind, CodeSet, CodeStore};
use tierce_lua::{Failure, Function, Library, LibraryId};

use super::History;

/// Gives access to the code and runs it.
pub trait LibraryHost {
    /// Returns the code.
    fn code(&self) -> &CodeStore;

    /// Runs the code of a library and returns the functions that it registers. This may take half a second, or some
    /// more for accepted code.
    ///
    /// # Errors
    /// The text for the client, if the code fails or registers nothing.
    fn run(&self, library: &Library, code: Code) -> Result<Vec<Function>, Failure>;

    /// Returns true if this thread can run code now. It cannot while it runs a program, since it has one machine.
    fn can_run(&self) -> bool;

    /// Tells the operator that a library cannot be used.
    fn tell_unusable(&self, name: &[u8], reason: &str);
}

/// The origin of the code of a library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// A client has sent it.
    New,
    /// It is stored, or the primary has sent it: it was run before.
    Accepted,
}

/// A function that can be called.
#[derive(Debug)]
pub struct KnownFunction {
    /// Its library.
    pub library: Library,
    /// Its registration.
    pub function: Function,
    /// History of its calls.
    pub history: History,
}

/// A library whose code was run.
#[derive(Debug)]
pub struct KnownLibrary {
    /// Its name.
    pub name: Vec<u8>,
    /// Its code, with the identity that machines use.
    pub library: Library,
    /// Its registered functions.
    pub functions: Vec<Arc<KnownFunction>>,
}

/// Policy for existing libraries when others are added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// They stay. New libraries with their names are refused.
    Stay,
    /// They stay, unless a new library has their name.
    AreReplaced,
    /// They are removed.
    Go,
}

/// Name that is already in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Collision {
    /// The name of a library.
    Library(Vec<u8>),
    /// The name of a function of another library.
    Function(Vec<u8>),
}

/// All libraries; see the head of this file.
#[derive(Default)]
pub struct Libraries {
    index: RwLock<Index>,
    last_id: AtomicU64,
}

#[derive(Default)]
struct Index {
    /// Generation of the indexed code.
    generation: u64,
    libraries: BTreeMap<Vec<u8>, Arc<KnownLibrary>>,
    /// By name in lower case. As in Redis, names of functions ignore case, unlike those of libraries.
    functions: HashMap<Vec<u8>, Arc<KnownFunction>>,
}

impl Libraries {
    /// Returns the function of this name.
    pub fn function(&self, host: &dyn LibraryHost, name: &[u8]) -> Option<Arc<KnownFunction>> {
        self.current(host).functions.get(&name.to_ascii_lowercase()).cloned()
    }

    /// Returns true if there is a library of this name.
    pub fn contains(&self, host: &dyn LibraryHost, name: &[u8]) -> bool {
        self.current(host).libraries.contains_key(name)
    }

    /// Returns all libraries, ordered by name.
    pub fn all(&self, host: &dyn LibraryHost) -> Vec<Arc<KnownLibrary>> {
        self.current(host).libraries.values().cloned().collect()
    }

    /// Runs the code found at a start, if any, so that the operator is told at once of unusable libraries.
    pub fn check(&self, host: &dyn LibraryHost) {
        drop(self.current(host));
    }

    /// Returns the numbers of libraries and of functions.
    pub fn counts(&self, host: &dyn LibraryHost) -> (usize, usize) {
        let index = self.current(host);
        (index.libraries.len(), index.functions.len())
    }

    /// Returns the memory of libraries and functions with their code, without compiled forms in machines.
    pub fn memory_bytes(&self, host: &dyn LibraryHost) -> usize {
        const LIBRARY: usize =
            size_of::<KnownLibrary>() + size_of::<(Vec<u8>, Arc<KnownLibrary>)>();
        const FUNCTION: usize =
            size_of::<KnownFunction>() + size_of::<(Vec<u8>, Arc<KnownFunction>)>();
        let index = self.current(host);
        let texts = index.functions.values().map(|known| {
            known.function.name.len() * 2 + known.function.description.as_ref().map_or(0, Vec::len)
        });
        host.code().all().memory_bytes(CodeKind::Library)
            + index.libraries.len() * LIBRARY
            + index.functions.len() * FUNCTION
            + texts.sum::<usize>()
    }

    /// Runs the code of a library. See [`LibraryHost::run`] for the time that this takes.
    ///
    /// # Errors
    /// The text for the client, if the code fails or registers nothing.
    pub fn load(
        &self,
        host: &dyn LibraryHost,
        name: &[u8],
        source: impl Into<Arc<[u8]>>,
        code: Code,
    ) -> Result<KnownLibrary, Failure> {
        let library = Library { id: self.new_id(), code: source.into() };
        let functions = host.run(&library, code)?;
        let known = |function| {
            let (library, history) = (library.clone(), History::default());
            Arc::new(KnownFunction { library, function, history })
        };
        let functions = functions.into_iter().map(known).collect();
        Ok(KnownLibrary { name: name.to_vec(), library, functions })
    }

    fn new_id(&self) -> LibraryId {
        LibraryId(self.last_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Adds loaded libraries, either all or none.
    ///
    /// # Errors
    /// If a name is already in use.
    pub fn add(
        &self,
        host: &dyn LibraryHost,
        code: &mut CodeEditor<'_, '_>,
        new: Vec<KnownLibrary>,
        existing: Existing,
    ) -> Result<(), Collision> {
        self.change(host, |index| {
            index.find_room(&new, existing)?;
            if existing == Existing::Go {
                index.clear(code);
            }
            // All old ones are removed first: a new library may have a function of another old one.
            new.iter().for_each(|library| index.remove(&library.name));
            for library in new {
                code.put(CodeKind::Library, &library.name, Arc::clone(&library.library.code));
                index.insert(Arc::new(library));
            }
            Ok(())
        })
    }

    /// Removes a library. Returns true if there was one of this name.
    pub fn remove(
        &self,
        host: &dyn LibraryHost,
        code: &mut CodeEditor<'_, '_>,
        name: &[u8],
    ) -> bool {
        self.change(host, |index| {
            index.remove(name);
            code.remove(CodeKind::Library, name)
        })
    }

    /// Removes all libraries.
    pub fn clear(&self, host: &dyn LibraryHost, code: &mut CodeEditor<'_, '_>) {
        self.change(host, |index| index.clear(code));
    }

    /// Changes the index together with the code. Callers have a [`CodeEditor`], so that no other thread changes code
    /// meanwhile.
    fn change<R>(&self, host: &dyn LibraryHost, change: impl FnOnce(&mut Index) -> R) -> R {
        drop(self.current(host));
        let mut index = self.index.write();
        let changed = change(&mut index);
        index.generation = host.code().generation();
        changed
    }

    /// Returns the index of the current code. A program cannot have code run and gets the existing index: it may only
    /// report its size.
    fn current(&self, host: &dyn LibraryHost) -> RwLockReadGuard<'_, Index> {
        loop {
            let index = self.index.read();
            if index.generation == host.code().generation() || !host.can_run() {
                return index;
            }
            drop(index);
            self.catch_up(host);
        }
    }

    /// Updates the index to the current code.
    #[cold]
    fn catch_up(&self, host: &dyn LibraryHost) {
        let mut index = self.index.write();
        let store = host.code();
        let generation = store.generation();
        if index.generation != generation {
            // The code may be newer than this generation. Then it is indexed once more.
            *index = self.index_of(host, &store.all(), &index);
            index.generation = generation;
        }
    }

    /// Creates an index of this code. Libraries in `former` are not run again.
    fn index_of(&self, host: &dyn LibraryHost, code: &CodeSet, former: &Index) -> Index {
        let mut index = Index::default();
        for (name, source) in code.of(CodeKind::Library) {
            let known = former.libraries.get(name);
            let known = known.filter(|known| Arc::ptr_eq(&known.library.code, source)).cloned();
            let library = known.unwrap_or_else(|| self.load_stored(host, name, source));
            let library = match index.find_room(std::slice::from_ref(&*library), Existing::Stay) {
                Ok(()) => library,
                Err(Collision::Library(taken) | Collision::Function(taken)) => {
                    let taken = taken.escape_ascii();
                    host.tell_unusable(name, &format!("another library has {taken} as well"));
                    Arc::new(self.without_functions(name, source))
                }
            };
            index.insert(library);
        }
        index
    }

    /// Runs the code of a stored library, which stays even if that fails.
    fn load_stored(
        &self,
        host: &dyn LibraryHost,
        name: &[u8],
        source: &Arc<[u8]>,
    ) -> Arc<KnownLibrary> {
        let loaded = self.load(host, name, Arc::clone(source), Code::Accepted);
        Arc::new(loaded.unwrap_or_else(|failure| {
            host.tell_unusable(name, &String::from_utf8_lossy(&failure.text));
            self.without_functions(name, source)
        }))
    }

    fn without_functions(&self, name: &[u8], code: &Arc<[u8]>) -> KnownLibrary {
        let library = Library { id: self.new_id(), code: Arc::clone(code) };
        KnownLibrary { name: name.to_vec(), library, functions: Vec::new() }
    }
}

impl Index {
    /// Checks if these libraries can be added.
    fn find_room(&self, new: &[KnownLibrary], existing: Existing) -> Result<(), Collision> {
        if existing == Existing::Go {
            return Ok(());
        }
        let namesakes: Vec<_> =
            new.iter().filter_map(|library| self.libraries.get(&library.name)).collect();
        if let Some(taken) = namesakes.first()
            && existing == Existing::Stay
        {
            return Err(Collision::Library(taken.name.clone()));
        }
        // The functions of replaced libraries are removed with them.
        let goes = |id: LibraryId| namesakes.iter().any(|library| library.library.id == id);
        for function in new.iter().flat_map(|library| &library.functions) {
            let name = &function.function.name;
            if self
                .functions
                .get(&name.to_ascii_lowercase())
                .is_some_and(|taken| !goes(taken.library.id))
            {
                return Err(Collision::Function(name.clone()));
            }
        }
        Ok(())
    }

    /// Adds a library with unused names.
    fn insert(&mut self, library: Arc<KnownLibrary>) {
        for function in &library.functions {
            let name = function.function.name.to_ascii_lowercase();
            self.functions.insert(name, Arc::clone(function));
        }
        self.libraries.insert(library.name.clone(), library);
    }

    fn remove(&mut self, name: &[u8]) {
        let Some(library) = self.libraries.remove(name) else { return };
        for function in &library.functions {
            self.functions.remove(&function.function.name.to_ascii_lowercase());
        }
    }

    fn clear(&mut self, code: &mut CodeEditor<'_, '_>) {
        for name in std::mem::take(&mut self.libraries).into_keys() {
            code.remove(CodeKind::Library, &name);
        }
        self.functions.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use tierce_harness::Random;
    use tierce_keyspace::{Keyspace, Options};

    use super::*;

    /// The code is a list of function names. The name `bad` cannot be registered.
    struct TestHost {
        keyspace: Keyspace,
        runs: RefCell<Vec<Code>>,
        told: RefCell<Vec<String>>,
        can_run: Cell<bool>,
    }

    impl TestHost {
        fn new() -> Self {
            let keyspace = Keyspace::new(Options::default()).expect("good options");
            let (runs, told) = (RefCell::default(), RefCell::default());
            Self { keyspace, runs, told, can_run: Cell::new(true) }
        }

        fn stored(&self) -> Vec<(String, String)> {
            let all = self.keyspace.code().all();
            all.of(CodeKind::Library).map(|(name, source)| (text(name), text(source))).collect()
        }
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }

    impl LibraryHost for TestHost {
        fn code(&self) -> &CodeStore {
            self.keyspace.code()
        }

        fn run(&self, library: &Library, code: Code) -> Result<Vec<Function>, Failure> {
            self.runs.borrow_mut().push(code);
            let names = library.code.split(|byte| *byte == b' ');
            let function = |name: &[u8]| match name {
                b"bad" => Err(Failure {
                    text: b"ERR bad".to_vec(),
                    is_counted: false,
                    is_too_deep: false,
                }),
                name => Ok(Function {
                    name: name.to_vec(),
                    description: None,
                    flags: Default::default(),
                }),
            };
            names.map(function).collect()
        }

        fn can_run(&self) -> bool {
            self.can_run.get()
        }

        fn tell_unusable(&self, name: &[u8], reason: &str) {
            self.told.borrow_mut().push(format!("{}: {reason}", text(name)));
        }
    }

    type Model = BTreeMap<String, Vec<String>>;

    /// Returns the content of the index, and checks its consistency.
    fn found(libraries: &Libraries, host: &TestHost) -> Model {
        let all = libraries.all(host);
        let names = |library: &KnownLibrary| -> Vec<String> {
            library.functions.iter().map(|known| text(&known.function.name)).collect()
        };
        let model: Model = all.iter().map(|it| (text(&it.name), names(it))).collect();
        for library in &all {
            assert!(libraries.contains(host, &library.name));
            for known in &library.functions {
                let by_name = libraries.function(host, &known.function.name);
                assert!(Arc::ptr_eq(&by_name.expect("it is there"), known));
            }
        }
        let functions = model.values().map(Vec::len).sum();
        assert_eq!(libraries.counts(host), (model.len(), functions));
        model
    }

    fn draw(random: &mut Random) -> (String, Vec<String>) {
        let name = format!("l{}", random.u64_below(4));
        let functions = (0..=random.u64_below(2)).map(|_| format!("f{}", random.u64_below(8)));
        let functions: std::collections::BTreeSet<String> = functions.collect();
        (name, functions.into_iter().collect())
    }

    /// Applies FUNCTION RESTORE to the model.
    fn add(model: &Model, new: &Model, existing: Existing) -> Option<Model> {
        let mut after = if existing == Existing::Go { Model::new() } else { model.clone() };
        for (name, functions) in new {
            if after.insert(name.clone(), functions.clone()).is_some() && existing == Existing::Stay
            {
                return None;
            }
        }
        let mut functions: Vec<&String> = after.values().flatten().collect();
        let count = functions.len();
        functions.sort();
        functions.dedup();
        (functions.len() == count).then_some(after)
    }

    #[test]
    fn the_index_is_that_of_the_code() {
        let (libraries, host) = (Libraries::default(), TestHost::new());
        let (mut model, mut random) = (Model::new(), Random::new(1));
        for _ in 0..3000 {
            let before = model.clone();
            let mut locks = host.keyspace.locks();
            let mut all = locks.lock_all();
            let undoes = random.u64_below(4) == 0;
            if undoes {
                all.locks().begin_undo();
            }
            let mut code = CodeEditor::lock(all.locks());
            match random.u64_below(8) {
                0 => {
                    libraries.clear(&host, &mut code);
                    model.clear();
                }
                1 | 2 => {
                    let name = format!("l{}", random.u64_below(4));
                    let was_there = libraries.remove(&host, &mut code, name.as_bytes());
                    assert_eq!(was_there, model.contains_key(&name));
                    model.remove(&name);
                }
                roll => {
                    let new: Model = (0..=random.u64_below(2)).map(|_| draw(&mut random)).collect();
                    let loaded = new.iter().map(|(name, functions)| {
                        let code = functions.join(" ").into_bytes();
                        libraries.load(&host, name.as_bytes(), code, Code::New).expect("good code")
                    });
                    let loaded = loaded.collect();
                    let existing = match roll {
                        3 | 4 => Existing::Stay,
                        5 | 6 => Existing::AreReplaced,
                        _ => Existing::Go,
                    };
                    // The new libraries collide with each other. The command checks that.
                    if add(&Model::new(), &new, Existing::Go).is_none() {
                        continue;
                    }
                    let added = libraries.add(&host, &mut code, loaded, existing);
                    let after = add(&model, &new, existing);
                    assert_eq!(added.is_ok(), after.is_some(), "{model:?} {new:?} {existing:?}");
                    model = after.unwrap_or(model);
                }
            }
            drop(code);
            if undoes {
                all.locks().rollback();
                model = before;
            }
            drop(all);
            assert_eq!(found(&libraries, &host), model);
            let stored: Model = host
                .stored()
                .into_iter()
                .map(|(name, code)| (name, code.split(' ').map(str::to_owned).collect()))
                .collect();
            assert_eq!(stored, model);
        }
        assert!(host.told.borrow().is_empty());
    }

    #[test]
    fn code_that_came_in_another_way_is_run_once() {
        let (libraries, host) = (Libraries::default(), TestHost::new());
        let put = |name: &[u8], source: &[u8]| {
            CodeEditor::lock(&mut host.keyspace.locks()).put(CodeKind::Library, name, source);
        };
        put(b"a", b"f g");
        put(b"b", b"h");
        for _ in 0..3 {
            assert_eq!(libraries.counts(&host), (2, 3));
        }
        // It was accepted before, so it has more time.
        assert_eq!(*host.runs.borrow(), [Code::Accepted; 2]);
        let before = libraries.function(&host, b"f").expect("it is there");
        put(b"b", b"i");
        assert!(libraries.function(&host, b"h").is_none());
        let after = libraries.function(&host, b"f").expect("it is there");
        assert!(Arc::ptr_eq(&before, &after), "what has not changed is not run again");
        assert_eq!(host.runs.borrow().len(), 3);
    }

    #[test]
    fn inside_of_a_program_no_code_is_run() {
        let (libraries, host) = (Libraries::default(), TestHost::new());
        CodeEditor::lock(&mut host.keyspace.locks()).put(
            CodeKind::Library,
            b"a",
            b"f g".as_slice(),
        );
        host.can_run.set(false);
        assert_eq!(libraries.counts(&host), (0, 0));
        libraries.memory_bytes(&host);
        assert_eq!(host.runs.borrow().len(), 0);
        host.can_run.set(true);
        assert_eq!(libraries.counts(&host), (1, 2));
    }

    #[test]
    fn stored_code_that_cannot_be_used_stays_and_is_told() {
        let (libraries, host) = (Libraries::default(), TestHost::new());
        {
            let mut locks = host.keyspace.locks();
            let mut code = CodeEditor::lock(&mut locks);
            for (name, source) in [(&b"a"[..], &b"f"[..]), (b"b", b"bad"), (b"c", b"g f")] {
                code.put(CodeKind::Library, name, source);
            }
        }
        assert_eq!(libraries.counts(&host), (3, 1));
        let told = ["b: ERR bad", "c: another library has f as well"];
        assert_eq!(*host.told.borrow(), told);
        let mut locks = host.keyspace.locks();
        assert!(libraries.remove(&host, &mut CodeEditor::lock(&mut locks), b"b"));
        drop(locks);
        assert_eq!(libraries.counts(&host), (2, 1));
        assert!(host.stored().iter().any(|(name, code)| name == "c" && code == "g f"));
    }
}
