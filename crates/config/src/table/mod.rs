//! The table of directives: every name of a stock redis.conf up to 7.4, and our own.
//!
//! One file for each group, one row for each directive: `row(name, kind, default, description)`, then its special
//! properties. Everything else is generated from the table: parsing of files, arguments and environment, CONFIG GET,
//! SET and REWRITE, the help texts and `docs/configuration.md`.
//!
//! - Names and aliases are unique and in lower case.
//! - A default is a valid value of its own directive.
//! - A directive that can never have an effect is in `inert`, with a reason and no description.
//! - Any other row has code that acts on it, or says `.accepted(reason)` or `.refused(except, why)`; see
//!   [`Effect`](super::directive::Effect). The commit that adds that code removes the mark.

mod bucket;
mod clients;
mod cluster;
mod data;
mod http;
mod id;
mod inert;
mod lines;
mod memcached;
mod memory;
mod network;
mod observability;
mod pedrokv;
mod persistence;
mod process;
mod replication;
mod security;
mod tls;

use super::directive::{Directive, Group, row};
use super::kind::Kind;

pub use id::DirectiveId;
pub use lines::{FILE_LINES, FileLine, Handling};

/// Rows of a group.
type Rows = &'static [Directive];

const SECTIONS: [(Group, Rows); 18] = [
    (Group::Network, network::ROWS),
    (Group::Memcached, memcached::ROWS),
    (Group::PedroKv, pedrokv::ROWS),
    (Group::Http, http::ROWS),
    (Group::Clients, clients::ROWS),
    (Group::Security, security::ROWS),
    (Group::Process, process::ROWS),
    (Group::Memory, memory::ROWS),
    (Group::Persistence, persistence::ROWS),
    (Group::Data, data::ROWS),
    (Group::Observability, observability::ROWS),
    (Group::Replication, replication::FOLLOWING),
    (Group::Replication, replication::LEADING),
    (Group::Replication, replication::ROWS),
    (Group::Bucket, bucket::ROWS),
    (Group::Cluster, cluster::ROWS),
    (Group::Tls, tls::ROWS),
    (Group::Inert, inert::ROWS),
];

const COUNT: usize = {
    let (mut count, mut section) = (0, 0);
    while section < SECTIONS.len() {
        count += SECTIONS[section].1.len();
        section += 1;
    }
    count
};

/// All directives, group by group.
pub static DIRECTIVES: [Directive; COUNT] = {
    let mut all = [row("", Kind::Bool, "no", ""); COUNT];
    let (mut filled, mut section) = (0, 0);
    while section < SECTIONS.len() {
        let (group, rows) = SECTIONS[section];
        let mut index = 0;
        while index < rows.len() {
            all[filled] = rows[index].group(group);
            filled += 1;
            index += 1;
        }
        section += 1;
    }
    all
};

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::directive::{Group, Mutability, Visibility};
    use super::super::value::Value;
    use super::DirectiveId;
    use super::{DIRECTIVES, FILE_LINES, SECTIONS};

    #[test]
    fn names_and_aliases_are_unique_and_in_lower_case() {
        let mut seen = HashSet::new();
        let lines = FILE_LINES.iter().map(|line| line.name);
        for name in DIRECTIVES.iter().flat_map(|directive| directive.names()).chain(lines) {
            assert!(seen.insert(name), "{name} is there twice");
            let plain = |byte: u8| byte.is_ascii_lowercase() || b"-_".contains(&byte);
            assert!(name.bytes().all(plain), "{name}");
        }
    }

    #[test]
    fn names_are_found_in_either_case() {
        for id in DirectiveId::all() {
            for name in id.directive().names() {
                assert_eq!(DirectiveId::find(name.as_bytes()), Some(id));
                assert_eq!(DirectiveId::find(name.to_ascii_uppercase().as_bytes()), Some(id));
            }
            assert_eq!(DirectiveId::of(id.name()), id);
        }
        assert_eq!(DirectiveId::find(b"nosuch"), None);
        assert_eq!(DirectiveId::find(b"\xff"), None);
    }

    #[test]
    fn every_directive_is_documented_in_sentences() {
        for directive in &DIRECTIVES {
            assert!(directive.about.ends_with('.'), "{}", directive.name);
            assert!((20..=250).contains(&directive.about.len()), "{}", directive.name);
            let first = directive.about.chars().next();
            assert!(first.is_some_and(char::is_uppercase), "{}", directive.name);
        }
    }

    #[test]
    fn a_default_is_a_valid_value_and_is_shown_as_such() {
        for directive in &DIRECTIVES {
            let value = directive.default_value();
            let shown = value.text();
            assert_eq!(directive.parse(&[&shown], None).as_ref(), Ok(&value), "{}", directive.name);
            if let Some(redis) = directive.redis_default {
                let redis = directive.parse(&[redis.as_bytes()], None).expect(directive.name);
                assert_ne!(redis, value, "{} does not deviate", directive.name);
            }
        }
    }

    #[test]
    fn a_default_written_to_a_file_reads_back() {
        for directive in &DIRECTIVES {
            let default = directive.default_value();
            let lines = default.file_lines();
            let read = lines.iter().fold(None, |read: Option<Value>, line| {
                let words = tierce_wire::words::split(line).expect("balanced quotes");
                let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                let next = directive.parse(&words, read.as_ref()).expect(directive.name);
                Some(read.map_or_else(|| next.clone(), |read| read.followed_by(next.clone())))
            });
            assert_eq!(read, Some(default), "{}", directive.name);
        }
    }

    #[test]
    fn chapters_come_in_reading_order() {
        let mut groups = SECTIONS.map(|(group, _)| group).to_vec();
        groups.dedup();
        assert_eq!(groups, Group::ALL);
    }

    #[test]
    fn hidden_directives_can_be_changed_at_any_time() {
        for directive in &DIRECTIVES {
            if directive.visibility == Visibility::Hidden {
                assert_eq!(directive.mutability, Mutability::AtAnyTime, "{}", directive.name);
            }
        }
    }
}
