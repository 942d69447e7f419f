//! The page `docs/info.md`, made from the table.

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fmt::Write as _;

    use super::super::SECTIONS;
    use super::super::field::Source;

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

    #[test]
    fn page_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/info.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, page()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == page(), "docs/info.md is out of date; see its second line");
    }

    #[test]
    fn every_field_has_a_sentence_and_a_name_of_its_own() {
        let mut names = HashSet::new();
        for field in SECTIONS.iter().flat_map(|section| section.fields) {
            assert!(names.insert(field.name), "{} twice", field.name);
            let about = field.about;
            assert!(about.len() > 1 && about.ends_with('.'), "{}: {about:?}", field.name);
        }
    }
}
