//! Methods: those of a type are in few files, and no file in a lower folder than a method's file calls it.
//!
//! A caller of a method imports its type, and not the file of the method. So neither `layers` nor `circles` detects
//! that dependency.

use std::collections::{BTreeMap, BTreeSet};

use super::layers::{CRATES, Source, sources};

/// Maximum number of files with methods of a type.
const FILES_MAX: usize = 5;

/// Folders of the keyspace, from the lowest to the highest.
const FOLDERS: &[&str] = &["data", "change", "registries", "access", "services"];

/// Names that methods of the standard library and of other crates have as well. Their calls are ignored.
#[rustfmt::skip]
const COMMON: &[&str] = &[
    "begin", "contains", "count", "extend", "find", "first", "for_each", "into_iter", "is", "iter", "lock", "peek",
    "pop", "position", "push", "release", "rest", "scan", "state", "take", "try_for_each", "values", "wait",
    "withdraw", "write",
];

/// Returns the files that have methods of each type. The file of the definition distinguishes equal names.
fn methods_by_type(sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let mut defined: BTreeMap<String, Vec<&Source>> = BTreeMap::new();
    let mut files: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources {
        for name in source.code().lines().filter_map(defined_type) {
            defined.entry(name).or_default().push(source);
        }
    }
    for source in sources {
        let path = source.words().join("::");
        for (name, arguments) in source.code().lines().filter_map(type_with_methods) {
            let shared = |of: &&&Source| {
                let both = of.words().into_iter().zip(source.words());
                both.take_while(|(a, b)| a == b).count()
            };
            let of = defined.get(&name).filter(|all| all.len() > 1);
            let of = of.and_then(|all| all.iter().max_by_key(shared));
            let place = of.map_or_else(String::new, |of| format!("{}::", of.words().join("::")));
            files.entry(format!("{place}{name}{arguments}")).or_default().insert(path.clone());
        }
    }
    files
}

/// Returns the type that a line begins to define.
fn defined_type(line: &str) -> Option<String> {
    let mut words = line.split(' ').skip_while(|word| word.starts_with("pub"));
    let kind = words.next()?;
    let name = words.next().filter(|_| matches!(kind, "struct" | "enum" | "union"))?;
    Some(name.split(|c: char| !c.is_alphanumeric()).next()?.to_owned())
}

/// Returns the type of which a line begins an `impl` of methods, and its type parameters, such as `<List>` in `impl
/// Editor<'_, List> {`.
fn type_with_methods(line: &str) -> Option<(String, String)> {
    let head = line.strip_prefix("impl")?;
    let head = if head.starts_with('<') { behind_parameters(head) } else { head }.trim_start();
    let path = head.split([' ', '<']).next().filter(|_| !line.contains(" for "))?;
    let name = path.rsplit("::").next()?;
    let arguments = head[path.len()..].split([',', '<', '>', ' ', '{']);
    let is_concrete = |word: &&str| word.len() > 1 && word.starts_with(char::is_uppercase);
    let arguments: Vec<_> = arguments.filter(is_concrete).collect();
    let arguments = arguments.first().map_or_else(String::new, |of| format!("<{of}>"));
    Some((name.to_owned(), arguments)).filter(|_| name.starts_with(char::is_uppercase))
}

/// Returns the text after the parameters in angle brackets at its beginning.
fn behind_parameters(text: &str) -> &str {
    let mut depth = 0;
    let end = text.find(|c| {
        depth += i32::from(c == '<') - i32::from(c == '>');
        depth == 0
    });
    end.map_or("", |end| &text[end + 1..])
}

/// Returns types with methods in too many files, a sentence for each.
fn spread(of: &str, sources: &[Source]) -> Vec<String> {
    let by_type = methods_by_type(sources).into_iter();
    let faults = by_type.filter(|(_, files)| files.len() > FILES_MAX);
    let fault = |(name, files): (_, BTreeSet<_>)| {
        format!("{of}: {} files have methods of {name}: {files:?}", files.len())
    };
    faults.map(fault).collect()
}

/// Returns methods that are called from a file below all files with a method of this name, each with the file.
fn calls_upward(sources: &[Source], folders: &[&str]) -> BTreeSet<String> {
    let place = |source: &Source| {
        let words = source.words();
        folders.iter().position(|folder| words.first().is_some_and(|word| word == folder))
    };
    let mut lowest: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources {
        let Some(place) = place(source) else { continue };
        for name in source.code().lines().filter_map(method) {
            let lowest = lowest.entry(name).or_insert(place);
            *lowest = place.min(*lowest);
        }
    }
    COMMON.iter().for_each(|name| _ = lowest.remove(*name));
    let mut calls = BTreeSet::new();
    for source in sources {
        let Some(place) = place(source) else { continue };
        for called in source.code().split('.').skip(1) {
            let name = called.split(|c: char| c != '_' && !c.is_alphanumeric()).next();
            let name = name.filter(|name| called[name.len()..].starts_with(['(', ':']));
            if let Some(name) = name
                && lowest.get(name).is_some_and(|above| *above > place)
            {
                calls.insert(format!("{name} in {}", source.words().join("::")));
            }
        }
    }
    calls
}

/// Returns the method that a line begins to define.
fn method(line: &str) -> Option<String> {
    let (before, rest) = line.split_once("fn ")?;
    let is_inside = before.starts_with("    ") && !before.contains("//");
    let name = rest.split(['(', '<']).next()?;
    let text = rest[name.len()..].trim_start_matches(|c| c != '(');
    let takes_self = text.len() < 2 || text[1..].split([',', ')']).next()?.contains("self");
    Some(name.to_owned()).filter(|_| is_inside && takes_self)
}

#[test]
fn methods_of_a_type_stand_in_few_files() {
    let of_crate = |(of, _): &(&str, _)| spread(of, &sources(of));
    let faults: Vec<_> = CRATES.iter().flat_map(of_crate).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_method_is_called_below_the_folder_that_has_it() {
    let calls = calls_upward(&sources("keyspace"), FOLDERS);
    assert!(calls.is_empty(), "calls of methods that stand in a higher folder: {calls:?}");
}

#[test]
fn methods_in_the_wrong_place_are_found() {
    let planted: Vec<_> = (0..6).map(|n| format!("part{n}.rs")).collect();
    let mut planted: Vec<_> =
        planted.iter().map(|path| Source::new(path, "impl Db<'_> {")).collect();
    planted.push(Source::new("data/a.rs", "pub struct Run;\nimpl<'a, T: Into<u8>> Run<'a, T> {"));
    planted.push(Source::new(
        "data/b.rs",
        "struct Run {\n}\nimpl Editor<'_, List> {\nimpl Editor<'_, Set> {",
    ));
    planted.push(Source::new("data/b/more.rs", "impl Run {\nimpl Drop for Run {\n// impl Other {"));
    let found = methods_by_type(&planted);
    let counts: Vec<_> = found.iter().map(|(name, files)| (&**name, files.len())).collect();
    let expected = [
        ("Db", 6),
        ("Editor<List>", 1),
        ("Editor<Set>", 1),
        ("data::a::Run", 1),
        ("data::b::Run", 1),
    ];
    assert_eq!(counts, expected);
    let faults = spread("planted", &planted);
    assert!(matches!(&faults[..], [of_db] if of_db.starts_with("planted: 6 files")), "{faults:?}");
    let low = Source::new(
        "data/low.rs",
        "fn f(db: &mut Db) {\n    db.expire(1);\n    db.own();\n    expire(db);\n",
    );
    let high = Source::new(
        "services/high.rs",
        "impl Db {\n    pub fn expire(&mut self) {\n    fn free(db: &mut Db) {",
    );
    let own = Source::new("data/own.rs", "impl Db {\n    fn own(\n        &self,");
    let calls = calls_upward(&[low, high, own], FOLDERS);
    assert_eq!(calls, BTreeSet::from(["expire in data::low".to_owned()]));
}
