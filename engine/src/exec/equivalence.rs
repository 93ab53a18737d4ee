//! Tells DataFusion which output columns of a scan are equal and which are constant.
//!
//! A DataFusion projection derives this from its expressions, and DataFusion then leaves out sorts
//! by such columns. A scan that computes the projection itself must report the same, otherwise
//! DataFusion refuses the plan because an order seems to be missing.

use datafusion::{
    arrow::datatypes::SchemaRef,
    error::Result,
    physical_expr::{AcrossPartitions, ConstExpr, EquivalenceProperties, PhysicalExpr, expressions::Column},
};
use rackscan_format::program::{Node, NodeIndex, Output, ScanProgram};
use std::sync::Arc;

/// The equal and the constant columns of `schema`, which `program` computes.
pub(super) fn equivalences(program: &ScanProgram, schema: SchemaRef) -> Result<EquivalenceProperties> {
    let column = |position: usize| -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new(schema.field(position).name(), position))
    };
    let mut properties = EquivalenceProperties::new(Arc::clone(&schema));
    let Output::Rows(outputs) = &program.output else { return Ok(properties) };
    let is_constant =
        |node: NodeIndex| matches!(program.nodes.get(usize::from(node)), Some(Node::Literal(_)));
    for (position, &node) in outputs.iter().enumerate().take(schema.fields().len()) {
        if is_constant(node) {
            let constant = ConstExpr::new(column(position), AcrossPartitions::Uniform(None));
            properties.add_constants([constant])?;
        }
        // Equal expressions are one node of the program.
        if let Some(first) = outputs[..position].iter().position(|&other| other == node) {
            properties.add_equal_conditions(column(first), column(position))?;
        }
    }
    Ok(properties)
}
