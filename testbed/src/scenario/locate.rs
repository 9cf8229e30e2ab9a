//! Finds the line and the field of a mistake in a scenario's text.

/// The line of a byte offset, and the field that it is in.
pub(super) fn locate(text: &str, offset: usize) -> (usize, Option<String>) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let section = text.lines().take(line).filter_map(header).last();
    let key = text.lines().nth(line - 1).and_then(key);
    let field = match (section, key) {
        (Some(section), Some(key)) => Some(format!("{section}.{key}")),
        (section, key) => key.or(section).map(str::to_owned),
    };
    (line, field)
}

/// The line of a key in the section of that name after `earlier` others, else of the section, else
/// the first.
pub(super) fn line_of(text: &str, section: &str, earlier: usize, wanted: &str) -> usize {
    let mut is_inside = section.is_empty();
    let mut seen = 0;
    let mut section_line = 1;
    for (index, line) in text.lines().enumerate() {
        if let Some(name) = header(line) {
            is_inside = name == section && seen == earlier;
            seen += usize::from(name == section);
            if is_inside {
                section_line = index + 1;
            }
        } else if is_inside && key(line) == Some(wanted) {
            return index + 1;
        }
    }
    section_line
}

fn header(line: &str) -> Option<&str> {
    let (name, _) = line.trim_start().strip_prefix('[')?.split_once(']')?;
    Some(name.trim().trim_start_matches('[').trim())
}

fn key(line: &str) -> Option<&str> {
    let (key, _) = line.split_once('=')?;
    let key = key.trim();
    (!key.is_empty() && !key.starts_with('#')).then_some(key)
}
