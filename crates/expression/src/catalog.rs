//! What an expression may name besides columns: the scalar functions of DataFusion that are functions
//! of their arguments, and the type names of table specs.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DataFusionError, Result, ScalarValue, TableReference, plan_err};
use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, TypePlanner};
use datafusion::logical_expr::{
    AggregateUDF, Expr, HigherOrderUDF, ScalarUDF, TableSource, Volatility, WindowUDF,
};
use datafusion::sql::sqlparser::ast::{DataType as SqlType, TimezoneInfo};
use tidegate_change::types;

/// Immutable by their own account, but not for us: their results change with the build.
const REFUSED: [&str; 1] = ["version"];

/// Longest text or array that a function may be asked to make.
pub(crate) const GROWTH_MAX: i64 = 4096;

/// Functions that make as much as an argument says, with its place.
const GROWING: [(&str, usize); 5] = [
    ("repeat", 1),
    ("lpad", 1),
    ("rpad", 1),
    ("array_repeat", 1),
    ("array_resize", 1),
];

/// Functions that make as many elements as lie between two numbers.
const SERIES: [&str; 2] = ["range", "generate_series"];

static FUNCTIONS: LazyLock<HashMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
    let mut functions = HashMap::with_capacity(512);
    for function in SessionStateDefaults::default_scalar_functions() {
        for alias in function.aliases() {
            functions.insert(alias.clone(), Arc::clone(&function));
        }
        functions.insert(function.name().to_owned(), function);
    }
    functions
});

static OPTIONS: LazyLock<Arc<ConfigOptions>> = LazyLock::new(Arc::default);

/// The functions and types; holds no table and no variable.
#[derive(Debug)]
pub(crate) struct Catalog {
    planners: Vec<Arc<dyn ExprPlanner>>,
}

impl Catalog {
    pub(crate) fn new() -> Self {
        Self {
            planners: SessionStateDefaults::default_expr_planners(),
        }
    }

    /// The settings of planning and evaluation: DataFusion's defaults, never the environment's.
    pub(crate) fn config() -> Arc<ConfigOptions> {
        Arc::clone(&OPTIONS)
    }

    /// Whether the function's result may differ between two evaluations over the same row.
    pub(crate) fn is_volatile(function: &ScalarUDF) -> bool {
        function.signature().volatility != Volatility::Immutable
            || REFUSED.contains(&function.name())
    }

    /// Whether a call makes more than its arguments hold, without a small number that says how much.
    pub(crate) fn grows(function: &ScalarUDF, arguments: &[Expr]) -> bool {
        if SERIES.contains(&function.name()) {
            return true;
        }
        let growing = GROWING.iter().find(|(name, _)| *name == function.name());
        growing.is_some_and(|(_, place)| {
            let Some(Expr::Literal(length, _)) = arguments.get(*place) else {
                return true;
            };
            let length = length.cast_to(&DataType::Int64);
            !matches!(length, Ok(ScalarValue::Int64(Some(length))) if length <= GROWTH_MAX)
        })
    }

    /// The function name nearest to an unknown one.
    pub(crate) fn nearest_function(name: &str) -> Option<&'static str> {
        FUNCTIONS
            .keys()
            .map(|known| {
                (
                    strsim::damerau_levenshtein(known, &name.to_lowercase()),
                    known.as_str(),
                )
            })
            .filter(|(distance, known)| *distance <= known.len().div_ceil(3))
            .min()
            .map(|(_, known)| known)
    }
}

impl ContextProvider for Catalog {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        plan_err!("table {name} cannot be named in an expression")
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.planners
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(Arc::new(SpecTypes))
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        FUNCTIONS.get(name).map(Arc::clone)
    }

    fn get_higher_order_meta(&self, _name: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, _name: &str) -> Option<Arc<AggregateUDF>> {
        None
    }

    fn get_window_meta(&self, _name: &str) -> Option<Arc<WindowUDF>> {
        None
    }

    fn get_variable_type(&self, _variable_names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &OPTIONS
    }

    fn udf_names(&self) -> Vec<String> {
        FUNCTIONS.keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udwf_names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The type names of specs (`long`, `timestamp_ntz` …) where SQL lacks or reads them otherwise.
///
/// Timestamps count microseconds as in Delta: SQL's own nanoseconds end in the year 2262, and a
/// comparison would fail on later values.
#[derive(Debug)]
struct SpecTypes;

impl TypePlanner for SpecTypes {
    fn plan_type_field(&self, sql_type: &SqlType) -> Result<Option<FieldRef>, DataFusionError> {
        let data_type = match sql_type {
            SqlType::Timestamp(
                None,
                TimezoneInfo::None | TimezoneInfo::WithTimeZone | TimezoneInfo::Tz,
            ) => Some(types::timestamp_utc()),
            SqlType::Timestamp(None, TimezoneInfo::WithoutTimeZone) | SqlType::Datetime(None) => {
                Some(DataType::Timestamp(TimeUnit::Microsecond, None))
            }
            SqlType::Custom(name, arguments) if arguments.is_empty() => {
                types::parse_type(&name.to_string()).ok()
            }
            SqlType::TimestampNtz(None) => Some(DataType::Timestamp(TimeUnit::Microsecond, None)),
            SqlType::String(None) | SqlType::Text => Some(DataType::Utf8),
            _ => None,
        };
        Ok(data_type.map(|data_type| Arc::new(Field::new("", data_type, true))))
    }
}
