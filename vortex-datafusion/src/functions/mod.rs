//! Table functions that show the structure of files.
//!
//! ```sql
//! SELECT "column", bytes, null_count, min, max FROM vortex_metadata('visits.vortex');
//! SELECT path, layout, row_count FROM vortex_layouts('visits/');
//! SELECT segment, "offset", bytes, encodings FROM vortex_segments('s3://bucket/visits.vortex');
//! SELECT path, first_row, min, max FROM vortex_zones('visits/*.vortex');
//! ```
//!
//! The argument is a file, a folder or a glob, as in `FROM`. Files are opened when the query is
//! planned for execution, through the stores and the footer cache of the session, until there are as many rows as
//! a `LIMIT` wants. Texts are cut after a kilobyte, and limited in sum. Since the functions open any file, only
//! `enable_url_tables` registers them.

mod columns;
mod layouts;
mod segments;
mod table;
mod text;
mod zones;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion_common::{Column, Result, plan_err};
use datafusion_datasource::ListingTableUrl;
use datafusion_datasource::memory::MemorySourceConfig;
use datafusion_expr::{Expr, TableType};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_session::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use futures::{StreamExt as _, TryStreamExt as _};
use vortex_core::VortexFile;
use vortex_core::io::object_name;

use crate::format::EXTENSION;
use crate::options::VortexOptions;
use crate::reading::{Reading, SessionResources};
use crate::tables::{check_place, if_folder, is_hidden, is_whole_folder, listed_files, listing_url};
use text::Room;

/// The part of the description of files that a function shows.
#[derive(Debug, Clone, Copy)]
enum Part {
    Columns,
    Layouts,
    Segments,
    Zones,
}

impl Part {
    fn schema(self) -> SchemaRef {
        match self {
            Self::Columns => table::schema(&columns::columns()),
            Self::Layouts => table::schema(&layouts::columns()),
            Self::Segments => table::schema(&segments::columns()),
            Self::Zones => table::schema(&zones::columns()),
        }
    }

    /// The rows of one file; columns for whose names `wants` is false may be null if they would require reads.
    ///
    /// # Errors
    /// If the file is broken, or storage fails.
    async fn rows(
        self,
        name: &str,
        file: &VortexFile,
        wants: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<RecordBatch> {
        let mut room = Room::new();
        match self {
            Self::Columns => {
                table::batch(name, &columns::columns(), &columns::rows(file.footer(), &mut room)?)
            }
            Self::Layouts => {
                table::batch(name, &layouts::columns(), &layouts::rows(file.footer(), &mut room)?)
            }
            Self::Segments => {
                let rows = segments::rows(file, wants("encodings"), &mut room).await?;
                table::batch(name, &segments::columns(), &rows)
            }
            Self::Zones => table::batch(name, &zones::columns(), &zones::rows(file, &mut room).await?),
        }
    }
}

/// A table function over the description of files.
#[derive(Debug)]
pub(crate) struct MetadataFunction(Part);

impl MetadataFunction {
    /// Every function, by name.
    pub(crate) fn all() -> [(&'static str, Self); 4] {
        [
            ("vortex_metadata", Self(Part::Columns)),
            ("vortex_layouts", Self(Part::Layouts)),
            ("vortex_segments", Self(Part::Segments)),
            ("vortex_zones", Self(Part::Zones)),
        ]
    }
}

impl TableFunctionImpl for MetadataFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let place = match args.exprs() {
            [Expr::Literal(value, _)] => match value.try_as_str() {
                Some(Some(place)) => place.to_owned(),
                _ => return plan_err!("expected the place of a file, not {value}"),
            },
            // SQL treats names in double quotes as columns.
            [Expr::Column(Column { relation: None, name, .. })] => name.clone(),
            _ => return plan_err!("expected one argument: a file, a folder or a glob"),
        };
        Ok(Arc::new(Metadata { url: listing_url(&place)?, part: self.0 }))
    }
}

/// The rows of one function for one argument.
#[derive(Debug)]
struct Metadata {
    url: ListingTableUrl,
    part: Part,
}

#[async_trait]
impl TableProvider for Metadata {
    fn schema(&self) -> SchemaRef {
        self.part.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let url = if_folder(self.url.clone(), state).await?;
        check_place(&url, state, true).await?;
        let runtime = state.runtime_env();
        let store = runtime.object_store(&url)?;
        let options = VortexOptions::from_session(state.config_options());
        let reading = Reading::new(SessionResources::new(runtime, state.config()), options);
        // In a folder, only files with our extension; a file given by name may have any.
        let extension = if url.is_collection() { format!(".{EXTENSION}") } else { String::new() };
        let mut objects: Vec<_> = listed_files(state, &url, &store, &extension).await?.try_collect().await?;
        if is_whole_folder(&url) {
            objects.retain(|object| !object.location.filename().is_some_and(is_hidden));
        }
        if objects.is_empty() {
            return plan_err!("no file at {url}");
        }
        objects.sort_by(|left, right| left.location.cmp(&right.location));
        let concurrency: usize = state.config_options().execution.meta_fetch_concurrency.into();
        let schema = self.schema();
        let wants = |name: &str| {
            projection.is_none_or(|wanted| wanted.iter().any(|at| schema.field(*at).name() == name))
        };
        // Which rows pass filters is known above only.
        let enough = limit.filter(|_| filters.is_empty()).unwrap_or(usize::MAX);
        let mut opened = futures::stream::iter(objects)
            .map(|object| {
                let (store, reading) = (&store, &reading);
                async move {
                    let name = object_name(store.as_ref(), &object.location);
                    let rows = async {
                        let file = reading.open(store, &object, None).await?;
                        self.part.rows(&name, &file, &wants).await
                    };
                    rows.await.map_err(|error| error.context(format!("reading {name}")))
                }
            })
            .boxed()
            .buffered(concurrency);
        let (mut batches, mut rows) = (Vec::new(), 0);
        while rows < enough
            && let Some(batch) = opened.try_next().await?
        {
            rows += batch.num_rows();
            batches.push(batch);
        }
        Ok(MemorySourceConfig::try_new_exec(&[batches], Arc::clone(&schema), projection.cloned())?)
    }
}
