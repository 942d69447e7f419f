//! Cycles of files that use each other, directly or through other files.
//!
//! A file uses the files that it imports or names by a path. If that is a re-export, it uses the file behind it. A
//! file that only re-exports names from below does not use that file.

use std::collections::{BTreeMap, BTreeSet};

use super::layers::{CRATES, Source, sources};

/// Maximum number of files in a cycle.
const LARGEST: usize = 5;

/// Words of a path.
type Words = Vec<String>;

/// Arrows from each node to others.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Returns the sets of nodes that reach each other, the largest first.
fn circles(arrows: &Arrows) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<_, _> = arrows.keys().map(|from| (from, reached(arrows, from))).collect();
    let mutual = reached.iter().map(|(from, to)| {
        let back = |to: &&&String| reached.get(**to).is_some_and(|to| to.contains(from));
        to.iter().filter(back).map(|to| (*to).clone()).collect()
    });
    let circles: BTreeSet<BTreeSet<String>> =
        mutual.filter(|circle: &BTreeSet<_>| circle.len() > 1).collect();
    let mut circles: Vec<_> = circles.into_iter().collect();
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// Returns the nodes that can be reached from this one.
fn reached<'a>(arrows: &'a Arrows, from: &'a String) -> BTreeSet<&'a String> {
    let (mut open, mut reached) = (vec![from], BTreeSet::new());
    while let Some(node) = open.pop() {
        open.extend(arrows.get(node).into_iter().flatten().filter(|to| reached.insert(*to)));
    }
    reached
}

/// The files of a crate, and their imports.
struct Files<'s> {
    sources: BTreeMap<Words, &'s Source>,
    /// Path behind each name that a file has imported.
    imported: BTreeMap<(Words, String), Words>,
}

/// A path from the root of the crate.
struct Use {
    path: Words,
    /// Name of the import.
    name: String,
    is_public: bool,
}

impl<'s> Files<'s> {
    fn new(sources: &'s [Source]) -> Self {
        let sources: BTreeMap<_, _> =
            sources.iter().map(|source| (source.words(), source)).collect();
        let mut files = Self { sources, imported: BTreeMap::new() };
        for (module, source) in &files.sources {
            for Use { path, name, .. } in files.imports(module, &Code::of(&source.code())) {
                files.imported.insert((module.clone(), name), path);
            }
        }
        files
    }

    /// Returns the files that each file uses.
    fn arrows(&self) -> Arrows {
        let of_file = |(module, source): (&Words, &&Source)| {
            let code = Code::of(&source.code());
            let imported = self.imports(module, &code).into_iter().filter_map(|used| {
                let file = self.file_of(&used.path)?;
                let is_passed_on = used.is_public && file.starts_with(module);
                Some(file).filter(|_| !is_passed_on || code.names(&used.name))
            });
            let named = code.paths().into_iter();
            let named = named.filter_map(|path| self.file_of(&self.whole_path(module, path)?));
            let used = imported.chain(named).filter(|file| file != module);
            (name_of(module), used.map(|file| name_of(&file)).collect())
        };
        self.sources.iter().map(of_file).collect()
    }

    /// Returns the paths of its own crate that a file imports.
    fn imports(&self, module: &[String], code: &Code) -> Vec<Use> {
        let mut uses = Vec::new();
        for (is_public, import) in &code.imports {
            for (path, name) in members(import) {
                let is_public = *is_public;
                uses.extend(self.whole_path(module, path).map(|path| Use {
                    path,
                    name,
                    is_public,
                }));
            }
        }
        uses
    }

    /// Returns a path that a file names, from the root of the crate; `None` for a path into another crate.
    fn whole_path(&self, module: &[String], path: Words) -> Option<Words> {
        let mut words = path.into_iter().peekable();
        let mut from = module.to_vec();
        match words.peek()?.as_str() {
            "crate" => from.clear(),
            "self" => {}
            "super" => {
                while words.next_if(|word| word == "super").is_some() {
                    from.pop();
                }
                return Some(from.into_iter().chain(words).collect());
            }
            child => {
                from.push(child.to_owned());
                self.sources.contains_key(&from).then_some(())?;
            }
        }
        words.next();
        Some(from.into_iter().chain(words).collect())
    }

    /// Returns the file that contains the target of a path.
    fn file_of(&self, path: &[String]) -> Option<Words> {
        let mut path = path.to_vec();
        // A name that refers to itself would be followed without end.
        for _ in 0..8 {
            let deepest =
                (0..=path.len()).rev().find(|len| self.sources.contains_key(&path[..*len]))?;
            let (file, rest) = path.split_at(deepest);
            let Some((name, rest)) = rest.split_first() else { return Some(path) };
            match self.imported.get(&(file.to_vec(), name.clone())) {
                Some(to) => path = to.iter().chain(rest).cloned().collect(),
                None => return Some(file.to_vec()),
            }
        }
        None
    }
}

fn name_of(module: &[String]) -> String {
    if module.is_empty() { "lib".to_owned() } else { module.join("::") }
}

/// Returns the paths of an import, each with its local name.
fn members(import: &str) -> Vec<(Words, String)> {
    let Some((before, list)) = import.split_once('{') else {
        let (path, alias) = import.split_once(" as ").unwrap_or((import, ""));
        let words: Words =
            words(path).filter(|word| word != "self" || !path.contains("::self")).collect();
        let name =
            if alias.is_empty() { words.last().cloned() } else { Some(alias.trim().to_owned()) };
        return name.map(|name| (words, name)).into_iter().collect();
    };
    let list = list.rsplit_once('}').map_or(list, |(list, _)| list);
    let mut depth = 0;
    let parts = list.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let parts = parts.map(str::trim).filter(|part| !part.is_empty());
    parts.flat_map(|part| members(&format!("{}{part}", before.trim()))).collect()
}

fn words(path: &str) -> impl Iterator<Item = String> {
    path.split("::").map(|word| word.trim().to_owned()).filter(|word| !word.is_empty())
}

/// Code without module declarations, separated from its imports.
struct Code {
    /// Imports without their end, each true if it is a re-export.
    imports: Vec<(bool, String)>,
    rest: String,
}

impl Code {
    fn of(code: &str) -> Self {
        let (mut imports, mut rest): (Vec<(bool, String)>, String) = Default::default();
        let mut is_open = false;
        for line in code.lines() {
            let import = line.trim_start().split_once("use ");
            let import = import.filter(|(before, _)| before.is_empty() || is_visibility(before));
            let is_module = line.trim_end().ends_with(';')
                && line
                    .trim_start()
                    .split_once("mod ")
                    .is_some_and(|(before, _)| before.is_empty() || is_visibility(before));
            let text = match import {
                Some((before, import)) if !is_open => {
                    imports.push((!before.is_empty(), String::new()));
                    is_open = true;
                    import
                }
                _ => line,
            };
            match imports.last_mut() {
                Some((_, import)) if is_open => {
                    let end = text.find(';');
                    *import += &text[..end.unwrap_or(text.len())];
                    is_open = end.is_none();
                }
                _ if is_module => {}
                _ => rest.extend([line, "\n"]),
            }
        }
        Self { imports, rest }
    }

    /// Returns true if the code names this outside of its imports.
    fn names(&self, name: &str) -> bool {
        self.rest.split(|c| !is_of_word(c)).any(|word| word == name)
    }

    /// Returns the paths that the code names outside of its imports, except for those in visibilities.
    fn paths(&self) -> Vec<Words> {
        let is_of_path = |c: char| c == ':' || is_of_word(c);
        let code = self.rest.replace("(in crate::", "(").replace("(in super::", "(");
        let paths = code.split(|c| !is_of_path(c)).filter(|path| path.contains("::"));
        paths.map(|path| words(path).collect()).filter(|path: &Words| !path.is_empty()).collect()
    }
}

fn is_of_word(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric()
}

/// Returns true if this is `pub`, or `pub(crate)` and the like.
fn is_visibility(text: &str) -> bool {
    let text = text.trim_end();
    text == "pub" || text.starts_with("pub(") && text.ends_with(')')
}

/// Returns a fault of a crate if its largest cycle is too large.
fn faults(of: &str, arrows: &Arrows) -> Option<String> {
    let circle = circles(arrows).into_iter().next().unwrap_or_default();
    (circle.len() > LARGEST)
        .then(|| format!("{of}: these {} files use each other: {circle:?}", circle.len()))
}

#[test]
fn circles_of_files_are_small() {
    let faults = CRATES.iter().filter_map(|(of, _)| faults(of, &Files::new(&sources(of)).arrows()));
    let faults: Vec<_> = faults.collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn what_files_use_is_found() {
    let sources = [
        Source::new("lib.rs", "mod a;\npub use a::b::Deep;\npub use c as d;\nfn f() { own::g() }"),
        Source::new(
            "a/mod.rs",
            "pub mod b;\npub use self::b::Deep;\nuse crate::{c::{self, Thing}, own};",
        ),
        Source::new(
            "a/b.rs",
            "use super::Thing;\nfn f() { crate::d::g() }\npub(in crate::own) struct Deep;",
        ),
        Source::new("c.rs", "use std::fmt;\n// use crate::a;\nuse crate::a::Deep as Other;"),
        Source::new("own.rs", "fn f() {}\n#[cfg(test)]\nmod tests {\nuse crate::a;"),
    ];
    let arrows = Files::new(&sources).arrows();
    let to = |from: &str| arrows[from].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(to("lib"), ["own"]);
    assert_eq!(to("a"), ["c", "own"]);
    assert_eq!(to("a::b"), ["c"]);
    assert_eq!(to("c"), ["a::b"]);
    assert_eq!(to("own"), [""; 0]);
    assert_eq!(circles(&arrows), [BTreeSet::from(["a::b".to_owned(), "c".to_owned()])]);
    assert!(faults("planted", &arrows).is_none());
    let many: Vec<_> = (0..6).map(|n| n.to_string()).collect();
    let next = |n: usize| BTreeSet::from([many[(n + 1) % many.len()].clone()]);
    let ring = (0..6).map(|n| (many[n].clone(), next(n))).collect();
    assert!(faults("planted", &ring).is_some_and(|fault| fault.contains("these 6 files")));
}
