//! A compiled expression.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, RecordBatch, RecordBatchOptions,
    new_null_array,
};
use arrow::compute::prep_null_mask_filter;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::sql::planner::{ParserOptions, PlannerContext, SqlToRel};
use tidegate_change::{Code, Error, Result};

use crate::catalog::{Catalog, GROWTH_MAX};
use crate::parse::{self, Parsed, invalid, quoted};
use crate::{names, overflow};

/// Stack of the thread that plans a deep expression, bytes; only what is touched is used.
const DEEP_STACK_BYTES: usize = 256 << 20;

/// A SQL expression, ready to be evaluated over batches.
///
/// Names in the text are exact; an unquoted name also matches without regard to case where only one
/// column does. Batches are matched by column name: they may carry other columns, in any order, and a
/// column that a batch lacks reads NULL.
#[derive(Clone, Debug)]
pub struct Compiled {
    sql: String,
    /// The columns that the expression uses, in the order of the schema that it was compiled over.
    input: SchemaRef,
    data_type: DataType,
    physical: Arc<dyn PhysicalExpr>,
}

impl Compiled {
    /// Compiles an expression over the columns of a schema.
    ///
    /// # Errors
    /// `INVALID_EXPRESSION` with the place in the text, also for functions whose result is not a function
    /// of the row (`now()`, `random()`); `UNKNOWN_COLUMN` with a suggestion.
    pub fn new(sql: &str, schema: &Schema) -> Result<Self> {
        let mut parsed = parse::parse(sql)?;
        let used = names::resolve(sql, &mut parsed.tree, schema)?;
        let positions: Vec<usize> = used.into_iter().collect();
        let input = schema
            .project(&positions)
            .map_err(|e| Error::internal("columns of an expression").with_source(e))?;
        let input = Arc::new(input.with_metadata(Default::default()));
        if parsed.operators <= parse::OPERATORS_SHALLOW {
            return plan(sql, parsed, input);
        }
        std::thread::scope(|scope| {
            let planning = std::thread::Builder::new()
                .stack_size(DEEP_STACK_BYTES)
                .spawn_scoped(scope, || plan(sql, parsed, input))
                .map_err(|e| Error::internal("no thread to plan an expression").with_source(e))?;
            planning
                .join()
                .unwrap_or_else(|_| Err(Error::internal("planning an expression failed")))
        })
    }

    /// Compiles a condition: an expression whose values are booleans.
    ///
    /// # Errors
    /// Those of [`Self::new`], and `INVALID_EXPRESSION` when the type is another.
    pub fn condition(sql: &str, schema: &Schema) -> Result<Self> {
        let compiled = Self::new(sql, schema)?;
        match compiled.data_type {
            DataType::Boolean | DataType::Null => Ok(compiled),
            ref other => Err(invalid(
                sql,
                &format!("a condition is expected, but the type is {other}"),
            )),
        }
    }

    /// The text that was compiled.
    #[must_use]
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// The type of the values.
    #[must_use]
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Names of the columns that the expression uses.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.input
            .fields()
            .iter()
            .map(|field| field.name().as_str())
    }

    /// Evaluates the expression for each row.
    ///
    /// # Errors
    /// `INVALID_EXPRESSION` when a row has no result (an overflow, a failed cast); it never quotes values.
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        self.evaluate_input(&self.input_of(batch)?)
    }

    fn evaluate_input(&self, input: &RecordBatch) -> Result<ArrayRef> {
        // Functions of others may panic on odd arguments; a row must not end the process.
        let evaluated = catch_unwind(AssertUnwindSafe(|| {
            let value = self.physical.evaluate(input)?;
            value.into_array(input.num_rows())
        }));
        match evaluated {
            Ok(values) => values.map_err(|e| self.failed(&e)),
            Err(_) => Err(self.without_result("a function fails on a row")),
        }
    }

    /// Evaluates a condition for each row; NULL is false (R-D1).
    ///
    /// # Errors
    /// Those of [`Self::evaluate`], and `INVALID_EXPRESSION` when the values are no booleans.
    pub fn predicate(&self, batch: &RecordBatch) -> Result<BooleanArray> {
        self.truths(&self.evaluate(batch)?)
    }

    /// Evaluates a condition for each row and sets apart the rows for which it has no result, so that one
    /// row does not refuse the others. What a row gets does not depend on the rows beside it.
    ///
    /// # Errors
    /// `INVALID_EXPRESSION` when the values are no booleans.
    pub fn verdicts(&self, batch: &RecordBatch) -> Result<Verdicts> {
        let input = self.input_of(batch)?;
        let mut holds = BooleanBufferBuilder::new(input.num_rows());
        let mut failed = Vec::new();
        // Ranges that are still to be told, the next one last; a range that fails is halved.
        let mut open = vec![(0, input.num_rows())];
        while let Some((start, len)) = open.pop() {
            match self.evaluate_input(&input.slice(start, len)) {
                Ok(values) => holds.append_buffer(self.truths(&values)?.values()),
                Err(_) if len > 1 => {
                    let half = len / 2;
                    open.extend([(start + half, len - half), (start, half)]);
                }
                Err(error) => {
                    holds.append_n(len, false);
                    failed.push(FailedRow { row: start, error });
                }
            }
        }
        Ok(Verdicts {
            holds: BooleanArray::new(holds.finish(), None),
            failed,
        })
    }

    /// Booleans without NULLs.
    fn truths(&self, values: &ArrayRef) -> Result<BooleanArray> {
        match values.data_type() {
            DataType::Boolean => {
                let values = values.as_boolean();
                Ok(if values.null_count() == 0 {
                    values.clone()
                } else {
                    prep_null_mask_filter(values)
                })
            }
            DataType::Null => Ok(BooleanArray::from(vec![false; values.len()])),
            other => Err(invalid(
                &self.sql,
                &format!("a condition is expected, but the type is {other}"),
            )),
        }
    }

    fn input_of(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = self
            .input
            .fields()
            .iter()
            .map(|field| match batch.column_by_name(field.name()) {
                Some(column) => Arc::clone(column),
                None => new_null_array(field.data_type(), batch.num_rows()),
            })
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.input), columns, &options).map_err(
            |_| {
                Error::internal(format!(
                    "expression {}: a batch has columns of other types than it was compiled for",
                    quoted(&self.sql)
                ))
            },
        )
    }

    /// The cause may quote values of the row, so only its kind is told.
    fn failed(&self, error: &DataFusionError) -> Error {
        let what = match error.find_root() {
            DataFusionError::ArrowError(error, _) => match error.as_ref() {
                ArrowError::DivideByZero => "a row divides by zero",
                ArrowError::ArithmeticOverflow(_) => "a row overflows",
                ArrowError::CastError(_) | ArrowError::ParseError(_) => {
                    "a value cannot be cast to the type that is asked for"
                }
                _ => "a row has no result",
            },
            _ => "a row has no result",
        };
        self.without_result(what)
    }

    fn without_result(&self, what: &str) -> Error {
        invalid(&self.sql, what).with_hint("guard the expression with CASE WHEN or TRY_CAST")
    }
}

/// What a condition says of the rows of a batch.
#[derive(Debug)]
pub struct Verdicts {
    /// Whether it holds; false for rows that have no result.
    pub holds: BooleanArray,
    /// The rows without a result, in row order.
    pub failed: Vec<FailedRow>,
}

/// A row for which an expression has no result.
#[derive(Debug)]
pub struct FailedRow {
    /// Its number in the batch.
    pub row: usize,
    /// Why; it quotes no values.
    pub error: Error,
}

fn plan(sql: &str, parsed: Parsed, input: SchemaRef) -> Result<Compiled> {
    let refused = |error: DataFusionError| planning_refused(sql, &error);
    // Every column may be NULL here: a batch may lack it.
    let fields: Vec<_> = input
        .fields()
        .iter()
        .map(|f| f.as_ref().clone().with_nullable(true))
        .collect();
    let input = Arc::new(Schema::new(fields));
    let schema = Arc::new(DFSchema::try_from(Arc::clone(&input)).map_err(refused)?);
    let catalog = Catalog::new();
    let options = ParserOptions::new()
        .with_enable_ident_normalization(false)
        .with_map_string_types_to_utf8view(false)
        .with_parse_float_as_decimal(true);
    let logical = SqlToRel::new_with_options(&catalog, options)
        .sql_to_expr(parsed.tree, &schema, &mut PlannerContext::new())
        .map_err(refused)?;
    refuse_volatile(sql, &logical)?;
    refuse_growth(sql, &logical)?;

    let context = SimplifyContext::builder()
        .with_schema(Arc::clone(&schema))
        .with_config_options(Catalog::config())
        .build();
    let simplifier = ExprSimplifier::new(context);
    let coerced = simplifier.coerce(logical, &schema).map_err(refused)?;
    let coerced = overflow::without_negation(coerced, &schema).map_err(refused)?;
    overflow::refuse_constants(sql, &coerced)?;
    let simplified = simplifier.simplify(coerced).map_err(refused)?;
    let data_type = simplified.get_type(&schema).map_err(refused)?;
    let plain = plain_type(&data_type);
    let simplified = if plain == data_type {
        simplified
    } else {
        simplified.cast_to(&plain, &schema).map_err(refused)?
    };

    let physical = physical_of(&simplified, &schema).map_err(refused)?;
    Ok(Compiled {
        sql: sql.to_owned(),
        input,
        data_type: plain,
        physical,
    })
}

/// An expression that can be evaluated, whose integers never wrap.
pub(crate) fn physical_of(
    logical: &Expr,
    schema: &DFSchema,
) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
    let mut props = ExecutionProps::new();
    props.config_options = Some(Catalog::config());
    let context = PhysicalPlanningContext::default();
    let physical = create_physical_expr(logical, schema, &props, &context)?;
    overflow::checked(physical)
}

/// The type that the rest of Tidegate holds such values in.
fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary => DataType::Binary,
        other => other.clone(),
    }
}

fn refuse_volatile(sql: &str, logical: &Expr) -> Result<()> {
    let mut volatile = None;
    let walked = logical.apply(|node| {
        if let Expr::ScalarFunction(ScalarFunction { func, .. }) = node
            && Catalog::is_volatile(func)
        {
            volatile = Some(func.name().to_owned());
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walked.map_err(|e| planning_refused(sql, &e))?;
    match volatile {
        Some(name) => Err(invalid(
            sql,
            &format!("function {name} is refused, its result is not a function of the row"),
        )
        .with_hint("a replay must decide as the first try did; use a column of the event")),
        None => Ok(()),
    }
}

/// A few bytes of text must not become gigabytes for a row.
fn refuse_growth(sql: &str, logical: &Expr) -> Result<()> {
    let mut grown = None;
    let walked = logical.apply(|node| {
        if let Expr::ScalarFunction(ScalarFunction { func, args }) = node
            && Catalog::grows(func, args)
        {
            grown = Some(func.name().to_owned());
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walked.map_err(|e| planning_refused(sql, &e))?;
    match grown {
        Some(name) => Err(invalid(
            sql,
            &format!("function {name} needs its length as a number of at most {GROWTH_MAX}"),
        )),
        None => Ok(()),
    }
}

/// Planning sees the text and the types, never rows, so its messages may be quoted.
fn planning_refused(sql: &str, error: &DataFusionError) -> Error {
    let text = match error.find_root() {
        DataFusionError::Plan(text)
        | DataFusionError::NotImplemented(text)
        | DataFusionError::Execution(text) => text.clone(),
        other => other.strip_backtrace(),
    };
    let line = text
        .lines()
        .next()
        .unwrap_or_default()
        .trim()
        .trim_end_matches('.');
    if let Some(name) = line
        .strip_prefix("Invalid function '")
        .and_then(|rest| rest.split('\'').next())
    {
        let error = invalid(sql, &format!("function {name} is unknown"));
        return match Catalog::nearest_function(name) {
            Some(known) => error.with_hint(format!("did you mean {known:?}?")),
            None => error,
        };
    }
    Error::new(
        Code::InvalidExpression,
        format!("expression {}: {}", quoted(sql), lower_first(line)),
    )
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or_else(String::new, |c| c.to_lowercase().chain(chars).collect())
}

#[cfg(test)]
#[path = "compiled_tests.rs"]
mod tests;
