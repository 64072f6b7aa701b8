//! The names in an expression: columns and members of structs, found and written exactly.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use arrow::datatypes::{DataType, Fields, Schema};
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Expr, FunctionArguments, Ident, Query, Value, VisitMut, VisitorMut,
};
use tidegate_change::{Code, Error, Result};

use crate::parse::{invalid, quoted};

/// Replaces every name by the exact name of a column (or of a member below one), quoted, and returns
/// the positions of the columns that are used.
pub(crate) fn resolve(sql: &str, tree: &mut Expr, schema: &Schema) -> Result<BTreeSet<usize>> {
    let mut resolver = Resolver {
        sql,
        schema,
        used: BTreeSet::new(),
    };
    match tree.visit(&mut resolver) {
        ControlFlow::Continue(()) => Ok(resolver.used),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Resolver<'a> {
    sql: &'a str,
    schema: &'a Schema,
    used: BTreeSet<usize>,
}

impl VisitorMut for Resolver<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Self::Break> {
        ControlFlow::Break(Box::new(self.row_only("a subquery")))
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        match self.rewrite(expr) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

impl Resolver<'_> {
    fn rewrite(&mut self, expr: &mut Expr) -> Result<()> {
        match expr {
            Expr::Identifier(ident) => self.column(ident).map(|_| ()),
            Expr::CompoundIdentifier(path) => self.path(path),
            Expr::CompoundFieldAccess { access_chain, .. } => {
                // After a subscript the planner takes members by text only.
                for access in access_chain.iter_mut().skip_while(|a| is_member(a)) {
                    if let AccessExpr::Dot(member) = access
                        && let Expr::Identifier(ident) = member
                    {
                        *member = Expr::value(Value::SingleQuotedString(ident.value.clone()));
                    }
                }
                self.leading_members(expr)
            }
            Expr::Lambda(_) => Err(self.row_only("a lambda function")),
            Expr::Function(call) if call.over.is_some() => Err(self.row_only("a window function")),
            Expr::Function(call) if matches!(call.args, FunctionArguments::Subquery(_)) => {
                Err(self.row_only("a subquery"))
            }
            Expr::Wildcard(_) | Expr::QualifiedWildcard(..) => Err(self.row_only("*")),
            Expr::Value(value) if matches!(value.value, Value::Placeholder(_)) => {
                Err(self.row_only("a placeholder"))
            }
            _ => Ok(()),
        }
    }

    /// `root.member[…]`: turns the members before the first subscript into a path, which is resolved
    /// as a whole.
    fn leading_members(&mut self, expr: &mut Expr) -> Result<()> {
        let Expr::CompoundFieldAccess { root, access_chain } = expr else {
            return Ok(());
        };
        let Expr::Identifier(first) = root.as_ref() else {
            return Ok(());
        };
        let members = access_chain.iter().take_while(|a| is_member(a)).count();
        if members == 0 {
            return Ok(());
        }
        let mut path = vec![first.clone()];
        for access in access_chain.drain(..members) {
            if let AccessExpr::Dot(Expr::Identifier(ident)) = access {
                path.push(ident);
            }
        }
        *root.as_mut() = Expr::CompoundIdentifier(path);
        Ok(())
    }

    fn column(&mut self, ident: &mut Ident) -> Result<usize> {
        let fields = self.schema.fields();
        let position = self.find(fields, ident, "a known column")?;
        self.used.insert(position);
        Ok(position)
    }

    fn path(&mut self, path: &mut [Ident]) -> Result<()> {
        let Some((first, members)) = path.split_first_mut() else {
            return Ok(());
        };
        let position = self.column(first)?;
        let mut data_type = self.schema.field(position).data_type();
        let mut parent = first.value.clone();
        for member in members {
            let DataType::Struct(fields) = data_type else {
                let what = format!(
                    "column {parent} is no struct and has no member {}",
                    member.value
                );
                return Err(invalid(self.sql, &what));
            };
            let found = self.find(fields, member, &format!("a member of {parent}"))?;
            data_type = fields
                .get(found)
                .map_or(&DataType::Null, |field| field.data_type());
            parent = format!("{parent}.{}", member.value);
        }
        Ok(())
    }

    fn find(&self, fields: &Fields, ident: &mut Ident, place: &str) -> Result<usize> {
        let exact = fields.iter().position(|field| *field.name() == ident.value);
        let found = match exact {
            Some(position) => Some(position),
            None if ident.quote_style.is_none() => {
                let mut alike = fields
                    .iter()
                    .enumerate()
                    .filter(|(_, field)| field.name().to_lowercase() == ident.value.to_lowercase());
                match (alike.next(), alike.next()) {
                    (Some((position, _)), None) => Some(position),
                    (Some(_), Some(_)) => return Err(self.unknown(fields, ident, "unambiguous")),
                    _ => None,
                }
            }
            None => None,
        };
        let position = found.ok_or_else(|| self.unknown(fields, ident, place))?;
        if let Some(field) = fields.get(position) {
            ident.value.clone_from(field.name());
            ident.quote_style = Some('"');
        }
        Ok(position)
    }

    fn unknown(&self, fields: &Fields, ident: &Ident, place: &str) -> Error {
        let start = ident.span.start;
        let message = format!(
            "expression {}: {} at line {}, column {} is not {place}",
            quoted(self.sql),
            ident.value,
            start.line,
            start.column
        );
        let error = Error::new(Code::UnknownColumn, message);
        if place == "unambiguous" {
            return error.with_hint(format!(
                "write \"{}\" in the exact case, in double quotes",
                ident.value
            ));
        }
        match nearest(fields, &ident.value) {
            Some(name) => error.with_hint(format!("did you mean {name:?}?")),
            None if ident.quote_style == Some('"') => error.with_hint(format!(
                "text is written in single quotes: '{}'",
                ident.value
            )),
            None => error.with_hint(format!("known names: {}", listed(fields))),
        }
    }

    fn row_only(&self, what: &str) -> Error {
        invalid(
            self.sql,
            &format!("{what} is not allowed, an expression sees one row"),
        )
    }
}

fn is_member(access: &AccessExpr) -> bool {
    matches!(access, AccessExpr::Dot(Expr::Identifier(_)))
}

fn nearest<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    fields
        .iter()
        .map(|field| {
            (
                strsim::damerau_levenshtein(&field.name().to_lowercase(), &name.to_lowercase()),
                field.name(),
            )
        })
        .filter(|(distance, known)| *distance <= known.chars().count().div_ceil(3))
        .min()
        .map(|(_, known)| known.as_str())
}

fn listed(fields: &Fields) -> String {
    const NAMES_MAX: usize = 12;
    let mut names: Vec<&str> = fields
        .iter()
        .take(NAMES_MAX)
        .map(|f| f.name().as_str())
        .collect();
    if fields.len() > NAMES_MAX {
        names.push("…");
    }
    names.join(", ")
}
