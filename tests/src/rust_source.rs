//! Just enough of Rust's syntax to check the style of the sources: code without comments and literals,
//! function lengths, and where tests begin.

/// The code of a file with comments and literals blanked out; lines keep their numbers.
#[must_use]
pub fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let skipped = skipped_bytes(rest);
        if skipped == 0 {
            code.push(next);
            rest = rest.get(next.len_utf8()..).unwrap_or("");
            // A quote inside a word is no literal: `r#type`, `b'x'` after an identifier, lifetimes.
            if next.is_alphanumeric() || next == '_' {
                let word = rest
                    .find(|c: char| !c.is_alphanumeric() && c != '_')
                    .unwrap_or(rest.len());
                let (word, after) = rest.split_at(word);
                code.push_str(word);
                rest = after;
            }
            continue;
        }
        let (blanked, after) = rest.split_at(skipped);
        code.extend(blanked.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = after;
    }
    code
}

/// Length of the comment or literal that the text begins with; 0 when it begins with code.
fn skipped_bytes(text: &str) -> usize {
    let end_of = |start: usize, end: &str| {
        text.get(start..)
            .and_then(|rest| rest.find(end))
            .map_or(text.len(), |at| start + at + end.len())
    };
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return end_of(2, "*/");
    }
    for prefix in ["br", "cr", "r"] {
        if let Some(rest) = text.strip_prefix(prefix) {
            let hashes = rest.len() - rest.trim_start_matches('#').len();
            if rest.get(hashes..).is_some_and(|rest| rest.starts_with('"')) {
                return end_of(
                    prefix.len() + hashes + 1,
                    &format!("\"{}", "#".repeat(hashes)),
                );
            }
        }
    }
    let prefix = usize::from(text.starts_with("b\"") || text.starts_with("c\""));
    if text.get(prefix..).is_some_and(|rest| rest.starts_with('"')) {
        return quoted_bytes(text, prefix + 1, '"');
    }
    if let Some(rest) = text.strip_prefix('\'') {
        let mut chars = rest.chars();
        let first = chars.next();
        // `'a'` and `'\n'` are characters, `'a` is a lifetime.
        if first == Some('\\') || (first.is_some() && chars.next() == Some('\'')) {
            return quoted_bytes(text, 1, '\'');
        }
    }
    0
}

fn quoted_bytes(text: &str, start: usize, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip_while(|(at, _)| *at < start) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// A function: its name, the line that it starts on (from 1), and its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Name.
    pub name: String,
    /// First line of the signature.
    pub line: usize,
    /// Lines of code of the body, with its braces.
    pub lines: usize,
}

/// The functions with a body of blanked code (see [`code_of`]), nested ones included.
#[must_use]
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let before = code.get(..at).and_then(|before| before.chars().last());
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let signature = code.get(at + 3..).unwrap_or("");
        let name: String = signature
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let body = signature
            .find(['{', ';'])
            .filter(|at| signature[*at..].starts_with('{'));
        if let (false, Some(body)) = (name.is_empty(), body) {
            let line = code[..at].matches('\n').count() + 1;
            let inside = &signature[body..block_end(signature, body)];
            let lines = inside
                .lines()
                .filter(|line| !line.trim().is_empty())
                .count();
            found.push(Function { name, line, lines });
        }
    }
    found
}

/// Position behind the block that opens at `open`.
fn block_end(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices().skip_while(|(at, _)| *at < open) {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return at + 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    code.len()
}

/// Blanked code without its test modules and test functions.
#[must_use]
pub fn without_tests(code: &str) -> String {
    let mut kept = code.to_owned();
    for marker in ["#[cfg(test)]", "#[test]"] {
        while let Some(at) = kept.find(marker) {
            let rest = &kept[at..];
            let end = match rest.find(['{', ';']) {
                Some(open) if rest[open..].starts_with('{') => block_end(rest, open),
                Some(semicolon) => semicolon + 1,
                None => rest.len(),
            };
            let blank: String = rest[..end]
                .chars()
                .map(|c| if c == '\n' { '\n' } else { ' ' })
                .collect();
            kept.replace_range(at..at + end, &blank);
        }
    }
    kept
}

/// The modules in files of their own that only tests see, as the start of their paths, told by the file
/// that declares them.
#[must_use]
pub fn test_modules(path: &str, code: &str) -> Vec<String> {
    let stem = path.trim_end_matches(".rs");
    let folder = match stem.rsplit_once('/') {
        Some((folder, "lib" | "mod" | "main")) => folder,
        _ => stem,
    };
    let declared = code.split("#[cfg(test)]").skip(1).filter_map(|rest| {
        let (declaration, _) = rest.split_once([';', '{'])?;
        let is_file = rest.get(declaration.len()..)?.starts_with(';');
        let name = declaration.trim().rsplit_once("mod ")?.1;
        is_file.then(|| format!("{folder}/{name}"))
    });
    declared.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "fn one<'a>(x: &'a str) -> char {\n    // } unwrap()\n    let s = \"{ \\\" unwrap()\";\n    '{'\n}\n#[cfg(test)]\nmod tests {\n    fn two() { x.unwrap() }\n}\n";

    #[test]
    fn comments_and_literals_are_no_code() {
        let code = code_of(SOURCE);
        assert_eq!(code.lines().count(), SOURCE.lines().count());
        assert_eq!(code.matches("unwrap").count(), 1);
        assert_eq!(without_tests(&code).matches("unwrap").count(), 0);
    }

    #[test]
    fn functions_have_their_length() {
        let found = functions(&code_of(SOURCE));
        assert_eq!(
            found[0],
            Function {
                name: "one".into(),
                line: 1,
                lines: 3
            }
        );
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn modules_of_tests_are_told_by_their_declaration() {
        let code = "mod a;\n#[cfg(test)]\nmod b_test;\n#[cfg(test)]\nmod inline {}\n";
        assert_eq!(
            test_modules("crates/x/src/lib.rs", code),
            ["crates/x/src/b_test"]
        );
        assert_eq!(
            test_modules("crates/x/src/y.rs", code),
            ["crates/x/src/y/b_test"]
        );
    }
}
