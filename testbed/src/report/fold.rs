//! Decides how text for people fits a terminal: lines that are too long go on in the next line,
//! below the last cell of their table. Data (JSON, CSV) is never folded. No I/O.

/// Columns of the narrowest terminal that people use.
pub const COLUMNS_MAX: usize = 80;

/// Folds each line at [`COLUMNS_MAX`], between words. A word that is longer (a hash, a path) stays
/// whole, so that it can be copied.
#[must_use]
pub fn fold(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        if line.trim_end().chars().count() <= COLUMNS_MAX {
            out.push_str(line);
        } else {
            fold_line(&mut out, line.trim_end());
            out.push('\n');
        }
    }
    out
}

fn fold_line(out: &mut String, line: &str) {
    let indent = hanging(line);
    let mut column = 0;
    let mut blanks = 0;
    for word in line.split(' ') {
        if word.is_empty() {
            blanks += 1;
            continue;
        }
        let width = word.chars().count();
        if column > indent && column + blanks + width > COLUMNS_MAX {
            out.push('\n');
            (blanks, column) = (indent, 0);
        }
        out.extend(std::iter::repeat_n(' ', blanks));
        out.push_str(word);
        column += blanks + width;
        blanks = 1;
    }
}

/// Where the last cell of a line begins: behind the last two blanks of its first half, else two
/// columns behind its own beginning.
fn hanging(line: &str) -> usize {
    let characters: Vec<char> = line.chars().take(COLUMNS_MAX / 2).collect();
    let begins = |at: &usize| {
        characters[*at] != ' ' && characters[at - 1] == ' ' && characters[at - 2] == ' '
    };
    let own = characters.iter().take_while(|c| **c == ' ').count();
    (2..characters.len()).rev().find(begins).unwrap_or(own + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_goes_on_below_its_last_cell() {
        let line = format!("turns     {}\nshort\n", "1234 chunks, ".repeat(8).trim_end());
        let folded = fold(&line);
        let lines: Vec<&str> = folded.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS_MAX), "{folded}");
        assert!(lines[1].starts_with("          1234") || lines[1].starts_with("          chunks"));
        assert_eq!(lines.last(), Some(&"short"));
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&folded), words(&line), "no word is lost");
    }

    #[test]
    fn what_fits_stays_and_a_long_word_stays_whole() {
        let fits = "model     0123\n\n  x\n";
        assert_eq!(fold(fits), fits);
        let hash = "f".repeat(90);
        assert_eq!(
            fold(&format!("model     {hash} identical")),
            format!("model     {hash}\n          identical\n")
        );
    }
}
