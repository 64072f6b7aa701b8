//! Text to syntax tree, within bounds that keep recursion over the tree shallow.

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use tidegate_change::{Code, Error, Result};

/// Longest expression, bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Most operators: the depth of the tree is at most their number, and planning recurses over it.
const OPERATORS_MAX: usize = 500;
/// Operators up to which planning fits the stack of any thread.
pub(crate) const OPERATORS_SHALLOW: usize = 24;

/// A parsed expression.
#[derive(Debug)]
pub(crate) struct Parsed {
    /// The syntax tree.
    pub(crate) tree: Expr,
    /// Number of operators in the text, an upper bound of the tree's depth beyond nesting.
    pub(crate) operators: usize,
}

/// Reads one expression.
pub(crate) fn parse(sql: &str) -> Result<Parsed> {
    if sql.len() > TEXT_BYTES_MAX {
        let message = format!("an expression of {} bytes is longer than 64 KiB", sql.len());
        return Err(Error::new(Code::InvalidExpression, message));
    }
    let dialect = GenericDialect {};
    let tokens = Tokenizer::new(&dialect, sql)
        .tokenize_with_location()
        .map_err(|e| invalid(sql, &e.to_string()))?;
    let operators = tokens.iter().filter(|t| is_operator(&t.token)).count();
    if operators > OPERATORS_MAX {
        let message =
            format!("an expression of {operators} operators is too deep, at most {OPERATORS_MAX}");
        return Err(Error::new(Code::InvalidExpression, message)
            .with_hint("write a list of alternatives as column IN (a, b, …)"));
    }
    let mut parser = Parser::new(&dialect).with_tokens_with_locations(tokens);
    let tree = parser.parse_expr().map_err(|e| refused(sql, e))?;
    match parser.peek_token() {
        end if end.token == Token::EOF => Ok(Parsed { tree, operators }),
        rest => {
            let place = rest.span.start;
            let what = format!(
                "unexpected {} at line {}, column {}",
                rest.token, place.line, place.column
            );
            Err(invalid(sql, &what))
        }
    }
}

/// An `INVALID_EXPRESSION` that quotes the expression.
pub(crate) fn invalid(sql: &str, what: &str) -> Error {
    Error::new(
        Code::InvalidExpression,
        format!("expression {}: {what}", quoted(sql)),
    )
}

/// The expression as an error quotes it: in one line, cut where it is long.
pub(crate) fn quoted(sql: &str) -> String {
    const CHARS_MAX: usize = 120;
    let line = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= CHARS_MAX {
        return format!("`{line}`");
    }
    format!("`{}…`", line.chars().take(CHARS_MAX).collect::<String>())
}

fn refused(sql: &str, error: ParserError) -> Error {
    match error {
        ParserError::RecursionLimitExceeded => invalid(sql, "nested too deeply"),
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => {
            let text = text
                .replace("Expected:", "expected")
                .replace(" at Line:", " at line");
            invalid(sql, &text.replace(", Column:", ", column"))
        }
    }
}

fn is_operator(token: &Token) -> bool {
    match token {
        Token::Word(word) => {
            let text = word.value.as_str();
            word.quote_style.is_none()
                && [
                    "and", "or", "not", "is", "between", "like", "ilike", "in", "div", "xor",
                ]
                .iter()
                .any(|operator| text.eq_ignore_ascii_case(operator))
        }
        Token::EOF
        | Token::Whitespace(_)
        | Token::Comma
        | Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::LParen
        | Token::RParen => false,
        _ => true,
    }
}
