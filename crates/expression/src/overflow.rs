//! Integers that do not wrap: a sum beyond its type is no result, as division by zero is none.
//!
//! DataFusion plans arithmetic that wraps, silently; a condition would decide by a number that nobody wrote.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions;
use tidegate_change::{Error, Result};

use crate::compiled::physical_of;
use crate::parse::invalid;

/// The same expression with arithmetic that fails where it would wrap.
pub(crate) fn checked(
    physical: Arc<dyn PhysicalExpr>,
) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
    let checked = physical.transform_up(|node| {
        let Some(binary) = node.downcast_ref::<expressions::BinaryExpr>() else {
            return Ok(Transformed::no(node));
        };
        let checked = binary.clone().with_fail_on_overflow(true);
        Ok(Transformed::yes(Arc::new(checked) as Arc<dyn PhysicalExpr>))
    })?;
    Ok(checked.data)
}

/// The same expression with `0 - n` for the negative of an integer, which would wrap for the least one.
pub(crate) fn without_negation(logical: Expr, schema: &DFSchema) -> Result<Expr, DataFusionError> {
    let rewritten = logical.transform_up(|node| {
        let Expr::Negative(inner) = &node else {
            return Ok(Transformed::no(node));
        };
        let data_type = inner.get_type(schema)?;
        // A literal's sign is part of it: the least number has no positive to subtract.
        if !data_type.is_integer() || matches!(**inner, Expr::Literal(..)) {
            return Ok(Transformed::no(node));
        }
        let zero = Expr::Literal(ScalarValue::new_zero(&data_type)?, None);
        let difference = BinaryExpr::new(Box::new(zero), Operator::Minus, inner.clone());
        Ok(Transformed::yes(Expr::BinaryExpr(difference)))
    })?;
    Ok(rewritten.data)
}

/// Refuses constants that overflow: planning would fold them into wrapped ones.
pub(crate) fn refuse_constants(sql: &str, logical: &Expr) -> Result<()> {
    let mut overflows = false;
    let walked = logical.apply(|node| {
        if let Expr::BinaryExpr(_) = node
            && node.column_refs().is_empty()
        {
            overflows = constant_overflows(node);
            return Ok(if overflows {
                TreeNodeRecursion::Stop
            } else {
                TreeNodeRecursion::Jump
            });
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walked.map_err(|e| Error::internal("an expression cannot be walked").with_source(e))?;
    if overflows {
        return Err(invalid(sql, "a constant overflows its type"));
    }
    Ok(())
}

/// Whether a constant fails for its size; what fails otherwise is planning's to say.
fn constant_overflows(constant: &Expr) -> bool {
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let evaluated = physical_of(constant, &DFSchema::empty()).and_then(|physical| {
        let schema = Arc::new(Schema::empty());
        let row = RecordBatch::try_new_with_options(schema, Vec::new(), &options)?;
        physical.evaluate(&row)
    });
    evaluated.is_err_and(|error| {
        let DataFusionError::ArrowError(error, _) = error.find_root() else {
            return false;
        };
        matches!(**error, ArrowError::ArithmeticOverflow(_))
    })
}
