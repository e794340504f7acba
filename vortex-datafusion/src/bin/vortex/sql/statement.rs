//! Runs statements: plans each of them, opens the stores it names, runs it, and prints the result.
//!
//! The shell library checks the `OPTIONS` of a table against the formats built into DataFusion before the
//! format itself gets them, so unprefixed options of Vortex tables fail there. Here, every option is passed
//! to the format, and those of a store also to the store.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::DataFusionError;
use datafusion::common::instant::Instant;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::logical_expr::dml::CopyTo;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, Statement as PlanStatement};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser;
use datafusion::sql::sqlparser::dialect::{Dialect, dialect_from_str};
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use datafusion_cli::print_format::PrintFormat;
use datafusion_cli::print_options::{MaxRows, PrintOptions};
use futures::{FutureExt as _, StreamExt as _};
use url::Url;
use vortex_core::io::local_target;
use vortex_datafusion::{listing_url, local_path, output_url};

use super::from_first::{complete, select_all};
use super::places::{explained, is_place, places_in};
use super::printer::Printer;
use super::reset::set_default;
use super::session::Session;
use super::show_columns::describe;
use super::{home, ignored};
use crate::failure::{Failure, Outcome};
use crate::min_reader::MinReader;
use crate::text::counted;

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
        let mut statements = parse(sql, dialect.as_ref())?;
        while let Some(mut statement) = statements.pop_front() {
            ignored::check(&mut statement)?;
            complete(&mut statement);
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

    async fn run_statement(&self, mut statement: Statement) -> Outcome {
        let start = Instant::now();
        // DataFusion would cache listings of folders forever, and would answer queries about replaced files
        // from their old statistics. See `tests/it/upstream/files.rs`: `listings_are_kept_without_a_time_limit`.
        if let Some(listings) = self.context.runtime_env().cache_manager.get_list_files_cache() {
            listings.clear();
        }
        let state = self.context.state();
        let options = state.config_options();
        self.stores.subfolders().only_of_tables(options.execution.listing_table_ignore_subdirectory);
        let mut print = self.print.clone();
        if shows_settings(&statement) {
            print.maxrows = MaxRows::Unlimited;
        }
        for place in places_in(&mut statement) {
            // What is no place of files is told by the planner.
            if is_place(&place)
                && let Ok(url) = listing_url(&place)
            {
                self.open_store(&url, &[]).await?;
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
            self.open_store(&listing_url(location)?, &options).await?;
        }
        Ok(())
    }

    /// Opens the object store of a place, and has it list what belongs to a table there.
    async fn open_store(&self, place: &ListingTableUrl, options: &[(String, String)]) -> Outcome {
        if let Some(pattern) = place.get_glob() {
            self.stores.subfolders().add(pattern);
        }
        Ok(self.stores.prepare(place.as_ref(), options).await?)
    }

    /// Runs a plan, and prints its result.
    async fn print(&self, plan: Arc<dyn ExecutionPlan>, mut print: PrintOptions, start: Instant) -> Outcome {
        if print.format == PrintFormat::Automatic {
            print.format = PrintFormat::Table;
        }
        let task = self.context.task_ctx();
        let mut printer = Printer::new(print.format, self.expanded, print.maxrows, plan.schema(), &task)?;
        let mut batches = execute_stream(plan, Arc::clone(&task))?;
        while let Some(batch) = batches.next().await {
            printer.push(&batch?)?;
        }
        let (rows, format) = (printer.finish()?, &task.session_config().options().format);
        // How many rows there were.
        Ok(print.print_batches(Arc::new(Schema::empty()), &[], start, rows, format)?)
    }
}

/// The statements in a text.
fn parse(sql: &str, dialect: &dyn Dialect) -> Result<VecDeque<Statement>, DataFusionError> {
    let tokens = Tokenizer::new(dialect, sql).tokenize_with_location().map_err(ParserError::from)?;
    DFParserBuilder::new(select_all(tokens, dialect)).with_dialect(dialect).build()?.parse_statements()
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
