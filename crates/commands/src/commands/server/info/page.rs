//! Generates the pages `docs/info.md` and `docs/metrics.md` from the table.

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fmt::Write as _;

    use super::super::field::{Metrics, Source};
    use super::super::only_metrics::LATENCIES;
    use super::super::{SECTIONS, all_fields};
    use crate::metrics::Kind;

    fn page() -> String {
        let mut page = String::from(
            "# Fields of INFO\n\n\
             Generated from the table of fields by `UPDATE_DOCS=1 cargo test -p tierce-commands page`; do not edit by \
             hand. A field with a value here is constant: the server does not do what the field counts, or always \
             does it that way.\n",
        );
        for section in SECTIONS {
            let asked = if section.default { "" } else { " (when asked for)" };
            let _ = write!(page, "\n## {}{asked}\n\n", section.title);
            if section.fields.is_empty() {
                page.push_str("Nothing.\n");
                continue;
            }
            page.push_str("| field | what it says |\n|---|---|\n");
            for field in section.fields {
                let name = match field.source {
                    Source::Is(_) => format!("`{}`", field.name),
                    Source::Maybe(_) => format!("`{}`, if there is one", field.name),
                    Source::Always(value) => format!("`{}:{value}`", field.name),
                    Source::Each(_) => format!("`{}...`", field.name),
                };
                let _ = writeln!(page, "| {name} | {} |", field.about.replace('|', "\\|"));
            }
        }
        page
    }

    fn metrics_page() -> String {
        let mut page = String::from(
            "# Metrics\n\n\
             Generated from the table of fields by `UPDATE_DOCS=1 cargo test -p tierce-commands page`; do not edit by \
             hand.\n\n\
             `GET /metrics` of `http-port` ([http.md](http.md)) returns these in the text format of Prometheus. INFO shows \
             the same statistics ([info.md](info.md)). Names that begin with `redis_` are those of redis_exporter, so its \
             dashboards work. A series is absent while it has no value, such as those of the log without a log. There \
             is a series for each command that was called, each database with keys and each kind of error (128 at most), \
             and none for single keys or clients.\n\n\
             | metric | type | labels | what it says |\n|---|---|---|---|\n",
        );
        let mut line = |name: &str, kind: &str, labels: &str, about: &str| {
            let about = about.replace('|', "\\|");
            let _ = writeln!(page, "| `{name}` | {kind} | {labels} | {about} |");
        };
        for field in all_fields() {
            match field.metrics {
                Metrics::None => {}
                Metrics::One(kind, name) => {
                    line(name, &format!("{kind:?}").to_lowercase(), "", field.about);
                }
                Metrics::Columns(labels, columns) => {
                    for column in columns {
                        let kind = format!("{:?}", column.kind).to_lowercase();
                        line(column.name, &kind, &labels.join(", "), column.about);
                    }
                }
            }
        }
        for (name, kind, about) in LATENCIES {
            line(name, kind, "cmd", about);
        }
        page
    }

    #[test]
    fn pages_are_up_to_date() {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        for (name, page) in [("info.md", page()), ("metrics.md", metrics_page())] {
            let path = format!("{docs}/{name}");
            if std::env::var_os("UPDATE_DOCS").is_some() {
                std::fs::write(&path, &page).unwrap();
            }
            let written = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(written == page, "docs/{name} is out of date; see its second line");
        }
    }

    #[test]
    fn names_of_metrics_are_well_formed_and_their_own() {
        let mut names = HashSet::new();
        let mut check = |kind: Kind, name: &'static str| {
            assert!(names.insert(name), "{name} twice");
            let is_well_formed =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            assert!(name.bytes().all(is_well_formed), "{name}");
            let is_ours = name.starts_with("tierce_");
            assert!(is_ours || name.starts_with("redis_"), "{name}");
            // Some names chosen by others do not follow the advice of Prometheus.
            assert!(!is_ours || name.ends_with("_total") == (kind == Kind::Counter), "{name}");
        };
        for field in all_fields() {
            match field.metrics {
                Metrics::None => {}
                Metrics::One(kind, name) => check(kind, name),
                Metrics::Columns(_, columns) => {
                    columns.iter().for_each(|it| check(it.kind, it.name));
                }
            }
        }
        LATENCIES.iter().for_each(|(name, ..)| check(Kind::Gauge, name));
    }

    #[test]
    fn every_field_has_a_sentence_and_a_name_of_its_own() {
        let mut names = HashSet::new();
        for field in all_fields() {
            assert!(names.insert(field.name), "{} twice", field.name);
            let about = field.about;
            // Descriptions must stand alone: metrics and single fields have no context.
            let leans_on_others = ["The same", "Their", "Those of", "Of the", "Its"];
            let is_metric = !matches!(field.metrics, Metrics::None);
            assert!(
                !is_metric || !leans_on_others.iter().any(|it| about.starts_with(it)),
                "{}",
                field.name
            );
            assert!(about.len() > 1 && about.ends_with('.'), "{}: {about:?}", field.name);
        }
    }
}
