//! Runs statements: plans each of them, opens the stores it names, runs it, and prints the result.
//!
//! The shell library checks the `OPTIONS` of a table against the formats built into DataFusion before the
//! format itself gets them, so unprefixed options of Vortex tables fail there. Here, every option is passed
//! to the format, and those of a store also to the store.

use std::collections::HashMap;
use std::io::{BufWriter, Write as _, stdout};
use std::mem;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch};
use arrow::csv;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::instant::Instant;
use datafusion::dataframe::DataFrame;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::logical_expr::dml::CopyTo;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, Statement as PlanStatement};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser;
use datafusion::sql::sqlparser::dialect::{Dialect, dialect_from_str};
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use datafusion_cli::print_format::PrintFormat;
use datafusion_cli::print_options::{MaxRows, PrintOptions};
use futures::{FutureExt as _, StreamExt as _};
use url::Url;
use vortex_core::io::local_target;
use vortex_datafusion::{listing_url, local_path, output_url};

use super::from_first::select_all;
use super::home;
use super::long_cells;
use super::places::{explained, urls_in};
use super::reset::set_default;
use super::session::Session;
use super::show_columns::describe;
use crate::failure::{Failure, Outcome};
use crate::json::JsonRows;
use crate::min_reader::MinReader;
use crate::text::{check_durations, counted, visible};

/// The error that something was not run, since nobody reads the output of what was run before.
pub(super) fn not_run(what: &str) -> Failure {
    Failure::error(format!("the output is no longer read; {what} not run"))
}

impl Session {
    /// The dialect of SQL that the session is set to.
    pub(super) fn dialect(&self) -> Outcome<Box<dyn Dialect>> {
        let state = self.context.state();
        let dialect = &state.config().options().sql_parser.dialect;
        dialect_from_str(dialect).ok_or_else(|| Failure::error(format!("unknown SQL dialect `{dialect}`")))
    }

    /// Whether the last `;` of a text ends a statement, and is not in a comment or within quotes.
    pub(super) fn is_complete(&self, sql: &str) -> bool {
        self.dialect().map_or(true, |dialect| is_complete(sql, dialect.as_ref()))
    }

    /// Runs the statements in a text, in order, up to the first one that fails.
    pub(super) async fn run(&self, sql: &str) -> Outcome {
        let dialect = self.dialect()?;
        let mut statements = DFParser::parse_sql_with_dialect(sql, dialect.as_ref())?;
        while let Some(mut statement) = statements.pop_front() {
            select_all(&mut statement);
            set_default(&mut statement);
            describe(&mut statement);
            home::expand(&mut statement);
            // A bug in planning or running one statement does not end the shell.
            let run = AssertUnwindSafe(self.run_statement(statement)).catch_unwind();
            let outcome =
                run.await.unwrap_or_else(|_| Err(Failure::error("the statement panicked, which is a bug")));
            let left = statements.len() as u64;
            match outcome {
                // Success would say that all statements were run.
                Err(Failure::ClosedPipe) if left > 0 => return Err(not_run(&counted(left, "statement"))),
                outcome => outcome?,
            }
        }
        Ok(())
    }

    async fn run_statement(&self, statement: Statement) -> Outcome {
        let start = Instant::now();
        // DataFusion would cache listings of folders forever, and would answer queries about replaced files
        // from their old statistics. See `tests/it/upstream/files.rs`: `listings_are_kept_without_a_time_limit`.
        if let Some(listings) = self.context.runtime_env().cache_manager.get_list_files_cache() {
            listings.clear();
        }
        let mut print = self.print.clone();
        if shows_settings(&statement) {
            print.maxrows = MaxRows::Unlimited;
        }
        for place in urls_in(&statement) {
            // What is no URL of files is told by the planner.
            if let Ok(url) = listing_url(&place) {
                self.stores.prepare(url.as_ref(), &[]).await?;
            }
        }
        let state = self.context.state();
        let plan = state.statement_to_plan(statement).await;
        let mut plan = plan.map_err(|error| explained(error, &state))?;
        if matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::DescribeTable(_) | LogicalPlan::Analyze(_)) {
            print.maxrows = MaxRows::Unlimited;
        }
        if let LogicalPlan::Copy(copy) = &mut plan {
            resolve_output(copy)?;
        }
        self.open_stores(&plan).await?;
        if let Some(reader) = min_reader(&plan) {
            reader.warn_if_unknown();
        }
        let frame: DataFrame = self.context.execute_logical_plan(plan).await?;
        let plan = frame.create_physical_plan().await?;
        self.print(plan, print, start).await
    }

    /// Opens the object stores of the locations in a plan, with the options it gives.
    async fn open_stores(&self, plan: &LogicalPlan) -> Outcome {
        let (locations, options) = match plan {
            LogicalPlan::Ddl(DdlStatement::CreateExternalTable(table)) => {
                (table.locations.iter().collect::<Vec<_>>(), &table.options)
            }
            LogicalPlan::Copy(copy) => (vec![&copy.output_url], &copy.options),
            _ => return Ok(()),
        };
        let options: Vec<_> = options.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        for location in locations {
            let url = listing_url(location)?;
            self.stores.prepare(url.as_ref(), &options).await?;
        }
        Ok(())
    }

    /// Prints a result: tables as a whole, since their columns must be aligned; other formats as rows arrive.
    /// The memory limit applies to rows that are kept for this.
    async fn print(&self, plan: Arc<dyn ExecutionPlan>, mut print: PrintOptions, start: Instant) -> Outcome {
        if print.format == PrintFormat::Automatic {
            print.format = PrintFormat::Table;
        }
        let task = self.context.task_ctx();
        let format = task.session_config().options().format.clone();
        let schema = plan.schema();
        check_nested(print.format, &schema)?;
        let mut batches = execute_stream(plan, Arc::clone(&task))?;
        let is_json = matches!(print.format, PrintFormat::Json | PrintFormat::NdJson);
        let has_columns = !schema.fields().is_empty();
        let shown = match print.maxrows {
            MaxRows::Limited(rows) if print.format == PrintFormat::Table => rows,
            _ => usize::MAX,
        };
        let memory = MemoryConsumer::new("printed table").register(&task.runtime_env().memory_pool);
        let (mut kept, mut kept_rows, mut rows) = (Vec::new(), 0, 0);
        let mut json = JsonRows::new();
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            let (is_first, batch_rows) = (rows == 0, batch.num_rows());
            rows += batch_rows;
            if !has_columns {
                continue;
            }
            if is_json {
                let mut out = BufWriter::new(stdout().lock());
                let mut before: &[u8] = if is_first { b"[" } else { b"," };
                json.write(&batch, |row| {
                    if print.format == PrintFormat::NdJson {
                        return out.write_all(row).and_then(|()| out.write_all(b"\n"));
                    }
                    out.write_all(mem::replace(&mut before, b",")).and_then(|()| out.write_all(row))
                })?;
                out.flush()?;
            } else if print.format != PrintFormat::Table {
                check_durations(&batch)?;
                let (schema, all) = (Arc::clone(&schema), MaxRows::Unlimited);
                print.format.print_batches(&mut stdout().lock(), schema, &[batch], all, is_first, &format)?;
            } else if kept_rows <= shown {
                // One row more than is shown indicates that there are more.
                let batch = batch.slice(0, batch_rows.min(shown.saturating_add(1) - kept_rows));
                kept_rows += batch.num_rows();
                let batch = long_cells::cut(&batch, &(&format).try_into()?)?;
                memory.try_grow(size_of_rows(&batch))?;
                kept.push(batch);
            }
        }
        if rows == 0 {
            print_no_rows(print.format, &schema)?;
        } else if !has_columns {
            writeln!(stdout(), "{}, no columns", counted(rows as u64, "row"))?;
        } else if print.format == PrintFormat::Json {
            stdout().write_all(b"]\n")?;
        }
        if has_columns && print.format == PrintFormat::Table {
            let mut table = Vec::new();
            print.format.print_batches(&mut table, schema, &kept, print.maxrows, true, &format)?;
            let mut out = BufWriter::new(stdout().lock());
            let lines = String::from_utf8_lossy(&table);
            lines.lines().try_for_each(|line| writeln!(out, "{}", visible(line)))?;
            out.flush()?;
        }
        // How many rows there were.
        Ok(print.print_batches(Arc::new(Schema::empty()), &[], start, rows, &format)?)
    }
}

/// Refuses nested columns in formats that have no place for them, before rows are computed in vain.
fn check_nested(format: PrintFormat, schema: &SchemaRef) -> Outcome {
    let name = match format {
        PrintFormat::Csv => "CSV",
        PrintFormat::Tsv => "TSV",
        _ => return Ok(()),
    };
    let nested = schema.fields().iter().filter(|field| field.data_type().is_nested());
    let names: Vec<_> =
        nested.map(|field| format!("\"{}\"", visible(&field.name().replace('"', "\"\"")))).collect();
    match names.join(", ") {
        none if none.is_empty() => Ok(()),
        names => Err(Failure::error(format!(
            "{name} cannot hold nested columns: leave them out, as SELECT * EXCEPT ({names}) does, or choose another \
             format, such as --format json"
        ))),
    }
}

/// About the bytes that the rows of a batch take: batches may share their buffers.
fn size_of_rows(batch: &RecordBatch) -> usize {
    let size = |column: &ArrayRef| {
        let text = match column.data_type() {
            DataType::Utf8View => column.as_string_view().total_buffer_bytes_used(),
            DataType::BinaryView => column.as_binary_view().total_buffer_bytes_used(),
            _ => 0,
        };
        text + column.to_data().get_slice_memory_size().unwrap_or_default()
    };
    batch.columns().iter().map(size).sum()
}

/// Prints what a format has even without rows: the names of the columns, the brackets of an array. Statements
/// without a result have no columns.
fn print_no_rows(format: PrintFormat, schema: &SchemaRef) -> Outcome {
    let delimiter = match format {
        _ if schema.fields().is_empty() => return Ok(()),
        PrintFormat::Csv => b',',
        PrintFormat::Tsv => b'\t',
        PrintFormat::Json => return Ok(writeln!(stdout(), "[]")?),
        // The library prints the frame of a table; lines of JSON have none.
        PrintFormat::Table | PrintFormat::Automatic | PrintFormat::NdJson => return Ok(()),
    };
    let builder = csv::WriterBuilder::new().with_header(true).with_delimiter(delimiter);
    Ok(builder.build(stdout().lock()).write(&RecordBatch::new_empty(Arc::clone(schema)))?)
}

/// Directs output to the target of a link, and refuses devices and the like: stores write to another name and rename,
/// which would replace either.
fn resolve_output(copy: &mut CopyTo) -> Outcome {
    let Some(path) = local_output(copy)?.filter(|path| !path.is_dir()) else { return Ok(()) };
    let target = local_target(&path).map_err(|error| Failure::at(&copy.output_url, error))?;
    if path.is_symlink() {
        let no_url = |()| Failure::error(format!("{}: no URL names this file", target.display()));
        copy.output_url = Url::from_file_path(&target).map_err(no_url)?.into();
        // Even if the name of the target has no extension.
        copy.options.insert("single_file_output".to_owned(), "true".to_owned());
    }
    Ok(())
}

/// The local path of the output, unless it is in another store. A name that DataFusion would take for a glob is
/// replaced by a URL, which it takes literally.
fn local_output(copy: &mut CopyTo) -> Outcome<Option<PathBuf>> {
    copy.output_url = output_url(&copy.output_url)?;
    Ok(local_path(listing_url(&copy.output_url)?.get_url()))
}

/// Whether the last `;` of a text ends a statement, and is not in a comment or within quotes; a text without tokens is
/// complete, too.
pub(super) fn is_complete(sql: &str, dialect: &dyn Dialect) -> bool {
    let Ok(tokens) = Tokenizer::new(dialect, sql).tokenize() else { return false };
    let last = tokens.iter().rev().find(|token| !matches!(token, Token::Whitespace(_)));
    last.is_none_or(|token| *token == Token::SemiColon)
}

/// The release that a statement sets as the oldest one to read what is written, if it is valid.
fn min_reader(plan: &LogicalPlan) -> Option<MinReader> {
    let of_options = |options: &HashMap<String, String>| {
        ["format.min_reader", "vortex.min_reader"].iter().find_map(|name| options.get(*name).cloned())
    };
    let named = match plan {
        LogicalPlan::Statement(PlanStatement::SetVariable(set)) => {
            (set.variable == "vortex.min_reader").then(|| set.value.clone())
        }
        LogicalPlan::Ddl(DdlStatement::CreateExternalTable(table)) => of_options(&table.options),
        LogicalPlan::Copy(copy) => of_options(&copy.options),
        _ => None,
    };
    named?.trim().to_ascii_lowercase().parse().ok()
}

/// Whether the statement is `SHOW ALL` or similar: lists of settings should be shown in full.
fn shows_settings(statement: &Statement) -> bool {
    match statement {
        Statement::Statement(statement) => {
            matches!(statement.as_ref(), sqlparser::ast::Statement::ShowVariable { .. })
        }
        _ => false,
    }
}
