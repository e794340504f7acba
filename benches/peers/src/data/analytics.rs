//! The hit log of a web-analytics service: 105 columns, most of them nearly always 0 or empty.
//!
//! Sorted by site, day, visitor and time; `event_id` is a look-up key without any order.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::error::{DataFusionError, Result};

use super::shapes::Scope::{Hit, Site, Visit, Visitor};
use super::shapes::Shape::{
    Address, Amount, Code, Count, Date, EventId, Flag, Hash, HitNumber, Later, Millis, Name, Rare, Ratio,
    SparseId, Text, Time, Truth,
};
use super::shapes::Text::{Agent, Link, Page, Parameters, Phrase, Tag, Title};
use super::shapes::{Column, Scope, Shape};
use super::visits::Visits;
use super::{Batches, FileSource, Table};

/// The table's name in SQL.
pub(crate) const TABLE: &str = "events";
/// Default number of rows.
pub(crate) const DEFAULT_ROWS: u64 = 2_000_000;

const ROWS_PER_BATCH: usize = 8_192;
const COUNTRIES: &[&str] =
    &["US", "DE", "BR", "IN", "FR", "JP", "GB", "PL", "TR", "ID", "MX", "IT", "NL", "KE"];
const LANGUAGES: &[&str] =
    &["en-US", "de", "pt-BR", "hi", "fr", "ja", "en-GB", "pl", "tr", "id", "es-MX", "it"];
const CHARSETS: &[&str] = &["utf-8", "windows-1252", "iso-8859-1", "shift_jis"];
const SYSTEMS: &[&str] = &["Android", "Windows", "iOS", "macOS", "Linux", "Other"];
const BROWSERS: &[&str] = &["Chrome", "Safari", "Firefox", "Edge", "Opera", "Samsung Internet", "Other"];
const DEVICES: &[&str] = &["phone", "desktop", "tablet", "tv", "console"];
const CHANNELS: &[&str] = &["direct", "organic", "referral", "social", "email", "paid", "display"];
const MEDIA: &[&str] = &["", "", "cpc", "banner", "email", "affiliate"];
const CONNECTIONS: &[&str] = &["4g", "wifi", "", "3g", "ethernet", "5g", "2g"];
const CURRENCIES: &[&str] = &["", "", "", "USD", "EUR", "BRL", "JPY", "GBP"];
const ACTIONS: &[&str] = &["view", "view", "view", "scroll", "click", "submit", "share", "error"];

/// The columns, in the order of the table.
const COLUMNS: [Column; 105] = [
    column("site_id", Hit, Shape::Site),
    column("event_date", Hit, Date),
    column("visitor_id", Hit, Shape::Visitor),
    column("event_time", Hit, Time),
    column("event_id", Hit, EventId),
    column("session_id", Visit, Hash),
    column("hit_number", Hit, HitNumber),
    column("page_url", Hit, Text(0, Page)),
    column("page_title", Hit, Text(3, Title)),
    column("referrer_url", Hit, Text(45, Link)),
    column("original_url", Hit, Text(92, Link)),
    column("search_phrase", Visit, Text(86, Phrase)),
    column("site_search_phrase", Hit, Text(97, Phrase)),
    column("user_agent", Visitor, Text(0, Agent)),
    column("country", Visitor, Name(COUNTRIES)),
    column("region_id", Visitor, Code(4_000)),
    column("city_id", Visitor, Count(40_000)),
    column("client_ip", Visit, Address),
    column("remote_ip", Visit, Address),
    column("network_id", Visitor, Count(60_000)),
    column("language", Visitor, Name(LANGUAGES)),
    column("charset", Site, Name(CHARSETS)),
    column("os_name", Visitor, Name(SYSTEMS)),
    column("os_version", Visitor, Code(40)),
    column("browser_name", Visitor, Name(BROWSERS)),
    column("browser_major", Visitor, Code(120)),
    column("browser_minor", Visitor, Code(30)),
    column("device_type", Visitor, Name(DEVICES)),
    column("device_model", Visitor, Text(60, Tag)),
    column("screen_width", Visitor, Code(3_840)),
    column("screen_height", Visitor, Code(2_160)),
    column("screen_depth", Visitor, Code(4)),
    column("window_width", Visit, Code(3_840)),
    column("window_height", Visit, Code(2_160)),
    column("timezone_minutes", Visitor, Code(780)),
    column("connection_type", Visit, Name(CONNECTIONS)),
    column("channel", Visit, Name(CHANNELS)),
    column("search_engine_id", Visit, Code(60)),
    column("ad_network_id", Visit, Code(25)),
    column("social_network", Visit, Text(96, Tag)),
    column("utm_source", Visit, Text(90, Tag)),
    column("utm_medium", Visit, Name(MEDIA)),
    column("utm_campaign", Visit, Text(91, Tag)),
    column("utm_term", Visit, Text(97, Phrase)),
    column("utm_content", Visit, Text(97, Tag)),
    column("click_tag", Visit, Text(98, Tag)),
    column("open_stat_source", Hit, Text(99, Tag)),
    column("campaign_id", Visit, Rare(9_000)),
    column("experiment_id", Visitor, Rare(50)),
    column("action", Hit, Name(ACTIONS)),
    column("action_category", Hit, Text(94, Tag)),
    column("action_label", Hit, Text(95, Tag)),
    column("action_value", Hit, Rare(5_000)),
    column("parameters", Hit, Text(80, Parameters)),
    column("goals_reached", Hit, Rare(20)),
    column("is_mobile", Visitor, Flag(2)),
    column("is_new_visitor", Visitor, Flag(3)),
    column("is_bounce", Visit, Flag(4)),
    column("is_refresh", Hit, Flag(9)),
    column("is_link", Hit, Flag(7)),
    column("is_download", Hit, Flag(150)),
    column("is_not_bounce", Hit, Flag(12)),
    column("is_event", Hit, Flag(30)),
    column("is_parameter", Hit, Flag(200)),
    column("is_old_counter", Site, Flag(90)),
    column("is_robot", Visitor, Flag(60)),
    column("is_artificial", Hit, Flag(400)),
    column("is_web_view", Visitor, Flag(25)),
    column("is_private_mode", Visitor, Flag(40)),
    column("is_error_page", Hit, Flag(250)),
    column("is_age_known", Visitor, Flag(5)),
    column("has_cookies", Visitor, Truth(2)),
    column("has_script", Visitor, Truth(1)),
    column("has_blocker", Visitor, Truth(4)),
    column("accepts_tracking", Visitor, Truth(3)),
    column("age_band", Visitor, Code(6)),
    column("gender_code", Visitor, Code(3)),
    column("income_band", Visitor, Code(5)),
    column("interests_mask", Visitor, Count(30_000)),
    column("dns_ms", Hit, Millis(4)),
    column("connect_ms", Hit, Millis(18)),
    column("tls_ms", Hit, Millis(22)),
    column("first_byte_ms", Hit, Millis(70)),
    column("download_ms", Hit, Millis(40)),
    column("dom_ready_ms", Hit, Millis(400)),
    column("load_ms", Hit, Millis(900)),
    column("render_ms", Hit, Millis(150)),
    column("visible_ms", Hit, Millis(4_000)),
    column("scroll_depth", Hit, Ratio),
    column("viewport_share", Hit, Ratio),
    column("bytes_sent", Hit, Count(3_000_000)),
    column("redirect_count", Hit, Rare(4)),
    column("http_status_class", Hit, Code(5)),
    column("page_weight_score", Site, Ratio),
    column("page_hash", Hit, Hash),
    column("referrer_hash", Visit, Hash),
    column("format_version", Site, Code(3)),
    column("library_version", Site, Code(40)),
    column("order_id", Hit, SparseId(220)),
    column("order_total", Hit, Amount(220)),
    column("order_currency", Site, Name(CURRENCIES)),
    column("order_items", Hit, Rare(30)),
    column("signed_in_at", Hit, Later(35)),
    column("left_at", Hit, Later(3)),
    column("account_id", Visitor, SparseId(15)),
];

const fn column(name: &'static str, scope: Scope, shape: Shape) -> Column {
    Column { name, scope, shape }
}

/// The table with this many rows, in one file.
pub(super) fn table(rows: u64) -> Table {
    let schema = schema();
    let make = {
        let schema = Arc::clone(&schema);
        move || -> Batches { Box::new(Hits { visits: Visits::new(rows), schema: Arc::clone(&schema) }) }
    };
    Table { name: TABLE, files: vec![FileSource { schema, rows: Box::new(make) }] }
}

fn schema() -> SchemaRef {
    let field = |column: &Column| Field::new(column.name, column.shape.data_type(), column.shape.nullable());
    Arc::new(Schema::new(COLUMNS.iter().map(field).collect::<Vec<_>>()))
}

/// Converts visits to batches.
struct Hits {
    visits: Visits,
    schema: SchemaRef,
}

impl Iterator for Hits {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let hits: Vec<_> = self.visits.by_ref().take(ROWS_PER_BATCH).collect();
        if hits.is_empty() {
            return None;
        }
        let arrays = COLUMNS.iter().map(|column| column.build(&hits)).collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays);
        Some(batch.map_err(|error| DataFusionError::ArrowError(Box::new(error), None)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::shapes::event_id;
    use super::*;

    #[test]
    fn column_names_are_distinct() {
        let names: HashSet<&str> = COLUMNS.iter().map(|column| column.name).collect();
        assert_eq!(names.len(), COLUMNS.len());
    }

    #[test]
    fn every_column_builds_the_type_it_declares() {
        let batches: Vec<RecordBatch> =
            (table(20_000).files[0].rows)().collect::<Result<_>>().expect("arrays match the schema");
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 20_000);
    }

    #[test]
    fn the_keys_that_the_point_queries_look_up_exist_by_default() {
        let queries = include_str!("../../queries/points/lookups.sql");
        assert!(queries.contains(&event_id(1_234_567).to_string()), "{}", event_id(1_234_567));
        assert!(queries.contains(&event_id(77_777).to_string()), "{}", event_id(77_777));
    }
}
