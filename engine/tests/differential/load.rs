//! Loads the same rows into clusters and into DataFusion's memory.

use crate::{cluster::Outcome, draw::Draw, table::Table};
use datafusion::{datasource::MemTable, prelude::SessionContext};
use parquet::arrow::ArrowWriter;
use rackscan_client::Cluster;
use rackscan_datasets::{LoadOptions, TableSpec, parquet as files};
use rackscan_engine::arrow::array::RecordBatch;
use rackscan_fabric::sim::Random;
use std::{fs::File, sync::Arc};
use tempfile::TempDir;

/// How a table is cut; small, so that few rows cross many boundaries.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    spec: TableSpec,
    options: LoadOptions,
}

impl Cut {
    pub(crate) fn draw(random: &mut Random, table: &Table) -> Self {
        let by_id = random.percent(75);
        let column = if by_id { &table.columns[0] } else { random.pick(&table.columns) };
        let partition_by = column.name.clone();
        let sort_by = random.percent(25).then(|| random.pick(&table.columns).name.clone());
        let options = LoadOptions {
            page_size: *random.pick(&[4 << 10, 4 << 10, 8 << 10, 16 << 10, 128 << 10]),
            segment_rows: *random.pick(&[1024, 1024, 2048, 4096, 8192]),
            threads: 1,
            ..LoadOptions::default()
        };
        Self { spec: TableSpec { name: table.name.clone(), partition_by, sort_by }, options }
    }
}

/// Loads rows into each cluster.
pub(crate) async fn load(clusters: &[Cluster], cut: &Cut, rows: &RecordBatch) -> Outcome<()> {
    let folder = TempDir::new()?;
    let path = folder.path().join("rows.parquet");
    let mut writer = ArrowWriter::try_new(File::create(&path)?, rows.schema(), None)?;
    writer.write(rows)?;
    writer.close()?;
    for cluster in clusters {
        files::load(cluster, &path, &cut.spec, &cut.options, &|_| ()).await?;
    }
    Ok(())
}

/// Gives the rows to DataFusion as they are.
pub(crate) fn register(context: &SessionContext, table: &Table, rows: &RecordBatch) -> Outcome<()> {
    let half = rows.num_rows() / 2;
    let partitions = vec![vec![rows.slice(0, half)], vec![rows.slice(half, rows.num_rows() - half)]];
    context.deregister_table(&table.name)?;
    context.register_table(&table.name, Arc::new(MemTable::try_new(rows.schema(), partitions)?))?;
    Ok(())
}
