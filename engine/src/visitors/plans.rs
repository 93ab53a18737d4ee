//! Visits and rewrites plans and expressions.

use datafusion::{
    common::tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    error::Result,
    logical_expr::{Expr, LogicalPlan},
};

type Rewrite<'f, T> = &'f mut dyn FnMut(T) -> Result<Transformed<T>>;
type Look<'f, 'n, T> = &'f mut dyn FnMut(&'n T) -> Result<TreeNodeRecursion>;

/// The methods of [`TreeNode`] with the same names.
pub(crate) trait Tree: TreeNode {
    /// Rewrites each node, children first.
    fn transform_up(
        self,
        mut rewrite: impl FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>> {
        TreeNode::transform_up(self, &mut rewrite as Rewrite<'_, Self>)
    }

    /// Rewrites each node, parents first.
    fn transform_down(
        self,
        mut rewrite: impl FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>> {
        TreeNode::transform_down(self, &mut rewrite as Rewrite<'_, Self>)
    }

    /// Looks at each node, parents first.
    fn apply<'n>(
        &'n self,
        mut look: impl FnMut(&'n Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        TreeNode::apply(self, &mut look as Look<'_, 'n, Self>)
    }

    /// Looks at the direct children.
    fn apply_children<'n>(
        &'n self,
        mut look: impl FnMut(&'n Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        TreeNode::apply_children(self, &mut look as Look<'_, 'n, Self>)
    }

    /// Whether `is_it` is true of any node.
    fn exists(&self, mut is_it: impl FnMut(&Self) -> Result<bool>) -> Result<bool> {
        TreeNode::exists(self, &mut is_it as &mut dyn FnMut(&Self) -> Result<bool>)
    }
}

impl<T: TreeNode> Tree for T {}

/// Methods of [`LogicalPlan`] beyond [`TreeNode`]. "Queries" means: with the plans of subqueries.
pub(crate) trait PlanTree: Sized {
    /// Rewrites each plan, inputs and subqueries first (`transform_up_with_subqueries`).
    fn transform_queries_up(
        self,
        rewrite: impl FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>>;
    /// Rewrites each plan before its inputs and subqueries (`transform_down_with_subqueries`).
    fn transform_queries_down(
        self,
        rewrite: impl FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>>;
    /// Looks at each plan, also of subqueries (`apply_with_subqueries`).
    fn apply_queries(
        &self,
        look: impl FnMut(&Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion>;
    /// Rewrites the expressions of this plan alone (`map_expressions`).
    fn transform_expressions(
        self,
        rewrite: impl FnMut(Expr) -> Result<Transformed<Expr>>,
    ) -> Result<Transformed<Self>>;
    /// Looks at the expressions of this plan alone (`apply_expressions`).
    fn each_expression(
        &self,
        look: impl FnMut(&Expr) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion>;
    /// Looks at the plans of the subqueries of this plan alone (`apply_subqueries`).
    fn each_subquery(
        &self,
        look: impl FnMut(&Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion>;
}

impl PlanTree for LogicalPlan {
    fn transform_queries_up(
        self,
        mut rewrite: impl FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>> {
        self.transform_up_with_subqueries(&mut rewrite as Rewrite<'_, Self>)
    }

    fn transform_queries_down(
        self,
        mut rewrite: impl FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>> {
        self.transform_down_with_subqueries(&mut rewrite as Rewrite<'_, Self>)
    }

    fn apply_queries(
        &self,
        mut look: impl FnMut(&Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.apply_with_subqueries(&mut look as &mut dyn FnMut(&Self) -> Result<TreeNodeRecursion>)
    }

    fn transform_expressions(
        self,
        mut rewrite: impl FnMut(Expr) -> Result<Transformed<Expr>>,
    ) -> Result<Transformed<Self>> {
        self.map_expressions(&mut rewrite as Rewrite<'_, Expr>)
    }

    fn each_expression(
        &self,
        mut look: impl FnMut(&Expr) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.apply_expressions(&mut look as &mut dyn FnMut(&Expr) -> Result<TreeNodeRecursion>)
    }

    fn each_subquery(
        &self,
        mut look: impl FnMut(&Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.apply_subqueries(&mut look as &mut dyn FnMut(&Self) -> Result<TreeNodeRecursion>)
    }
}
